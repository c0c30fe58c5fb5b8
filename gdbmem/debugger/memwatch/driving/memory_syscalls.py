"""Finds which of several threads' requests for memory was granted, by their sizes."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple, Optional

import gdb

from gdbmem.debugger.location import stack_pointer
from gdbmem.debugger.program import InternalBreakpoint, delete_breakpoints, numbers_of
from gdbmem.debugger.stopping.stops import RepeatedHits
from gdbmem.linux.memory.resident import PAGE_BYTES, ProcessMemory
from gdbmem.linux.memory.thread_shares import Sharing

Key = tuple[str, int, tuple[object, ...]]  # call, thread, addresses of the path and Python's frames in it

_FIXED = 0x10  # MAP_FIXED: may replace a mapping
_DISCARDING = (4, 9, 24)  # MADV_DONTNEED, MADV_REMOVE, MADV_DONTNEED_LOCKED
_MOST_TOGETHER = 10  # number of threads up to which every combination is tried
_ARGUMENTS = {
    "x86": ("rdi", "rsi", "rdx", "rcx"),
    "raw x86": ("rdi", "rsi", "rdx", "r10"),
    "aarch64": ("x0", "x1", "x2", "x3"),
}


class Granted(NamedTuple):
    """The requests that changed the address space, and the remainder that none of them explains."""

    parts: list[tuple[Key, int]]  # with the bytes of each
    unseen_bytes: int = 0


class PendingCall(NamedTuple):
    """A system call that a thread was about to make."""

    key: Key
    expected_bytes: Optional[int]  # expected change of the address space; None: unknown


class MemoryCall:
    """A system call that the selected thread is about to make, by its registers."""

    def __init__(self, call: str, frame: gdb.Frame, memory: ProcessMemory, *, raw: bool = False) -> None:
        self.call, self.frame, self.raw = call, frame, raw
        self.stack = stack_pointer(frame)
        self.arguments = _arguments(frame, raw=raw)
        self._memory = memory

    @functools.cached_property
    def _heap_end(self) -> Optional[int]:
        moves_heap = self.call == "brk" and self.arguments is not None and self.arguments[0] != 0
        return self._memory.end_of_heap() if moves_heap else None

    def expected_bytes(self) -> Optional[int]:
        """Return the change of the address space if the call succeeds; None: unknown."""
        if self.call == "madvise":
            return 0
        if self.call not in ("brk", "mmap", "munmap", "mremap") or self.arguments is None:
            return None
        first, second, third, fourth = self.arguments
        if self.call == "brk":
            end = self._heap_end
            return 0 if not first else None if end is None else _pages(first) - end
        if self.call == "munmap":
            return -_pages(second)
        if self.call == "mremap":
            return _pages(third) - _pages(second)
        return None if fourth & _FIXED else _pages(second)

    def released_span(self) -> Optional[tuple[int, int]]:
        """Return the addresses whose pages the call releases; None: none."""
        if self.arguments is None:
            return None
        call, (first, second, third, fourth) = self.call, self.arguments
        if (
            call == "munmap"
            or (call == "madvise" and third in _DISCARDING)
            or (call == "mmap" and fourth & _FIXED)
        ):
            return first, first + _pages(second)
        if call == "mremap" and _pages(third) < _pages(second):
            return first + _pages(third), first + _pages(second)
        end = self._heap_end
        return (_pages(first), end) if end is not None and _pages(first) < end else None


def _arguments(frame: gdb.Frame, *, raw: bool) -> Optional[tuple[int, int, int, int]]:
    arm = frame.architecture().name().startswith("aarch64")
    names = _ARGUMENTS["aarch64" if arm else "raw x86" if raw else "x86"]
    try:
        first, second, third, fourth = (int(frame.read_register(name)) & (1 << 64) - 1 for name in names)
    except (ValueError, gdb.error):
        return None
    return first, second, third, fourth


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


class Requests:
    """The pending requests, at most one of each thread."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingCall] = {}

    def add(self, thread: int, request: PendingCall) -> None:
        self._pending[thread] = request

    def remove(self, thread: int) -> None:
        """Remove the request of *thread*, which has not been made."""
        self._pending.pop(thread, None)

    def granted(self, change_bytes: int, thread: Optional[int]) -> Granted:
        """Remove and return the requests that changed the address space by *change_bytes*, each with its part.

        *thread* makes a new request, so its former one is completed; None: all are.
        """
        if thread is None:
            granted = self._take(self._find_last(change_bytes), change_bytes)
            return granted._replace(parts=granted.parts + self.abandoned())
        must = (thread,) if thread in self._pending else ()
        threads = self._find(change_bytes, must)
        # Otherwise it was refused, or something else changed it too: this one is certainly completed.
        return self._take(must if threads is None else threads, change_bytes)

    def abandoned(self) -> list[tuple[Key, int]]:
        """Remove all requests, as if they had no effect."""
        settled, unsettled = self.given_up()
        return [(key, 0) for key in [*settled, *unsettled]]

    def given_up(self) -> tuple[list[Key], list[Key]]:
        """Remove and return all requests: those that change no mapping (madvise), and those with unknown effect."""
        settled = [one.key for one in self._pending.values() if one.expected_bytes == 0]
        unsettled = [one.key for one in self._pending.values() if one.expected_bytes != 0]
        self._pending.clear()
        return settled, unsettled

    def _find_last(self, change_bytes: int) -> tuple[int, ...]:
        everybody = tuple(self._pending)
        if sum(one.expected_bytes or 0 for one in self._pending.values()) == change_bytes:
            return everybody
        found = self._find(change_bytes, ())
        return everybody if found is None else found

    def _find(self, change_bytes: int, must: tuple[int, ...]) -> Optional[tuple[int, ...]]:
        """Return the fewest threads whose requests add up to the change."""
        for threads in self._combinations(must):
            expected = [self._pending[one].expected_bytes for one in threads]
            if None not in expected and sum(filter(None, expected)) == change_bytes:
                return threads
        for threads in self._combinations(must):
            if sum(self._pending[one].expected_bytes is None for one in threads) == 1:
                return threads  # that one made the rest of the change
        return None

    def _combinations(self, must: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        others = [one for one in self._pending if one not in must]
        most = len(others) if len(others) <= _MOST_TOGETHER else 1
        for count in range(most + 1):
            for chosen in itertools.combinations(others, count):
                yield must + chosen

    def _take(self, threads: tuple[int, ...], change_bytes: int) -> Granted:
        """Divide *change_bytes* among *threads*: each gets its expected change, the one of unknown effect the rest."""
        taken = [self._pending.pop(one) for one in threads]
        unknown = [number for number, request in enumerate(taken) if request.expected_bytes is None]
        parts = [request.expected_bytes or 0 for request in taken]
        rest = change_bytes - sum(parts)
        if len(unknown) == 1:
            parts[unknown[0]] += rest
            rest = 0
        elif rest and not _are_possible(parts, change_bytes):
            parts, rest = [0] * len(parts), change_bytes  # refused
        elif rest and len(parts) == 1 and parts[0] < change_bytes <= 0:
            parts, rest = [change_bytes], 0  # a part of the range that it released was not mapped
        return Granted([(request.key, part) for request, part in zip(taken, parts)], rest)


def _are_possible(parts: list[int], change_bytes: int) -> bool:
    """Return whether a change of the address space can consist of granted requests for *parts*."""
    expected = sum(parts)
    return expected < 0 or expected <= change_bytes


# Invisible breakpoints on the C library's calls that release memory, to charge each thread for its releases.


_CALLS = ("munmap", "madvise", "mremap", "brk")


class _Release(InternalBreakpoint):
    def __init__(self, call: str, memory: ProcessMemory, sharing: Sharing) -> None:
        super().__init__(call)
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
        return numbers_of(self._breakpoints)

    def __exit__(self, *exception: object) -> None:
        delete_breakpoints(self._breakpoints)
        if self._memory is not None:
            self._memory.close()
