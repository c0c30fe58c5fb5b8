"""Threads that stand still because their control group has no memory left, and its OOM killer is switched off.

Such a thread waits in the kernel, in a page fault, until somebody gives the group memory. It can't be stopped by
ptrace, nor need it be: it is read as it stands.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable
from typing import Optional

from gdbmem.linux.holding.ptrace import HeldThread
from gdbmem.linux.memory.maps import Mapping, parse_maps, read_maps_text
from gdbmem.linux.monitoring.limits import waits_for_memory
from gdbmem.model.memory import Memory, MemoryUnreadable

_SEARCHED_BYTES = 1 << 20  # at the end of a mapping: the kernel joins neighbours
_TCB_BYTES = 0x400  # glibc, struct pthread: up to the thread's id


def threads_out_of_memory(pid: int, memory: Optional[Memory] = None) -> list[HeldThread]:
    """Return the threads of *pid* that stand still for want of memory, with their registers as far as /proc shows them.

    With *memory* their thread pointers are searched there.
    """
    found = []
    for tid, where in waits_for_memory(pid).items():
        held = HeldThread(tid)
        held.stack_pointer, held.program_counter = where
        found.append(held)
    if found and memory is not None and platform.machine() == "x86_64":
        mappings = parse_maps(read_maps_text(pid))
        for held in found:
            held.thread_pointer = _thread_pointer(memory, mappings, held)
    return found


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
        try:
            data = memory.read(start, mapping.end - start)
        except MemoryUnreadable:
            continue
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
