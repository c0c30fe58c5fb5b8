"""Reading an ELF file without a debugger: its build-id, where its code is loaded, which symbols cover it."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, Callable, Optional

from gdbmem.files import open_regular
from gdbmem.linux.elf.objects import Image, build_id_in

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE = 1, 2, 3, 4
_DT_NEEDED, _DT_STRTAB = 1, 5
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11

_SHF_COMPRESSED, _ELFCOMPRESS_ZSTD = 1 << 11, b"\x02\0\0\0"
_SKELETON_OF_DWARF_5 = b"\x05\0\x04"  # version and DW_UT_skeleton, behind the length of a unit
_MOST_UNITS = 1000
_DEBUG_LINK = b".gnu_debuglink\0"
_LARGEST_TABLE = 256 << 20


@dataclass(frozen=True)
class Elf:
    """One 64-bit ELF file."""

    path: Path
    build_id: str  # hexadecimal; "" if it has none
    segments: tuple[tuple[int, int, int], ...]  # file offset, size in the file, address
    is_program: bool = False  # names a loader, as all but static programs do
    _symbols: list[list[tuple[int, int]]] = field(default_factory=list, repr=False)

    def address(self, offset: int) -> Optional[int]:
        """Return the address that the file itself gives to the byte at *offset*; None if it has none."""
        return address_in(self.segments, offset)

    def offset(self, address: int) -> Optional[int]:
        """Return the place in the file of what it gives *address*; None if there is nothing."""
        for start, size, first in self.segments:
            if first <= address < first + size:
                return start + address - first
        return None

    def covers(self, address: int) -> bool:
        """Return whether a symbol of the file spans *address*: the nearest one before it may be another's."""
        if not self._symbols:
            self._symbols.append(_symbols(self.path))
        symbols = self._symbols[0]
        at = bisect_right(symbols, (address, 1 << 64)) - 1
        # Aliases and inner labels share a start: the last few decide.
        return any(start <= address < end for start, end in symbols[max(at - 8, 0) : at + 1])


def address_in(segments: Iterable[tuple[int, int, int]], offset: int) -> Optional[int]:
    """Return the address of the byte at *offset* of a file with *segments* (offset, size, address), or None."""
    for start, size, address in segments:
        if start <= offset < start + size:
            return address + offset - start
    return None


def read_elf(path: str | os.PathLike[str]) -> Optional[Elf]:
    """Return what *path* is as an ELF file; None if it is none, or can't be read."""
    try:
        with open_regular(path) as stream:
            return elf_in(stream, Path(path))
    except OSError:
        return None


def elf_in(stream: IO[bytes], path: Path) -> Optional[Elf]:
    """Return what the file *stream*, *path* by its name, is as an ELF file; None if it is none."""
    try:
        header = stream.read(64)
        if header[:4] != b"\x7fELF" or header[4] != 2 or header[5] != 1:
            return None
        offset, size, count = _table(header, 32, 54)
        segments = [struct.unpack("<IIQQQQQQ", row) for row in _rows(stream, offset, size, count)]
        notes = [_at(stream, row[2], min(row[5], 1 << 16)) for row in segments if row[0] == _PT_NOTE]
    except (OSError, struct.error, IndexError):
        return None
    build_id = next(filter(None, map(build_id_in, notes)), "")
    loads = tuple((row[2], row[5], row[3]) for row in segments if row[0] == _PT_LOAD)
    return Elf(path, build_id, loads, any(row[0] == _PT_INTERP for row in segments))


def needed_libraries(path: str | os.PathLike[str]) -> list[str]:
    """Return the libraries that the ELF file at *path* names, as ``libgomp.so.1``; [] if it can't be read."""
    elf = read_elf(path)
    if elf is None:
        return []
    try:
        with open_regular(path) as stream:
            segments = [
                struct.unpack("<IIQQQQQQ", r) for r in _rows(stream, *_table(stream.read(64), 32, 54))
            ]
            dynamic = [_at(stream, row[2], row[5]) for row in segments if row[0] == _PT_DYNAMIC]
            entries = [entry for table in dynamic for entry in struct.iter_unpack("<qQ", table)]
            (texts,) = [value for tag, value in entries if tag == _DT_STRTAB]
            offset = next(start + texts - at for start, size, at in elf.segments if at <= texts < at + size)
            names = [_at(stream, offset + value, 4096) for tag, value in entries if tag == _DT_NEEDED]
    except (OSError, struct.error, ValueError, StopIteration):
        return []
    return [os.fsdecode(name.split(b"\0", 1)[0]) for name in names]


def _table(header: bytes, where: int, how: int) -> tuple[int, int, int]:
    size, count = struct.unpack_from("<HH", header, how)
    return struct.unpack_from("<Q", header, where)[0], size, count


def _rows(stream: IO[bytes], offset: int, size: int, count: int) -> list[bytes]:
    table = _at(stream, offset, size * count)
    return [table[n * size : (n + 1) * size] for n in range(count)]


def _at(stream: IO[bytes], offset: int, size: int) -> bytes:
    if offset >= 1 << 63:
        return b""  # as of what lies behind the end
    stream.seek(offset)
    return stream.read(min(size, _LARGEST_TABLE))


def symbol_tables(
    opened: Callable[[], IO[bytes]], limit_bytes: int = _LARGEST_TABLE
) -> list[tuple[bytes, bytes]]:
    """Return (entries of 24 bytes, their names) of each symbol table of a file; [] if it can't be read.

    At most *limit_bytes* are read in all: no compiler makes larger ones.
    """
    try:
        with opened() as stream:
            sections = _sections(stream, stream.read(64))
            found = []
            for section in [one for one in sections if one[1] in (_SHT_SYMTAB, _SHT_DYNSYM)]:
                table = _at(stream, section[4], min(section[5], limit_bytes))
                names = sections[section[6]]
                texts = _at(stream, names[4], min(names[5], limit_bytes - len(table)))
                limit_bytes -= len(table) + len(texts)
                found.append((table[: len(table) // 24 * 24], texts + b"\0"))
    except (OSError, struct.error, IndexError):
        return []
    return found


def debug_link(path: Path) -> str:
    """Return the name of the separate debug file that the ELF file at *path* names; "" if it names none."""
    try:
        with open_regular(path) as stream:
            header = stream.read(64)
            sections = _sections(stream, header)
            names = sections[struct.unpack_from("<H", header, 62)[0]]
            for section in sections:
                if _at(stream, names[4] + section[0], len(_DEBUG_LINK)) == _DEBUG_LINK:
                    return os.fsdecode(_at(stream, section[4], min(section[5], 4096)).split(b"\0", 1)[0])
    except (OSError, struct.error, IndexError):
        pass
    return ""


def odd_debug_sections(path: str | os.PathLike[str]) -> str:
    """Return what older readers of debug information can't read in *path*: "Zstandard", "split DWARF 5" or ""."""
    try:
        with open_regular(path) as stream:
            header = stream.read(64)
            sections = _sections(stream, header)
            names = sections[struct.unpack_from("<H", header, 62)[0]]
            for section in sections:
                name = _at(stream, names[4] + section[0], 16)
                if not name.startswith(b".debug_"):
                    continue
                if section[2] & _SHF_COMPRESSED:
                    if _at(stream, section[4], 4) == _ELFCOMPRESS_ZSTD:
                        return "Zstandard"
                elif name.startswith(b".debug_info\0") and _has_skeleton(stream, section[4], section[5]):
                    return "split DWARF 5"
    except (OSError, struct.error, IndexError):
        pass
    return ""


def _has_skeleton(stream: IO[bytes], at: int, size: int) -> bool:
    """Return whether one of the first units in the section at *at* stands for a unit in a file of its own."""
    end = at + size
    for _ in range(_MOST_UNITS):
        start = _at(stream, at, 7)
        if at >= end or len(start) < 7 or start[:4] == b"\xff" * 4:
            return False
        if start[4:] == _SKELETON_OF_DWARF_5:
            return True
        at += 4 + int.from_bytes(start[:4], "little")
    return False


def _sections(stream: IO[bytes], header: bytes) -> list[tuple[int, ...]]:
    return [struct.unpack("<IIQQQQIIQQ", row) for row in _rows(stream, *_table(header, 40, 58))]


def _symbols(path: Path) -> list[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for table, _ in symbol_tables(lambda: open_regular(path)):
        found.update((s[4], s[4] + s[5]) for s in struct.iter_unpack("<IBBHQQ", table) if s[5])
    return sorted(found)


def symbol_values(opened: Callable[[], IO[bytes]], names: Container[str]) -> dict[str, int]:
    """Return the values of those defined symbols of a file whose names are in *names*."""
    found: dict[str, int] = {}
    for symbols, texts in symbol_tables(opened):
        for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
            if section and value:
                text = texts[name : texts.index(b"\0", name)].decode("ascii", "replace")
                if text in names:
                    found.setdefault(text, value)
    return found


# Names of variables and vtables by the symbols of the files that are loaded.


_OBJECT = 1  # STT_OBJECT
_MOST_BYTES = 256 << 20  # of symbol tables, of all files: a browser has 100 MiB


class ObjectSymbols:
    """The variables that symbols name, in all loaded files; these are read when they are first asked for."""

    prefix = b""  # of the symbols that are kept, which is cut off

    def __init__(self, images: Sequence[Image], opened: Callable[[str], BinaryIO] = open_regular) -> None:
        self._images = sorted(images, key=lambda image: image.start)
        self._open = opened
        self._left = _MOST_BYTES
        self._known: dict[str, list[tuple[int, int, str]]] = {}

    def name(self, address: int) -> str:
        """Return the mangled name of the symbol that contains *address*; "" if there is none."""
        return self.place(address)[0]

    def place(self, address: int) -> tuple[str, int]:
        """Return name() with the distance from its beginning."""
        number = bisect_right([image.start for image in self._images], address) - 1
        if number < 0:
            return "", 0
        image = self._images[number]
        if image.name not in self._known:
            self._known[image.name] = self._read(image.name)
        found = self._known[image.name]
        at = bisect_right(found, (address - image.bias, 1 << 64, "")) - 1
        if at >= 0 and found[at][0] <= address - image.bias < found[at][1]:
            return found[at][2], address - image.bias - found[at][0]
        return "", 0

    def _read(self, file: str) -> list[tuple[int, int, str]]:
        found = set()
        for symbols, names in symbol_tables(lambda: self._open(file), max(self._left, 0)):
            self._left -= len(symbols) + len(names)
            for name, kind, _, _, value, size in struct.iter_unpack("<IBBHQQ", symbols):
                if size and kind & 15 == _OBJECT and names.startswith(self.prefix, name):
                    text = names[name + len(self.prefix) : names.index(b"\0", name)]
                    found.add((value, value + size, text.decode("ascii", "replace")))
        return sorted(found)


class VtableSymbols(ObjectSymbols):
    """The vtables that symbols name: for programs that keep no type information."""

    prefix = b"_ZTV"
