"""Functions with identical code that the linker has folded into one (`--icf`).

Source: the ELF specification (sections, symbols), and what lld, gold and mold write into the files they make. GNU ld
can't fold.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.patterns import lazy_pattern

_MARKS = (b"Linker: ", b"LLD ", b"mold ")  # in .comment
_GOLD = b".note.gnu.gold-version"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MANGLED = lazy_pattern(r"_Z(?:N[rVK]*)?L?")
_LENGTH = lazy_pattern(r"\d+")
_FUNCTION = 2  # type of a symbol


class _Section(NamedTuple):
    name: bytes
    at: int
    size: int


def folded_with(path: Path, symbol: str) -> Optional[list[str]]:
    """Return the names of other functions at the address of *symbol*; None if the file's linker can't have folded them.

    They are as the file has them, mangled. Raises OSError, ValueError or struct.error for a file that can't be read.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        sections = (
            {section.name: section for section in _sections(data)} if data[:5] == b"\x7fELF\x02" else {}
        )
        if not _may_fold(data, sections):
            return None
        functions = dict(_functions(data, sections))
    here = functions.get(symbol)
    return sorted(name for name, address in functions.items() if address == here and name != symbol)


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


def _sections(data: mmap.mmap) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [_SECTION.unpack_from(data, table + size * number) for number in range(count)]
    text = data[rows[names][4] : rows[names][4] + rows[names][5]] if names < count else b""
    for row in rows:
        yield _Section(_text_at(text, row[0]), row[4], row[5])


def _may_fold(data: mmap.mmap, sections: dict[bytes, _Section]) -> bool:
    comment = sections.get(b".comment", _Section(b"", 0, 0))
    written = data[comment.at : comment.at + comment.size]
    return _GOLD in sections or any(mark in written for mark in _MARKS)


def _functions(data: mmap.mmap, sections: dict[bytes, _Section]) -> Iterator[tuple[str, int]]:
    for table, texts in ((b".dynsym", b".dynstr"), (b".symtab", b".strtab")):
        if table in sections and texts in sections:
            rows, names = sections[table], sections[texts]
            text = data[names.at : names.at + names.size]
            for name, info, _, section, address, _ in _SYMBOL.iter_unpack(
                data[rows.at : rows.at + rows.size - rows.size % _SYMBOL.size]
            ):
                if info & 15 == _FUNCTION and section:
                    yield _text_at(text, name).decode("utf-8", "surrogateescape"), address


def _text_at(texts: bytes, at: int) -> bytes:
    end = texts.find(b"\0", at)
    return texts[at : end if end >= 0 else len(texts)]
