"""Which functions a linker has folded."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gdbmem.linux.elf.objects import folded_with, plain_name


def elf(section: str, content: bytes) -> bytes:
    """Return an ELF file with three functions, two of them at one address, and one more section."""
    texts = b"\0one\0two\0three\0data\0"
    symbols = b"".join(
        struct.pack("<IBBHQQ", texts.find(b"\0" + name + b"\0") + 1, kind, 0, 1, address, 8)
        for name, kind, address in ((b"one", 2, 64), (b"two", 18, 64), (b"three", 2, 80), (b"data", 1, 64))
    )
    parts = {".symtab": symbols, ".strtab": texts, section: content}
    names = b"\0.shstrtab\0" + b"".join(name.encode() + b"\0" for name in parts)
    parts = {".shstrtab": names, **parts}
    rows, body = [(0,) * 10], b""
    for name, data in parts.items():
        kind, link = (2, 3) if name == ".symtab" else (1, 0)
        rows.append((names.find(name.encode() + b"\0"), kind, 0, 0, 64 + len(body), len(data), link, 0, 1, 0))
        body += data
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, len(rows), 1
    )
    return header + body + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows)


@pytest.mark.parametrize(
    ("section", "content", "folds"),
    [
        (".comment", b"GCC: (Debian 12.2.0) 12.2.0\0Linker: Debian LLD 14.0.6\0", True),
        (".comment", b"mold 2.30.0 (compatible with GNU ld)\0", True),
        (".note.gnu.gold-version", b"\4\0\0\0", True),
        (".comment", b"GCC: (Debian 12.2.0) 12.2.0\0", False),
        (".text", b"Linker: LLD", False),
    ],
)
def test_functions_at_one_address_are_folded_if_the_linker_can_and_aliases_otherwise(
    tmp_path: Path, section: str, content: bytes, *, folds: bool
) -> None:
    (tmp_path / "program").write_bytes(elf(section, content))
    assert folded_with(tmp_path / "program", "one") == (["two"] if folds else None)
    assert folded_with(tmp_path / "program", "three") == ([] if folds else None)


def test_what_is_no_elf_file_has_none_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text" * 20)
    assert folded_with(tmp_path / "text", "one") is None
    (tmp_path / "cut").write_bytes(elf(".comment", b"mold ")[:-64])
    with pytest.raises((ValueError, struct.error)):
        folded_with(tmp_path / "cut", "one")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("work", "work"),
        ("_ZL5otheri", "other"),
        ("_ZN6Engine5resetEv", "Engine::reset"),
        ("_ZNK2ns5Queue4sizeEv", "ns::Queue::size"),
        ("_ZN3FooC1Ev", "Foo::Foo"),
        ("_ZN3FooC2Ev", "Foo::Foo"),
        ("_ZN3FooD0Ev", "Foo::~Foo"),
        ("_ZStlsIcE", "_ZStlsIcE"),
        ("_Z", "_Z"),
    ],
)
def test_a_mangled_name_is_shown_as_it_is_written(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name
