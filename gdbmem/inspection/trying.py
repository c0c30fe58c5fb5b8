"""Calling an allocator's own functions in a copy of a process: what they return there is what they would return in it.

The copy is made at a moment when no thread is inside an allocator: threads that are run on while the others wait. If a
function does not return nevertheless, further copies are made.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Callable, NamedTuple, Optional, Protocol

from gdbmem.allocators.own_functions import (
    GLIBC,
    OwnFunction,
    find_functions,
    handlers_after_fork,
    why_uncallable,
)
from gdbmem.errors import Notice, TargetError
from gdbmem.linux.elf.objects import Image, images
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.copying import Awaiting, Copy, KeeperEndedError
from gdbmem.linux.holding.ptrace import Freeze, HeldThread
from gdbmem.linux.holding.running_copy import CallFailed, RunningCopy, can_run, resident_anonymous
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.ledger import FREE_PAGES, PYMALLOC, Ledger, Tried
from gdbmem.model.memory import Memory, MemoryUnreadable

PURGE, TRIM, ALL = "purge", "trim", "all"
_COPIES = 3  # for one function
_WORDS = 128  # above a thread's stack pointer, that may return into an allocator
_RUN_SECONDS, _LONGEST_RUN_SECONDS = 0.0002, 0.002
_ROUNDS, _ROUNDS_OF_WAITERS = 60, 10
_MOST_SECONDS = 0.2  # for which the process stands still until no thread is inside
_NO_CALL = 1 << 16  # no system call has a number so high
# mmap mprotect munmap brk sched_yield mremap madvise nanosleep prctl futex clock_nanosleep: an allocator makes no
# others while it holds a lock.
_OF_ALLOCATORS = frozenset((9, 10, 11, 12, 24, 25, 28, 35, 157, 202, 230))


_KILLED = "the copy was killed"  # as for lack of memory
_ELSEWHERE = "functions are called in a copy on x86-64 only"


class Returned(NamedTuple):
    """The outcome of one step of a function."""

    bytes: int
    status: int


class Outcome(NamedTuple):
    """The outcomes of one function's steps, in a copy."""

    returned: Sequence[Returned]
    why_not: str = ""


class _Work(NamedTuple):
    functions: Sequence[OwnFunction]
    mappings: Sequence[Mapping]
    libc: str


class Serving(Protocol):
    """A process that has a copy, and makes it work."""

    def serve(self, request: object) -> object:
        """Pass on *request*; return the answer. Raises KeeperEndedError, or the error that is the answer."""


class Trying:
    """The functions of one process, and their outcomes so far."""

    def __init__(self, what: str) -> None:
        """Try *what*: PURGE, TRIM (glibc's) or ALL."""
        self._what = what
        self.functions: list[OwnFunction] = []
        self._mappings: Sequence[Mapping] = ()
        self._libc = ""
        self._outcomes: dict[int, Outcome] = {}  # by the function's address
        self._copies: Counter[int] = Counter()
        self._is_refused = False  # no further copy can be had

    def prepare(
        self, memory: Memory, mappings: Sequence[Mapping], files: TargetFiles, libc: Optional[Image]
    ) -> None:
        """Find the functions, before the process is stopped."""
        if not can_run():
            return
        self._mappings, self._libc = mappings, libc.name if libc is not None else ""
        found = find_functions(images(memory, mappings), mappings, files.open, libc)
        self.functions = [
            one for one in found if self._what in (ALL, TRIM if one.allocator == GLIBC else PURGE)
        ]

    def settle(self, freeze: Freeze, memory: Memory) -> Collection[int]:
        """Let threads run on that are inside an allocator, until none is; return those that remain so, waiting."""
        code = [area for one in self.functions for area in one.code]
        began, pause = time.monotonic(), _RUN_SECONDS
        stood: dict[int, tuple[int, int, int]] = {}
        inside = _inside(freeze, memory, code)
        for _ in range(_ROUNDS):
            moving = [tid for tid in inside if not _is_waiter(freeze.threads[tid], stood)]
            if not moving or time.monotonic() - began > _MOST_SECONDS:
                break
            freeze.run_on(moving, pause)
            pause = min(pause * 1.2, _LONGEST_RUN_SECONDS)
            inside = _inside(freeze, memory, code)
        return inside

    @property
    def unanswered(self) -> bool:
        """True if another copy is worth it."""
        return bool(self._left())

    def ask(self, keeper: Serving) -> None:
        """Have *keeper*'s copy call the functions that have not returned yet."""
        left = self._left()
        if not left:
            return
        try:
            found = keeper.serve(_Work(left, self._mappings, self._libc))
        except KeeperEndedError:
            found = [Outcome((), "the process that had the copy was killed")]
        except TargetError as error:
            self.refuse(error.message)
            return
        assert isinstance(found, list)
        for function, outcome in zip(left, found):
            self._copies[function.address] += 1
            self._outcomes[function.address] = outcome

    def refuse(self, why: str) -> None:
        """Note that no further copy can be had."""
        for function in self._left():
            self._outcomes.setdefault(function.address, Outcome((), why))
        self._is_refused = True

    def _left(self) -> list[OwnFunction]:
        def is_open(address: int) -> bool:
            outcome = self._outcomes.get(address)
            return self._copies[address] < _COPIES and (outcome is None or bool(outcome.why_not))

        return [one for one in self.functions if is_open(one.address)] if not self._is_refused else []

    def results(self, ledger: Ledger) -> list[Tried]:
        """Return the outcomes beside what *ledger* has read."""
        rows = [row for function in self.functions for row in self._rows(function, ledger)]
        if not can_run() and ledger.heap is not None and ledger.heap.sizes and self._what != PURGE:
            rows.append(Tried(GLIBC, "", "", why_not=_ELSEWHERE))
        return [*rows, *_without_function(ledger, rows, self._what)]

    def _rows(self, function: OwnFunction, ledger: Ledger) -> Iterator[Tried]:
        if function.allocator == GLIBC and (ledger.heap is None or not ledger.heap.sizes):
            return
        outcome = self._outcomes.get(function.address, Outcome((), "no copy was made"))
        copies = self._copies[function.address]
        for number, step in enumerate(function.steps):
            row = Tried(
                function.allocator, function.file, step.words, returns_all=step.returns_all, copies=copies
            )
            if step.returns_all:
                row = row._replace(read_bytes=_as_read(function, ledger))
            if number >= len(outcome.returned):
                if not step.returns_all:
                    continue  # the complete call is the one to name
                yield row._replace(why_not=outcome.why_not)
                return
            returned = outcome.returned[number]
            if step.fails_by and returned.status & 0xFFFFFFFF:
                yield row._replace(why_not=f"it failed with {step.fails_by} {returned.status & 0xFFFFFFFF}")
            else:
                yield row._replace(returned_bytes=returned.bytes)


def _inside(freeze: Freeze, memory: Memory, code: Sequence[tuple[int, int]]) -> list[int]:
    """Return the threads whose instruction, or a word near the end of whose stack, lies in *code*."""

    def is_code(word: int) -> bool:
        return any(start <= word < end for start, end in code)

    found = []
    for held in freeze.threads.values():
        if 0 <= held.system_call < _NO_CALL and held.system_call not in _OF_ALLOCATORS:
            continue  # an address there is left over from an earlier call
        words = [held.program_counter]
        with contextlib.suppress(MemoryUnreadable, struct.error):
            words += struct.unpack(f"<{_WORDS}Q", memory.read(held.stack_pointer, 8 * _WORDS))
        if any(map(is_code, words)):
            found.append(held.tid)
    return found


def _is_waiter(held: HeldThread, stood: dict[int, tuple[int, int, int]]) -> bool:
    """Return whether the thread has stood in the same system call for some rounds: it holds no lock, but waits."""
    place, pointer, rounds = stood.get(held.tid, (0, 0, 0))
    is_same = (place, pointer) == (
        held.program_counter,
        held.stack_pointer,
    ) and 0 <= held.system_call < _NO_CALL
    rounds = rounds + 1 if is_same else 0
    stood[held.tid] = held.program_counter, held.stack_pointer, rounds
    return rounds >= _ROUNDS_OF_WAITERS


def work_in_copy(copy: Copy, request: object, asker: Awaiting) -> list[Outcome]:
    """Make *copy* call the functions of *request* until one fails; return the outcomes. *asker* waits for them."""
    assert isinstance(request, _Work)
    if copy.sites is None:
        raise TargetError(
            "no function can be called in a copy here", slug="try-refused", hint="leave out --try"
        )
    try:
        running = RunningCopy(copy, copy.sites, lambda: asker.has_gone(0))
    except OSError:
        return [Outcome((), _KILLED)]
    outcomes: list[Outcome] = []
    try:
        for function in request.functions:
            outcomes.append(_outcome(running, function, request))
            if outcomes[-1].why_not:
                break  # it may hold locks, or have changed lists in part
    finally:
        running.close()
    return outcomes


def _outcome(running: RunningCopy, function: OwnFunction, work: _Work) -> Outcome:
    returned: list[Returned] = []
    try:
        if function.allocator != GLIBC:  # whose own functions would all look like handlers
            for handler in handlers_after_fork(running.memory, work.mappings, function, work.libc):
                running.call(handler)
        if function.first:
            running.call(function.address, function.first)
        before = resident_anonymous(running.pid)
        for step in function.steps:
            status = running.call(function.address, step.arguments)
            after = resident_anonymous(running.pid)
            returned.append(Returned(before - after, status))
    except CallFailed as error:
        return Outcome(returned, str(error))
    except OSError:
        return Outcome(returned, _KILLED)
    return Outcome(returned)


def _as_read(function: OwnFunction, ledger: Ledger) -> Optional[int]:
    """Return what *function* returns according to the allocator's data; None if that is unknown."""
    if function.allocator == GLIBC:
        return ledger.releasable_bytes
    if function.allocator not in ("jemalloc", "tcmalloc"):
        return None
    for malloc in ledger.mallocs:
        if (malloc.allocator, malloc.file) == (function.allocator, function.file):
            return ledger.total_of(malloc.category, FREE_PAGES + malloc.suffix)
    return None


def _without_function(ledger: Ledger, rows: Sequence[Tried], what: str) -> Iterator[Tried]:
    """Yield a row for each allocator of *ledger* in which nothing can be called."""
    if what == TRIM:
        return
    known = {(row.allocator, row.file) for row in rows}
    for malloc in ledger.mallocs:
        if (malloc.allocator, malloc.file) not in known:
            is_known = can_run() or malloc.allocator == "musl"
            why = why_uncallable(malloc.allocator) if is_known else _ELSEWHERE
            yield Tried(malloc.allocator, malloc.file, "", why_not=why)
    if ledger.total(PYMALLOC):
        why = "it has no function that returns memory: an arena is returned when its last block is freed"
        yield Tried("pymalloc", "", "", why_not=why)


def nothing_to_try(rows: Sequence[Tried]) -> list[Notice]:
    """Return the notice on a process in which no allocator was found whose function could be called; else none."""
    if rows:
        return []
    text = "nothing was tried: no allocator with a function that returns memory was found in this process"
    return [Notice("nothing-to-try", text)]


MakeKeeper = Callable[[], AbstractContextManager[Serving]]


def try_again(trying: Trying, make: MakeKeeper) -> None:
    """Make further copies by *make* while functions of *trying* have not returned."""
    while trying.unanswered:
        try:
            with make() as keeper:
                trying.ask(keeper)
        except TargetError as error:
            trying.refuse(error.message)
