"""A motionless copy of a live process, made by ptrace: the process waits only while it is made.

A stopped thread is made to call clone, with no signal at the copy's end; the copy never runs an instruction
of its own, is killed after use, and is collected by the process itself (an injected wait4), so that it sees
neither SIGCHLD nor a zombie.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.maps import Mapping
from gdbmem.linux.process import process_facts, thread_ids
from gdbmem.linux.ptrace import (
    AARCH64,
    Freeze,
    HeldThread,
    Machine,
    get_registers,
    machine,
    ptrace,
    set_registers,
)
from gdbmem.model.memory import Memory, MemoryUnreadable

_SINGLESTEP, _SETOPTIONS, _GETEVENTMSG = 9, 0x4200, 0x4201
_TRACE_CLONE, _EXIT_KILL = 0x8, 0x100000
_CLONE_EVENT = 3
_WALL, _NO_HANG = 0x40000000, 1
_NEGATIVE = 1 << 63
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class _Calls:
    """How one architecture makes a system call."""

    instruction: bytes
    clone: int
    wait4: int
    arguments: tuple[int, ...]  # register words


_X86_64_CALLS = _Calls(b"\x0f\x05", 56, 61, (14, 13, 12, 7))
_AARCH64_CALLS = _Calls(b"\x01\x00\x00\xd4", 220, 260, (0, 1, 2, 3))


class Copy:
    """A stopped copy of the process that *freeze* holds; kill() ends it."""

    def __init__(self, freeze: Freeze, pid: int, thread: HeldThread) -> None:
        self.parent = freeze.pid
        self.pid = pid
        self._thread = thread.tid

    def kill(self) -> None:
        """End the copy, and have the process collect it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, _WALL)
        if not Path(f"/proc/{self.pid}").exists() or self.parent not in _living(self.parent):
            return
        with contextlib.suppress(TargetError, OSError):
            self._collect()

    def _collect(self) -> None:
        # One thread is enough: any thread of the parent may wait for the parent's child.
        freeze = Freeze(self.parent, only=self._thread)
        with freeze:
            thread = next(iter(freeze.threads.values()))
            calls, known = _calls()
            site = _find_instruction(self.parent, calls)
            if site:
                _inject(thread, known, calls, site, calls.wait4, (self.pid, 0, _WALL | _NO_HANG, 0))


def _living(pid: int) -> set[int]:
    return {pid} if thread_ids(pid) else set()


def make_copy(freeze: Freeze, memory: Memory, mappings: list[Mapping]) -> Copy:
    """Return a copy of the process that *freeze* holds; raises TargetError where none can be made."""
    calls, known = _calls()
    _check_headroom(freeze.pid)
    site = _find_instruction(freeze.pid, calls, memory, mappings)
    thread = _suitable(freeze)
    if not site or thread is None:
        raise _refused(freeze.pid, "no thread of it can make a system call now")
    ptrace(_SETOPTIONS, thread.tid, 0, _TRACE_CLONE)
    try:
        pid = _clone(thread, known, calls, site)
    finally:
        with contextlib.suppress(OSError):
            ptrace(_SETOPTIONS, thread.tid, 0, 0)
    # The copy is ours already: it stops by itself before its first instruction.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, _WALL)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        ptrace(_SETOPTIONS, pid, 0, _EXIT_KILL)
    return Copy(freeze, pid, thread)


def _calls() -> tuple[_Calls, Machine]:
    known = machine()
    if known is None:
        raise TargetError(
            f"no copy of a process can be made on this architecture ({os.uname().machine})",
            slug="copy-unsupported",
            hint="leave out --fork",
        )
    return (_AARCH64_CALLS if known is AARCH64 else _X86_64_CALLS), known


def _suitable(freeze: Freeze) -> Optional[HeldThread]:
    """Return a thread that is stopped plainly, not on its way to a signal handler."""
    plain = [held for held in freeze.threads.values() if not held.signal and held.registers]
    return min(plain, key=lambda held: (held.tid != freeze.pid, held.tid), default=None)


def _find_instruction(
    pid: int, calls: _Calls, memory: Optional[Memory] = None, mappings: Optional[list[Mapping]] = None
) -> int:
    """Return the address of a system call instruction in the process's libraries; 0 where there is none."""
    if memory is None or mappings is None:
        from gdbmem.linux.maps import parse_smaps
        from gdbmem.linux.procmemory import ProcMemory

        with ProcMemory(pid) as opened:
            return _search(opened, parse_smaps(Path(f"/proc/{pid}/maps").read_bytes()), calls)
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


def _clone(thread: HeldThread, known: Machine, calls: _Calls, site: int) -> int:
    result = _inject(thread, known, calls, site, calls.clone, (0, 0, 0, 0))
    if result >= _NEGATIVE or result == 0:
        raise _refused(thread.tid, f"the kernel said: {os.strerror((1 << 64) - result)}")
    return result


def _inject(
    thread: HeldThread, known: Machine, calls: _Calls, site: int, number: int, arguments: tuple[int, ...]
) -> int:
    """Have *thread* make one system call at *site*, put its registers back, and return the result.

    For clone the copy's pid is the one in our own process namespace, from the event.
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
    return child or result


def _step_over(thread: HeldThread) -> int:
    """Let *thread* make the system call that it stands before; return the pid of a copy that it made, else 0."""
    child = 0
    while True:
        ptrace(_SINGLESTEP, thread.tid)
        _, status = os.waitpid(thread.tid, _WALL)
        if not os.WIFSTOPPED(status):
            raise _refused(thread.tid, "it ended meanwhile")
        event = status >> 16
        if event == _CLONE_EVENT:
            child = _event_message(thread.tid)
        elif event == 0 and os.WSTOPSIG(status) == signal.SIGTRAP:
            return child
        elif event == 0:
            thread.signal = os.WSTOPSIG(status)  # it is delivered when the thread goes on


def _event_message(tid: int) -> int:
    value = ctypes.c_ulong()
    ptrace(_GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value


def _check_headroom(pid: int) -> None:
    """Raise TargetError where the copy's pages could take the process's cgroup over its limit.

    While the copy lives, each page that the process writes is duplicated.
    """
    try:
        path = next(
            line.split(":", 2)[2].strip()
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
        folder = Path(f"/sys/fs/cgroup{path}")
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        anonymous = process_facts(pid).anonymous_bytes
    except (OSError, StopIteration, ValueError):
        return
    if limit != "max" and int(limit) - used < min(anonymous, int(limit) // 10):
        raise _refused(pid, "its control group has too little memory left for the pages it writes meanwhile")


def _refused(pid: int, why: str) -> TargetError:
    return TargetError(
        f"no copy of process {pid} can be made: {why}", slug="copy-refused", hint="leave out --fork"
    )
