"""The reader of DWARF's line tables: columns, several statements at one address, and tables that are damaged."""

from __future__ import annotations

import random
import struct
import time
import zlib
from pathlib import Path

import pytest

from gdbmem.symbols.line_table import LineRow, read_line_rows

LENGTHS = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))  # of the operands of standard opcodes
PATHS = b"/src\0one.c\0"
FILES = bytes((1, 1, 0x1F, 1)) + struct.pack("<I", 0) + bytes((2, 1, 0x1F, 2, 0x0B, 2))
FILES += (struct.pack("<I", 5) + b"\0") * 2
OLD_FILES = b"/src\0\0" + b"one.c\0\1\0\0" + b"\0"
# At 0x1000 the statements 3:5 and 4:9 begin; at 0x1004, 4:20 is no statement.
PROGRAM = (
    b"\0\x09\2" + struct.pack("<Q", 0x1000)
    + bytes((3, 2, 5, 5, 1, 3, 1, 5, 9, 1, 6, 2, 4, 5, 20, 1, 2, 4, 0, 1, 1))
)  # fmt: skip


def table(version: int = 5, program: bytes = PROGRAM, files: bytes = b"", line_range: int = 14) -> bytes:
    files = files or (FILES if version == 5 else OLD_FILES)
    header = bytes((1, 1, 1)) + struct.pack("<b", -5) + bytes((line_range, 13)) + LENGTHS + files
    start = struct.pack("<H", version) + (b"\x08\0" if version == 5 else b"")
    rest = start + struct.pack("<I", len(header)) + header + program
    return struct.pack("<I", len(rest)) + rest


def object_file(folder: Path, lines: bytes, flags: int = 0) -> str:
    """Write an ELF file with a .text at 0x1000 and these *lines*; return its path."""
    names = b"\0.text\0.debug_line\0.debug_line_str\0.shstrtab\0"
    bodies = [b"\x90", lines, PATHS, names]
    sections, at, data = [bytes(64)], 64, b""
    for body, kind, more, address in zip(bodies, (1, 1, 1, 3), (0, flags, 0, 0), (0x1000, 0, 0, 0)):
        name = names.index((b".text", b".debug_line\0", b".debug_line_str", b".shstrtab")[len(sections) - 1])
        sections.append(
            struct.pack("<IIQQQQIIQQ", name, kind, more, address, at + len(data), len(body), 0, 0, 1, 0)
        )
        data += body
    header = b"\x7fELF\x02\x01\x01".ljust(40, b"\0") + struct.pack("<Q", 64 + len(data))
    header += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, len(sections), len(sections) - 1)
    path = folder / f"o{random.getrandbits(64)}"
    path.write_bytes(header + data + b"".join(sections))
    return str(path)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_every_statement_at_an_address_is_read_with_its_column(version: int, tmp_path: Path) -> None:
    lines = table(version)
    if version == 3:  # has no number of operations of an instruction
        size, length = struct.unpack_from("<I", lines)[0] - 1, struct.unpack_from("<I", lines, 6)[0] - 1
        lines = struct.pack("<IHI", size, 3, length) + lines[10:11] + lines[12:]
    rows = read_line_rows(object_file(tmp_path, table(2, b"") + lines), 0x501000, 0x501000)
    assert rows == [
        LineRow(0x501000, "/src/one.c", 3, 5, True),
        LineRow(0x501000, "/src/one.c", 4, 9, True),
        LineRow(0x501004, "/src/one.c", 4, 20, False),
    ]


def test_compressed_tables_are_read_too(tmp_path: Path) -> None:
    packed = struct.pack("<IIQQ", 1, 0, len(table()), 1) + zlib.compress(table())
    assert len(read_line_rows(object_file(tmp_path, packed, 1 << 11), 0x1000, 0x1000)) == 3


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        table()[:30],
        table(6),
        table(line_range=0),
        table(program=PROGRAM + b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\2"),
        table(program=PROGRAM[:-3] + b"\4\x19\1"),  # a row of a file that is not there
        table(files=b"\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),  # that many folders of no bytes
        table(files=bytes((1, 1, 0x0E, 1)) + struct.pack("<I", 9)),  # in a section that is not there
        table(files=bytes((1, 1, 0x1F, 1)) + struct.pack("<I", 1 << 31)),
        table(program=PROGRAM[:11] + b"\1" * 600_000),  # more rows than a prompt can wait for
        struct.pack("<I", 0) * 300_000 + table(),  # that many units
        struct.pack("<I", 0xFFFFFFFF) + table(),
    ],
)
def test_a_damaged_table_has_no_rows(lines: bytes, tmp_path: Path) -> None:
    assert read_line_rows(object_file(tmp_path, lines), 0x1000, 0x1000) == []


def test_no_single_damaged_byte_stops_the_prompt(tmp_path: Path) -> None:
    lines, start = table(), time.process_time()
    for at in range(len(lines)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            read_line_rows(
                object_file(tmp_path, lines[:at] + bytes((byte,)) + lines[at + 1 :]), 0x1000, 0x1000
            )
    assert time.process_time() - start < 60


def test_what_is_no_program_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no ELF file")
    assert read_line_rows(str(tmp_path / "text"), 0x1000, 0x1000) == []
    assert read_line_rows(str(tmp_path / "nothing"), 0x1000, 0x1000) == []
