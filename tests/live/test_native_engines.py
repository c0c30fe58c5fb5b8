"""Engines without valgrind: gperftools and jemalloc preloaded, snapshots by a call into the stopped program."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS, Program
from tests.cover import cover
from tests.libraries import needs_library
from tests.live.user import GDBMEM, at_terminal, environment, shell

ENGINES = ["gperftools", "jemalloc"]
BLOCK = {"gperftools": 4096, "jemalloc": 4096}  # a size class of jemalloc's: nothing is rounded up

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]


class Played:
    def __init__(self, folder: Path, recipe: str, *words: str) -> None:
        (folder / "recipe.yaml").write_text(recipe)
        self.run = folder / "run"
        command = [GDBMEM, "launch", "--recipe", "recipe.yaml", "--run", "run", "--json", *words]
        ended = shell(*command, folder=folder)
        self.status, self.messages = ended.returncode, ended.stderr
        assert ended.stdout, ended.stderr
        self.result: dict[str, Any] = json.loads(ended.stdout)

    @property
    def output(self) -> str:
        return (self.run / "stdout").read_text()


def line_of(text: str, program: str = "keeps.cpp") -> int:
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_recipe_names_the_line_that_keeps_and_its_exact_bytes(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"""
program: {program("keeps")}
engine: {engine}
points:
  - {{at: batch, name: before}}
  - {{at: batch, name: after, after: true}}
diff: [["before#1", "after"]]
expect:
  - {{between: ["before#1", after], at_most: 1KiB}}
  - {{between: ["before#1", after], metric: blocks, path: keep, at_least: 300}}
  - {{between: ["before#1", after], metric: blocks, path: keep, at_most: 299}}
"""
    played = Played(tmp_path, recipe)
    assert played.status == 4, played.messages
    verdicts = [(one["metric"], one["met"], one["measured"]) for one in played.result["expectations"]]
    assert verdicts[1:] == [("blocks", True, 300), ("blocks", False, 300)]
    (diff,) = played.result["diffs"]
    assert diff["delta_bytes"] == 300 * BLOCK[engine]
    first = diff["paths"][0]
    assert (first["delta_bytes"], first["delta_blocks"]) == (300 * 4096, 300)
    own = [frame["line"] for frame in first["frames"] if (frame["file"] or "").endswith("keeps.cpp")]
    assert own[0] == line_of("the line that keeps")
    assert played.output == "kept 300 blocks, sum 5.0000\n", "a snapshot leaves no trace in the program"


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "jemalloc"))
def test_a_snapshot_where_arguments_are_in_floating_point_registers_changes_none(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"program: {program('keeps')}\nengine: {engine}\npoints: [{{at: '*mix', name: here}}]\n"
    played = Played(tmp_path, recipe, "--", "7")
    assert played.result["points"][0]["hits"] == 3, "each hit once: gdb goes on from where it stood"
    assert played.output == "kept 300 blocks, sum 5.0000\n"
    assert played.status == 7, "the program's own status"


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "gperftools"))
def test_inside_the_allocator_a_snapshot_is_refused_and_the_program_goes_on(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"program: {program('keeps')}\nengine: {engine}\npoints: [{{at: mmap, name: inside}}, {{at: batch}}]\n"
    played = Played(tmp_path, recipe)
    assert "could deadlock" in played.messages or played.result["points"][0]["hits"] == 0
    assert len(played.result["points"][1]["snapshots"]) == 3
    assert played.output.startswith("kept 300 blocks")


def test_a_sampled_snapshot_is_within_three_of_its_own_standard_errors(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    recipe = f"""
program: {program("keeps")}
engine: jemalloc
options: {{sample-rate: 16KiB}}
points: [{{at: batch, name: before, hits: {{only: [1]}}}}, {{at: batch, name: after, after: true, hits: {{only: [3]}}}}]
diff: [[before, after]]
"""
    (diff,) = Played(tmp_path, recipe).result["diffs"]
    kept = next(
        path
        for path in diff["paths"]
        if any(f["function"] == "keep(unsigned long)" or f["function"] == "keep" for f in path["frames"])
    )
    assert 0 < kept["uncertain_bytes"] < 300 * 4096
    assert abs(kept["delta_bytes"] - 300 * 4096) <= 3 * kept["uncertain_bytes"]


def test_a_profiler_that_dumps_by_itself_is_recorded_in_the_same_time_line(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    options = "options: {dump-interval: 400KiB}"
    recipe = f"program: {program('keeps')}\nengine: gperftools\n{options}\npoints: [{{at: mix}}]\n"
    played = Played(tmp_path, recipe)
    words = [GDBMEM, "show", str(played.run), "--json"]
    shown = shell(*words, check=True)
    names = [snapshot["name"] for snapshot in json.loads(shown.stdout)["snapshots"]]
    assert {"mix#1", "mix#2", "mix#3"} <= set(names) and sum(name.startswith("own#") for name in names) >= 3


def test_a_static_program_is_refused_before_anything_starts(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    static = program("static_program", "-static")
    ended = shell(GDBMEM, "launch", "--engine", "gperftools", str(static), folder=tmp_path)
    assert ended.returncode == 125
    assert "statically linked" in ended.stderr and "--engine none" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_two_runs_under_address_randomisation_compare_line_by_line(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    for name in ("a", "b"):
        subprocess.run(
            [str(program("keeps"))], cwd=tmp_path, check=True, capture_output=True,
            env={**environment(), "LD_PRELOAD": "libtcmalloc.so.4", "HEAPPROFILE": str(tmp_path / name)},
        )  # fmt: skip
    files = [next(iter(sorted(tmp_path.glob(f"{name}.*.heap"), reverse=True))) for name in ("a", "b")]
    starts = [re.search(r"([0-9a-f]+)-\S+ r-xp .*keeps", file.read_text()) for file in files]
    assert starts[0] and starts[1] and starts[0][1] != starts[1][1], "they were at different addresses"
    ended = shell(GDBMEM, "diff", *map(str, files), "--json", check=True)
    diff = json.loads(ended.stdout)
    assert [path for path in diff["paths"] if path["delta_bytes"]] == []
    assert diff["before"]["total_bytes"] >= 300 * 4096


def test_at_the_prompt_a_breakpoint_takes_its_snapshot_and_the_program_goes_on(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    words = [GDBMEM, "launch", "--engine", "gperftools", "--run", "run", str(program("keeps"))]
    with at_terminal(words, tmp_path) as user:
        user.see("under gperftools")
        user.prompt()
        user.type("break batch")
        assert "Breakpoint 1" in user.type("continue")
        assert "snapshot first: heap" in user.type("memsnap first")
        user.type("delete 1")
        user.type("membreak --name mixed mix")
        shown = user.type("continue")
        for name in ("mixed", "mixed#2", "mixed#3"):
            assert f"snapshot {name}: heap" in shown
        assert "grew most at keeps.cpp:10 (keep) (+400.0 KiB)" in shown, "the line that grew, as massif's"
        assert "exited normally" in shown, "the program goes on by itself"
        shown = user.type("memdiff first mixed#3")
        assert "heap grew by 1.2 MiB" in shown and "keep" in shown


def test_a_snapshot_in_passing_leaves_next_and_the_users_own_breakpoints_as_they_are(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    with at_terminal([GDBMEM, "launch", "--engine", "jemalloc", str(program("keeps"))], tmp_path) as user:
        user.prompt()
        user.type("membreak keep")
        user.type("break batch")
        assert "Breakpoint 2" in user.type("continue")
        user.type("delete 2")
        shown = user.type("finish")
        assert "snapshot keep#100: heap" in shown, "each hit, while gdb goes to the end of the function"
        assert "Run till exit" in shown and "keeps.cpp:" in shown, "where 'finish' was to end, it has"
        user.type("delete 1")
        user.type("break batch")
        user.type("membreak --name both batch")
        shown = user.type("continue")
        assert "Breakpoint 3, batch" in shown and "snapshot both: heap" in shown
        user.type("delete 3 4")
        assert "exited normally" in user.type("continue")
        assert "kept 300 blocks, sum 5.0000" in user.text


@pytest.mark.parametrize(
    ("engine", "flags", "meetings", "total"),
    cover(
        [("gperftools", (), 12, 66.0), ("jemalloc", ("-DTHREADS=100", "-DROUNDS=1"), 100, 14950.0)],
        lambda engine, flags, meetings, total: meetings < 100,
    ),
    ids=["a-few", "a-hundred"],
)
def test_threads_that_come_to_a_point_at_the_same_time_each_take_their_snapshot(
    engine: str, flags: Sequence[str], meetings: int, total: float, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"program: {program('meets', *flags)}\nengine: {engine}\ntimeout: 60s\npoints: [{{at: meet, name: met}}]\n"
    played = Played(tmp_path, recipe)
    assert played.status == 0, played.messages
    (point,) = played.result["points"]
    assert len(point["snapshots"]) == point["hits"] == meetings
    assert played.output == f"{meetings} meetings, sum {total}\n"


def test_a_missing_preload_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from gdbmem.engines.engine import table
    from gdbmem.errors import MissingToolError
    from gdbmem.launch.native import find_library as find

    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(MissingToolError, match=r"libtcmalloc.*not installed"):
        find(table("gperftools"))


def test_what_the_program_prints_into_the_same_file_as_gdbmem_is_not_overwritten(
    program: Program, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(1, 4)]
    (tmp_path / "words").write_text("".join(f"{number}\n" for number in range(1, 4)))
    (tmp_path / "recipe.yaml").write_text(
        f"engine: none\nprogram: {program('reads_lines')}\nstdin: words\npoints: [{{at: keep, do: [ledger]}}]\n"
        "diff: [[keep#1, keep]]\n"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run(
            [GDBMEM, "launch", "--recipe", "recipe.yaml"], cwd=tmp_path, stdout=out, stderr=out, check=True
        )
        out.write("after it\n")
    said = (tmp_path / "out").read_text()
    for line in (*lines, "3 lines", "the program runs", "resident set", "the run is kept in"):
        assert line in said, said
    assert said.endswith("after it\n")
