"""Programs that give up rights before their snapshot: it is right, or one sentence states why there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.cover import cover, diagonals
from tests.libraries import needs_library
from tests.live.test_launch_faults import small_disk
from tests.live.test_native_engines import ENGINES, Played
from tests.live.user import GDBMEM, shell

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]


def played(engine: str, program: Program, folder: Path, lost: str, *, extra: str = "") -> Played:
    if engine in ENGINES:
        needs_library(engine)
    recipe = f"""
program: {program("loses_rights")}
args: [{lost}, "{folder}"]
engine: {engine}
timeout: 60s
points: [{{at: lost, name: lost}}]
{extra}"""
    return Played(folder, recipe)


def said(one: Played) -> str:
    assert one.result["points"][0]["snapshots"] == []
    # 153: gperftools dumps by itself at the end, and SIGXFSZ ends a program that may not write so much.
    assert one.status in (7, 153), "the program goes on to its end"
    (warning,) = one.result["warnings"]
    message: str = warning["message"]
    return message


@pytest.mark.parametrize(("engine", "lost"), diagonals(ENGINES, ["folder", "descriptors"], (0,)))
def test_without_its_folder_or_its_descriptors_a_programs_snapshot_is_taken(
    engine: str, lost: str, program: Program, tmp_path: Path
) -> None:
    one = played(engine, program, tmp_path, lost)
    assert one.status == 7 and one.result["points"][0]["snapshots"] == ["lost"], one.messages
    assert "most at loses_rights.c:12 (keep) (+400.0 KiB)" in one.messages


def test_a_program_that_may_map_no_memory_goes_on_unharmed(program: Program, tmp_path: Path) -> None:
    assert "can't map 1.2 MiB more" in said(played("gperftools", program, tmp_path, "memory"))


LOST = {
    "chroot": "(chroot), which does not contain",
    "user": "the program now runs as user 65534, who may not write to",
    "files": "the program has reached its limit of 3 open files",
    "size": "the program may write files of 100 B at most, and would be killed",
}


@pytest.mark.parametrize(("lost", "engine"), diagonals(list(LOST), ENGINES, (0,)))
def test_what_keeps_the_profiler_from_writing_is_reported(
    engine: str, lost: str, program: Program, tmp_path: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root may change the root and the user")
    assert LOST[lost] in said(played(engine, program, tmp_path, lost))


@pytest.mark.needs("valgrind")
@pytest.mark.parametrize(
    ("lost", "engine"), diagonals(["chroot", "user", "size"], ["massif", "memcheck"], (0,))
)
def test_what_keeps_valgrind_from_writing_is_the_reason_of_the_verdict_and_kills_no_program(
    engine: str, lost: str, program: Program, tmp_path: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root may change the root and the user")
    expect = "expect: [{between: [lost#1, lost], at_most: 1MiB}]\n"
    one = played(engine, program, tmp_path, lost, extra=expect)
    assert one.status == 125 and one.result["points"][0]["hits"] == 1
    (verdict,) = one.result["expectations"]
    assert LOST[lost] in verdict["text"] and "disk" not in verdict["text"]
    assert one.result["status"] == 7, "the program goes on to its end"


@pytest.mark.parametrize("engine", cover([*ENGINES, "heaptrack"], lambda engine: engine != "jemalloc"))
def test_on_a_full_disk_the_program_goes_on_and_what_was_written_is_kept(
    engine: str, program: Program, tmp_path: Path
) -> None:
    if engine in ENGINES:
        needs_library(engine)
    elif shutil.which(engine) is None:
        pytest.skip("heaptrack missing: scripts/setup installs it")
    do = "snap" if engine in ENGINES else "backtrace"
    recipe = f"""
program: {program("many_paths")}
args: ["2000", "2"]
engine: {engine}
timeout: 60s
points: [{{at: built, name: built, do: [{do}]}}]
"""
    with small_disk(tmp_path, "64k") as disk:
        one = Played(disk, recipe)
        assert one.status == 125 and one.result["points"][0]["hits"] == 2
        assert "No space left on device" in one.messages or "is full" in one.messages
        assert "Traceback" not in one.messages
        if engine == "heaptrack":
            said = [warning["message"] for warning in one.result["warnings"]]
            assert any("could not read" in text and "it is kept in the run" in text for text in said)
            assert [path.suffix for path in one.run.iterdir() if path.name.startswith("heaptrack")] == [
                ".raw"
            ]
        else:
            raw = one.run / "snapshots" / f"0001.{engine}"
            shown = shell(GDBMEM, "show", raw, "--json", folder=tmp_path)
            assert shown.returncode == 0, shown.stderr
            slugs = ("profile-truncated", "bytes-missing")
            assert any(slug in shown.stdout for slug in slugs), "a cut file is never taken for a whole one"
