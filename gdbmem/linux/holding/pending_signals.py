"""Signals that wait for a process: sent to it, and not taken yet."""

from __future__ import annotations

import platform
import signal
from pathlib import Path


def pending_signals(pid: int) -> set[signal.Signals]:
    """Return the signals that wait for *pid* as a whole, or for its first thread; none once it has gone.

    Source: Linux, Documentation/filesystems/proc.rst, /proc/PID/status.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    masks = (int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
    found = 0
    for mask in masks:
        found |= mask
    return {number for number in signal.Signals if found >> (number - 1) & 1}


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
    masks = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(next(masks, -1) >> (number - 1) & 1)
