"""Threads that stand still because their control group has no memory left, and its OOM killer is switched off.

Such a thread waits in the kernel, in a page fault, until somebody gives the group memory. It can't be stopped by
ptrace, nor need it be: it is read as it stands.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from gdbmem.linux.holding.ptrace import HeldThread
from gdbmem.linux.memory.maps import Mapping, parse_maps, read_maps_text
from gdbmem.linux.monitoring.cgroup import cgroup_of
from gdbmem.linux.process.process import thread_ids
from gdbmem.model.memory import Memory

_WAITS_IN = "mem_cgroup_oom_synchronize"  # Linux, mm/memcontrol.c, later memcontrol-v1.c
_ROOT_PARTS = 3  # of /sys/fs/cgroup
_SEARCHED_BYTES = 1 << 20  # at the end of a mapping: the kernel joins neighbours
_TCB_BYTES = 0x400  # glibc, struct pthread: up to the thread's id


def threads_out_of_memory(pid: int, memory: Optional[Memory] = None) -> list[HeldThread]:
    """Return the threads of *pid* that stand still for want of memory, with their registers as far as /proc shows them.

    With *memory* their thread pointers are searched there.
    """
    if not _is_held(pid):
        return []
    found = []
    for tid in thread_ids(pid):
        where = _standing(pid, tid)
        if where is not None:
            held = HeldThread(tid)
            held.stack_pointer, held.program_counter = where
            found.append(held)
    if found and memory is not None and platform.machine() == "x86_64":
        mappings = parse_maps(read_maps_text(pid))
        for held in found:
            held.thread_pointer = _thread_pointer(memory, mappings, held)
    return found


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


def _thread_pointer(memory: Memory, mappings: Iterable[Mapping], held: HeldThread) -> int:
    """Return the address of the thread's own block: it begins with its address, twice, and has its id; 0 if not found.

    Source: glibc, sysdeps/x86_64/nptl/tls.h, tcbhead_t: tcb and self.
    """
    for mapping in mappings:
        if mapping.name or not mapping.permissions.startswith("rw"):
            continue
        start = max(mapping.start, mapping.end - _SEARCHED_BYTES)
        if mapping.start <= held.stack_pointer < mapping.end:
            start = max(mapping.start, held.stack_pointer)
        data = memory.read(start, mapping.end - start)
        identity = struct.pack("<i", held.tid)
        first = -start % 16
        for at in range(first, len(data) - 24, 16):
            address = start + at
            if (
                struct.unpack_from("<Q8xQ", data, at) == (address, address)
                and identity in data[at : at + _TCB_BYTES]
            ):
                return address
    return 0
