"""A series should be one program, in order, each file once; otherwise there is a notice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.formats.opening import open_profile
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


ORDERED = {"out-of-order", "series-ordered", "other-process"}


def in_order(capsys: pytest.CaptureFixture[str], *files: object) -> list[str]:
    """Return the names of the snapshots of a diff, as it took them."""
    assert main(["diff", *map(str, files), "--json"]) == 0
    return [one["name"] for one in json.loads(capsys.readouterr().out)["snapshots"]]


def dumps(folder: Path, *names: str) -> list[Path]:
    """Return profiles of jemalloc's, which hold no time, called *names*, all written at one time."""
    folder.mkdir(exist_ok=True)
    files = [folder / name for name in names]
    for at, file in enumerate(files):
        shutil.copy(CAPTURES / ("exact-first.jeheap", "exact-second.jeheap")[at % 2], file)
        os.utime(file, (1000, 1000))
    return files


@pytest.mark.parametrize(
    "pattern",
    [
        "dump.{}.heap",
        "jeprof.4711.{}.m{}.heap",
        "{}",
        "a/{}/heap",
        "massif.out.{}",
        "2026-11-{}.heap",
        "x{}y0{}.heap",
    ],
)
def test_a_series_that_a_shell_sorted_is_read_in_the_order_of_its_numbers(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [pattern.replace("{}", str(number)) for number in (1, 2, 9, 10, 11, 100)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    files = dumps(tmp_path, *names)
    by_shell = sorted(map(str, files))
    assert by_shell != list(map(str, files))
    found = said(capsys, *by_shell)
    assert "out-of-order" not in found
    assert f"from {files[0]} to {files[-1]}, not as a shell" in found["series-ordered"]
    assert in_order(capsys, *by_shell) == [file.name for file in files]


def test_an_order_that_no_shell_made_is_kept_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dumps(tmp_path, "d.1.heap", "d.2.heap", "d.3.heap")
    backwards = [files[2], files[1], files[0]]
    assert in_order(capsys, *backwards) == [file.name for file in backwards]
    assert f"{files[2]} stands before {files[1]}" in said(capsys, *backwards)["out-of-order"]
    assert not ORDERED & said(capsys, *files).keys(), "they are in order"
    assert "out-of-order" not in said(capsys, files[2], files[0]), "two may be of two versions"
    os.utime(files[2], (2000, 2000))
    assert "later by the numbers" in said(capsys, files[2], files[0])["out-of-order"], (
        "it was written later, too"
    )
    assert "out-of-order" not in said(capsys, files[0], files[2])


@pytest.mark.parametrize("names", [["h.10", "h.8", "h.9", "h.a"], ["after-10h", "after-1d", "after-2h"]])
def test_numbers_before_other_texts_deny_a_shells_order(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dumps(tmp_path, *names)
    assert "not the order of their numbers" in said(capsys, *files)["out-of-order"]
    for at, file in enumerate(files):
        os.utime(file, (1000 + 60 * at,) * 2)
    assert not ORDERED & said(capsys, *files).keys(), "they were written in this order"


def test_files_that_are_named_as_they_were_written_are_in_order_whatever_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dumps(
        tmp_path, "massif.out.32001", "massif.out.7", "massif.out.412"
    )  # process numbers begin anew
    for at, file in enumerate(files):
        os.utime(file, (1000 + 60 * at,) * 2)
    assert not ORDERED & said(capsys, *files).keys()
    assert in_order(capsys, *files) == [file.name for file in files]


def test_go_profiles_are_in_the_order_of_the_times_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "z-before", tmp_path / "a-after"
    shutil.copy(GO[0], before)
    shutil.copy(GO[1], after)
    assert "later by the times in the files" in said(capsys, after, before)["out-of-order"]
    assert "out-of-order" not in said(capsys, before, after)
    third = tmp_path / "m"
    shutil.copy(GO[1], third)
    assert in_order(capsys, after, third, before) == ["z-before", "a-after", "m"]
    assert "the times in the files" in said(capsys, after, third, before)["series-ordered"]


def test_snapshots_of_one_file_are_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    file = MASSIF / "shop.massif.gz"
    trees = [totals.index for totals in open_profile(file).snapshots if totals.has_tree][:3]
    found = said(capsys, f"{file}:{trees[1]}", f"{file}:{trees[0]}")
    assert "later by the snapshots in it" in found["out-of-order"]


def test_files_of_several_processes_are_no_series_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dumps(tmp_path, "jeprof.7.0.m0.heap", "jeprof.7.1.m1.heap", "jeprof.8.0.m0.heap")
    assert "is of process 7" in said(capsys, *files)["other-process"]
    files = dumps(tmp_path, "jeprof.7.0.m0.heap", "jeprof.7.1.i1.heap", "jeprof.7.2.f.heap")
    assert "other-process" not in said(capsys, *files)


def test_files_whose_names_do_not_tell_an_order_are_compared_by_when_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dumps(tmp_path, "one.heap", "two.heap", "three.heap")
    for at, file in enumerate(files):
        os.utime(file, (1000 + 60 * at,) * 2)
    assert "out-of-order" not in said(capsys, *files)
    message = said(capsys, *sorted(files))["out-of-order"]
    assert message.startswith(f"{files[2]} was written after {files[1]}")
    for file in files:
        os.utime(file, (1000, 1000))
    assert "out-of-order" not in said(capsys, *sorted(files)), "they were unpacked together"
