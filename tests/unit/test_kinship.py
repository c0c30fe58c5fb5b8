"""A series should be one program, in order, each file once; otherwise there is a notice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from tests.unit.stack_files import CAPTURES

MASSIF = CAPTURES.parent / "massif"
GO = [str(CAPTURES / name) for name in ("go1.pb.gz", "go2.pb.gz")]


def said(capsys: pytest.CaptureFixture[str], *files: object) -> dict[str, str]:
    """Return the warnings of a diff, by slug."""
    assert main(["diff", *map(str, files), "--json"]) == 0
    return {one["slug"]: one["message"] for one in json.loads(capsys.readouterr().out)["warnings"]}


@pytest.mark.parametrize(
    "files",
    [
        (CAPTURES / "dhat.json", CAPTURES / "xtree.kcg"),
        (CAPTURES / "tc.0001.heap", CAPTURES / "tc.0002.heap"),
        (CAPTURES / "sampled-first.jeheap", CAPTURES / "sampled-second.jeheap"),
        (*GO, CAPTURES / "go1.txt"),
        (MASSIF / "shop.massif.gz", CAPTURES / "ht.zst"),
    ],
)
def test_one_program_is_one_program_whatever_wrote_its_profiles(
    files: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "hardly-alike" not in said(capsys, *files)


def test_profiles_of_two_programs_are_distinguished(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(capsys, MASSIF / "perl.massif.gz", MASSIF / "cc1.massif.gz")["hardly-alike"]
    assert message.startswith("perl.massif.gz") and " and cc1.massif.gz" in message


def test_the_one_of_another_program_in_a_series_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(capsys, GO[0], MASSIF / "cc1.massif.gz", *GO, GO[1])["hardly-alike"]
    assert message.startswith("cc1.massif.gz") and " and most of the other snapshots" in message


def test_a_file_that_is_named_twice_is_a_step_of_nothing_and_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = said(capsys, GO[0], GO[1], GO[1])
    assert found["named-twice"].startswith(f"{GO[1]} is named 2 times")


def test_a_series_in_the_order_of_its_names_and_not_of_time_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"dump.{number}.pb.gz" for number in (1, 2, 10)]
    for at, file in enumerate(files):
        shutil.copy(GO[at % 2], file)
        os.utime(file, (1000 + 60 * at,) * 2)
    assert "out-of-order" not in said(capsys, *files)
    message = said(capsys, *sorted(files))["out-of-order"]  # as a shell sorts them
    assert message.startswith(f"{files[2]} was written after {files[1]}")
    for file in files:
        os.utime(file, (1000, 1000))
    assert "out-of-order" not in said(capsys, *sorted(files)), "they were unpacked together"
