"""The thread through which a process's memory is read, because the main thread may end while others still run.

The kernel's files of a process are those of its main thread: once that has ended, maps is empty and statm is 0.
Those of every other thread show the same memory. Source: Linux, fs/proc/base.c, fs/proc/task_mmu.c.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

_ENDED = b"ZX"


def living_thread(pid: int) -> Optional[int]:
    """Return a thread of *pid* that has not ended, the main one if it lives; None if none does."""
    if _lives(f"/proc/{pid}/stat"):
        return pid
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208  (hot path)
    except OSError:
        return None
    return next((tid for tid in tids if thread_lives(pid, tid)), None)


def thread_lives(pid: int, tid: int) -> bool:
    """Return whether thread *tid* of *pid* exists and has not ended."""
    return _lives(f"/proc/{pid}/task/{tid}/stat")


def memory_folder(pid: int) -> str:
    """Return the folder of /proc that shows the memory of *pid*: a living thread's if the main one has ended."""
    tid = living_thread(pid)
    return f"/proc/{pid}" if tid in (None, pid) else f"/proc/{pid}/task/{tid}"


def text_of(path: str) -> str:
    """Return the text of a file in /proc; bytes of a process's name that are not UTF-8 are surrogates."""
    return Path(path).read_bytes().decode(errors="surrogateescape")


def _lives(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            state = stream.read(4096).rpartition(b")")[2][1:2]
    except OSError:
        return False
    return bool(state) and state not in _ENDED
