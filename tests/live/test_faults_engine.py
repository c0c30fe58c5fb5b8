"""The engine faults: snapshots of what is resident, by the lines that made it so, at points of a recipe and in gdb."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS, Program
from tests.live.test_native_engines import Played
from tests.live.user import GDBMEM, at_terminal, shell

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]
MIB = 1 << 20
SLACK = MIB  # of files' pages some come with others
RECIPE = """
program: {program}
engine: faults
points: [{{at: mark}}]
diff: [["mark#1", "mark#2"], ["mark#2", "mark#3"], ["mark#3", "mark#4"]]
expect:
  - {{between: ["mark#1", "mark#2"], path: keep, at_least: 8MiB}}
  - {{between: ["mark#1", "mark#2"], path: reserve, at_most: 1KiB}}
  - {{between: ["mark#1", "mark#4"], path: add, at_most: 1MiB}}
"""


def line_of(text: str) -> int:
    lines = (PROGRAMS / "resident_steps.c").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


@pytest.mark.parametrize("options", ["", "options: {period: 1}\n"], ids=["sampled", "each"])
def test_points_of_a_recipe_become_diffs_of_what_was_made_resident_and_what_left(
    options: str, program: Program, tmp_path: Path
) -> None:
    run = Played(tmp_path, RECIPE.format(program=program("resident_steps")) + options)
    assert run.status == 4, run.messages
    assert [one["met"] for one in run.result["expectations"][::2]] == [True, False], run.result
    said = [int(size) for size in re.findall(r"^resident (\d+)$", run.output, re.M)]
    planted = [("/* keeps */", 24 * MIB), ("/* adds */", 16 * MIB), ("/* keeps */", -8 * MIB)]
    for diff, before, after, (text, size) in zip(run.result["diffs"], said, said[1:], planted):
        first = diff["paths"][0]
        assert first["frames"][0]["line"] == line_of(text)
        assert abs(first["delta_bytes"] - size) <= 2 * MIB, diff["answer"]
        # The kernel's own numbers: what came, less what left, is the change of the resident set.
        assert abs(diff["delta_bytes"] - (after - before)) <= SLACK, diff["answer"]


def test_what_came_and_went_between_two_points_is_in_the_other_metric(
    program: Program, tmp_path: Path
) -> None:
    Played(tmp_path, RECIPE.format(program=program("resident_steps")))
    words = [GDBMEM, "diff", "run:mark#2", "run:mark#3", "--metric", "made-resident", "--json"]
    done = shell(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    lines = {one["frames"][0]["line"]: one["delta_bytes"] for one in result["paths"][:2]}
    assert lines.keys() == {line_of("/* passes */"), line_of("/* adds */")}
    assert abs(sum(lines.values()) - 48 * MIB) < 2 * MIB, result["answer"]


def test_a_program_that_is_executed_in_its_place_begins_anew(program: Program, tmp_path: Path) -> None:
    steps = program("resident_steps")
    recipe = f"program: {steps}\nargs: ['{steps}']\nengine: faults\npoints: [{{at: mark, hits: {{only: [4, 6]}}}}]\n"
    run = Played(tmp_path, recipe)
    assert run.status == 0, run.messages
    shown = shell(GDBMEM, "show", "run", "--json", folder=tmp_path, check=True)
    first, second = (one["heap_bytes"] for one in json.loads(shown.stdout)["snapshots"])
    assert abs(first - 32 * MIB) < 2 * MIB and abs(second - 24 * MIB) < 2 * MIB


def test_at_gdbs_prompt_snapshots_are_compared_and_a_second_run_is_recorded_from_its_start(
    program: Program, tmp_path: Path
) -> None:
    with at_terminal(
        [GDBMEM, "launch", "--engine", "faults", str(program("resident_steps"))], tmp_path
    ) as user:
        user.see("under faults")
        user.prompt()
        for line in ("break mark", "continue"):
            user.type(line)
        assert "snapshot first: resident growth" in user.type("memsnap first")
        user.type("continue")
        second = user.type("memsnap second")
        assert "+24." in second and f"resident_steps.c:{line_of('/* keeps */')} (keep)" in second
        compared = user.type("memdiff first second")
        assert "resident memory grew by 24." in compared
        assert f"resident_steps.c:{line_of('/* keeps */')}" in compared
        user.type("set confirm off")
        user.type("run")
        user.type("continue")
        again = user.type("memsnap again")
        assert "resident growth 24." in again and "recorded from here on" not in again


def test_page_faults_count_no_blocks_and_a_recipe_that_asks_for_them_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "program: /bin/true\nengine: faults\npoints: [{at: main, name: a}, {at: exit, name: b}]\n"
        "expect:\n  - {between: [a, b], metric: blocks, at_most: 1}\n"
    )
    done = shell(GDBMEM, "recipe", "check", "recipe.yaml", folder=tmp_path)
    assert done.returncode == 1
    assert "metric 'blocks' can't be judged: faults counts bytes only" in done.stdout + done.stderr


@pytest.mark.parametrize("after", [5, 15])
def test_a_program_that_is_killed_while_gdb_holds_it_ends_the_recipe_with_its_status(
    after: int, program: Program, tmp_path: Path
) -> None:
    recipe = f"program: {program('killed_while_held')}\nargs: ['{after}']\nengine: faults\npoints: [{{at: mark}}]\n"
    run = Played(tmp_path, recipe)
    assert run.status in (125, 128 + 9), run.messages  # 125: no snapshot could be taken before
    assert "Command aborted" not in run.messages and "report this" not in run.messages
