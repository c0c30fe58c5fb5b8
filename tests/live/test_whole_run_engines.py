"""DHAT and heaptrack: one profile of the whole run, recorded, shown, compared; the lack of snapshots is reported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS, Program
from tests.examples import build
from tests.live.test_decoder import DECODER
from tests.live.test_decoder import line_of as decoder_line
from tests.live.user import GDBMEM, Word, at_terminal, environment, shell

ENGINES = [
    pytest.param("dhat", marks=pytest.mark.needs("valgrind", "vgdb")),
    pytest.param("heaptrack", marks=pytest.mark.needs("heaptrack")),
]
# If both prove much the same, one is always run.
DHAT = [ENGINES[0], pytest.param("heaptrack", marks=[pytest.mark.needs("heaptrack"), pytest.mark.thorough])]
HEAPTRACK = [
    pytest.param("dhat", marks=[pytest.mark.needs("valgrind", "vgdb"), pytest.mark.thorough]),
    ENGINES[1],
]

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]


def report(*words: object, folder: Path) -> dict[str, Any]:
    ended = shell(GDBMEM, *map(str, words), "--json", folder=folder)
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def line_of(text: str, program: str = "loses.cpp") -> int:
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def run_whole(
    engine: str, folder: Path, program: Path, *arguments: str, run: str
) -> subprocess.CompletedProcess[str]:
    (folder / f"{run}.yaml").write_text(f"program: {program}\nengine: {engine}\n")
    return shell(GDBMEM, "launch", "--recipe", f"{run}.yaml", "--run", run, "--", *arguments, folder=folder)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_recipe_without_points_profiles_the_run_and_shows_it(
    engine: str, program: Program, scratch: Path
) -> None:
    ended = run_whole(engine, scratch, program("loses"), "3", run="run")
    assert ended.returncode == 0, ended.stderr
    assert f"{engine}, the whole run: " in ended.stdout and "at the peak" in ended.stdout
    told = re.findall(r"round 2: lost (\d+) indirect (\d+) kept (\d+)", ended.stdout)
    lost, indirect, kept = map(int, told[0])
    found = report("show", "run", folder=scratch)
    (snapshot,) = found["snapshots"]
    assert (snapshot["name"], snapshot["engine"]) == ("whole-run", engine)
    # 70 bytes were freed before the end, and 300 are not counted by the program.
    assert snapshot["heap_bytes"] == lost + indirect + kept - 70 + 300


@pytest.mark.needs("heaptrack", "heaptrack_print")
def test_heaptracks_own_tools_read_the_profile_in_the_run(program: Program, scratch: Path) -> None:
    ended = run_whole("heaptrack", scratch, program("loses"), "3", run="run")
    assert ended.returncode == 0, ended.stderr
    (snapshot,) = report("show", "run", folder=scratch)["snapshots"]
    printed = shell("heaptrack_print", str(scratch / "run" / snapshot["file"]), folder=scratch).stdout
    (leaked,) = re.findall(r"^total memory leaked: ([\d.]+)KB?$", printed, re.M)
    assert float(leaked) * 1000 == pytest.approx(snapshot["heap_bytes"], abs=10)
    assert snapshot["heap_bytes"] > 1000


@pytest.mark.parametrize("engine", HEAPTRACK)
def test_two_runs_differ_by_what_the_second_lost_more_to_the_byte(
    engine: str, program: Program, scratch: Path
) -> None:
    for rounds in ("2", "3"):
        run_whole(engine, scratch, program("loses"), rounds, run=f"run{rounds}")
    diff = report("diff", "run2", "run3", folder=scratch)
    own = {
        next(frame["line"] for frame in path["frames"] if (frame["file"] or "").endswith("loses.cpp")): path
        for path in diff["paths"]
        if path["delta_bytes"]
    }
    assert own[line_of("the line that loses")]["delta_bytes"] == 3000
    assert own[line_of("the line that loses")]["delta_blocks"] == 3
    assert diff["delta_bytes"] == 3000 + 500 + 5 * 112


@pytest.mark.parametrize("engine", DHAT)
def test_at_the_prompt_snapshots_are_refused_with_what_to_do_and_the_profile_comes_at_the_end(
    engine: str, program: Program, scratch: Path
) -> None:
    with at_terminal([GDBMEM, "launch", "--engine", engine, program("loses")], scratch) as user:
        user.see(f"under {engine}", "The profile goes to", "is written when the program ends")
        user.prompt()
        user.type("break stop_here")
        user.type("continue")
        for command in ("memsnap x", "membreak main", "memlist"):
            assert f"{engine} takes no snapshots: it profiles the whole run" in user.type(command)
        assert "launch --engine memcheck" in user.type("memleaks")
        user.type("delete 1")
        user.type("continue")
        ended = user.quit()
    assert f"{engine}, the whole run: " in ended and "1 snapshot" in ended
    assert "loses.cpp:" in ended


@pytest.mark.needs("valgrind", "vgdb")
def test_leaving_gdb_early_still_leaves_a_profile(program: Program, scratch: Path) -> None:
    with at_terminal([GDBMEM, "launch", "--engine", "dhat", program("handles_term")], scratch) as user:
        user.prompt()
        user.send("continue")
        user.see("ready")
        user.press("c")
        user.prompt()
        assert "dhat, the whole run: " in user.quit()


@pytest.mark.needs("heaptrack")
def test_a_program_killed_before_heaptrack_wrote_leaves_a_sentence(program: Program, scratch: Path) -> None:
    with at_terminal([GDBMEM, "launch", "--engine", "heaptrack", program("loses")], scratch) as user:
        user.prompt()
        user.type("set confirm off")
        ended = user.quit()
    assert "heaptrack had written nothing yet" in ended or "heaptrack wrote no profile" in ended


@pytest.mark.parametrize("engine", HEAPTRACK)
def test_what_a_recipe_expects_is_not_judged_without_snapshots(
    engine: str, program: Program, scratch: Path
) -> None:
    (scratch / "leak.yaml").write_text(
        f"program: {program('loses')}\npoints: [{{at: stop_here, name: r}}]\n"
        "expect: [{between: ['r#1', r], at_most: 1MiB}]\n"
    )
    ended = shell(GDBMEM, "launch", "--recipe", "leak.yaml", "--engine", engine, folder=scratch)
    assert ended.returncode == 125
    assert f"{engine} takes no snapshots: the recipe's 'diff' and 'expect' are skipped" in ended.stderr


@pytest.mark.parametrize("engine", DHAT)
def test_what_the_decoder_never_erased_is_named_by_its_line_to_the_byte(engine: str, scratch: Path) -> None:
    build("decoder")
    ended = run_whole(
        engine,
        scratch,
        DECODER / "build" / "decoder",
        "--batches",
        "2",
        "--states",
        "2000",
        "--utterances",
        "100",
        run="run",
    )
    tasks = int(re.findall(r"^reset .* tasks \d+ blocks (\d+) bytes", ended.stdout, re.M)[-1])
    line = rf"decoder\.cpp:{decoder_line('tasks_[utterance.id]')}\b"
    found = report("show", "run:whole-run", "--metric", "allocated", "--focus", line, folder=scratch)
    assert sum(path["after_bytes"] for path in found["sites"]["paths"]) == tasks


def test_a_missing_heaptrack_is_named_with_what_to_do(program: Program, scratch: Path) -> None:
    tools = scratch / "bin"
    tools.mkdir()
    for tool in ("gdb", "env", "sh"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    ended = shell(GDBMEM, "launch", "--engine", "heaptrack", program("loses"), folder=scratch,
                  env=environment(PATH=str(tools)))  # fmt: skip
    assert ended.returncode == 125
    assert "heaptrack is not installed" in ended.stderr
    assert list(scratch.glob("gdbmem.*")) == []


@pytest.mark.needs("heaptrack")
def test_a_static_program_is_refused_before_anything_starts(program: Program, scratch: Path) -> None:
    ended = shell(
        GDBMEM, "launch", "--engine", "heaptrack", program("static_program", "-static"), folder=scratch
    )
    assert ended.returncode == 125 and "statically linked" in ended.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.needs("valgrind", "vgdb")
def test_a_setting_of_the_launch_is_not_left_to_the_user(program: Program, scratch: Path) -> None:
    words: list[Word] = [
        GDBMEM,
        "launch",
        "--engine",
        "dhat",
        "--valgrind-opt=--dhat-out-file=x",
        program("loses"),
    ]
    ended = shell(*words, folder=scratch)
    assert ended.returncode == 2 and "is set by the launch itself" in ended.stderr
    assert not list(scratch.glob("gdbmem.*"))
