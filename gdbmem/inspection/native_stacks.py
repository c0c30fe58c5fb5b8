"""The call stacks of a live process's threads, copied in a stop of milliseconds and unwound afterwards."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

from gdbmem.formats.addresses import Binary
from gdbmem.linux.holding.ptrace import Freeze, HeldThread, held_threads, threads_out_of_memory
from gdbmem.linux.memory.maps import parse_maps, read_maps_text
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import thread_name
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.symbols.call_paths import Place
from gdbmem.symbols.unwind_tables import UnwindTable
from gdbmem.symbols.unwinder import MACHINES, Unwinder, code_in

_STACK_BYTES = 256 << 10  # from the stack pointer on, at most
# The positions in the kernel's register set of what a sample has; source: x86's user_regs_struct, perf_regs.h.
_X86_64 = (10, 5, 11, 12, 13, 14, 4, 19, 16, 9, 8, 7, 6, 3, 2, 1, 0)
_STACK_POINTER, _PROGRAM_COUNTER = 7, 8  # in a sample


class CopiedStack(NamedTuple):
    """The stack of one thread."""

    tid: int
    name: str
    registers: Sequence[int]  # in the order of a sample; those that are unknown are 0
    stack: bytes  # from the stack pointer on
    is_standing: bool  # it waits for memory: only its stack pointer and program counter are known


class NativeStack(NamedTuple):
    """The call path of one thread, innermost first."""

    tid: int
    name: str
    places: Sequence[Place]
    is_whole: bool


def copy_stacks(pid: int) -> tuple[list[CopiedStack], bytes]:
    """Copy the stacks of the threads of process *pid*; return them, and the text of its mappings.

    Raises TargetError if it can't be stopped.
    """
    with ProcMemory(pid) as memory:
        standing = threads_out_of_memory(pid)
        known = {held.tid for held in standing}
        with Freeze(pid, standing=standing) as freeze:
            maps = read_maps_text(pid)
            ends = [(m.start, m.end) for m in parse_maps(maps) if m.permissions.startswith("rw")]
            found = [
                CopiedStack(
                    held.tid,
                    thread_name(pid, held.tid),
                    _sampled(held),
                    _copied(memory, held.stack_pointer, ends),
                    held.tid in known,
                )
                for held in held_threads(freeze)
            ]
    return found, maps


def _sampled(held: HeldThread) -> Sequence[int]:
    if platform.machine() != "x86_64":
        return held.registers[:33]
    if held.registers:
        return [held.registers[at] for at in _X86_64]
    values = [0] * len(_X86_64)
    values[_STACK_POINTER], values[_PROGRAM_COUNTER] = held.stack_pointer, held.program_counter
    return values


def _copied(memory: Memory, start: int, areas: Sequence[tuple[int, int]]) -> bytes:
    end = next((end for begin, end in areas if begin <= start < end), start)
    try:
        return memory.read(start, min(end - start, _STACK_BYTES)) if end > start else b""
    except MemoryUnreadable:
        return b""


def unwind(
    stacks: Sequence[CopiedStack], maps: bytes, table: Callable[[Binary], Optional[UnwindTable]]
) -> list[NativeStack]:
    """Return the call paths of *stacks*; *table* opens the unwind table of a file."""
    if platform.machine() not in MACHINES:
        return []
    space, unwinder = code_in(maps), Unwinder(table)
    found = []
    try:
        for one in stacks:
            path = unwinder.path(space, one.registers, one.stack, ())
            places = [
                Place(None, spot.address)
                if spot.region.binary is None
                else Place(spot.region.binary, spot.region.offset_of(spot.address))
                for spot in path.spots
            ]
            found.append(NativeStack(one.tid, one.name, places, path.is_whole and not one.is_standing))
    finally:
        unwinder.close()
    return found
