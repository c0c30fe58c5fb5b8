"""Pending signals of a process: sent, and not delivered yet."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from gdbmem.linux.holding.ptrace import ptrace
from gdbmem.linux.process.status import signals_in, status_fields

_GETSIGINFO = 0x4202
_SI_QUEUE = -1  # sent by sigqueue()


def pending_signals(pid: int) -> set[signal.Signals]:
    """Return the signals pending for *pid* as a whole, or for its first thread; none if it has ended."""
    mask = signals_in(status_fields(pid), "SigPnd", "ShdPnd")
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


def waits_for_process(pid: int, number: signal.Signals) -> bool:
    """Return whether *number* is pending for *pid* as a whole, so that any thread may take it."""
    return bool(signals_in(status_fields(pid), "ShdPnd") >> (number - 1) & 1)


def send_marked(pid: int, number: signal.Signals, mark: int) -> None:
    """Send *number* with *mark* (31 bits) to process *pid*; `stop_mark` finds the mark in the thread that takes it.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sigqueue(ctypes.c_int(pid), ctypes.c_int(number), ctypes.c_void_p(mark)):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def stop_mark(tid: int, number: signal.Signals) -> Optional[int]:
    """Return the mark of the signal *number* at which the traced thread *tid* has stopped; else None.

    Source: Linux, ptrace(2), PTRACE_GETSIGINFO; siginfo_t of a 64-bit machine.
    """
    information = (ctypes.c_int * 32)()
    try:
        ptrace(_GETSIGINFO, tid, 0, ctypes.addressof(information))
    except OSError:
        return None
    number_found, _, code, _, _, _, mark = information[:7]
    return mark if number_found == number and code == _SI_QUEUE else None


_SIGWAIT = {"x86_64": 128, "aarch64": 137}.get(platform.machine())  # rt_sigtimedwait


def reaches(pid: int, number: signal.Signals) -> bool:
    """Return whether *number* sent to process *pid* is delivered to its first thread at once.

    It is not if that thread blocks it, or if any thread waits for signals.
    """
    try:
        calls = [(task / "syscall").read_text().split()[:1] for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return not blocks(status_fields(pid), number) and [str(_SIGWAIT)] not in calls


def blocks(fields: Mapping[str, str], number: signal.Signals) -> bool:
    """Return whether the thread with these *fields* of its status blocks *number*; True if it has no mask."""
    return "SigBlk" not in fields or bool(signals_in(fields, "SigBlk") >> (number - 1) & 1)
