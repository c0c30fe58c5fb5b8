"""A gate passes no growth that a notice of a reader may hide; a twin of the same files that hides none passes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from tests.unit.stack_files import CAPTURES, capture

GO = CAPTURES / "go1.pb.gz", CAPTURES / "go2.pb.gz"
FOLDED = b"main;load 1000\nmain;serve 200\n", b"main;load 1000\nmain;serve 250\n"
TC = "tc.0001.heap", "tc.0002.heap"


def files(folder: Path, *contents: bytes, names: Sequence[str] = ("a", "b", "c")) -> list[str]:
    """Return files of *contents*, each written a minute after the one before."""
    paths = [folder / name for name in names[: len(contents)]]
    for at, (path, content) in enumerate(zip(paths, contents)):
        path.write_bytes(content)
        os.utime(path, (1000 + 60 * at,) * 2)
    return list(map(str, paths))


def gate(*words: str) -> int:
    return main(["diff", *words, "--fail-on", "1GiB"])


def test_the_growth_of_a_series_in_the_wrong_order_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = files(tmp_path, *(path.read_bytes() for path in GO))
    assert gate(newer, older) == 125
    assert "name the oldest first" in capsys.readouterr().err
    assert gate(older, newer) == 0


def test_the_growth_between_dumps_of_several_processes_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = [capture("exact-first.jeheap")] * 2 + [capture("exact-second.jeheap")]
    several = [f"jeprof.{process}.{number}.m{number}.heap" for number, process in enumerate((7, 7, 8))]
    assert gate(*files(tmp_path, *dumps, names=several)) == 125
    assert "not the growth of one process" in capsys.readouterr().err
    one = [name.replace(".8.", ".7.") for name in several]
    assert gate(*files(tmp_path, *dumps, names=one)) == 0


@pytest.mark.parametrize("kind", ["folded", "raw"])
def test_numbers_without_a_unit_are_not_judged_until_the_user_says_that_they_are_bytes(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = FOLDED if kind == "folded" else (capture("tc.raw"), capture("tc.raw"))
    before, after = files(tmp_path, *contents)
    assert gate(before, after) == 125
    assert "--metric in-use says that they are" in capsys.readouterr().err
    assert gate(before, after, "--metric", "in-use") == 0


def test_growth_at_addresses_outside_the_memory_map_may_be_that_of_a_selected_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = [data[: data.index(b"MAPPED_LIBRARIES:\n") + 18] for data in map(capture, TC)]
    before, after = files(tmp_path, *cut)
    assert gate(before, after, "--focus", "0x7f2aaa33f95c") == 0, "1 GiB is more than they hide"
    command = ["diff", before, after, "--focus", "0x7f2aaa33f95c", "--fail-on", "21KiB"]
    assert main(command) == 125
    assert "lie in no file of its memory map" in capsys.readouterr().err
    assert main(["diff", before, after, "--fail-on", "42KiB"]) == 0, "of all paths no names are needed"


def test_growth_in_a_binary_that_was_built_anew_may_be_that_of_a_selected_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program"
    shutil.copy(Path(sys.executable).resolve(), program)
    before, after = files(
        tmp_path, *(capture(name).replace(b"/tmp/shop/shop", os.fsencode(program)) for name in TC)
    )
    assert main(["diff", before, after, "--focus", "0x1bb4", "--fail-on", "10KiB"]) == 125
    said = capsys.readouterr()
    assert "is not the file that was profiled" in said.err, said
    assert main(["diff", before, after, "--fail-on", "42KiB"]) == 0
