"""Breakpoints that a debugger has left in a program: found by comparing its code with its files, and removed.

A page is assumed to contain breakpoints only if it differs from its file only in trap instructions.
Source: gdb, gdb/i386-tdep.c and gdb/aarch64-tdep.c (the instruction that a breakpoint is).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Container, Iterator, Mapping
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.files.target_files import TargetSide
from gdbmem.linux.holding.ptrace import X86_64, Freeze, get_registers, machine, set_registers
from gdbmem.linux.memory.maps import Mapping as Mapped
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.linux.process.process import memory_folder

_TRAPS = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}
# Instructions of x86-64 of one byte: push, pop, nop and exchanges, string instructions, ret, leave, flags.
_ONE_BYTE = frozenset(
    [*range(0x50, 0x60), *range(0x6C, 0x70), *range(0x90, 0x9A), *range(0x9B, 0xA0), *range(0xA4, 0xA8),
     *range(0xAA, 0xB0), 0xC3, 0xC9, 0xCB, 0xCC, 0xCF, *range(0xEC, 0xF0), 0xF1, 0xF4, 0xF5, *range(0xF8, 0xFE)]
)  # fmt: skip
_PAGE = 4096
_PIECE = 1 << 16


def planted(pid: int, side: TargetSide) -> dict[int, bytes]:
    """Return the addresses of breakpoints in the code of *pid*, with the original code from its files.

    Raises OSError if the process has ended or may not be read.
    """
    trap = _TRAPS.get(platform.machine())
    if trap is None:
        return {}
    memory = os.open(f"{memory_folder(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        mappings = mappings_of(pid, "smaps")
        return dict(
            found
            for mapping in mappings
            if _may_hold(mapping)
            for found in _in_mapping(mapping, memory, side, trap)
        )
    finally:
        os.close(memory)


def _may_hold(mapping: Mapped) -> bool:
    """Return whether *mapping* is code of a file with pages that were written to."""
    is_code = mapping.permissions[2:] == "xp" and mapping.is_file
    return is_code and mapping.anonymous_bytes > 0 and not mapping.name.endswith(" (deleted)")


def _in_mapping(mapping: Mapped, memory: int, side: TargetSide, trap: bytes) -> Iterator[tuple[int, bytes]]:
    for start in range(mapping.start, mapping.end, _PIECE):
        there = os.pread(memory, min(_PIECE, mapping.end - start), start)
        if trap not in there:
            continue
        try:
            wanted = side.read(mapping.name, mapping.offset + start - mapping.start, len(there))
        except TargetError:
            return
        for page in range(0, len(wanted), _PAGE):
            yield from _in_page(start + page, there[page : page + _PAGE], wanted[page : page + _PAGE], trap)


def _in_page(address: int, there: bytes, wanted: bytes, trap: bytes) -> Iterator[tuple[int, bytes]]:
    there, size = there[: len(wanted)], len(trap)
    found, mended, at = [], bytearray(there), there.find(trap)
    while at >= 0:
        if at % size == 0 and wanted[at : at + size] != trap:
            found.append((address + at, wanted[at : at + size]))
            mended[at : at + size] = wanted[at : at + size]
        at = there.find(trap, at + 1)
    if mended == wanted:
        yield from found


def _set_back(freeze: Freeze, found: Mapping[int, bytes]) -> None:
    """Set threads that have just executed a trap back to the original instruction.

    If the original instruction has a single byte, the thread may have executed it: then the thread is not moved.
    """
    known = machine()
    if known is not X86_64:
        return  # elsewhere a trap leaves the thread at its address
    for held in freeze.threads.values():
        code = found.get(held.program_counter - 1, b"")
        if held.registers and code and code[0] not in _ONE_BYTE:
            values = get_registers(held.tid)
            values[known.program_counter] = held.program_counter - 1
            set_registers(held.tid, values)


def take_out(pid: int, before: Container[int], side: TargetSide) -> Optional[int]:
    """Remove the breakpoints in the code of *pid* but those at *before*; return how many there were.

    None if unknown: the process has ended, or can't be stopped.
    """
    try:
        found = {address: code for address, code in planted(pid, side).items() if address not in before}
        if not found:
            return 0
        with Freeze(pid) as freeze:
            memory = os.open(f"{memory_folder(pid)}/mem", os.O_RDWR | os.O_CLOEXEC)
            try:
                again = planted(pid, side)  # now that the process is stopped
                same = [address for address in found if again.get(address) == found[address]]
                for address in same:
                    os.pwrite(memory, found[address], address)
                _set_back(freeze, {address: found[address] for address in same})
            finally:
                os.close(memory)
        return len(same)
    except (OSError, TargetError):
        return None
