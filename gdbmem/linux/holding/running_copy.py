"""A copy of a process that is made to call functions, on a stack of its own and behind a filter of system calls.

The copy is one thread with all signals blocked, so nothing of the program runs but the functions. They can reach
nothing outside of the copy: memory that it shares with the process is made inaccessible, and a seccomp filter ends a
call that does more than manage the copy's own memory. It ends with its tracer.

Source: Linux, Documentation/userspace-api/seccomp_filter.rst; the x86-64 psABI.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gdbmem.errors import TargetError
from gdbmem.linux.holding.copying import Copy
from gdbmem.linux.holding.ptrace import (
    BLOCKED,
    CONTINUE,
    get_registers,
    ptrace,
    set_registers,
    set_signal_mask,
)
from gdbmem.linux.holding.returning_thread import (
    FLAGS,
    ORIG_RAX,
    R8,
    R9,
    R10,
    RAX,
    RBP,
    RCX,
    RDI,
    RDX,
    RIP,
    RSI,
    RSP,
    WALL,
    CallSites,
)
from gdbmem.linux.holding.seccomp import SUSPEND, may_end_for_a_call
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.linux.memory.process_memory import WritableMemory
from gdbmem.linux.process.process import stat_of, status_fields
from gdbmem.linux.process.threads import parse_syscall
from gdbmem.model.memory import MemoryUnreadable

_SETOPTIONS, _SINGLESTEP, _GETSIGINFO = 0x4200, 9, 0x4202
_EXIT_KILL = 0x100000
_WORD = (1 << 64) - 1
_NEGATIVE = 1 << 63
_DIRECTION_FLAG = 0x400
_IN_CALL, _IN_SYSTEM_CALL = (RDI, RSI, RDX, RCX, R8, R9), (RDI, RSI, RDX, R10, R8, R9)
_MMAP, _MPROTECT, _PRCTL, _TGKILL, _SECCOMP = 9, 10, 157, 234, 317
_READ_WRITE, _PRIVATE_ANONYMOUS = 3, 0x22
_NO_NEW_PRIVILEGES, _SET_FILTER = 38, 1
_ROOM, _TEXTS = 256 << 10, 64 << 10  # bytes of our own memory in it, and of that for texts and values
_RETURN = 0x10  # an address that no process maps

# What a function may do: manage private memory (mmap, mprotect, munmap, brk, mremap, mincore, madvise), look at the
# time, the machine and itself, wait (nanosleep, futex, sched_yield), block signals, get random numbers. To open, look
# at or write files fails, as do fcntl, prctl and process_madvise; all else ends it.
_ALLOWED = (
    9, 10, 11, 12, 14, 24, 25, 27, 28, 35, 39, 96, 97, 98, 99, 186, 201, 202, 204, 228, 229, 230, 309, 318,
)  # fmt: skip
_FAIL = (1, 2, 4, 5, 6, 18, 20, 21, 72, 89, 157, 257, 262, 267, 269, 332, 439, 440)
_MADVISE = 28
_MMAP_DESCRIPTOR = 48  # where the kernel's data on a call have the low half of argument 4
_ADVICE_AT = 32  # and those of argument 2
_ADVICE = (4, 8, 14, 15, 16, 17)  # DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP
_ALLOW, _FAILS, _TRAP, _EACCES = 0x7FFF0000, 0x00050000, 0x00030000, 13
_X86_64 = 0xC000003E
_SHORT_SECONDS, _LOOK_SECONDS = 0.003, 0.004
_SEEN = 4  # times that it is seen to wait (some locks spin in between): it has no second thread that could end that
_MOST_SECONDS = 2.0  # of processor time for one call, and as many for each GiB


class CallFailed(Exception):  # noqa: N818  (another copy may answer)
    """A function did not return; its words say why."""


class RunningCopy:
    """A copy that calls functions, one at a time."""

    def __init__(self, copy: Copy, sites: CallSites, has_gone: Callable[[], bool]) -> None:
        """Prepare *copy*, which this thread traces; *has_gone* tells during a call that nobody waits for it any more.

        Raises TargetError if it can't be isolated from the process.
        """
        self.pid = copy.pid
        self._sites, self._has_gone = sites, has_gone
        self._registers = get_registers(copy.pid)
        self.memory = WritableMemory(copy.pid)
        self._most_seconds = _MOST_SECONDS
        try:
            set_signal_mask(self.pid, BLOCKED)
            self._suspend_filters(copy)
            self._room = self._system_call(_MMAP, 0, _ROOM, _READ_WRITE, _PRIVATE_ANONYMOUS, _WORD, 0)
            if self._room >= _NEGATIVE:
                raise _refused(copy, "it may have no more memory")
            self.memory.write(self._room, bytes(_ROOM))
            self._isolate(copy)
        except (MemoryUnreadable, CallFailed, OSError) as error:
            raise _refused(copy, str(error) or "its memory can't be written") from None

    def _suspend_filters(self, copy: Copy) -> None:
        suspends = may_end_for_a_call(status_fields(self.pid))
        try:
            ptrace(_SETOPTIONS, self.pid, 0, _EXIT_KILL | (SUSPEND if suspends else 0))
        except OSError:
            why = "its seccomp filter could end the copy, and only root can suspend a filter"
            raise _refused(copy, why) from None

    def _isolate(self, copy: Copy) -> None:
        for one in mappings_of(self.pid):
            is_shared = one.permissions[3] == "s" and "w" in one.permissions
            if is_shared and self._system_call(_MPROTECT, one.start, one.size_bytes, 0) >= _NEGATIVE:
                raise _refused(copy, "memory that it shares can't be made inaccessible")
        self._most_seconds += resident_anonymous(self.pid) / (1 << 30) * _MOST_SECONDS
        rows = filter_rows()
        program = b"".join(struct.pack("<HBBI", *row) for row in rows)
        at = self._room + _TEXTS // 2
        self.memory.write(at, struct.pack("<H6xQ", len(rows), at + 16) + program)
        self._system_call(_PRCTL, _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if self._system_call(_SECCOMP, _SET_FILTER, 0, at):
            raise _refused(copy, "this kernel has no filters of system calls")
        ptrace(_SETOPTIONS, self.pid, 0, _EXIT_KILL)

    def call(self, function: int, arguments: Sequence[object] = ()) -> int:
        """Call *function*; return its result. Arguments are numbers, or texts and values as bytes, which are placed.

        Raises CallFailed if it does not return.
        """
        at = self._room
        values = []
        for one in arguments:
            if isinstance(one, bytes):
                self.memory.write(at, one)
                values.append(at)
                at += len(one) + 15 & ~15
            else:
                values.append(int(one))  # type: ignore[call-overload]
        stack = self._room + _ROOM - 0x1000 - 8  # as at a function's first instruction
        self.memory.write(stack, _RETURN.to_bytes(8, "little"))
        registers = list(self._registers)
        for register, value in zip(_IN_CALL, values):
            registers[register] = value & _WORD
        registers[RAX], registers[ORIG_RAX], registers[RIP], registers[RSP] = 0, _WORD, function, stack
        registers[RBP] = 0
        registers[FLAGS] &= ~_DIRECTION_FLAG
        set_registers(self.pid, registers)
        ptrace(CONTINUE, self.pid)
        number = self._stop()
        found = get_registers(self.pid)
        if number == signal.SIGSEGV and found[RIP] == _RETURN:
            return found[RAX]
        if number == signal.SIGSYS:
            denied = _system_call(self.pid)
            if denied == _TGKILL:
                raise CallFailed("it aborted, as at a damaged heap")
            raise CallFailed(f"it made system call {denied}, which is denied to a copy")
        raise CallFailed(f"it ended by {signal.Signals(number).name}")

    def close(self) -> None:
        self.memory.close()

    def _system_call(self, number: int, *arguments: int) -> int:
        registers = list(self._registers)
        for register, value in zip(_IN_SYSTEM_CALL, arguments):
            registers[register] = value
        registers[RAX], registers[ORIG_RAX], registers[RIP] = number, _WORD, self._sites.call_and_return
        set_registers(self.pid, registers)
        ptrace(_SINGLESTEP, self.pid)
        if self._stop() != signal.SIGTRAP:
            raise CallFailed("a seccomp filter refused a system call of the copy")
        return get_registers(self.pid)[RAX]

    def _stop(self) -> int:
        """Wait until it stops; return the signal. Raises CallFailed if it waits or computes endlessly, or has ended."""
        began, pause, waits = time.monotonic(), 0.0001, 0
        spent = self._seconds()
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG | WALL)
            if done and not os.WIFSTOPPED(status):
                by_filter = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS
                raise CallFailed("its seccomp filter kills for that" if by_filter else "the copy was killed")
            if done:
                return os.WSTOPSIG(status)
            time.sleep(pause)
            pause = min(pause * 1.5, _LOOK_SECONDS)
            if time.monotonic() - began < _SHORT_SECONDS:
                continue
            blocked = parse_syscall(_text(f"/proc/{self.pid}/syscall"))
            waits += blocked is not None and (blocked.is_futex or blocked.ends_by_itself)
            if waits >= _SEEN:
                raise CallFailed("it waits for a lock that a thread of the process held")
            if self._seconds() - spent > self._most_seconds:
                raise CallFailed("it computes without end")
            if self._has_gone():
                raise CallFailed("nobody waits for it")

    def _seconds(self) -> float:
        stat = stat_of(self.pid)
        return stat.own.cpu_seconds if stat is not None else 0.0


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


def _system_call(pid: int) -> int:
    """Return the number of the system call that a filter of the stopped thread refused."""
    information = (ctypes.c_int * 32)()
    ptrace(_GETSIGINFO, pid, 0, ctypes.addressof(information))
    return information[6]


def _refused(copy: Copy, why: str) -> TargetError:
    return TargetError(
        f"no function can be called in a copy of process {copy.parent}: {why}",
        slug="try-refused",
        hint="leave out --try",
    )


def can_run() -> bool:
    """Return whether a copy can be made to call functions on this architecture."""
    return os.uname().machine == "x86_64"


def filter_rows() -> list[tuple[int, int, int, int]]:
    """Return the filter: code, jump if true, jump if false, constant of each row."""
    load, equal, give = 0x20, 0x15, 0x06
    number, architecture = 0, 4
    rows = [(load, 0, 0, architecture), (equal, 1, 0, _X86_64), (give, 0, 0, _TRAP), (load, 0, 0, number)]
    for call in sorted({*_ALLOWED} - {_MADVISE, _MMAP}):
        rows += [(equal, 0, 1, call), (give, 0, 0, _ALLOW)]
    for call in _FAIL:
        rows += [(equal, 0, 1, call), (give, 0, 0, _FAILS | _EACCES)]
    rows += [(equal, 0, 4, _MMAP), (load, 0, 0, _MMAP_DESCRIPTOR), (equal, 0, 1, 0xFFFFFFFF)]
    rows += [(give, 0, 0, _ALLOW), (give, 0, 0, _TRAP)]
    rows += [(equal, 1, 0, _MADVISE), (give, 0, 0, _TRAP), (load, 0, 0, _ADVICE_AT)]
    for advice in _ADVICE:
        rows += [(equal, 0, 1, advice), (give, 0, 0, _ALLOW)]
    return [*rows, (give, 0, 0, _TRAP)]


def resident_anonymous(pid: int) -> int:
    """Return the bytes of anonymous memory of *pid* that are resident, less those that the kernel may take (MADV_FREE).

    Raises OSError.
    """
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(Anonymous|LazyFree): +(\d+) kB", text, re.M)}
    return kib.get("Anonymous", 0) - kib.get("LazyFree", 0) << 10
