"""Python's memory as its own allocator has it: arenas, and objects by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from gdbmem.errors import Notice


@dataclass(frozen=True)
class TypeUse:
    """Objects of one type, in the blocks that hold them."""

    type: str
    count: int
    bytes: int  # of blocks: an object's own, not what it refers to


@dataclass(frozen=True)
class PythonObjects:
    """The live objects of a process by type, and what else is allocated beside them."""

    program: str
    pid: Optional[int]
    types: Sequence[TypeUse]  # the largest first
    unused: TypeUse  # dead objects that the interpreter keeps to use them again
    others: (
        TypeUse  # blocks of Python's allocator that are no objects: tables of dicts, items of lists, buffers
    )
    uncounted_blocks: int = 0  # in pools that contradict themselves
    large: bool = True  # objects in malloc's blocks are counted, too
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()

    @property
    def count(self) -> int:
        return sum(one.count for one in self.types)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.types)


@dataclass(frozen=True)
class BlockClass:
    """Pools of blocks of one size."""

    block_bytes: int
    pools: int
    live_blocks: int
    capacity_blocks: int


@dataclass(frozen=True)
class FillClass:
    """Arenas of which no more than a share is live."""

    most: float  # 0 to 1
    arenas: int
    bytes: int
    live_bytes: int
    live_blocks: int


@dataclass(frozen=True)
class ArenaUse:
    """The arenas of Python's allocator: what is live in them, what is free, and what keeps them."""

    program: str
    pid: Optional[int]
    arenas: int
    arena_bytes: int  # of one
    pool_bytes: int  # of one
    interpreters: int
    live_blocks: int
    live_bytes: int
    header_bytes: int  # and rests of pools that are too small for a block
    free_in_pools_bytes: int  # in pools with live blocks
    free_pools_bytes: int  # in arenas with live blocks
    resident: Mapping[str, int] = field(default_factory=dict)  # of each of these
    classes: Sequence[BlockClass] = ()
    fill: Sequence[FillClass] = ()  # each without those of the ones before
    keepers: Sequence[TypeUse] = ()  # what is live in the emptiest arenas
    keeper_share: float = 0.0  # arenas no fuller than this are among those
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()

    @property
    def bytes(self) -> int:
        return self.arenas * self.arena_bytes

    def check(self) -> None:
        """Raise ValueError unless the parts add up to the arenas."""
        parts = self.live_bytes + self.header_bytes + self.free_in_pools_bytes + self.free_pools_bytes
        if parts != self.bytes:
            raise ValueError(f"the parts of the arenas are {parts} bytes, the arenas {self.bytes}")


@dataclass(frozen=True)
class WorkerCopies:
    """One forked process."""

    pid: int
    copied_bytes: int  # pages of its own in place of its parent's
    shared_bytes: int  # that it still shares


@dataclass(frozen=True)
class CopiedType:
    """Objects of one type on copied pages."""

    type: str
    copied_bytes: int  # of these objects, in all copies
    pages: int  # copies of pages with such an object


@dataclass(frozen=True)
class PythonCopies:
    """Pages that forked workers have copied of their parent's memory."""

    program: str
    pid: int
    workers: Sequence[WorkerCopies]
    copied_bytes: int  # by all of them
    in_arenas_bytes: int  # of that in Python's arenas
    types: Sequence[CopiedType]  # the largest first
    others_bytes: int  # on copied pages of arenas and no live object: tables, free blocks, headers
    places: Mapping[str, int]  # of copied_bytes: arenas, malloc, data, other
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()
