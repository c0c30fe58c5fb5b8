"""Where each thread has the thread-local variables of the program and its libraries.

The dynamic linker has written that into each object: the number of its module, by which a thread's table has the
address of its variables, or how far from the thread pointer they are. Source: ELF Handling For Thread-Local Storage,
variants II (x86-64) and I (aarch64); glibc, sysdeps/generic/dl-dtv.h, sysdeps/ARCHITECTURE/nptl/tls.h.
"""

from __future__ import annotations

import struct
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Optional

from gdbmem.arrays import import_numpy
from gdbmem.linux.elf.objects import Image, dynamic_entries, program_headers
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at

if TYPE_CHECKING:
    from gdbmem.ledger.ledger import ProcessImage

_PT_TLS = 7
_X86_64, _AARCH64 = 62, 183
_AARCH64_HEAD = 16  # bytes of glibc's from the thread pointer on
_TABLE_AT = {_X86_64: 8, _AARCH64: 0}  # where the table's address is, from the thread pointer on
_MODULE = {_X86_64: 16, _AARCH64: 1028}  # R_X86_64_DTPMOD64, R_AARCH64_TLS_DTPMOD
_OFFSET = {_X86_64: 18, _AARCH64: 1030}  # R_X86_64_TPOFF64, R_AARCH64_TLS_TPREL
_DT_SYMTAB, _DT_RELA, _DT_RELASZ = 6, 7, 8
_MOST_BYTES = 64 << 20  # of relocations
_MOST_MODULES = 1 << 20


class _Way(NamedTuple):
    """How an object's variables are found."""

    offset: Optional[int] = None  # from the thread pointer
    module: int = 0


class ThreadLocals:
    """The beginnings of the thread-local variables of all objects."""

    def __init__(self, reading: ProcessImage, memory: Memory) -> None:
        self._memory = memory
        self._is_glibc = any(PurePath(image.name).name.startswith("ld-linux") for image in reading.images)
        self._ways: list[tuple[Image, _Way]] = []
        for number, image in enumerate(reading.images):
            if not image.thread_local_bytes:
                continue
            offset = None if number else place_of_thread_local(memory, image)
            way = _Way(offset) if offset is not None else _way_of(memory, image)
            if way is not None:
                self._ways.append((image, way))
        self._known: dict[int, list[tuple[int, Image]]] = {}

    def of_thread(self, pointer: int) -> list[tuple[int, Image]]:
        """Return where the variables of each object begin in the thread with this *pointer*, in order."""
        if pointer not in self._known:
            found = [(self._start(pointer, image, way), image) for image, way in self._ways]
            self._known[pointer] = sorted((start, image) for start, image in found if start)
        return self._known[pointer]

    def _start(self, pointer: int, image: Image, way: _Way) -> int:
        if way.offset is not None:
            return pointer + way.offset
        try:
            table = word_at(self._memory, pointer + _TABLE_AT[_machine(self._memory, image)])
            if not self._is_glibc or way.module > word_at(self._memory, table - 16):
                return 0
            start = word_at(self._memory, table + 16 * way.module)
        except MemoryUnreadable:
            return 0
        return start if start % 8 == 0 and start < 1 << 63 else 0  # all bits are set until the first use


def _machine(memory: Memory, image: Image) -> int:
    return int.from_bytes(memory.read(image.start + 18, 2), "little")


def place_of_thread_local(memory: Memory, program: Image) -> Optional[int]:
    """Return how far from the thread pointer the variables of *program* begin; None if that is unknown."""
    try:
        machine = _machine(memory, program)
        segment = next((row for row in program_headers(memory, program.start) if row[0] == _PT_TLS), None)
    except MemoryUnreadable:
        return None
    if segment is None:
        return None
    align = max(segment[7], 1)
    if machine == _AARCH64:
        return -(-_AARCH64_HEAD // align) * align
    return -(-(-segment[6] // align) * align) if machine == _X86_64 else None


def _way_of(memory: Memory, image: Image) -> Optional[_Way]:
    """Return how the variables of a library are found, by what the dynamic linker wrote where these are used."""
    np = import_numpy()
    try:
        machine = _machine(memory, image)
        dynamic = dict(dynamic_entries(memory, image.start, image.bias))
        table, symbols = (_address(dynamic.get(tag, 0), image.bias) for tag in (_DT_RELA, _DT_SYMTAB))
        size = min(dynamic.get(_DT_RELASZ, 0), _MOST_BYTES) // 24 * 24
        rows = np.frombuffer(memory.read(table, size), np.uint64).reshape(-1, 3)
        kinds = rows[:, 1] & np.uint64(0xFFFFFFFF)
        for kind in (_MODULE.get(machine), _OFFSET.get(machine)):
            if kind is None:
                return None
            for at, info, addend in rows[kinds == np.uint64(kind)].tolist():
                value = _value(memory, symbols, info >> 32)
                if value is None:
                    continue
                word = word_at(memory, image.bias + at)
                if kind == _MODULE[machine]:
                    if 0 < word < _MOST_MODULES:
                        return _Way(module=word)
                else:
                    return _Way((word - value - addend + (1 << 63)) % (1 << 64) - (1 << 63))
    except MemoryUnreadable:
        pass
    return None


def _address(value: int, bias: int) -> int:
    return value if value >= bias else value + bias


def _value(memory: Memory, symbols: int, number: int) -> Optional[int]:
    """Return the place of a symbol in the object's variables, 0 for none; None if another object has it."""
    if not number:
        return 0
    _, _, _, section, value = struct.unpack("<IBBHQ", memory.read(symbols + 24 * number, 16))
    return int(value) if section else None
