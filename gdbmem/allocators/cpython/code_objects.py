"""CPython's code objects: file, name and lines, by the member table of the type of code objects.

Include/cpython/code.h; the table is tp_members of Include/cpython/object.h, PyTypeObject, whose
place is the same in 3.8 to 3.15.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Optional

from gdbmem.allocators.cpython.objects import Types, read_str
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text, word_at, words_at

# Line tables of CPython's code objects: the line of an instruction.
#
# Three formats: co_lnotab up to 3.9, co_linetable of 3.10 (PEP 626), co_linetable since 3.11 (PEP 657,
# Objects/locations.md).


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


_MEMBERS_AT = 240  # in a type
_MEMBER = struct.Struct("<QiIqiIQ")  # name, type, -, offset, flags, -, doc
_MOST_MEMBERS = 64
_LONGEST_NAME = 32
_SIZE_AT, _ITEMS_AT = 16, 32  # in a bytes object
_TUPLE_ITEMS_AT, _MOST_LOCALS = 24, 10_000
_LARGEST_TABLE = 1 << 20
_INSTRUCTION = 2  # bytes
_KEPT = 20_000  # names of code objects


class PythonCode(NamedTuple):
    """A code object; *name* is the qualified one if this version has it."""

    address: int
    file: str
    name: str
    first_line: int
    lines: bytes
    kind: LineTable
    start: int  # of the instructions, if they follow the object (since 3.11); 0: they don't
    bytes: int  # of the instructions; 0: unknown

    def line(self, offset: int) -> Optional[int]:
        """Return the line of the instruction at *offset* bytes; None if it has none."""
        return line_of(self.lines, self.kind, self.first_line, offset)


class _Members(NamedTuple):
    file: int
    name: int
    first_line: int
    lines: int
    kind: LineTable
    basic_bytes: int  # of a code object

    @property
    def end(self) -> int:
        return max(self.file, self.name, self.first_line, self.lines) + 8


class CodeReader:
    """Reads code objects of one interpreter, each again only if its parts have changed."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._types = Types(memory)
        self._members: dict[int, Optional[_Members]] = {}  # by type
        self._known: dict[tuple[int, bytes], PythonCode] = {}

    def at(self, address: int) -> Optional[PythonCode]:
        """Return the code object at *address*; None if there is none, or it can't be read."""
        try:
            kind = word_at(self._memory, address + 8)
            if kind not in self._members:
                self._members[kind] = self._members_of(kind)
            members = self._members[kind]
            return None if members is None else self._read(address, members)
        except MemoryUnreadable:
            return None

    def _read(self, address: int, members: _Members) -> Optional[PythonCode]:
        head = self._memory.read(address + 8, members.end - 8)  # without the reference count
        key = (address, head)
        if key not in self._known:
            code = self._decoded(address, head, members)
            if code is None:
                return None
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = code
        return self._known[key]

    def _decoded(self, address: int, head: bytes, members: _Members) -> Optional[PythonCode]:
        def word(at: int) -> int:
            return int.from_bytes(head[at - 8 : at], "little")

        file = self._text_at(word(members.file))
        name = self._text_at(word(members.name))
        table = self._bytes_at(word(members.lines))
        if table is None:
            return None
        first_line = int.from_bytes(
            head[members.first_line - 8 : members.first_line - 4], "little", signed=True
        )
        follows = members.kind is LineTable.LOCATIONS
        count = word(_SIZE_AT) if follows else 0
        start = address + members.basic_bytes if follows else 0
        return PythonCode(
            address,
            file,
            name,
            first_line,
            table,
            members.kind,
            start,
            min(count, _LARGEST_TABLE) * _INSTRUCTION,
        )

    def _text_at(self, address: int) -> str:
        return read_str(self._memory, address) or read_str(self._memory, address, control=True)

    def _bytes_at(self, address: int) -> Optional[bytes]:
        size = word_at(self._memory, address + _SIZE_AT)
        return self._memory.read(address + _ITEMS_AT, size) if size <= _LARGEST_TABLE else None

    def _members_of(self, kind: int) -> Optional[_Members]:
        """Return the offsets of the members of code objects, if the type at *kind* is theirs."""
        found = self._types.at(kind)
        if found is None or found.name != "code":
            return None
        offsets = member_offsets(self._memory, kind)
        table = offsets.get("co_linetable", offsets.get("co_lnotab"))
        places = [offsets.get(name) for name in ("co_filename", "co_firstlineno")]
        name = offsets.get("co_qualname", offsets.get("co_name"))
        if table is None or name is None or places[0] is None or places[1] is None:
            return None
        if "co_linetable" not in offsets:
            lines = LineTable.LNOTAB
        else:
            lines = LineTable.LOCATIONS if "co_qualname" in offsets else LineTable.RANGES
        return _Members(places[0], name, places[1], table, lines, found.basic_bytes)


def member_offsets(memory: Memory, kind: int) -> dict[str, int]:
    """Return the members of the type at *kind*, with their offsets in an object.

    Raises MemoryUnreadable.
    """
    table = word_at(memory, kind + _MEMBERS_AT)
    offsets: dict[str, int] = {}
    for number in range(_MOST_MEMBERS if table else 0):
        name, _, _, offset, _, _, _ = _MEMBER.unpack(memory.read(table + number * _MEMBER.size, _MEMBER.size))
        if not name:
            break
        if 0 < offset < 4096:
            offsets[(read_text(memory, name, _LONGEST_NAME) or b"").decode(errors="replace")] = offset
    return offsets


def frame_places(memory: Memory, kind: int) -> Optional[tuple[int, int, int, int]]:
    """Return the offsets of caller, code and instruction in frame objects of the type at *kind*, and the unit.

    None if the type has none of these members: since 3.11 frame objects are not the executing frames.
    """
    offsets = member_offsets(memory, kind)
    back, code, traced = (offsets.get(name) for name in ("f_back", "f_code", "f_trace_lines"))
    if back is None or code is None or traced is None:
        return None
    if "f_lasti" in offsets:
        return back, code, offsets["f_lasti"], 1
    return back, code, traced + 12, _INSTRUCTION  # 3.10 computes f_lasti: f_trace_lines, f_gen, f_lasti


def words(memory: Memory, address: int, count: int) -> tuple[int, ...]:
    """Return *count* words; zeros if they can't be read."""
    try:
        return words_at(memory, address, count)
    except (MemoryUnreadable, struct.error):
        return (0,) * count


def local_names(memory: Memory, code: int) -> tuple[list[str], int]:
    """Return the names of the local variables of the code object at *code*, cells included, and its stack's depth.

    Since 3.11 they are two words before the file name, the kind of each in between. Raises MemoryUnreadable.
    """
    offsets = member_offsets(memory, word_at(memory, code + 8))
    if "co_qualname" not in offsets or "co_stacksize" not in offsets:
        return [], 0
    depth = int.from_bytes(memory.read(code + offsets["co_stacksize"], 4), "little")
    names = word_at(memory, code + offsets["co_filename"] - 16)
    count = word_at(memory, names + _SIZE_AT)
    items = words_at(memory, names + _TUPLE_ITEMS_AT, count) if count <= _MOST_LOCALS else ()
    return [read_str(memory, one) for one in items], min(depth, _MOST_LOCALS)
