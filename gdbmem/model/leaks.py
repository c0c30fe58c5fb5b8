"""The result of a leak search: records of blocks with the same path and the same state, and the sums."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.model.calltree import LOST, Frame

# What a search has found of a block: no pointer to it, only chains of these with one to a block's middle, or others.
NO_POINTER, INTERIOR_POINTER, POINTER = 0, 1, 2


class LeakRecord(NamedTuple):
    """Blocks of one call path and one kind; their bytes are each record's own, nothing counts twice."""

    number: int  # as the tool gave it, until its next leak search
    kind: str  # one of LEAK_KINDS
    bytes: int
    blocks: int
    frames: Sequence[Frame]  # from the allocation outward
    indirect_bytes: int = 0  # that only these blocks point to: in other records
    delta_bytes: Optional[int] = None  # since the search before; None: not asked
    delta_blocks: Optional[int] = None


class Sum(NamedTuple):
    """Bytes and blocks of one kind in the whole heap."""

    bytes: int
    blocks: int


class LeakSearch(NamedTuple):
    """One leak search."""

    records: Sequence[LeakRecord]
    sums: Mapping[str, Sum]  # by kind, of all LEAK_KINDS; {}: the search was cut
    since: str = ""  # what the deltas are against, in words; "": there are none
    command: str = ""
    notices: Sequence[Notice] = ()

    def check(self) -> None:
        """Raise ValueError unless the records of each kind that is listed add up to its sum."""
        for kind in LOST:
            found = sum(record.bytes for record in self.records if record.kind == kind)
            if found and kind in self.sums and found != self.sums[kind].bytes:
                raise ValueError(f"the records of {kind} hold {found} bytes, not {self.sums[kind].bytes}")


class Block(NamedTuple):
    """A block of the heap; *indirect* ones are only pointed to by the one before them with less depth."""

    address: int
    bytes: int
    depth: int = 0  # 0: of the record that was asked for; 1: it keeps this one, which another record counts
    record: Optional[int] = None  # that counts it, where *depth* is not 0


class Holder(NamedTuple):
    """A place that points into a block."""

    kind: str  # global, local, register, block (of the heap), other
    address: Optional[int]  # of the pointer; None: a register
    inside_bytes: int  # how far behind the block's start it points
    text: str  # what to call the place: a variable, a register, memcheck's description
    thread: Optional[int] = None
    block: Optional[Block] = None  # of the heap, that the pointer stands in
    frames: Sequence[Frame] = ()  # where that was allocated


class BlockHolders(NamedTuple):
    """The pointers that keep one block alive."""

    block: Block
    frames: Sequence[Frame]  # where it was allocated
    holders: Sequence[Holder]  # each place that points into it
    # From one of those to a place outside of the heap, which ends it; (): there is none.
    chain: Sequence[Holder]
    is_whole: bool = True  # False: the search ended before all was examined
