"""Unwind tables of an ELF image: how to find a function's caller at each address, and where exceptions resume it.

elfutils' libdw finds callers; only the program headers and the unwind tables (.eh_frame) are handed to it, from a file
or from a process's memory.

Source: elfutils/libdw.h (dwarf_getcfi_elf, dwarf_cfi_addrframe, dwarf_frame_cfa, dwarf_frame_register).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.elf.objects import address_in

ReadAt = Callable[[int, int], bytes]  # offset in the file, size → bytes, fewer at the end

_EV_CURRENT = 1
_PT_LOAD, _PT_GNU_EH_FRAME = 1, 0x6474E550
_LARGEST_TABLE = 256 << 20
_LARGEST_FILE = 1 << 40
_MOST_OPERATIONS = 64
_PCREL, _DATAREL, _SDATA4, _UDATA4, _ABSENT = 0x10, 0x30, 0x0B, 0x03, 0xFF

# DWARF operations
_DEREF, _CONST1U, _PLUS, _PLUS_UCONST, _AND, _MINUS, _SHL, _GE = (
    0x06,
    0x08,
    0x22,
    0x23,
    0x1A,
    0x1C,
    0x24,
    0x2A,
)
_LIT0, _BREG0, _BREGX, _CFA, _STACK_VALUE = 0x30, 0x70, 0x92, 0x9C, 0x9F


class Operation(NamedTuple):
    """One step of a DWARF expression."""

    atom: int
    number: int  # signed
    number2: int


Expression = tuple[Operation, ...]
SAME: Expression = ()  # the caller's register is this function's


class UnwindRule(NamedTuple):
    """The rule for finding the caller at some addresses of a file."""

    start: int  # addresses as the file has them
    end: int
    cfa: Expression
    registers: dict[int, Optional[Expression]]  # by DWARF number; None: its value is lost
    return_column: int
    is_signal: bool  # the caller was interrupted, and makes no call


class _Op(ctypes.Structure):
    _fields_ = [
        ("atom", ctypes.c_uint8),
        ("number", ctypes.c_uint64),
        ("number2", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    ]


_Ops = ctypes.POINTER(_Op)


@lru_cache(maxsize=1)
def _libdw() -> Optional[tuple[ctypes.CDLL, ctypes.CDLL]]:
    try:
        libdw, libelf = ctypes.CDLL("libdw.so.1"), ctypes.CDLL("libelf.so.1")
    except OSError:
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    libelf.elf_version(_EV_CURRENT)
    libelf.elf_memory.argtypes, libelf.elf_memory.restype = [pointer, size], pointer
    libelf.elf_end.argtypes = [pointer]
    libdw.dwarf_getcfi_elf.argtypes, libdw.dwarf_getcfi_elf.restype = [pointer], pointer
    libdw.dwarf_cfi_end.argtypes = [pointer]
    libdw.dwarf_cfi_addrframe.argtypes = [pointer, ctypes.c_uint64, pointer]
    libdw.dwarf_frame_info.argtypes = [pointer, pointer, pointer, pointer]
    libdw.dwarf_frame_cfa.argtypes = [pointer, pointer, pointer]
    libdw.dwarf_frame_register.argtypes = [pointer, ctypes.c_int, pointer, pointer, pointer]
    return libdw, libelf


def can_unwind() -> bool:
    """Return whether elfutils' libdw is installed."""
    return _libdw() is not None


class UnwindTable:
    """The unwind table of one ELF image. Close it."""

    def __init__(self, read: ReadAt) -> None:
        """Read the image with *read*. Raises ValueError if it has no table that can be read, OSError as *read*."""
        loaded = _libdw()
        if loaded is None:
            raise ValueError("libdw is not installed")
        self._libdw, self._libelf = loaded
        self._image, self._segments = _partial_image(read)
        self._buffer = (ctypes.c_char * len(self._image)).from_buffer(self._image)
        self._elf = self._libelf.elf_memory(ctypes.addressof(self._buffer), len(self._image))
        self._table = self._libdw.dwarf_getcfi_elf(self._elf) if self._elf else None
        if not self._table:
            self.close()
            raise ValueError("no unwind table")

    def close(self) -> None:
        """Release its memory."""
        if self._table:
            self._libdw.dwarf_cfi_end(self._table)
        if self._elf:
            self._libelf.elf_end(self._elf)
        self._table = self._elf = None
        del self._buffer
        self._image.close()

    def address(self, offset: int) -> Optional[int]:
        """Return the address that the image gives to the byte at *offset* of its file; None if it has none."""
        return address_in(self._segments, offset)

    def rule(self, address: int, wanted: Sequence[int]) -> Optional[UnwindRule]:
        """Return the rule at *address* of the file for the registers *wanted*; None if there is none."""
        frame = ctypes.c_void_p()
        if self._libdw.dwarf_cfi_addrframe(self._table, address, ctypes.byref(frame)) != 0:
            return None
        try:
            return self._rule(frame, wanted)
        finally:
            _libc().free(frame)

    def _rule(self, frame: ctypes.c_void_p, wanted: Sequence[int]) -> Optional[UnwindRule]:
        start, end, is_signal = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_bool()
        column = self._libdw.dwarf_frame_info(
            frame, ctypes.byref(start), ctypes.byref(end), ctypes.byref(is_signal)
        )
        ops, count = _Ops(), ctypes.c_size_t()
        if column < 0 or self._libdw.dwarf_frame_cfa(frame, ctypes.byref(ops), ctypes.byref(count)) != 0:
            return None
        cfa = _expression(ops, count.value)
        if not cfa:
            return None
        registers = {number: self._register(frame, number) for number in {*wanted, column}}
        return UnwindRule(start.value, end.value, cfa, registers, column, is_signal.value)

    def _register(self, frame: ctypes.c_void_p, number: int) -> Optional[Expression]:
        room, ops, count = (_Op * 3)(), _Ops(), ctypes.c_size_t()
        if self._libdw.dwarf_frame_register(frame, number, room, ctypes.byref(ops), ctypes.byref(count)) != 0:
            return None
        if count.value:
            return _expression(ops, count.value)
        return None if ops else SAME  # libdw's mark for undefined, as opposed to unchanged


def _expression(ops: ctypes._Pointer[_Op], count: int) -> Expression:
    found = []
    for one in ops[: min(count, _MOST_OPERATIONS)]:
        number = one.number - (1 << 64) if one.number >> 63 else one.number
        second = one.number2 - (1 << 64) if one.number2 >> 63 else one.number2
        found.append(Operation(one.atom, number, second))
    return tuple(found)


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


def evaluate(
    expression: Expression,
    registers: Sequence[Optional[int]],
    cfa: int,
    read_word: Callable[[int], Optional[int]],
) -> Optional[tuple[int, bool]]:
    """Return the result of *expression*, and whether it is a value (else its address); None if unknown."""
    stack: list[int] = []
    is_value = False
    try:
        for atom, number, number2 in expression:
            if atom == _CFA:
                stack.append(cfa)
            elif _BREG0 <= atom < _BREG0 + 32:
                stack.append(_known(registers, atom - _BREG0) + number)
            elif atom == _BREGX:
                stack.append(_known(registers, number) + number2)
            elif atom == _PLUS_UCONST:
                stack[-1] += number
            elif atom == _DEREF:
                word = read_word(stack.pop())
                if word is None:
                    return None
                stack.append(word)
            elif _LIT0 <= atom < _LIT0 + 32:
                stack.append(atom - _LIT0)
            elif _CONST1U <= atom < _CONST1U + 10:
                stack.append(number)
            elif atom in _BINARY:
                top = stack.pop()
                stack.append(_BINARY[atom](stack.pop(), top))
            elif atom == _STACK_VALUE:
                is_value = True
            else:
                return None
        return stack.pop() & (1 << 64) - 1, is_value
    except (IndexError, KeyError):
        return None


def _known(registers: Sequence[Optional[int]], number: int) -> int:
    value = registers[number] if number >= 0 else None
    if value is None:
        raise KeyError(number)
    return value


_BINARY: dict[int, Callable[[int, int], int]] = {
    _PLUS: lambda a, b: a + b,
    _MINUS: lambda a, b: a - b,
    _AND: lambda a, b: a & b,
    _SHL: lambda a, b: a << min(b, 64),
    _GE: lambda a, b: int(a >= b),
}


_Segment = tuple[int, int, int]  # offset in the file, size there, address


def _partial_image(read: ReadAt) -> tuple[mmap.mmap, list[_Segment]]:
    """Return memory with an ELF file's header, program headers and unwind tables at their offsets in the file."""
    header = bytearray(read(0, 64))
    if header[:6] != b"\x7fELF\x02\x01" or len(header) < 64:
        raise ValueError("no 64-bit ELF image")
    (at,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    if size != 56 or not count:
        raise ValueError("no program headers")
    headers = read(at, size * count)
    rows = [struct.unpack_from("<IIQQQQQQ", headers, n * size) for n in range(len(headers) // size)]
    index = next((row for row in rows if row[0] == _PT_GNU_EH_FRAME), None)
    if index is None:
        raise ValueError("no unwind table")
    _, _, index_at, index_address, _, index_size, _, _ = index
    tables = read(index_at, min(index_size, _LARGEST_TABLE))
    first = _frames_address(tables, index_address)
    load = next((r for r in rows if r[0] == _PT_LOAD and r[3] <= first < r[3] + r[5]), None)
    if load is None:
        raise ValueError("the unwind table is not in the image")
    frames_at = first - load[3] + load[2]
    frames = read(frames_at, min(load[2] + load[5] - frames_at, _LARGEST_TABLE))
    # Without section headers libdw goes by the program headers alone.
    header[40:48], header[58:64] = bytes(8), bytes(6)
    pieces = [(0, bytes(header)), (at, headers), (frames_at, frames), (index_at, tables)]
    end = max(where + len(data) for where, data in pieces)
    if end > _LARGEST_FILE:
        raise ValueError("no file is that large")
    image = mmap.mmap(-1, end)  # pages that are not written to cost nothing
    for where, data in pieces:
        image[where : where + len(data)] = data
    return image, [(row[2], row[5], row[3]) for row in rows if row[0] == _PT_LOAD]


def _frames_address(index: bytes, address: int) -> int:
    """Return the address of .eh_frame from .eh_frame_hdr (*index*, at *address*)."""
    if len(index) < 12 or index[0] != 1:
        raise ValueError("no index of the unwind table")
    encoding = index[1]
    form = {_SDATA4: "<i", _UDATA4: "<I"}.get(encoding & 0x0F)
    base = {_PCREL: address + 4, _DATAREL: address, 0: 0}.get(encoding & 0x70)
    if form is None or base is None or encoding == _ABSENT:
        raise ValueError("an index of an unknown form")
    return base + int(struct.unpack_from(form, index, 4)[0])


# Landing pads: the addresses at which the unwinder resumes a function that an exception passes through.
#
# Source: the Linux Standard Base's description of .eh_frame_hdr and .eh_frame, and the Itanium C++ ABI's of the
# language-specific data area that g++ and clang++ write.


Read = Callable[[int, int], bytes]
"""Returns so many bytes at an address; raises an exception if they can't be read."""

_OMITTED = 0xFF
_FIXED = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}
_ULEB, _SLEB = 0x01, 0x09
_PC_RELATIVE, _DATA_RELATIVE = 0x10, 0x30
_TABLE_OF_4_BYTES = 0x3B  # relative to the header, signed: what every linker writes
_LONGEST_NUMBER = 10  # bytes of a 64-bit LEB128


class _Function(NamedTuple):
    """One entry of .eh_frame."""

    start: int
    size: int
    table: Optional[int]  # address of its language-specific data area


class _Cursor:
    """Reads numbers one after the other."""

    def __init__(self, read: Read, address: int) -> None:
        self._read = read
        self.address = address

    def fixed(self, layout: str) -> int:
        size = struct.calcsize(layout)
        (value,) = struct.unpack(layout, self._read(self.address, size))
        self.address += size
        return int(value)

    def leb(self, *, signed: bool = False) -> int:
        value = 0
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            byte = self.fixed("<B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - (1 << (shift + 7)) if signed and byte & 0x40 else value
        raise ValueError("a number is too long")

    def encoded(self, encoding: int, *, data: int = 0) -> int:
        """Read a pointer in one of the DW_EH_PE encodings; 0 if it is null."""
        here, kind = self.address, encoding & 0x0F
        if kind in (_ULEB, _SLEB):
            value = self.leb(signed=kind == _SLEB)
        elif kind in _FIXED:
            value = self.fixed(_FIXED[kind])
        else:
            raise ValueError(f"unknown encoding {encoding:#x}")
        if not value:
            return 0
        base = {0: 0, _PC_RELATIVE: here, _DATA_RELATIVE: data}.get(encoding & 0x70)
        if base is None:
            raise ValueError(f"unknown encoding {encoding:#x}")
        return (value + base) & (1 << 64) - 1


def find_landing_pads(read: Read, header: int, address: int) -> Optional[frozenset[int]]:
    """Return the landing pads of the code at *address*, by the .eh_frame_hdr at *header*.

    A function in two pieces has an entry for each of them. None if the header doesn't cover the address.
    Raises ValueError or struct.error for data that are not understood, and what *read* raises.
    """
    entry = _find_entry(read, header, address)
    if entry is None:
        return None
    function = _read_function(read, entry)
    if not function.start <= address < function.start + function.size:
        return None
    return frozenset() if function.table is None else _read_pads(read, function.table, function.start)


def _find_entry(read: Read, header: int, address: int) -> Optional[int]:
    cursor = _Cursor(read, header)
    version, frame_encoding, count_encoding, table_encoding = (cursor.fixed("<B") for _ in range(4))
    if version != 1 or table_encoding != _TABLE_OF_4_BYTES:
        raise ValueError("no table to search")
    cursor.encoded(frame_encoding, data=header)
    low, high = 0, cursor.encoded(count_encoding, data=header)
    table = cursor.address
    while low < high:
        middle = (low + high) // 2
        (start,) = struct.unpack("<i", read(table + 8 * middle, 4))
        if header + start <= address:
            low = middle + 1
        else:
            high = middle
    if not low:
        return None
    return header + int(struct.unpack("<ii", read(table + 8 * (low - 1), 8))[1])


def _read_function(read: Read, entry: int) -> _Function:
    cursor = _Cursor(read, entry)
    if cursor.fixed("<I") == 0xFFFFFFFF:
        raise ValueError("an entry in the 64-bit format")
    at = cursor.address
    pointers, tables = _read_common(read, at - cursor.fixed("<I"))
    start = cursor.encoded(pointers)
    size = cursor.encoded(pointers & 0x0F)
    if tables is None:
        return _Function(start, size, None)
    cursor.leb()
    return _Function(start, size, None if tables == _OMITTED else cursor.encoded(tables) or None)


def _read_common(read: Read, address: int) -> tuple[int, Optional[int]]:
    """Return how the entries of the common part at *address* encode their pointers, and those to their tables."""
    cursor = _Cursor(read, address + 8)
    cursor.fixed("<B")
    letters = bytearray()
    while byte := cursor.fixed("<B"):
        letters.append(byte)
    cursor.leb(), cursor.leb(signed=True), cursor.leb()  # alignments, and the register of the return address
    if letters[:1] != b"z":
        return 0, None
    cursor.leb()
    pointers, tables = 0, _OMITTED
    for letter in letters[1:].decode("ascii"):
        if letter == "R":
            pointers = cursor.fixed("<B")
        elif letter == "L":
            tables = cursor.fixed("<B")
        elif letter == "P":
            cursor.encoded(cursor.fixed("<B") & 0x7F)
    return pointers, tables


def _read_pads(read: Read, table: int, function: int) -> frozenset[int]:
    cursor = _Cursor(read, table)
    start_encoding = cursor.fixed("<B")
    first = function if start_encoding == _OMITTED else cursor.encoded(start_encoding)
    if cursor.fixed("<B") != _OMITTED:
        cursor.leb()
    encoding = cursor.fixed("<B")
    size = cursor.leb()
    end, pads = cursor.address + size, set()
    while cursor.address < end:
        cursor.encoded(encoding), cursor.encoded(encoding)
        pad = cursor.encoded(encoding)
        cursor.leb()
        if pad:
            pads.add(first + pad)
    return frozenset(pads)
