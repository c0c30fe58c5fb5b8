"""Who asked the kernel for memory: calls that changed the address space, by path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.model.calltree import Frame


class GrowthPath(NamedTuple):
    """The calls of one kind made along one path by one thread."""

    call: str  # brk, mmap, munmap, mremap, madvise, shmat
    thread: int  # gdb's number
    calls: int
    mapped_bytes: int  # by which the address space changed
    resident_bytes: int  # by which the resident set changed until the next event
    frames: Sequence[Frame]  # from the call outward to main


class Growth(NamedTuple):
    """What was recorded."""

    paths: Sequence[GrowthPath]  # largest change of the address space first
    events: int
    left_out: int  # smaller than asked for
    seconds: float
    cost_seconds: float  # what gdb spent on it
    mapped_bytes: int
    resident_bytes: int
