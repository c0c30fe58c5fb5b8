"""The threads of a process in /proc: whether one sleeps in a system call, and which have run."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.memory.resident import KeptFile
from gdbmem.linux.process.process import text_of, thread_ids

_SLEEPS = {
    "x86_64": {35, 230},  # nanosleep, clock_nanosleep: they end by themselves
    "aarch64": {101, 115},
}
# The system call by which the kernel continues an interrupted sleep.
_RESTART = {"x86_64": 219, "aarch64": 128}
_FUTEX = {"x86_64": 202, "aarch64": 98}
_SWITCHES = re.compile(r"ctxt_switches:\s+(\d+)")
_MACHINE = os.uname().machine
_STAT_BYTES = 1024


class Blocked(NamedTuple):
    """A thread that sleeps in a system call."""

    number: int  # of the call
    argument: int  # its first argument: of a futex call the address
    stack_pointer: int
    counter: int

    @property
    def is_futex(self) -> bool:
        return self.number == _FUTEX.get(_MACHINE)

    @property
    def ends_by_itself(self) -> bool:
        """True if it is a plain sleep, which no other thread can end."""
        return self.number in _SLEEPS.get(_MACHINE, ())


def parse_syscall(text: str) -> Optional[Blocked]:
    """Parse /proc/PID/task/TID/syscall; None for a thread that runs or is not in a call."""
    words = text.split()
    if len(words) < 9:  # "running", or "-1 SP PC" outside of any call
        return None
    return Blocked(int(words[0]), int(words[1], 16), int(words[-2], 16), int(words[-1], 16))


class ThreadEye:
    """Reads one thread repeatedly, with its files kept open."""

    def __init__(self, pid: int, tid: int) -> None:
        self.tid = tid
        self._syscall = KeptFile(f"/proc/{pid}/task/{tid}/syscall")
        self._stat = KeptFile(f"/proc/{pid}/task/{tid}/stat")

    def blocked(self) -> Optional[Blocked]:
        """Return the system call that the thread sleeps in; None when it runs, has stopped or can't be read."""
        data = self._syscall.read(256)
        found = parse_syscall(data.decode("ascii", "replace")) if data else None
        if found is None:
            return None
        stat = self._stat.read(512)
        return found if stat and stat.rpartition(b")")[2].split()[:1] == [b"S"] else None

    def close(self) -> None:
        """Close the files."""
        self._syscall.close()
        self._stat.close()


def can_see_calls(pid: int) -> bool:
    """Return whether this user may read the system call that *pid* sleeps in."""
    try:
        Path(f"/proc/{pid}/task/{pid}/syscall").read_text()
    except OSError:
        return False
    return True


class Activity(NamedTuple):
    """The progress of a thread: its counters at one moment."""

    switches: int  # number of voluntary context switches
    where: str  # its current system call and registers
    faults: int = 0  # number of page faults


# A waiting thread that a debugger resumes and stops again makes two context switches.
_IDLE_SWITCHES = 2


def activities(pid: int) -> dict[int, Activity]:
    """Return the progress of each thread of *pid*; unreadable ones are omitted."""
    found = {}
    for tid in thread_ids(pid):
        folder = f"/proc/{pid}/task/{tid}"
        try:
            switches = _switches(folder)
            faults = page_faults(pid, tid) or 0
            found[tid] = Activity(switches, Path(f"{folder}/syscall").read_text(), faults)
        except (OSError, ValueError, IndexError):
            continue
    return found


def switch_counts(pid: int) -> dict[int, int]:
    """Return the voluntary context switches of each thread of *pid*; each stop adds one."""
    counts = {}
    for tid in thread_ids(pid):
        with contextlib.suppress(OSError):  # it has just ended
            counts[tid] = _switches(f"/proc/{pid}/task/{tid}")
    return counts


def _switches(folder: str) -> int:
    return sum(map(int, _SWITCHES.findall(text_of(f"{folder}/status"))))


def ran_between(before: dict[int, Activity], after: dict[int, Activity]) -> list[int]:
    """Return the threads (tids) that made progress: moved, had page faults, or did more than wake and wait again.

    A thread that was woken while a debugger held it, and waits again in the same place, may be missed.
    """
    return sorted(
        tid
        for tid in before.keys() | after.keys()
        if tid not in before
        or tid not in after
        or _moved(before[tid].where, after[tid].where)
        or after[tid].faults != before[tid].faults
        or after[tid].switches - before[tid].switches > _IDLE_SWITCHES
    )


def has_run(pid: int, tid: int) -> bool:
    """Return whether the new thread *tid* has made progress: a debugger may hold it at its creation."""
    found = activities(pid).get(tid)
    return found is None or found.faults > 0 or found.switches > _IDLE_SWITCHES


def thread_count(pid: int) -> int:
    """Return the number of threads of *pid*; 0 if it has ended."""
    return len(thread_ids(pid))


def _moved(before: str, after: str) -> bool:
    """Return whether a thread, resumed and stopped again, is in another place than before."""
    old, new = before.split(), after.split()
    if len(new) == 9 and old[-2:] == new[-2:]:
        number = int(new[0])
        if number == _RESTART.get(_MACHINE):
            return False
        if number in _SLEEPS.get(_MACHINE, ()):
            return True  # continuing the former sleep would be a restart: this one is new
    return old != new


def is_ending(pid: int) -> bool:
    """Return whether all threads of *pid* have ended and only wait to be collected."""
    try:
        stats = [text_of(f"/proc/{pid}/task/{tid}/stat") for tid in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return True
    return all(stat.rpartition(")")[2].split()[0] in "ZX" for stat in stats)


def faults_by_thread(pid: int) -> dict[int, int]:
    """Return the page faults of each living thread of *pid*."""
    counts = {tid: page_faults(pid, tid) for tid in thread_ids(pid)}
    return {tid: count for tid, count in counts.items() if count is not None}


class FaultCount:
    """The page faults of a thread, or of all threads of a process including ended ones; its file stays open."""

    def __init__(self, pid: int, tid: Optional[int] = None) -> None:
        self._stat = KeptFile(f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat")

    def read(self) -> Optional[int]:
        """Return the count; None if the thread has ended."""
        words = (self._stat.read(_STAT_BYTES) or b"").rpartition(b")")[2].split(None, 10)
        if len(words) < 10:
            self._stat.close()  # another thread may get its number
            return None
        return int(words[7]) + int(words[9])  # including pages read from a disk or swapped in


def page_faults(pid: int, tid: Optional[int] = None) -> Optional[int]:
    """Return the page faults of thread *tid* of *pid*; without *tid* of all threads, including ended ones.

    None if it has ended.
    """
    return FaultCount(pid, tid).read()


class Grower(NamedTuple):
    """The thread that had most page faults in a time."""

    tid: Optional[int]  # None: threads that have ended had more than each living one, or none had any
    has_ended: bool


class ThreadFaults:
    """The page faults of each thread of a process at the moment of its creation."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # The whole is read last here and first in most_since: what a thread gains between the two readings is never
        # taken for a gain of threads that have ended.
        self._by_thread = faults_by_thread(pid)
        self._all = page_faults(pid) or 0  # including those of threads that have ended

    def most_since(self) -> Grower:
        """Return the thread with most page faults since."""
        whole, now = page_faults(self._pid) or 0, faults_by_thread(self._pid)
        gained = {tid: count - self._by_thread.get(tid, 0) for tid, count in now.items()}
        by_ended = whole - self._all - sum(gained.values())
        most = max(gained, key=lambda tid: gained[tid], default=None)
        if most is not None and gained[most] > max(by_ended, 0):
            return Grower(most, has_ended=False)
        return Grower(None, has_ended=by_ended > 0)


_FAULTS_EVERY = 20  # samples of a size


class SizeLimit:
    """Samples the resident set of a process, and remembers which thread made pages resident lately."""

    def __init__(self, pid: int, size: Callable[[], Optional[int]], limit_bytes: int) -> None:
        """Watch *pid*, whose resident set *size* returns in bytes: it is below *limit_bytes* and does not run."""
        self._pid = pid
        self._size = size
        self._limit = limit_bytes
        self._samples = 0
        self._faults = ThreadFaults(pid)
        self.passed_bytes: Optional[int] = None
        self.grower: Optional[Grower] = None

    def is_past(self) -> bool:
        """Return whether the resident set is above the limit; `passed_bytes` and `grower` are set if so."""
        self._samples += 1
        fresh = ThreadFaults(self._pid) if self._samples % _FAULTS_EVERY == 0 else None
        size_bytes = self._size()
        if size_bytes is not None and size_bytes > self._limit:
            self.passed_bytes = size_bytes
            # Not since the fresh counts: the page that passed the limit may have come before them.
            self.grower = self._faults.most_since()
            return True
        self._faults = fresh or self._faults
        return False


# Names of system calls in which threads wait.


_X86_64 = {
    0: "read", 1: "write", 7: "poll", 9: "mmap", 11: "munmap", 12: "brk", 16: "ioctl", 17: "pread64", 18: "pwrite64",
    19: "readv", 20: "writev", 23: "select", 25: "mremap", 28: "madvise", 34: "pause", 35: "nanosleep", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 65: "semop", 73: "flock",
    74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 219: "restart_syscall",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll",
    281: "epoll_pwait", 288: "accept4", 426: "io_uring_enter",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 63: "read", 64: "write", 72: "pselect6", 73: "ppoll", 82: "fsync",
    95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 202: "accept", 203: "connect",
    206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4",
}  # fmt: skip
_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def call_name(number: int) -> str:
    """Return the name of system call *number* on this machine, or its number in words."""
    return _NAMES.get(os.uname().machine, {}).get(number) or f"system call {number}"


# Whether a process handles signals, read repeatedly.


_STATUS_BYTES = 4096
_CAUGHT = re.compile(rb"\nSigCgt:\s*([0-9a-f]+)")
_C_LIBRARY = 1 << 31 | 1 << 32  # its own signals, 32 and 33


class SignalHandlers:
    """The signal handlers of one process."""

    def __init__(self, pid: int) -> None:
        self._status = KeptFile(f"/proc/{pid}/status")

    def exist(self) -> bool:
        """Return whether there is a handler that the program has set; True if that can't be read."""
        match = _CAUGHT.search(self._status.read(_STATUS_BYTES) or b"")
        return match is None or bool(int(match[1], 16) & ~_C_LIBRARY)

    def close(self) -> None:
        self._status.close()
