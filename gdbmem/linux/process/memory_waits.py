"""Threads that wait in the kernel for memory of their control group, whose OOM killer is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from gdbmem.linux.monitoring.cgroup import cgroup_of
from gdbmem.linux.process.process import thread_ids

_WAITS_IN = "mem_cgroup_oom_synchronize"  # Linux, mm/memcontrol.c, later memcontrol-v1.c
_ROOT_PARTS = 3  # of /sys/fs/cgroup


def waits_for_memory(pid: int) -> Mapping[int, tuple[int, int]]:
    """Return the stack pointer and the program counter of each thread of *pid* that waits so, by its id."""
    if not _is_held(pid):
        return {}
    found = {tid: _standing(pid, tid) for tid in thread_ids(pid)}
    return {tid: where for tid, where in found.items() if where is not None}


def _is_held(pid: int) -> bool:
    """Return whether the OOM killer of a control group of *pid* is off while the group is out of memory."""
    folder = cgroup_of(pid)
    while folder is not None and len(folder.parts) >= _ROOT_PARTS:
        try:
            words = (folder / "memory.oom_control").read_text().split()
        except OSError:
            return False  # version 2 can't hold a process so
        if words[:4] == ["oom_kill_disable", "1", "under_oom", "1"]:
            return True
        folder = folder.parent
    return False


def _standing(pid: int, tid: int) -> Optional[tuple[int, int]]:
    """Return the stack pointer and the program counter of thread *tid* if it waits for memory; else None."""
    try:
        task = Path(f"/proc/{pid}/task/{tid}")
        if (task / "wchan").read_text() != _WAITS_IN:
            return None
        words = (task / "syscall").read_text().split()
    except OSError:
        return None
    return (int(words[-2], 16), int(words[-1], 16)) if len(words) > 2 else (0, 0)
