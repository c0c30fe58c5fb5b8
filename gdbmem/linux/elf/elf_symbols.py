"""Addresses of a loaded object's exported functions, by the hash table in its memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Optional

from gdbmem.linux.elf.headers import program_headers
from gdbmem.model.memory import Memory, MemoryUnreadable, words_at

_PT_DYNAMIC = 2
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
_MOST_ENTRIES = 512
_RELOCATIONS = ((7, 8), (23, 2))  # DT_RELA, DT_RELASZ; DT_JMPREL, DT_PLTRELSZ
_INDIRECT = (37, 1032)  # R_X86_64_IRELATIVE, R_AARCH64_IRELATIVE
_MOST_RELOCATIONS = 64 << 20  # bytes
_MOST_IN_BUCKET = 4096


def exported(memory: Memory, start: int, bias: int, names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of those functions *names* that the object whose ELF header is at *start* has."""
    try:
        dynamic = dict(_dynamic(memory, start, bias))
        tables = [dynamic[tag] for tag in (_DT_GNU_HASH, _DT_SYMTAB, _DT_STRTAB)]
        # On most architectures the dynamic linker has added the bias to these.
        hashes, symbols, strings = (value if value >= bias else value + bias for value in tables)
        found = {name: _look_up(memory, hashes, symbols, strings, name.encode()) for name in names}
    except (MemoryUnreadable, KeyError):
        return {}
    return {name: bias + value for name, value in found.items() if value is not None}


def chosen_code(memory: Memory, start: int, bias: int, resolver: int) -> Optional[int]:
    """Return the code that the indirect function (IFUNC) with this *resolver* has, in the object at *start*.

    It is where a relocation has put it: before the dynamic linker has done that, another address is there. None if no
    relocation is known.
    """
    try:
        dynamic = dict(_dynamic(memory, start, bias))
        for table, size in _RELOCATIONS:
            at = dynamic.get(table, 0)
            rows = memory.read(at if at >= bias else at + bias, min(dynamic.get(size, 0), _MOST_RELOCATIONS))
            for offset, info, addend in struct.iter_unpack("<QQq", rows[: len(rows) // 24 * 24]):
                if info & 0xFFFFFFFF in _INDIRECT and bias + addend == resolver:
                    return int.from_bytes(memory.read(bias + offset, 8), "little")
    except MemoryUnreadable:
        pass
    return None


def _dynamic(memory: Memory, start: int, bias: int) -> Iterator[tuple[int, int]]:
    for program in program_headers(memory, start):
        if program[0] == _PT_DYNAMIC:
            words = words_at(memory, bias + program[3], min(program[6] // 8, 2 * _MOST_ENTRIES) & -2)
            yield from zip(words[::2], words[1::2])


def _look_up(memory: Memory, hashes: int, symbols: int, strings: int, name: bytes) -> Optional[int]:
    bucket_count, first, bloom_words, _ = struct.unpack("<4I", memory.read(hashes, 16))
    wanted = 5381
    for byte in name:
        wanted = wanted * 33 + byte & 0xFFFFFFFF
    buckets = hashes + 16 + 8 * bloom_words
    (number,) = struct.unpack("<I", memory.read(buckets + 4 * (wanted % bucket_count), 4))
    if number < first:
        return None
    for at in range(number, number + _MOST_IN_BUCKET):
        (value,) = struct.unpack("<I", memory.read(buckets + 4 * (bucket_count + at - first), 4))
        if (value ^ wanted) >> 1 == 0:
            place, _, _, section, address = struct.unpack("<IBBHQ", memory.read(symbols + 24 * at, 16))
            if section and memory.read(strings + place, len(name) + 1) == name + b"\0":
                return int(address)
        if value & 1:
            break
    return None


__all__ = ["exported"]
