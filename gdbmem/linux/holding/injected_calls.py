"""Calls injected into a stopped thread: system calls, or a function of the process itself.

Its registers are restored afterwards, and it resumes as before: the kernel restarts a system call that the stop
interrupted. Signals that arrive meanwhile stay pending in the kernel.

On x86-64 the thread also resumes without this process (returning_thread.py), so this process may be killed at any time.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Callable, Optional, Protocol

from gdbmem.errors import TargetError
from gdbmem.linux.holding import returning_thread
from gdbmem.linux.holding.ptrace import (
    AARCH64,
    BLOCKED,
    X86_64,
    Freeze,
    HeldThread,
    get_registers,
    machine,
    ptrace,
    set_registers,
    set_signal_mask,
    signal_mask,
)
from gdbmem.linux.holding.seccomp import SUSPEND, has_shadow_stack, may_end_for_a_call
from gdbmem.linux.memory.maps import Mapping, mappings_of
from gdbmem.linux.memory.process_memory import WritableMemory
from gdbmem.linux.process.process import ended, soft_limit, status_fields
from gdbmem.model.memory import Memory, MemoryUnreadable

_SETOPTIONS, _SINGLESTEP = 0x4200, 9
_TRACE_SYSTEM_CALLS, _TRACE_CLONE = 1, 8
_SVC = b"\x01\x00\x00\xd4"  # aarch64's `svc #0`
_STATE_ROOM, _FRAMES_ROOM = 16 << 10, 4 << 10  # vector registers take 11 KiB at most
_FUNCTION_ROOM = 32 << 10
_TRIES, _MOST_LOOKED_AT = 8, 64  # number of threads that are tried for a call


class Caller(Protocol):
    """A stopped thread that makes calls."""

    calls: returning_thread.SystemCalls

    @property
    def tid(self) -> int: ...

    def system_call(self, number: int, *arguments: int) -> int:
        """Make one system call in it; return the result."""

    def copy(self) -> tuple[int, int]:
        """Make it clone its process without an exit signal; return clone's result, and the copy's pid here, or 0."""


def is_taking_signals(freeze: Freeze) -> bool:
    """Return whether each thread is about to handle a signal, so that none can make a call at this moment."""
    return all(held.signal for held in freeze.threads.values())


@contextlib.contextmanager
def calling(
    freeze: Freeze,
    mappings: Sequence[Mapping],
    sites: Optional[returning_thread.CallSites],
    refused: Callable[[int, str], TargetError],
    avoided: Collection[int] = (),
) -> Iterator[Caller]:
    """Yield a thread of those that *freeze* holds, which makes calls within the block.

    It is one of *avoided* only if no other can. If none can, or a seccomp filter could end the process for it, the
    error made by *refused* is raised.
    """
    thread, is_filtered = _suitable_thread(freeze, mappings, refused, avoided)
    options = _TRACE_SYSTEM_CALLS | _TRACE_CLONE | (SUSPEND if is_filtered else 0)
    try:
        ptrace(_SETOPTIONS, thread.tid, 0, options)
    except ProcessLookupError:
        raise refused(freeze.pid, "it ended meanwhile") from None
    except OSError:
        why = "its seccomp filter could kill it for that, and only root can suspend a filter"
        raise refused(freeze.pid, why) from None
    try:
        with WritableMemory(freeze.pid) as memory:
            if machine() is AARCH64:
                yield _SteppedThread(thread, _svc(thread, memory, mappings, freeze.pid, refused))
                return
            try:
                if (
                    sites is None
                    or memory.read(sites.restorer, len(returning_thread.RESTORER))
                    != returning_thread.RESTORER
                ):
                    why = "its C library lacks the code by which signal handlers return"
                    raise refused(freeze.pid, why)
                returning = returning_thread.ReturningThread(thread, memory, sites)
            except MemoryUnreadable:
                raise refused(freeze.pid, "its stack can't be written") from None
            with returning:
                yield returning
    finally:
        with contextlib.suppress(OSError):
            ptrace(_SETOPTIONS, thread.tid, 0, 0)


def _suitable_thread(
    freeze: Freeze,
    mappings: Sequence[Mapping],
    refused: Callable[[int, str], TargetError],
    avoided: Collection[int],
) -> tuple[HeldThread, bool]:
    """Return a thread that is not about to enter a signal handler, and whether its filters could end the process.

    One without such filters is preferred. No more threads than needed are looked at: the process stands still.
    """
    plain = [held for held in freeze.threads.values() if not held.signal and held.registers]
    if not plain:
        raise refused(freeze.pid, "its threads were about to handle signals at each attempt")
    plain.sort(key=lambda held: (held.tid in avoided, held.tid != freeze.pid, held.tid))
    roomy: Iterable[HeldThread] = plain
    if machine() is X86_64:
        roomy = (held for held in plain[:_MOST_LOOKED_AT] if _has_room(held, mappings))
    found: list[tuple[HeldThread, bool, dict[str, str]]] = []
    for held in islice(roomy, _TRIES):
        if found and held.tid in avoided and found[0][0].tid not in avoided:
            break
        status = status_fields(held.tid)
        found.append((held, may_end_for_a_call(status), status))
        if not found[-1][1]:
            break
    if not found:
        why = "none of its threads has room for its registers below its own stack pointer"
        raise refused(freeze.pid, why)
    thread, is_filtered, status = min(found, key=lambda one: one[1])
    if machine() is X86_64 and has_shadow_stack(status):
        why = "it has a shadow stack, so the kernel would refuse to restore its registers"
        raise refused(freeze.pid, why)
    return thread, is_filtered


def _has_room(thread: HeldThread, mappings: Sequence[Mapping]) -> bool:
    """Return whether *thread* is on its main stack, with room below.

    The memory below another stack (of a signal handler, of a coroutine) may belong to something else.
    """
    top = thread.stack_pointer
    lowest = top - returning_thread.RED_ZONE - _STATE_ROOM - _FRAMES_ROOM - _FUNCTION_ROOM
    for mapping in mappings:
        if mapping.start <= top < mapping.end and mapping.permissions[:2] == "rw":
            if mapping.name == "[stack]":  # it grows
                return mapping.end - lowest <= _stack_limit(thread.tid)
            return top < thread.thread_pointer < mapping.end and lowest >= mapping.start
    return False


def _stack_limit(tid: int) -> int:
    """Return the limit of the stack of the process's first thread; 0 if unknown."""
    with contextlib.suppress(OSError):
        limit = soft_limit(tid, "Max stack size")
        return 1 << 63 if limit is None else limit
    return 0


class _SteppedThread:
    """A stopped thread on aarch64 that makes single system calls; only we can restore its registers."""

    calls = returning_thread.SystemCalls(220, 260, 222, 226, 215)

    def __init__(self, thread: HeldThread, site: int) -> None:
        self._thread, self._site, self.tid = thread, site, thread.tid

    def system_call(self, number: int, *arguments: int) -> int:
        return self._call(number, *arguments)[0]

    def copy(self) -> tuple[int, int]:
        return self._call(self.calls.clone, 0, 0, 0, 0)

    def _call(self, number: int, *arguments: int) -> tuple[int, int]:
        saved, mask = get_registers(self.tid), signal_mask(self.tid)
        values = [*arguments, *saved[len(arguments) :]]
        values[AARCH64.program_counter], values[AARCH64.number] = self._site, number
        set_signal_mask(self.tid, mask | BLOCKED)
        try:
            set_registers(self.tid, values)
            # The second signal: a filter refused the call.
            child = returning_thread.run_until(self._thread, _SINGLESTEP, signal.SIGTRAP, signal.SIGSYS)
            result = get_registers(self.tid)[AARCH64.result]
        finally:
            with contextlib.suppress(ProcessLookupError):
                set_registers(self.tid, saved)
                set_signal_mask(self.tid, mask)
        return result, child


def _svc(
    thread: HeldThread,
    memory: Memory,
    mappings: Sequence[Mapping],
    pid: int,
    refused: Callable[[int, str], TargetError],
) -> int:
    """Return the address of a system call instruction on aarch64: the last one of *thread*, or one in the vdso."""
    with contextlib.suppress(MemoryUnreadable):
        if memory.read(thread.program_counter - 4, 4) == _SVC:
            return thread.program_counter - 4
    code = [m for m in mappings if "x" in m.permissions]
    for mapping in sorted(code, key=lambda m: (m.name != "[vdso]", "/libc" not in m.name, m.start)):
        with contextlib.suppress(MemoryUnreadable):
            data = memory.read(mapping.start, min(mapping.size_bytes, 16 << 20))
            found = next((at for at in range(0, len(data), 4) if data[at : at + 4] == _SVC), None)
            if found is not None:
                return mapping.start + found
    raise refused(pid, "no system call instruction was found in it")


def maps_of_thread(tid: int) -> list[Mapping]:
    """Return the mappings of the process of thread *tid*, without figures."""
    try:
        return mappings_of(tid)
    except OSError:
        raise ended(tid) from None
