"""A run is readable only by its owner, and exports contain nothing that a terminal or spreadsheet would execute."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from gdbmem.model.calltree import Frame
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.export import encode
from gdbmem.runs.run import Run
from tests.unit.trees import snapshot, tree

HOSTILE = [
    "=1+1",
    " =1+1",
    "+1",
    "-1",
    "@x",
    "\t=1",
    "\r=1",
    "\n=1",
    "a\rb",
    "\x1b]0;gone\x07",
    "a\x9bb",
    'q"q',
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["csv", "folded", "massif"])
def test_an_exported_name_is_no_formula_and_no_escape_sequence(name: str, kind: str) -> None:
    diff = diff_snapshots(snapshot(tree(0)), snapshot(tree(9, (Frame(name, name, 1), 9))))
    text = encode(diff, kind, is_change=False).decode()
    assert not set(text) & {"\x1b", "\x9b", "\x07", "\r", "\t"}
    if kind == "csv":
        rows = list(csv.reader(io.StringIO(text)))
        assert len(rows) == 2 and len(rows[1]) == 8
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in rows[1][4:])


def test_files_of_a_run_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run = Run.create("program", parent=tmp_path, pid=1)
        file = run.next_file("massif")
        (run.folder / file).write_text("x")
        (run.folder / "valgrind.1.log").write_text("x")
        run.append("a", file=file, engine="massif")
        assert (run.folder / file).stat().st_mode & 0o777 == 0o600
        run.update(ended="now")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in run.folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o600}, modes
