"""A file of memray: read through memray where that is installed, else refused with what to type."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.model.calltree import BYTES_MISSING
from tests.unit.stack_files import CAPTURES, read, tree

FILE = CAPTURES / "memray.bin"


def test_without_memray_its_file_is_told_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    with pytest.raises(InputError, match="is a file of memray, which is not installed here"):
        read(FILE)


def test_the_lines_and_bytes_are_those_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("memray", reason="memray (50 MB) is not installed; pip install memray")
    assert main(["show", str(FILE), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["sites"]["paths"]
    kept = {row["site"]["line"]: (row["delta_blocks"], row["after_bytes"]) for row in rows if row["site"]}
    # A bytearray takes a byte more than it holds; the list of them is a separate block.
    assert kept[8] == (401, 400 * 1001 + 400 * 8)
    assert main(["show", str(FILE), "--json", "--metric", "peak"]) == 0
    rows = json.loads(capsys.readouterr().out)["sites"]["paths"]
    assert rows[0]["site"]["line"] == 12 and rows[0]["after_bytes"] == 50 * 100_001


@pytest.mark.parametrize(
    ("name", "peak"), [("memray", 5342147), ("memray.killed", 3819318), ("memray.aggregated", 3773686)]
)
def test_the_peak_is_memrays_own(name: str, peak: int) -> None:
    memray = pytest.importorskip("memray", reason="memray (50 MB) is not installed; pip install memray")
    file = CAPTURES / f"{name}.bin"
    assert memray.FileReader(str(file)).metadata.peak_memory == peak
    assert tree(read(file, "peak")).bytes[0] == peak


@pytest.mark.parametrize("name", ["memray.killed", "memray.aggregated"])
def test_what_the_threads_kept_is_theirs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("memray", reason="memray (50 MB) is not installed; pip install memray")
    assert main(["show", str(CAPTURES / f"{name}.bin"), "--json", "--by", "line"]) == 0
    rows = json.loads(capsys.readouterr().out)["sites"]["paths"]
    (kept,) = [row["after_bytes"] for row in rows if row["site"] and row["site"]["line"] == 9]
    # A bytes takes 33 bytes more than it holds; the lists are separate blocks.
    assert 350 * 2033 < kept < 350 * (2033 + 16)


def test_the_file_of_a_killed_program_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    pytest.importorskip("memray", reason="memray (50 MB) is not installed; pip install memray")
    data = (CAPTURES / "memray.killed.bin").read_bytes()
    read_parts = 0
    for end in range(100, len(data), 1000):
        file = tmp_path / "cut"
        file.write_bytes(data[:end])
        for metric in ("in-use", "peak"):
            try:
                profile = read(file, metric)
            except InputError as error:
                assert "\n" not in str(error)
                continue
            read_parts += 1
            assert BYTES_MISSING in {notice.slug for notice in profile.notices}
    assert read_parts
    assert BYTES_MISSING not in {notice.slug for notice in read(FILE).notices}


def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("memray", reason="memray (50 MB) is not installed; pip install memray")
    data = FILE.read_bytes()
    for end in range(20, len(data), 1500):
        file = tmp_path / "cut"
        file.write_bytes(data[:end])
        try:
            tree(read(file))
        except InputError as error:
            assert "\n" not in str(error)
