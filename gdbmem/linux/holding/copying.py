"""A motionless copy of a live process, made by ptrace: the process waits only while it is made.

A stopped thread is made to call clone, with no signal at the copy's end; the copy never runs an instruction
of its own, is killed after use, and is collected by the process itself (an injected wait4), so that it sees
neither SIGCHLD nor a zombie. Seccomp filters that could end the process for these calls are suspended while
they are made, and where they can't be no call is made. What else speaks against a copy: copy_obstacles.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.holding.ptrace import (
    AARCH64,
    Freeze,
    HeldThread,
    PtraceMachine,
    get_registers,
    machine,
    ptrace,
    set_registers,
)
from gdbmem.linux.holding.seccomp import SUSPEND, may_end_for_a_call
from gdbmem.linux.maps import Mapping, parse_smaps
from gdbmem.linux.process import thread_ids
from gdbmem.linux.process_memory import ProcMemory
from gdbmem.model.memory import Memory, MemoryUnreadable

_SINGLESTEP, _SETOPTIONS, _GETEVENTMSG = 9, 0x4200, 0x4201
_TRACE_CLONE, _EXIT_KILL = 0x8, 0x100000
_CLONE_EVENT = 3
_WALL, _NO_HANG = 0x40000000, 1
_NEGATIVE = 1 << 63
_WORD = (1 << 64) - 1
_PATIENCE_SECONDS, _PAUSE_SECONDS = 30.0, 0.01  # stopping one thread of a busy machine may take 5 s in vain
_TRIES = 8  # threads of which one is to make a call


@dataclass(frozen=True)
class _Calls:
    """The system call convention of one architecture."""

    instruction: bytes
    clone: int
    wait4: int
    arguments: tuple[int, ...]  # register words


_X86_64_CALLS = _Calls(b"\x0f\x05", 56, 61, (14, 13, 12, 7))
_AARCH64_CALLS = _Calls(b"\x01\x00\x00\xd4", 220, 260, (0, 1, 2, 3))


class Copy:
    """A stopped copy of the process that *freeze* holds; kill() ends it."""

    def __init__(self, freeze: Freeze, pid: int, inner: int, thread: HeldThread) -> None:
        self.parent = freeze.pid
        self.pid = pid
        self._inner = inner  # its pid as the process itself sees it: that may live in another namespace
        self._thread = thread.tid

    def kill(self) -> None:
        """End the copy, and have the process collect it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            # While we have not seen its end, but a stop before that, its parent can't collect it.
            while os.WIFSTOPPED(os.waitpid(self.pid, _WALL)[1]):
                pass
        if not Path(f"/proc/{self.pid}").exists():
            return
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._is_collected() and thread_ids(self.parent) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)  # another gdbmem holds it

    def _is_collected(self) -> bool:
        # One thread is enough: any thread of the parent may wait for the parent's child.
        living = thread_ids(self.parent)
        for tid in sorted(living, key=lambda tid: tid != self._thread)[:_TRIES]:
            with contextlib.suppress(TargetError, OSError):
                if self._collected_by(tid):
                    return True
        return not Path(f"/proc/{self.pid}").exists()

    def _collected_by(self, tid: int) -> bool:
        calls, known = _calls()
        with ProcMemory(self.parent) as memory, Freeze(self.parent, only=tid) as freeze:
            thread = _suitable(freeze)
            site = _find_instruction(thread, known, calls, memory) if thread else 0
            if thread is None or not site:
                return False
            arguments = (self._inner, 0, _WALL | _NO_HANG, 0)
            with _call_prepared(freeze.pid, thread):
                result, _ = _inject(thread, known, calls, site, calls.wait4, arguments)
        return result == self._inner


def make_copy(freeze: Freeze, memory: Memory, mappings: list[Mapping]) -> Copy:
    """Return a copy of the process that *freeze* holds; raises TargetError where none can be made."""
    calls, known = _calls()
    thread = _suitable(freeze)
    site = _find_instruction(thread, known, calls, memory, mappings) if thread else 0
    if not site or thread is None:
        raise refused(freeze.pid, "no thread of it can make a system call now")
    with _call_prepared(freeze.pid, thread):
        inner, pid = _inject(thread, known, calls, site, calls.clone, (0, 0, 0, 0))
    if not pid:
        why = os.strerror(_WORD + 1 - inner) if inner >= _NEGATIVE else "it was not made"
        raise refused(freeze.pid, f"the kernel said: {why}")
    # The copy is ours already: it stops by itself before its first instruction.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, _WALL)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        ptrace(_SETOPTIONS, pid, 0, _EXIT_KILL)
    return Copy(freeze, pid, inner, thread)


@contextlib.contextmanager
def _call_prepared(pid: int, thread: HeldThread) -> Iterator[None]:
    """Have a copy that *thread* makes stop, and its filters let the calls pass; refuse where they might not."""
    options = _TRACE_CLONE
    if may_end_for_a_call(thread.tid):
        options |= SUSPEND
    try:
        ptrace(_SETOPTIONS, thread.tid, 0, options)
    except ProcessLookupError:
        raise refused(pid, "it ended meanwhile") from None
    except OSError:
        why = "its seccomp filter could end it for that, and only root can suspend a filter"
        raise refused(pid, why) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            ptrace(_SETOPTIONS, thread.tid, 0, 0)


def _calls() -> tuple[_Calls, PtraceMachine]:
    known = machine()
    if known is None:
        raise TargetError(
            f"no copy of a process can be made on this architecture ({os.uname().machine})",
            slug="copy-unsupported",
            hint="leave out --fork",
        )
    return (_AARCH64_CALLS if known is AARCH64 else _X86_64_CALLS), known


def _suitable(freeze: Freeze) -> Optional[HeldThread]:
    """Return a thread that is stopped plainly, not on its way to a signal handler; one without filters if any."""
    plain = [held for held in freeze.threads.values() if not held.signal and held.registers]
    plain.sort(key=lambda held: (held.tid != freeze.pid, held.tid))
    harmless = (held for held in plain[:_TRIES] if not may_end_for_a_call(held.tid))
    return next(harmless, plain[0] if plain else None)


def _find_instruction(
    thread: HeldThread,
    known: PtraceMachine,
    calls: _Calls,
    memory: Memory,
    mappings: Optional[list[Mapping]] = None,
) -> int:
    """Return the address of a system call instruction in the process; 0 where there is none.

    The one that *thread* has come from is best: its page is resident already.
    """
    before = thread.registers[known.program_counter] - len(calls.instruction)
    with contextlib.suppress(MemoryUnreadable):
        if memory.read(before, len(calls.instruction)) == calls.instruction:
            return before
    if mappings is None:
        mappings = parse_smaps(Path(f"/proc/{thread.tid}/maps").read_bytes())
    return _search(memory, mappings, calls)


def _search(memory: Memory, mappings: list[Mapping], calls: _Calls) -> int:
    # The vdso is small and has one in every process; then libc, then anything that is code.
    code = [m for m in mappings if "x" in m.permissions and m.name != "[vsyscall]"]
    for mapping in sorted(code, key=lambda m: (m.name != "[vdso]", "/libc" not in m.name, m.start)):
        for start in range(mapping.start, mapping.end, 1 << 20):
            try:
                data = memory.read(start, min(1 << 20, mapping.end - start))
            except MemoryUnreadable:
                break
            at = data.find(calls.instruction)
            while at >= 0 and len(calls.instruction) == 4 and at % 4:
                at = data.find(calls.instruction, at + 1)
            if at >= 0:
                return start + at
    return 0


def _inject(
    thread: HeldThread,
    known: PtraceMachine,
    calls: _Calls,
    site: int,
    number: int,
    arguments: tuple[int, ...],
) -> tuple[int, int]:
    """Have *thread* make one system call at *site*, and put its registers back.

    Return the call's result, and the pid of a copy that it made, as we see it (else 0).
    """
    saved = get_registers(thread.tid)
    values = list(saved)
    values[known.program_counter] = site
    for register, value in zip(calls.arguments, arguments):
        values[register] = value
    if known.original is not None:
        values[known.result] = number
        values[known.original] = _WORD  # no system call is to be restarted
    else:
        values[known.number] = number
    try:
        set_registers(thread.tid, values)
        child = _step_over(thread)
        result = get_registers(thread.tid)[known.result]
    finally:
        with contextlib.suppress(ProcessLookupError):
            set_registers(thread.tid, saved)
    return result, child


def _step_over(thread: HeldThread) -> int:
    """Let *thread* make the system call that it stands before; return the pid of a copy that it made, else 0."""
    child = 0
    while True:
        ptrace(_SINGLESTEP, thread.tid)
        _, status = os.waitpid(thread.tid, _WALL)
        if not os.WIFSTOPPED(status):
            raise refused(thread.tid, "it ended meanwhile")
        event = status >> 16
        if event == _CLONE_EVENT:
            child = _event_message(thread.tid)
        elif event == 0 and os.WSTOPSIG(status) == signal.SIGTRAP:
            return child
        elif event == 0 and os.WSTOPSIG(status) == signal.SIGSYS:
            return child  # a filter refused our call: the program made none
        elif event == 0:
            thread.signal = os.WSTOPSIG(status)  # it is delivered when the thread goes on


def _event_message(tid: int) -> int:
    value = ctypes.c_ulong()
    ptrace(_GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value


def refused(pid: int, why: str) -> TargetError:
    """Return the error for a process of which no copy can be made."""
    return TargetError(
        f"no copy of process {pid} can be made: {why}", slug="copy-refused", hint="leave out --fork"
    )
