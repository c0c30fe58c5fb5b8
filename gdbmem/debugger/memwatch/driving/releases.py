"""Invisible breakpoints on the C library's calls that release memory, to charge each thread for its releases."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Optional

import gdb

from gdbmem.debugger.memwatch.driving.memory_syscalls import MemoryCall
from gdbmem.debugger.stopping.repeated_hits import RepeatedHits
from gdbmem.linux.memory.resident import ProcessMemory
from gdbmem.linux.memory.sharing import Sharing

_CALLS = ("munmap", "madvise", "mremap", "brk")


class _Release(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    def __init__(self, call: str, memory: ProcessMemory, sharing: Sharing) -> None:
        super().__init__(call, internal=True)
        self.silent = True
        self._call = call
        self._memory = memory
        self._sharing = sharing
        self._repeated = RepeatedHits()

    def stop(self) -> bool:
        with contextlib.suppress(gdb.error):
            call = MemoryCall(self._call, gdb.newest_frame(), self._memory)
            span = call.released_span()
            if span is not None and not self._repeated.is_repeated(call.stack, call.arguments):
                # The resident part can be read only before the call.
                self._sharing.released(gdb.selected_thread().ptid[1], self._memory.present_in(*span))
        return False


def is_alone() -> bool:
    """Return whether the process has one thread."""
    return len(gdb.selected_inferior().threads()) == 1


class Releases:
    """Reports releases to *sharing* from `watch` until the `with` ends."""

    def __init__(self, pid: Optional[int], sharing: Sharing) -> None:
        self._memory = ProcessMemory(pid) if pid is not None else None
        self._sharing = sharing
        self._breakpoints: list[_Release] = []
        self._watches = False

    def __enter__(self) -> Releases:
        return self

    def watch(self) -> None:
        """Start, if the process has several threads; a single thread makes all changes."""
        if self._watches or self._memory is None or len(gdb.selected_inferior().threads()) < 2:
            return
        self._watches = True
        for call in _CALLS:
            with contextlib.suppress(gdb.error):
                gdb.decode_line(call)  # raises if the C library has no such symbol
                self._breakpoints.append(_Release(call, self._memory, self._sharing))
        self._sharing.sees_releases = bool(self._breakpoints)

    @property
    def numbers(self) -> set[int]:
        """The numbers of the breakpoints."""
        return {one.number for one in self._breakpoints if one.is_valid()}

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        for one in self._breakpoints:
            if one.is_valid():
                one.delete()
        if self._memory is not None:
            self._memory.close()
