"""`memwatch next` and `step` stop where gdb's own do, in C++ into which the standard library is inlined."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cover import cover, diagonals
from tests.live.memwatching import line_of, run_gdb

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
LEVELS = ("-O0", "-Og", "-O1", "-O2", "-O3")
PROGRAMS = ("containers", "algorithms", "strings", "classes", "owners", "numbers")
STOPPING = Path(__file__).parent / "stopping.py"


def walked(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, verbs: str) -> dict[str, Any]:
    monkeypatch.setenv("GDB_VERBS", verbs)
    said = run_gdb(path, [f"source {STOPPING}"], folder=folder, seconds=240)
    assert (folder / "places.json").exists(), said
    found: dict[str, Any] = json.loads((folder / "places.json").read_text())
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "level"), diagonals(PROGRAMS, LEVELS, (3,)))
def test_a_step_is_charged_to_the_line_that_gdb_itself_stops_at(
    program: Program, scratch: Path, monkeypatch: pytest.MonkeyPatch, name: str, level: str
) -> None:
    verbs = "next step" if name in ("containers", "classes") and level in ("-O0", "-O2") else "next"
    verbs = os.environ.get("GDB_VERBS", verbs)
    for found in walked(program(f"stl_{name}", "-g", level), scratch, monkeypatch, verbs).values():
        assert len(found["theirs"]) >= 4 and sum(map(len, found["theirs"].values())) > 20
        assert found["ours"] == found["theirs"]
        for function, stops in found["theirs"].items():
            began = found["at_once"][function]
            both = min(len(began), len(stops))
            assert both > 1 and began[:both] == [stop[:3] for stop in stops[:both]]


ALLOCATING = ("f1", "f3", "f6")


def heap_by_line(path: Path, folder: Path) -> dict[str, dict[int, int]]:
    commands = [f"memwatch function --source heap --json -o {name}.json {name}" for name in ALLOCATING]
    run_gdb(path, ["break main", "run", *commands], folder=folder)
    found = {name: json.loads((folder / f"{name}.json").read_text())["lines"] for name in ALLOCATING}
    return {
        name: {line["line"]: line["delta_bytes"] for line in lines if line["delta_bytes"]}
        for name, lines in found.items()
    }


@pytest.fixture(scope="module")
def plain_heap(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, int]]:
    return heap_by_line(program("stl_containers", "-g", "-O0"), tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("level", cover(LEVELS[1:], lambda level: level in ("-Og", "-O2")))
def test_what_inlined_code_allocates_counts_for_the_line_that_calls_it(
    program: Program, scratch: Path, plain_heap: dict[str, dict[int, int]], level: str
) -> None:
    assert all(len(lines) >= 2 for lines in plain_heap.values())
    assert heap_by_line(program("stl_containers", "-g", level), scratch) == plain_heap


def test_a_function_that_is_inlined_everywhere_is_answered_with_what_to_type(
    program: Program, scratch: Path
) -> None:
    said = run_gdb(
        program("stl_classes", "-g", "-O2"),
        ["break main", "run", "memwatch function often", "memwatch function f1"],
        folder=scratch,
    )
    line = line_of("stl_classes.cpp", "sum += often(n);")
    assert f"has no separate code: it is inlined into stl_classes.cpp:{line} (f1(int))" in said.output
    assert "memwatch function f1" in said.output and "Cannot insert breakpoint" not in said.output
    assert f"{line}     1" in said.output
