"""DWARF's line table with what gdb's Python API leaves out: columns, and several statements at one address."""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Optional, Union

from gdbmem.linux.elf.objects import line_sections

_MOST_BYTES = 1 << 28  # of sections with line tables
_MOST_ROWS = 500_000
_MOST_UNITS = _MOST_FILES = 100_000
_LONGEST_PATH = 4096
# DW_LNE_set_address: what follows belongs to one piece of code without a gap.
_SET_ADDRESS = re.compile(rb"\x00\x09\x02(........)", re.DOTALL)
_STRING, _DATA2, _UDATA, _DATA1, _STRP, _DATA16, _LINE_STRP = 0x08, 0x05, 0x0F, 0x0B, 0x0E, 0x1E, 0x1F
_PATH, _DIRECTORY = 1, 2
_SIZES = {_DATA1: 1, _DATA2: 2, _DATA16: 16}


class LineRow(NamedTuple):
    """An address at which code of another place in the sources begins."""

    address: int
    file: str  # with its folder as the compiler was given it
    line: int
    column: int  # from 1 on; 0: unknown
    begins_statement: bool


def read_line_rows(path: str, address: int, loaded: int) -> list[LineRow]:
    """Return the rows of the compilation unit that has the code at *address*, in the order of the ELF file at *path*.

    Its .text is loaded at *loaded*. Empty if the file has no line table, is damaged, or too large for a prompt.
    """
    try:
        status = Path(path).stat()
    except OSError:
        return []
    version = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    try:
        unit = _unit_at(path, address, loaded, version)
        return _rows(path, *unit, version) if unit is not None else []
    except (ValueError, LookupError, struct.error):  # a stranger's file
        return []


@functools.lru_cache(maxsize=1 << 10)
def _unit_at(
    path: str, address: int, loaded: int, _version: tuple[int, ...]
) -> Optional[tuple[int, int, int]]:
    """Return where the line table of a unit begins and ends, and by how much its addresses are moved."""
    sections = line_sections(path, _MOST_BYTES)
    if sections is None:
        return None
    slide = loaded - int.from_bytes(sections[b"text"], "little")
    data = sections[b".debug_line"]
    starts = ((int.from_bytes(m[1], "little"), m.start()) for m in _SET_ADDRESS.finditer(data))
    _, at = max((one for one in starts if one[0] <= address - slide), default=(0, -1))
    return next(((start, end, slide) for start, end in _programs(data) if start <= at < end), None)


@functools.lru_cache(maxsize=4)
def _rows(path: str, start: int, end: int, slide: int, _version: tuple[int, ...]) -> list[LineRow]:
    sections = line_sections(path, _MOST_BYTES)
    return [] if sections is None else list(_Program(sections, start, end, slide).rows())


def _programs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each unit's line table begins and ends."""
    at = 0
    for _ in range(_MOST_UNITS):
        if at + 4 > len(data):
            return
        (size,) = struct.unpack_from("<I", data, at)
        if size >= 0xFFFFFFF0:  # of more than 4 GiB: no compiler makes one
            return
        yield at, at + 4 + size
        at += 4 + size


def _joined(folder: str, name: str) -> str:
    return name if name.startswith("/") or not folder else f"{folder}/{name}"


class _Program:
    """The line table of one compilation unit: a header, and a program that makes its rows."""

    def __init__(self, sections: dict[bytes, bytes], start: int, end: int, slide: int) -> None:
        self._sections = sections
        self._data = sections[b".debug_line"]
        self._at = start + 4
        self._end = end
        self._slide = slide
        self._version = self._fixed("<H")
        if not 2 <= self._version <= 5:
            raise ValueError(f"line table of version {self._version}")
        if self._version >= 5:
            self._fixed("<H")  # sizes of an address and of a segment selector
        self._opcodes_at = self._fixed("<I")
        self._opcodes_at += self._at
        self._unit = self._fixed("<B")
        if self._version >= 4:
            self._fixed("<B")  # operations of a VLIW instruction
        self._is_stmt = bool(self._fixed("<B"))
        self._line_base, self._line_range, self._opcode_base = (
            self._fixed("<b"),
            self._fixed("<B"),
            self._fixed("<B"),
        )
        if not self._line_range:
            raise ValueError("a line table without a range of lines")
        self._lengths = [self._fixed("<B") for _ in range(self._opcode_base - 1)]
        self._files = (
            self._new_files() if self._version >= 5 else ["", *islice(self._old_files(), _MOST_FILES)]
        )

    def _fixed(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def _leb(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 70:
                raise ValueError("a number is too long")

    def _text(self) -> str:
        end = self._data.index(b"\0", self._at, self._at + _LONGEST_PATH)
        text = os.fsdecode(self._data[self._at : end])
        self._at = end + 1
        return text

    def _old_files(self) -> Iterator[str]:
        folders = [""]
        while self._data[self._at]:
            folders.append(self._text())
            if len(folders) > _MOST_FILES:
                raise ValueError("too many folders")
        self._at += 1
        while self._data[self._at]:
            name, folder = self._text(), self._leb()
            self._leb(), self._leb()  # time and size
            yield _joined(folders[folder], name)
        self._at += 1

    def _new_files(self) -> list[str]:
        folders = [path for path, _ in self._entries()]
        return [_joined(folders[folder], path) for path, folder in self._entries()]

    def _entries(self) -> list[tuple[str, int]]:
        """Read a table of folders or files: a path, and the number of its folder."""
        formats = [(self._leb(), self._leb()) for _ in range(self._fixed("<B"))]
        found = []
        number = self._leb()
        if number > _MOST_FILES:
            raise ValueError(f"{number} files or folders")
        for _ in range(number):
            values = {kind: self._value(form) for kind, form in formats}
            found.append((str(values.get(_PATH, "")), int(values.get(_DIRECTORY, 0))))
        return found

    def _value(self, form: int) -> Union[int, str]:
        if form == _STRING:
            return self._text()
        if form in (_STRP, _LINE_STRP):
            texts = self._sections[b".debug_line_str" if form == _LINE_STRP else b".debug_str"]
            at = self._fixed("<I")
            return os.fsdecode(texts[at : texts.index(b"\0", at, at + _LONGEST_PATH)])
        if form == _UDATA:
            return self._leb()
        size = _SIZES.get(form)
        if size is None:
            raise ValueError(f"form {form:#x} in a line table")
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "little")

    def rows(self) -> Iterator[LineRow]:
        """Yield the rows in their order; raises ValueError, LookupError or struct.error for a damaged table."""
        self._at = self._opcodes_at
        made = 0
        address, file, line, column, is_stmt = 0, 1, 1, 0, self._is_stmt
        while self._at < self._end:
            opcode = self._data[self._at]
            self._at += 1
            adds_row = False
            if opcode >= self._opcode_base:
                advance, more = divmod(opcode - self._opcode_base, self._line_range)
                address += advance * self._unit
                line += self._line_base + more
                adds_row = True
            elif opcode == 0:
                size = self._leb()
                end, kind = self._at + size, self._data[self._at]
                if kind == 1:  # DW_LNE_end_sequence
                    address, file, line, column, is_stmt = 0, 1, 1, 0, self._is_stmt
                elif kind == 2 and size == 9:  # DW_LNE_set_address
                    address = int.from_bytes(self._data[self._at + 1 : end], "little")
                self._at = end
            elif opcode == 1:  # DW_LNS_copy
                adds_row = True
            elif opcode == 2:
                address += self._leb() * self._unit
            elif opcode == 3:
                line += self._leb(signed=True)
            elif opcode == 4:
                file = self._leb()
            elif opcode == 5:
                column = self._leb()
            elif opcode == 6:
                is_stmt = not is_stmt
            elif opcode == 8:  # DW_LNS_const_add_pc
                address += (255 - self._opcode_base) // self._line_range * self._unit
            elif opcode == 9:
                address += self._fixed("<H")
            else:
                for _ in range(self._lengths[opcode - 1]):
                    self._leb()
            if adds_row:
                yield LineRow(address + self._slide, self._files[file], line, column, is_stmt)
                made += 1
                if made > _MOST_ROWS:
                    raise ValueError("more rows than a prompt can wait for")
