"""The headers of an ELF object in a process's memory: its load address, its data and zeroed data."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.records import dataclass

if TYPE_CHECKING:
    from gdbmem.linux.memory.maps import Mapping

_PT_LOAD, _PT_NOTE, _PT_INTERP, _PT_TLS = 1, 4, 3, 7
_PF_W = 2
_NT_GNU_BUILD_ID = 3
_PAGE = 4096
_ROW, _MOST_ROWS = 56, 1170  # as the kernel requires: others may be of any size


@dataclass(frozen=True)
class Image:
    """One loaded object."""

    name: str
    bias: int  # added to an address of the file
    start: int
    writable: Sequence[tuple[int, int]]  # data and zeroed data, whole pages
    build_id: str  # hexadecimal; "" if there is none
    has_interpreter: bool
    thread_local_bytes: int = 0  # of its thread-local variables


def images(memory: Memory, mappings: Sequence[Mapping]) -> list[Image]:
    """Return all loaded ELF objects, in order of address."""
    found = []
    seen: set[tuple[str, int]] = set()
    for mapping in mappings:
        if not mapping.is_file or mapping.offset or (mapping.name, mapping.inode) in seen:
            continue
        image = read_image(memory, mapping.start, mapping.name)
        if image is not None:
            seen.add((mapping.name, mapping.inode))
            found.append(image)
    return found


def read_image(memory: Memory, start: int, name: str) -> Optional[Image]:
    """Return the object whose ELF header is at *start*; None if there is none."""
    try:
        programs = program_headers(memory, start)
    except MemoryUnreadable:
        return None
    loads = [p for p in programs if p[0] == _PT_LOAD]
    if not loads:
        return None
    bias = start - (min(p[3] for p in loads) & -_PAGE)
    writable = [
        ((bias + p[3]) & -_PAGE, (bias + p[3] + p[6] + _PAGE - 1) & -_PAGE) for p in loads if p[1] & _PF_W
    ]
    notes = (_notes(memory, bias + p[3], p[5]) for p in programs if p[0] == _PT_NOTE)
    build_id = next(filter(None, map(build_id_in, notes)), "")
    interpreted = any(p[0] == _PT_INTERP for p in programs)
    thread_local = next((p[6] for p in programs if p[0] == _PT_TLS), 0)
    return Image(name, bias, start, writable, build_id, interpreted, thread_local)


def program_headers(memory: Memory, start: int) -> list[tuple[int, ...]]:
    """Return the rows of the program headers of the object whose ELF header is at *start*; [] if there is none.

    Raises MemoryUnreadable.
    """
    header = memory.read(start, 64)
    if header[:5] != b"\x7fELF\x02":
        return []
    size, count = struct.unpack_from("<HH", header, 54)
    if size != _ROW or count > _MOST_ROWS:
        return []
    table = memory.read(start + struct.unpack_from("<Q", header, 32)[0], size * count)
    return list(struct.iter_unpack("<IIQQQQQQ", table))


def _notes(memory: Memory, address: int, size: int) -> bytes:
    try:
        return memory.read(address, min(size, 4096))
    except MemoryUnreadable:
        return b""


def build_id_in(notes: bytes) -> str:
    """Return the build-id in the data of a note segment, hexadecimal; "" if there is none."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name = at + 12
        start = name + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[name : name + name_size] == b"GNU\0":
            return notes[start : start + size].hex()
        at = start + (size + 3 & ~3)
    return ""
