"""Native engines where the program executes another one in its own process, or itself anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.libraries import needs_library
from tests.live.test_native_engines import ENGINES, Played
from tests.live.user import GDBMEM, at_terminal, shell

pytestmark = [pytest.mark.needs("gdb", "gcc", "g++"), pytest.mark.usefixtures("no_process_left")]


def kept_bytes(run: Path, name: str, function: str) -> int:
    shown = shell(
        GDBMEM, "show", f"{run}:{name}", "--by", "function", "--focus", function, "--json", folder=run
    )
    assert shown.stdout, shown.stderr
    (path,) = json.loads(shown.stdout)["sites"]["paths"]
    size: int = path["delta_bytes"]
    return size


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "gperftools"))
def test_after_a_program_has_executed_itself_its_snapshots_are_those_of_the_new_one(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"""
program: {program("becomes")}
args: ["2"]
engine: {engine}
timeout: 60s
points: [{{at: worked, name: worked}}, {{at: work, after: true, name: after}}]
"""
    played = Played(tmp_path, recipe)
    assert (played.status, played.output) == (0, "became\n"), played.messages
    assert [point["snapshots"] for point in played.result["points"]] == [
        ["worked", "worked#2", "worked#3"],
        ["after", "after#2", "after#3"],
    ]
    assert played.result["warnings"] == []
    sizes = {"gperftools": (300_000, 200_000, 100_000), "jemalloc": (307_200, 204_800, 102_400)}[engine]
    assert tuple(kept_bytes(played.run, f"worked#{n}", "work") for n in (1, 2, 3)) == sizes
    assert "worked#2: heap" in played.messages
    assert "since worked" not in played.messages.partition("after#2: heap")[0].partition("worked#2")[2]


def test_at_the_prompt_a_snapshot_after_an_exec_is_the_new_programs(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    words = [GDBMEM, "launch", "--engine", "gperftools", "--run", "run", str(program("becomes")), "--", "1"]
    with at_terminal(words, tmp_path) as user:
        user.prompt()
        user.type("break worked")
        user.type("continue")
        assert "heap 195.3 KiB" in user.type("memsnap before")
        assert "Breakpoint 1" in user.type("continue")
        shown = user.type("memsnap after")
        assert "snapshot after: heap 97.7 KiB" in shown and "since before" not in shown
        assert "exited normally" in user.type("continue")
        user.type("run")
        assert "since" not in user.type("memsnap again"), "it is another process"
        (row,) = [line for line in user.type("memlist").splitlines() if line.startswith("again")]
        assert "worked at becomes.c:13" in row


def test_a_program_that_executes_one_without_the_profiler_is_reported_to_have(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    static = program("becomes", "-static")
    recipe = f"""
program: {program("becomes")}
args: ["1", "{static}"]
engine: gperftools
timeout: 60s
points: [{{at: worked, name: worked}}, {{at: work, after: true, name: after}}]
"""
    played = Played(tmp_path, recipe)
    assert (played.status, played.output) == (0, "became\n"), played.messages
    assert [point["snapshots"] for point in played.result["points"]] == [["worked"], ["after"]]
    said = [warning["message"] for warning in played.result["warnings"]]
    assert len(said) == 2
    for sentence in said:
        assert "the program has executed another one" in sentence and "becomes" in sentence


def test_where_a_call_was_awaited_the_program_that_comes_in_its_place_is_left_whole(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    # The breakpoint behind the call of `work` would stand somewhere in the other program's instructions.
    other = str(program("keeps", "-no-pie"))
    command = [
        GDBMEM,
        "launch",
        "--engine=gperftools",
        "--run",
        "run",
        str(program("becomes")),
        "--",
        "1",
        other,
    ]
    with at_terminal(command, tmp_path) as user:
        user.prompt()
        user.type("membreak --after work")
        shown = user.type("continue")
        assert "snapshot work: heap" in shown
        assert "kept 300 blocks, sum 5.0000" in shown and "exited normally" in shown
