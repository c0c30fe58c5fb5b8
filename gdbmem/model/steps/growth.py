"""Requests for memory from the kernel: calls that changed the address space, by path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.model.profiles.calltree import Frame


class GrowthPath(NamedTuple):
    """The calls of one kind made along one path by one thread."""

    call: str  # brk, mmap, munmap, mremap, madvise, shmat
    thread: int  # gdb's number
    calls: int
    mapped_bytes: int  # by which the address space changed
    resident_bytes: int  # by which its thread changed the resident set until the thread's next request
    frames: Sequence[Frame]  # from the call outward to main
    resident_is_exact: bool = True  # False: divided among threads, or between what was seen and what was not
    unsettled: int = 0  # calls whose effect is unknown: the process had ended

    @property
    def is_unknown(self) -> bool:
        """True if nothing is known of what its calls did."""
        return self.unsettled == self.calls > 0


class KernelRequests(NamedTuple):
    """The recorded requests."""

    paths: Sequence[GrowthPath]  # largest change of the address space first
    events: int
    left_out: int  # smaller than asked for
    seconds: float
    cost_seconds: float  # what gdb spent on it
    mapped_bytes: int  # by which the process changed from the first request to the last
    resident_bytes: int
    unseen_mapped_bytes: int = 0  # by no request that was seen
    unseen_resident_bytes: int = 0  # not after a request of the thread that did it
    unsettled: int = 0  # requests whose effect is unknown: the process had ended

    @property
    def is_exact(self) -> bool:
        """True if no row was divided."""
        return all(path.resident_is_exact for path in self.paths)
