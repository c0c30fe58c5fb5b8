"""A file of memray: read through memray where that is installed, else refused with what to type."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
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
