"""Signals that wait for a process: sent to it, and not taken yet."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from pathlib import Path

from gdbmem.linux.holding.ptrace import ptrace

_GETSIGINFO = 0x4202
_SI_USER = 0  # sent by kill()


def pending_signals(pid: int) -> set[signal.Signals]:
    """Return the signals that wait for *pid* as a whole, or for its first thread; none once it has gone.

    Source: Linux, Documentation/filesystems/proc.rst, /proc/PID/status.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return set()
    mask = _mask(text, "SigPnd") | _mask(text, "ShdPnd")
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


def threads_it_waits_for(pid: int, number: signal.Signals) -> list[int]:
    """Return the threads of *pid* that *number* waits for: all of them where it waits for the process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            text = (task / "status").read_text(errors="replace")
            if (_mask(text, "SigPnd") | _mask(text, "ShdPnd")) >> (number - 1) & 1:
                found.append(int(task.name))
    return found


def was_stopped_by_us(tid: int, number: signal.Signals) -> bool:
    """Tell whether thread *tid*, which this thread traces and holds, stands where a *number* of our own stopped it.

    Source: Linux, ptrace(2), PTRACE_GETSIGINFO; siginfo_t of a 64-bit machine.
    """
    information = (ctypes.c_int * 32)()
    try:
        ptrace(_GETSIGINFO, tid, 0, ctypes.addressof(information))
    except OSError:
        return False
    number_found, _, code, _, sender = information[:5]
    # To a process with a PID namespace of its own a sender outside of it is 0.
    return number_found == number and code == _SI_USER and sender in (0, os.getpid())


def _mask(status: str, field: str, default: int = 0) -> int:
    masks = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith(f"{field}:"))
    return next(masks, default)


_SIGWAIT = {"x86_64": 128, "aarch64": 137}.get(platform.machine())  # rt_sigtimedwait


def reaches(pid: int, number: signal.Signals) -> bool:
    """Tell whether *number* sent to process *pid* is handed to its first thread as it comes.

    It is not where that thread blocks it, or where any thread waits for signals.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        calls = [(task / "syscall").read_text().split()[:1] for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return not blocks(status, number) and [str(_SIGWAIT)] not in calls


def blocks(status: str, number: signal.Signals) -> bool:
    """Tell whether the thread whose /proc/PID/status is *status* blocks *number*; True where it has no mask."""
    return bool(_mask(status, "SigBlk", -1) >> (number - 1) & 1)
