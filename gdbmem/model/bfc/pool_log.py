"""Pools of memory as a log describes them: dumps of allocators, and refusals that came without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.bfc.pools import Allocator
from gdbmem.records import dataclass


@dataclass(frozen=True)
class TorchAccount:
    """The amounts in PyTorch's sentence about a refused request, in bytes; None: it does not say."""

    asked: int
    allocated: int
    unused: Optional[int]  # held by PyTorch, and in no tensor
    capacity: Optional[int] = None  # of the device
    free: Optional[int] = None
    allowed: Optional[int] = None  # by a limit of the process's own
    own: Optional[int] = None  # of this process in all
    private: Optional[int] = None  # of what is allocated
    processes: Sequence[
        tuple[int, int]
    ] = ()  # others, by their numbers; in a container this one may be among them

    @property
    def held(self) -> int:
        """The memory that PyTorch has from the device."""
        return self.allocated + (self.unused or 0)

    @property
    def is_limited(self) -> bool:
        """Whether the process's own limit refused: PyTorch's memory and the request exceed it."""
        used = (
            self.held if self.capacity is not None else max(self.held, self.own or 0)
        )  # Metal's limit is for all
        return self.allowed is not None and used + self.asked > self.allowed * 0.99


@dataclass(frozen=True)
class Refusal:
    """A device, or a framework, that gave no memory; nothing is known of a pool."""

    line: int  # from 1
    text: str  # of the log, a stranger's
    size_bytes: Optional[int] = None  # that were asked for
    times: int = 1  # this often in a row
    by: str = "the device"  # who refused
    backs_off: bool = False  # asked again, each time for less
    account: Optional[TorchAccount] = None


@dataclass(frozen=True)
class PoolLog:
    """The findings in a file, in its order."""

    source: str
    allocators: Sequence[Allocator]
    refusals: Sequence[Refusal]
    notices: Sequence[Notice]
