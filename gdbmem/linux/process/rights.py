"""Permissions to read another process's memory, and remedies if the kernel refuses."""

from __future__ import annotations

import errno
import mmap
import os
import pwd
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gdbmem.errors import TargetError
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.linux.process.process import ProcessFacts


_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_OWN_STATUS = Path("/proc/self/status")
_CAP_SYS_PTRACE = 1 << 19
NOBODY = 3  # the scope that can't be changed before a reboot
# sudo has its own PATH, without the gdbmem of a virtual environment.
AS_ROOT = 'type it as root: sudo "$(command -v gdbmem)" …'


class Asker(NamedTuple):
    """The rights of the inspecting process, and the system's restrictions."""

    uid: int
    may_trace_all: bool  # CAP_SYS_PTRACE
    scope: int  # kernel.yama.ptrace_scope


def asker(status: Path = _OWN_STATUS, yama: Path = _YAMA) -> Asker:
    """Return the rights of this process."""
    return Asker(os.getuid(), has_ptrace_capability(status), ptrace_scope(yama))


def ptrace_scope(file: Path) -> int:
    """Return kernel.yama.ptrace_scope; 0 without Yama."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def has_ptrace_capability(status: Path) -> bool:
    """Return whether this process may trace those of other users."""
    try:
        text = status.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return bool(match and int(match[1], 16) & _CAP_SYS_PTRACE)


def forbidden(facts: ProcessFacts, asks: Asker) -> TargetError:
    """Return the error for the process of *facts*, which the kernel doesn't let *asks* read."""
    name = f"process {facts.pid} ({printable(facts.name)})"
    if asks.scope == NOBODY:
        return TargetError(
            "nobody may inspect other processes on this system until it is rebooted"
            f" (kernel.yama.ptrace_scope is {NOBODY})",
            slug="ptrace-scope",
            hint="remove that setting from /etc/sysctl.d and reboot; 'gdbmem launch --massif' works without",
        )
    if asks.uid == 0:
        return _forbidden_to_root(name, asks)
    if facts.uid != asks.uid:
        return TargetError(
            f"{name} belongs to another user ({_user(facts.uid)})", slug="process-forbidden", hint=AS_ROOT
        )
    if asks.scope:
        who = "only root may" if asks.scope > 1 else "a process may only"
        whose = "other processes" if asks.scope > 1 else "those that it has started"
        return TargetError(
            f"{who} inspect {whose} on this system (kernel.yama.ptrace_scope is {asks.scope})",
            slug="ptrace-scope",
            hint=f"allow it until the next reboot: sudo sysctl kernel.yama.ptrace_scope=0; or {AS_ROOT}",
        )
    return TargetError(
        f"the kernel doesn't let {name} be inspected, not even by its own user: it has, or had, other rights"
        " (setuid, capabilities), protects its memory, or runs in a container",
        slug="process-forbidden",
        hint=f"{AS_ROOT}, outside the container",
    )


def _forbidden_to_root(name: str, asks: Asker) -> TargetError:
    if not asks.may_trace_all:
        return TargetError(
            f"root may not inspect {name} here: this shell has no right to trace (CAP_SYS_PTRACE)",
            slug="process-forbidden",
            hint="start the container with --cap-add=SYS_PTRACE, or type it outside the container",
        )
    return TargetError(
        f"the kernel doesn't let even root inspect {name}: a security module protects it, or it belongs to"
        " the system outside this container",
        slug="process-forbidden",
        hint="type it outside the container; what a security module refused is in the kernel's log ('dmesg')",
    )


def _user(uid: int) -> str:
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


# A lock between processes that reports immediately when the thread that holds it has died.
#
# The kernel frees a robust mutex, and wakes its waiters, before a dying thread releases the processes that it
# traces. All other ways report its end only when all threads of its process have ended, which for a large process
# takes about 20 ms. Source: Linux, Documentation/locking/robust-futexes.rst; pthread_mutexattr_setrobust(3).


_SIZE = mmap.PAGESIZE
_TAKEN = _SIZE - 1  # the byte that is 1 from when the lock is held
_MUTEX_BYTES, _ATTRIBUTES_BYTES = 64, 64  # more than any C library's take
_SHARED, _ROBUST = 1, 1
_PAUSE_SECONDS = 0.02  # between two looks whether it is held for the first time


class ThreadLock:
    """The lock in one file. A thread takes it once; another process waits for that one's death."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Map the file at *path*, which *make* makes. Raises OSError."""
        import ctypes  # slow to import

        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if make else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if make:
                os.ftruncate(descriptor, _SIZE)
            self._memory = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._libc = ctypes.CDLL(None)
        self._mutex = ctypes.byref((ctypes.c_char * _MUTEX_BYTES).from_buffer(self._memory))

    def take(self) -> None:
        """Hold it from now on by the calling thread. Raises OSError."""
        from ctypes import create_string_buffer  # slow to import

        attributes = create_string_buffer(_ATTRIBUTES_BYTES)
        _check(self._libc.pthread_mutexattr_init(attributes))
        _check(self._libc.pthread_mutexattr_setpshared(attributes, _SHARED))
        _check(self._libc.pthread_mutexattr_setrobust(attributes, _ROBUST))
        _check(self._libc.pthread_mutex_init(self._mutex, attributes))
        _check(self._libc.pthread_mutex_lock(self._mutex))
        self._memory[_TAKEN] = 1

    @property
    def is_taken(self) -> bool:
        """True if a thread has taken it, even if that thread has released it or died since."""
        return bool(self._memory[_TAKEN])

    def leave(self) -> None:
        """Release it, from the thread that has taken it: its death is no longer reported."""
        self._libc.pthread_mutex_unlock(self._mutex)

    def wait(self) -> bool:
        """Wait until the thread that takes it has died, or left it; return whether it died."""
        while not self.is_taken:
            time.sleep(_PAUSE_SECONDS)
        return bool(self._libc.pthread_mutex_lock(self._mutex) == errno.EOWNERDEAD)


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))
