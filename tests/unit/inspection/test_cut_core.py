"""A core that was cut: missing parts are reported, and never taken from somewhere else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.inspection.read_process import explain_core
from gdbmem.ledger.answer import answer_ledger
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.model.memory import MemoryUnreadable

PAGE = 4096
LIBRARY, HEAP, LEFT_OUT = 0x7F0000000000, 0x7F1000000000, 0x7F2000000000


def make_core(library: Path) -> bytes:
    """Return a core as the kernel writes them: notes first, then a heap, a library's variables; code is left out."""
    name = str(library).encode() + b"\0"
    table = struct.pack("<QQ", 2, PAGE)
    table += struct.pack("<QQQ", LIBRARY, LIBRARY + 2 * PAGE, 0)
    table += struct.pack("<QQQ", LEFT_OUT, LEFT_OUT + PAGE, 2) + name * 2
    table += b"\0" * (-len(table) % 4)
    note = struct.pack("<III", 5, len(table), 0x46494C45) + b"CORE\0\0\0\0" + table
    at = 64 + 4 * 56
    start = (at + len(note) + PAGE - 1) & -PAGE

    def header(kind: int, flags: int, offset: int, address: int, stored: int, size: int) -> bytes:
        return struct.pack("<IIQQQQQQ", kind, flags, offset, address, 0, stored, size, PAGE)

    headers = header(4, 0, at, 0, len(note), 0)
    headers += header(1, 6, start, HEAP, 4 * PAGE, 4 * PAGE)
    headers += header(1, 6, start + 4 * PAGE, LIBRARY, 2 * PAGE, 2 * PAGE)
    headers += header(1, 5, 0, LEFT_OUT, 0, PAGE)
    elf = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, 64, 0, 0, 64, 56, 4, 0, 0, 0)
    return (elf + headers + note).ljust(start, b"\0") + b"h" * 4 * PAGE + b"v" * 2 * PAGE


@pytest.fixture
def core(tmp_path: Path) -> Path:
    library = tmp_path / "library"
    library.write_bytes(b"f" * 3 * PAGE)
    path = tmp_path / "core"
    path.write_bytes(make_core(library))
    return path


def test_a_whole_core_misses_nothing(core: Path) -> None:
    found = CoreFile(core)
    assert (found.cut_bytes, found.omitted_bytes) == (0, PAGE)
    assert found.read(LIBRARY, 4) == b"vvvv"
    assert found.read(LEFT_OUT, 4) == b"ffff", "code is read from its file"
    assert "core-cut" not in {notice.slug for notice in explain_core(core).notices}


def test_pages_count_as_written_if_any_of_their_bytes_is_not_zero(core: Path) -> None:
    data = bytearray(core.read_bytes())
    start = len(data) - 6 * PAGE
    data[start + PAGE : start + 3 * PAGE] = bytes(2 * PAGE)
    data[start + 3 * PAGE : start + 4 * PAGE] = bytes(PAGE - 1) + b"e"
    data[start + 5 * PAGE :] = bytes(PAGE)
    core.write_bytes(data)
    written = CoreFile(core).written
    assert list(written.items) == [
        (LIBRARY, LIBRARY + PAGE), (HEAP, HEAP + PAGE), (HEAP + 3 * PAGE, HEAP + 4 * PAGE)
    ]  # fmt: skip


def test_headers_beyond_any_file_are_refused(core: Path) -> None:
    data = bytearray(core.read_bytes())
    struct.pack_into("<Q", data, 32, 1 << 63)
    core.write_bytes(data)
    with pytest.raises(InputError, match="it is truncated in its headers"):
        CoreFile(core)


def test_variables_that_were_cut_are_not_read_from_the_librarys_file(core: Path) -> None:
    core.write_bytes(core.read_bytes()[: -PAGE - 100])
    found = CoreFile(core)
    assert (found.cut_bytes, found.omitted_bytes) == (PAGE + 100, PAGE)
    assert found.read(LIBRARY, 4) == b"vvvv"
    with pytest.raises(MemoryUnreadable, match="the core is truncated before it"):
        found.read(LIBRARY + PAGE, 4)


def test_the_first_sentence_states_that_a_core_is_cut_and_by_how_much(core: Path) -> None:
    core.write_bytes(core.read_bytes()[: -2 * PAGE])
    ledger = explain_core(core)
    ledger.check()
    assert "in the core, which is truncated: 8.0 KiB are missing from its end; " in answer_ledger(ledger)
    assert "core-cut" in {notice.slug for notice in ledger.notices}
    unknown = next(notice for notice in ledger.notices if notice.slug == "malloc-unknown")
    assert "in the rest of this core" in unknown.message
    assert "other-libc" not in {notice.slug for notice in ledger.notices}


@pytest.mark.slow
def test_cut_anywhere_it_is_an_error_in_a_sentence_or_a_ledger_that_adds_up(core: Path) -> None:
    data = core.read_bytes()
    for size in [*range(600), *range(600, len(data), 997)]:
        core.write_bytes(data[:size])
        try:
            explain_core(core).check()
        except InputError as error:
            assert error.slug == "bad-core"
