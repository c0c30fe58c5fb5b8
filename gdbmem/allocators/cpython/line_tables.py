"""Line tables of CPython's code objects: the line of an instruction.

Three formats: co_lnotab up to 3.9, co_linetable of 3.10 (PEP 626), co_linetable since 3.11 (PEP 657,
Objects/locations.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Optional

_NO_LINE = -128
_NO_COLUMNS, _LONG, _NONE = 13, 14, 15  # kinds of entries since 3.11
_ONE_LINE = (10, 12)
_SHORT_BYTES, _ONE_LINE_BYTES = 1, 2  # that follow the first byte


class LineTable(Enum):
    """The format of a line table."""

    LNOTAB = "up to 3.9"
    RANGES = "3.10"
    LOCATIONS = "since 3.11"


def line_of(table: bytes, kind: LineTable, first_line: int, offset: int) -> Optional[int]:
    """Return the line of the instruction at *offset* bytes in the code; None if it has none.

    *first_line* is co_firstlineno. An offset below 0, before the first instruction, has that line.
    """
    if offset < 0:
        return first_line
    if kind is LineTable.LNOTAB:
        return _line_in_lnotab(table, first_line, offset)
    ranges = _ranges(table, first_line) if kind is LineTable.RANGES else _locations(table, first_line)
    return next((line for end, line in ranges if offset < end), None)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _line_in_lnotab(table: bytes, line: int, offset: int) -> int:
    address = 0
    for at in range(0, len(table) - 1, 2):
        address += table[at]
        if address > offset:
            break
        line += _signed(table[at + 1])
    return line


def _ranges(table: bytes, line: int) -> Iterator[tuple[int, Optional[int]]]:
    """Yield the end of each range of instructions, and its line."""
    end = 0
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        delta = _signed(table[at + 1])
        if delta != _NO_LINE:
            line += delta
        yield end, None if delta == _NO_LINE else line


def _locations(table: bytes, line: int) -> Iterator[tuple[int, Optional[int]]]:
    """Yield the end of each range of instructions, and its first line."""
    at, end = 0, 0
    while at < len(table):
        kind = table[at] >> 3 & 15
        end += 2 * ((table[at] & 7) + 1)
        at += 1
        if kind == _NONE:
            yield end, None
            continue
        if kind in (_NO_COLUMNS, _LONG):
            delta, at = _signed_number(table, at)
            line += delta
            for _ in range(3 if kind == _LONG else 0):  # the last line, and columns
                _, at = _number(table, at)
        elif _ONE_LINE[0] <= kind <= _ONE_LINE[1]:
            line += kind - _ONE_LINE[0]
            at += _ONE_LINE_BYTES
        else:
            at += _SHORT_BYTES
        yield end, line


def _number(table: bytes, at: int) -> tuple[int, int]:
    """Return the varint (6 bits per byte) at *at*, and the offset of the next one."""
    value = shift = 0
    while at < len(table):
        value |= (table[at] & 63) << shift
        shift += 6
        at += 1
        if not table[at - 1] & 64:
            break
    return value, at


def _signed_number(table: bytes, at: int) -> tuple[int, int]:
    value, at = _number(table, at)
    return (-(value >> 1) if value & 1 else value >> 1), at
