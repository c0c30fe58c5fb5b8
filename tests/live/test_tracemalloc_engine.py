"""The engine tracemalloc: points of a recipe, and stops in gdb, at which its tables are read from outside."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from tests.live.test_native_engines import Played
from tests.live.user import GDBMEM, at_terminal, shell

pytestmark = [pytest.mark.needs("gdb"), pytest.mark.usefixtures("no_process_left")]
PYTHON = str(Path(sys.executable).resolve())
TENSOR = 4 << 20
ROWS = 2000

# Each batch keeps rows that tracemalloc traces, and a block of C's that it can't know. getppid is where points stand.
DRIVER = f"""
import ctypes, os, tracemalloc
libc = ctypes.CDLL(None)
libc.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
kept, tensors = [], []

def load(batch):
    kept.extend((batch, str(i) * 3) for i in range({ROWS}))  # the line that keeps

def tensor(size):
    place = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(place), 64, size) == 0
    ctypes.memset(place, 1, size)
    tensors.append(place.value)

for batch in range(4):
    if batch:
        load(batch)
        tensor({TENSOR})
    os.write(2, b"traced %d\\n" % tracemalloc.get_traced_memory()[0])
    os.getppid()
os.write(1, b"ended well\\n")
"""
RECIPE = f"""
program: {PYTHON}
args: [driver.py]
engine: tracemalloc
options: {{{{frames: 3}}}}
points: [{{{{at: getppid, name: batch}}}}]
diff: [["batch#2", "batch#4"]]
{{expect}}
"""
BETWEEN = 'between: ["batch#2", "batch#4"]'


def played(folder: Path, *expect: str, recipe: str = RECIPE) -> Played:
    (folder / "driver.py").write_text(DRIVER)
    items = "".join(f"\n  - {{{BETWEEN}, {one}}}" for one in expect)
    return Played(folder, recipe.format(expect=f"expect:{items}" if expect else ""))


def line_that_keeps() -> int:
    return line_with("the line that keeps")


def line_with(text: str) -> int:
    return next(number for number, line in enumerate(DRIVER.splitlines(), start=1) if text in line)


def test_points_of_a_recipe_are_what_tracemalloc_itself_states_and_the_line_that_keeps_is_named(
    tmp_path: Path,
) -> None:
    keeps = f"driver.py:{line_that_keeps()}$"
    run = played(
        tmp_path,
        "at_most: 1KiB",
        f'metric: blocks, path: "{keeps}", at_least: {2 * 2 * ROWS}',
        "metric: untraced, at_most: 1MiB",
        f"metric: untraced, at_least: {2 * TENSOR}B",
    )
    assert run.status == 4, run.messages
    assert [one["met"] for one in run.result["expectations"]] == [False, True, False, True], run.result
    assert run.output == "ended well\n"
    said = [int(size) for size in re.findall(r"^traced (\d+)", run.messages, re.M)]
    shown = json.loads(shell(GDBMEM, "show", "run", "--json", folder=tmp_path, check=True).stdout)
    read = [one["heap_bytes"] for one in shown["snapshots"]]
    # The bytes object of the report itself, and the temporaries of the call.
    assert [abs(mine - its) < 1024 for mine, its in zip(read, said)] == [True] * 4, (read, said)
    from_python = f", from <module> at driver.py:{line_with('os.getppid()')}"
    assert all(one["place"].endswith(from_python) for one in shown["snapshots"]), shown["snapshots"]
    (diff,) = run.result["diffs"]
    first = diff["paths"][0]["frames"][0]
    assert (Path(first["file"]).name, first["line"]) == ("driver.py", line_that_keeps())
    grown = {one["name"]: one["delta_bytes"] for one in diff["outside_heap"]}
    assert 2 * TENSOR <= grown["untraced resident memory"] < 2 * TENSOR + (1 << 20)
    assert "outside the heap" in diff["answer"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of the recipe, which expects nothing."""
    made = tmp_path_factory.mktemp("unjudged")
    run = played(made)
    assert run.status == 0, run.messages
    return made


def test_snapshots_go_through_show_diff_report_and_export_as_those_of_other_engines(folder: Path) -> None:
    for words in (
        ("diff", "run:batch#1", "run:batch#4", "--by", "line"),
        ("show", "run:batch"),
        ("report", "run", "-o", "page.html"),
        ("export", "run:batch", "--to", "folded", "-o", "folded"),
        ("diff", "--series", "run"),
    ):
        done = shell(GDBMEM, *words, folder=folder)
        assert done.returncode == 0, (words, done.stderr)
        if words[0] == "diff":
            assert f"driver.py:{line_that_keeps()}" in done.stdout.splitlines()[0], done.stdout
    assert "driver.py" in (folder / "page.html").read_text()
    assert f"driver.py:{line_that_keeps()}" in (folder / "folded").read_text()


def test_a_limit_that_memory_which_nobody_traces_may_exceed_is_not_judged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["diff", f"{folder}/run:batch#2", f"{folder}/run:batch#4", "--fail-on"]
    for limit, status in (("100KiB", 4), ("1MiB", 125), ("64MiB", 0)):
        assert main([*words, limit]) == status, capsys.readouterr().err


def test_the_untraced_can_only_be_judged_where_tracemalloc_counts(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "program: /bin/true\nengine: massif\npoints: [{at: main, name: a}, {at: exit, name: b}]\n"
        "expect:\n  - {between: [a, b], metric: untraced, at_most: 1MiB}\n"
    )
    done = shell(GDBMEM, "recipe", "check", recipe)
    assert done.returncode == 1
    assert "metric 'untraced' is the memory that tracemalloc doesn't trace" in done.stdout + done.stderr


def test_a_program_that_is_no_python_is_told_so_and_ends_as_it_would(tmp_path: Path) -> None:
    run = Played(
        tmp_path,
        "program: /bin/true\nengine: tracemalloc\npoints: [{at: exit, name: end}]\n",
    )
    assert "no Python is loaded in this process" in run.messages
    assert "report this as a bug" not in run.messages


def test_a_python_that_ignores_its_environment_is_refused_in_a_sentence(tmp_path: Path) -> None:
    run = played(tmp_path, recipe=RECIPE.replace("[driver.py]", "[-I, driver.py]"))
    assert "tracemalloc is not tracing at this point; the interpreter has not started" in run.messages
    assert "ended well" in run.output


def test_at_gdb_s_prompt_snapshots_are_taken_and_compared(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    with at_terminal(
        [GDBMEM, "launch", "--engine", "tracemalloc", "--", PYTHON, "driver.py"], tmp_path
    ) as user:
        user.prompt()
        for line in ("set breakpoint pending on", "break getppid", "continue"):
            user.type(line)
        assert "snapshot first: heap" in user.type("memsnap first")
        user.type("continue")
        second = user.type("memsnap second")
        assert f"driver.py:{line_that_keeps()}" in second and "untraced resident memory +4." in second
        assert f"driver.py:{line_that_keeps()}" in user.type("memdiff first second")
