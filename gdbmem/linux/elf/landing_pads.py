"""Landing pads: the addresses at which the unwinder resumes a function that an exception passes through.

Source: the Linux Standard Base's description of .eh_frame_hdr and .eh_frame, and the Itanium C++ ABI's of the
language-specific data area that g++ and clang++ write.
"""

from __future__ import annotations

import struct
from typing import Callable, NamedTuple, Optional

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
