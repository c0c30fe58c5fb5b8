"""ELF objects: the loaded ones, by their headers in a process's memory, and files, without a debugger."""

import os
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Callable, NamedTuple, Optional, Union

from gdbmem.files import open_regular
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text, words_at

if TYPE_CHECKING:
    from gdbmem.linux.memory.maps import Mapping  # not needed to read files

_PT_LOAD, _PT_NOTE, _PT_INTERP, _PT_TLS = 1, 4, 3, 7
_PF_W = 2
_NT_GNU_BUILD_ID = 3
_PAGE = 4096
_ROW, _MOST_ROWS = 56, 1170  # as the kernel requires: others may be of any size


class Image(NamedTuple):
    """One loaded object."""

    name: str
    bias: int  # added to an address of the file
    start: int
    writable: Sequence[tuple[int, int]]  # data and zeroed data, whole pages
    build_id: str  # hexadecimal; "" if there is none
    has_interpreter: bool
    thread_local_bytes: int = 0  # of its thread-local variables


def images(memory: Memory, mappings: "Sequence[Mapping]") -> list[Image]:
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


# Addresses of a loaded object's exported functions, by the hash table in its memory.


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
        dynamic = dict(dynamic_entries(memory, start, bias))
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
        dynamic = dict(dynamic_entries(memory, start, bias))
        for table, size in _RELOCATIONS:
            at = dynamic.get(table, 0)
            rows = memory.read(at if at >= bias else at + bias, min(dynamic.get(size, 0), _MOST_RELOCATIONS))
            for offset, info, addend in struct.iter_unpack("<QQq", rows[: len(rows) // 24 * 24]):
                if info & 0xFFFFFFFF in _INDIRECT and bias + addend == resolver:
                    return int.from_bytes(memory.read(bias + offset, 8), "little")
    except MemoryUnreadable:
        pass
    return None


def dynamic_entries(memory: Memory, start: int, bias: int) -> Iterator[tuple[int, int]]:
    """Yield tag and value of each entry of the dynamic section of the object whose ELF header is at *start*."""
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


# The dynamic linker's list of loaded libraries in a process, whose names a debugger uses to find the files.
#
# Source: glibc, elf/link.h (struct r_debug, struct link_map); elf(5).


_AT_PHDR, _AT_PHENT, _AT_PHNUM = 3, 4, 5
_DYNAMIC_SEGMENT, _PT_PHDR, _DT_DEBUG = 2, 6, 21
_SEGMENT_BYTES = 56  # bytes of a segment's description
_MOST = 4096  # libraries, and bytes of a name


def loaded_by(pid: int, memory: Memory) -> list[tuple[int, bytes]]:
    """Return the address of the dynamic section, and the name, of each library in the list of *pid*.

    [] if the process has no such list, or not yet. The data is under the control of the process.
    """
    from gdbmem.linux.process.process import auxiliary_vector  # not needed to read files

    try:
        entries = auxiliary_vector(pid)
        at = _list(memory, entries[_AT_PHDR], entries[_AT_PHENT], entries[_AT_PHNUM])
        found: list[tuple[int, bytes]] = []
        while at and len(found) < _MOST:
            _, name, dynamic, at = words_at(memory, at, 4)
            found.append((dynamic, read_text(memory, name, _MOST) or b""))
    except (OSError, struct.error, KeyError, MemoryUnreadable):
        return []
    return found


def _list(memory: Memory, table: int, size: int, count: int) -> int:
    if size != _SEGMENT_BYTES:
        raise MemoryUnreadable(table, "it is not a table of segments")
    data = memory.read(table, size * min(count, 512))
    rows = [struct.unpack_from("<IIQQQQQQ", data, at) for at in range(0, len(data), size)]
    places = {row[0]: (row[3], row[6]) for row in rows}
    bias = table - places[_PT_PHDR][0]
    start, size = places[_DYNAMIC_SEGMENT]
    words = words_at(memory, bias + start, min(size, 1 << 16) // 16 * 2)
    debug = dict(zip(words[::2], words[1::2])).get(_DT_DEBUG, 0)
    return words_at(memory, debug, 2)[1] if debug else 0


# ELF files: the build-id, where the code is loaded, which symbols cover it.


_SYMBOL = struct.Struct("<IBBHQQ")  # name, type, visibility, section, value, size
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DT_NEEDED = 1
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_SHF_COMPRESSED, _ELFCOMPRESS_ZLIB, _ELFCOMPRESS_ZSTD = 1 << 11, b"\x01\0\0\0", b"\x02\0\0\0"
_SKELETON_OF_DWARF_5 = b"\x05\0\x04"  # version and DW_UT_skeleton, behind the length of a unit
_MOST_UNITS = 1000
_LARGEST_TABLE, _MOST_NAMES, _LONGEST_NAME = 256 << 20, 1 << 20, 64  # bytes


class _ElfFields(NamedTuple):
    path: Path
    build_id: str  # hexadecimal; "" if it has none
    segments: tuple[tuple[int, int, int], ...]  # file offset, size in the file, address
    is_program: bool = False  # names a loader, as all but static programs do


class Elf(_ElfFields):
    """One 64-bit ELF file."""

    def address(self, offset: int) -> Optional[int]:
        """Return the address that the file itself gives to the byte at *offset*; None if it has none."""
        return address_in(self.segments, offset)

    def offset(self, address: int) -> Optional[int]:
        """Return the place in the file of what it gives *address*; None if there is nothing."""
        return address_in(((first, size, start) for start, size, first in self.segments), address)

    def covers(self, address: int) -> bool:
        """Return whether a symbol of the file spans *address*: the nearest one before it may be another's."""
        at = bisect_right(self._symbols, (address, 1 << 64)) - 1
        # Aliases and inner labels share a start: the last few decide.
        return any(start <= address < end for start, end in self._symbols[max(at - 8, 0) : at + 1])

    @cached_property
    def _symbols(self) -> list[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for table, _ in symbol_tables(lambda: open_regular(self.path)):
            found.update((s[4], s[4] + s[5]) for s in _SYMBOL.iter_unpack(table) if s[5])
        return sorted(found)


def address_in(segments: Iterable[tuple[int, int, int]], offset: int) -> Optional[int]:
    """Return the address of the byte at *offset* of a file with *segments* (offset, size, address), or None."""
    for start, size, address in segments:
        if start <= offset < start + size:
            return address + offset - start
    return None


def read_elf(path: Union[str, os.PathLike[str]]) -> Optional[Elf]:
    """Return what *path* is as an ELF file; None if it is none, or can't be read."""
    try:
        with open_regular(path) as stream:
            return elf_in(stream, Path(path))
    except OSError:
        return None


def elf_in(stream: IO[bytes], path: Path) -> Optional[Elf]:
    """Return what the file *stream*, *path* by its name, is as an ELF file; None if it is none."""
    try:
        segments = _segments(stream)
        notes = [_at(stream, row[2], min(row[5], 1 << 16)) for row in segments if row[0] == _PT_NOTE]
    except (OSError, struct.error, ValueError):
        return None
    build_id = next(filter(None, map(build_id_in, notes)), "")
    loads = tuple((row[2], row[5], row[3]) for row in segments if row[0] == _PT_LOAD)
    return Elf(path, build_id, loads, any(row[0] == _PT_INTERP for row in segments))


def needed_libraries(path: Union[str, os.PathLike[str]]) -> list[str]:
    """Return the libraries that the ELF file at *path* names, as ``libgomp.so.1``; [] if it can't be read."""
    try:
        with open_regular(path) as stream:
            segments = _segments(stream)
            dynamic = [_at(stream, row[2], row[5]) for row in segments if row[0] == _PT_DYNAMIC]
            entries = [entry for table in dynamic for entry in struct.iter_unpack("<qQ", table)]
            (texts,) = [value for tag, value in entries if tag == _DT_STRTAB]
            loads = [(row[3], row[5], row[2]) for row in segments if row[0] == _PT_LOAD]
            offset = address_in(loads, texts)
            if offset is None:
                return []
            names = [_at(stream, offset + value, 4096) for tag, value in entries if tag == _DT_NEEDED]
    except (OSError, struct.error, ValueError):
        return []
    return [os.fsdecode(_text_at(name, 0)) for name in names]


def _segments(stream: IO[bytes]) -> list[tuple[int, ...]]:
    """Return the program headers of the file *stream*; raises ValueError if it is not a 64-bit ELF file."""
    header = _at(stream, 0, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit ELF file")
    return _rows(stream, _SEGMENT, header, 32, 54)


class _Section(NamedTuple):
    name: bytes
    kind: int
    flags: int
    address: int  # as the file is linked
    at: int
    size: int
    link: int  # the number of another section


def _sections(stream: IO[bytes]) -> list[_Section]:
    """Return the sections of the file *stream*; none if it is not a 64-bit ELF file."""
    header = _at(stream, 0, 64)
    if header[:5] != b"\x7fELF\x02":
        return []
    rows = _rows(stream, _SECTION, header, 40, 58)
    (names,) = struct.unpack_from("<H", header, 62)
    texts = _at(stream, rows[names][4], min(rows[names][5], _MOST_NAMES)) if names < len(rows) else b""
    return [
        _Section(_text_at(texts[row[0] : row[0] + _LONGEST_NAME], 0), row[1], row[2], *row[3:7])
        for row in rows
    ]


def _rows(
    stream: IO[bytes], row: struct.Struct, header: bytes, where: int, how: int
) -> list[tuple[int, ...]]:
    """Return the rows of the table that *header* describes: its offset at *where*, size of a row and count at *how*."""
    (offset,) = struct.unpack_from("<Q", header, where)
    size, count = struct.unpack_from("<HH", header, how)
    table = _at(stream, offset, size * count)
    return [row.unpack_from(table, number * size) for number in range(count)]


def _text_at(texts: bytes, at: int) -> bytes:
    end = texts.find(b"\0", at)
    return texts[at : end if end >= 0 else len(texts)]


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
            return list(_symbol_tables(stream, _sections(stream), limit_bytes))
    except (OSError, struct.error, IndexError):
        return []


def _symbol_tables(
    stream: IO[bytes], sections: Sequence[_Section], limit_bytes: int
) -> Iterator[tuple[bytes, bytes]]:
    for section in sections:
        if section.kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            table = _at(stream, section.at, min(section.size, limit_bytes))
            names = sections[section.link]
            texts = _at(stream, names.at, min(names.size, limit_bytes - len(table)))
            limit_bytes -= len(table) + len(texts)
            yield table[: len(table) // _SYMBOL.size * _SYMBOL.size], texts + b"\0"


def debug_link(path: Path) -> str:
    """Return the name of the separate debug file that the ELF file at *path* names; "" if it names none."""
    with suppress(OSError, struct.error), open_regular(path) as stream:
        for section in _sections(stream):
            if section.name == b".gnu_debuglink":
                return os.fsdecode(_text_at(_at(stream, section.at, min(section.size, 4096)), 0))
    return ""


def has_debug_information(path: Union[str, os.PathLike[str]]) -> bool:
    """Return whether the ELF file at *path* itself has information on types and variables."""
    with suppress(OSError, struct.error), open_regular(path) as stream:
        return any(section.name in (b".debug_info", b".zdebug_info") for section in _sections(stream))
    return False


def odd_debug_sections(path: Union[str, os.PathLike[str]]) -> str:
    """Return what older readers of debug information can't read in *path*: "Zstandard", "split DWARF 5" or ""."""
    with suppress(OSError, struct.error), open_regular(path) as stream:
        for section in _sections(stream):
            if not section.name.startswith(b".debug_"):
                continue
            if section.flags & _SHF_COMPRESSED:
                if _at(stream, section.at, 4) == _ELFCOMPRESS_ZSTD:
                    return "Zstandard"
            elif section.name == b".debug_info" and _has_skeleton(stream, section.at, section.size):
                return "split DWARF 5"
    return ""


def line_sections(path: Union[str, os.PathLike[str]], limit_bytes: int) -> Optional[dict[bytes, bytes]]:
    """Return the sections of the ELF file at *path* that have its line tables, by name; "text" stands for its address.

    None if it has none, or they are compressed by anything but zlib, or have more than *limit_bytes*.
    """
    found = {}
    with suppress(OSError, struct.error, zlib.error), open_regular(path) as stream:
        for section in _sections(stream):
            if section.name == b".text":
                found[b"text"] = section.address.to_bytes(8, "little")
            if section.name not in (b".debug_line", b".debug_line_str", b".debug_str"):
                continue
            limit_bytes -= section.size
            stream.seek(section.at)
            data = stream.read(section.size) if limit_bytes >= 0 else b""
            if section.flags & _SHF_COMPRESSED and data[:4] == _ELFCOMPRESS_ZLIB:
                limit_bytes -= int.from_bytes(data[8:16], "little")
                data = zlib.decompressobj().decompress(data[24:], limit_bytes) if limit_bytes > 0 else b""
            elif section.flags & _SHF_COMPRESSED:
                data = b""
            if limit_bytes < 0 or not data:
                return None
            found[section.name] = data
    return found if found.keys() >= {b"text", b".debug_line"} else None


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


def symbol_values(opened: Callable[[], IO[bytes]], names: Container[str]) -> dict[str, int]:
    """Return the values of those defined symbols of a file whose names are in *names*."""
    found: dict[str, int] = {}
    for symbols, texts in symbol_tables(opened):
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(symbols):
            if section and value:
                text = texts[name : texts.index(b"\0", name)].decode("ascii", "replace")
                if text in names:
                    found.setdefault(text, value)
    return found


# Functions with identical code that the linker has folded into one (`--icf`).
#
# Source: the ELF specification (sections, symbols), and what lld, gold and mold write into the files they make. GNU
# ld can't fold.


_MARKS = (b"Linker: ", b"LLD ", b"mold ")  # in .comment
_GOLD = b".note.gnu.gold-version"
_MANGLED = re.compile(r"_Z(?:N[rVK]*)?L?")
_LENGTH = re.compile(r"\d+")
_FUNCTION = 2  # type of a symbol


def folded_with(path: Path, symbol: str) -> Optional[list[str]]:
    """Return the names of other functions at the address of *symbol*; None if the file's linker can't have folded them.

    They are as the file has them, mangled. Raises OSError, ValueError or struct.error for a file that can't be read.
    """
    with path.open("rb") as stream:
        sections = _sections(stream)
        if not any(
            one.name == _GOLD or (one.name == b".comment" and _marked(stream, one)) for one in sections
        ):
            return None
    return same_code(path, symbol)


def same_code(path: Path, symbol: str) -> list[str]:
    """Return the names of other functions at the address of *symbol*, as `folded_with`: aliases, too."""
    with path.open("rb") as stream:
        functions = {
            _text_at(texts, name).decode("utf-8", "surrogateescape"): address
            for table, texts in _symbol_tables(stream, _sections(stream), _LARGEST_TABLE)
            for name, info, _, section, address, _ in _SYMBOL.iter_unpack(table)
            if info & 15 == _FUNCTION and section
        }
    here = functions.get(symbol)
    return sorted(name for name, address in functions.items() if address == here and name != symbol)


def _marked(stream: IO[bytes], comment: _Section) -> bool:
    written = _at(stream, comment.at, comment.size)
    return any(mark in written for mark in _MARKS)


def plain_name(symbol: str) -> str:
    """Return the name of a function of C++, without its parameters; *symbol* itself if it is not mangled so.

    Source: the Itanium C++ ABI, of which this reads nested names.
    """
    head = _MANGLED.match(symbol)
    if head is None:
        return symbol
    parts, at = [], head.end()
    while size := _LENGTH.match(symbol, at):
        parts.append(symbol[size.end() : size.end() + int(size[0])])
        at = size.end() + int(size[0])
    if symbol[at : at + 1] in ("C", "D") and parts:
        parts.append(("~" if symbol[at] == "D" else "") + parts[-1])
    return "::".join(parts) or symbol


# Names of variables and vtables by the symbols of the files that are loaded.


_OBJECT, _TLS = 1, 6  # STT_OBJECT, STT_TLS
_MOST_BYTES = 256 << 20  # of symbol tables, of all files: a browser has 100 MiB


class ObjectSymbols:
    """The variables that symbols name, in all loaded files; these are read when they are first asked for."""

    prefix = b""  # of the symbols that are kept, which is cut off
    kind = _OBJECT

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
        found = self.symbols_of(image)
        at = bisect_right(found, (address - image.bias, 1 << 64, "")) - 1
        if at >= 0 and found[at][0] <= address - image.bias < found[at][1]:
            return found[at][2], address - image.bias - found[at][0]
        return "", 0

    def symbols_of(self, image: Image) -> list[tuple[int, int, str]]:
        """Return start, end and mangled name of each variable of *image*, in order; addresses are those of its file."""
        if image.name not in self._known:
            self._known[image.name] = self._read(image.name)
        return self._known[image.name]

    def _read(self, file: str) -> list[tuple[int, int, str]]:
        found = set()
        for symbols, names in symbol_tables(lambda: self._open(file), max(self._left, 0)):
            self._left -= len(symbols) + len(names)
            for name, kind, _, _, value, size in _SYMBOL.iter_unpack(symbols):
                if size and kind & 15 == self.kind and names.startswith(self.prefix, name):
                    text = names[name + len(self.prefix) : names.index(b"\0", name)]
                    found.add((value, value + size, text.decode("ascii", "replace")))
        return sorted(found)


class VtableSymbols(ObjectSymbols):
    """The vtables that symbols name: for programs that keep no type information."""

    prefix = b"_ZTV"


class FunctionSymbols(ObjectSymbols):
    """The functions that symbols name."""

    kind = _FUNCTION


class ThreadLocalSymbols(ObjectSymbols):
    """The thread-local variables that symbols name; addresses are offsets in their segment."""

    kind = _TLS
