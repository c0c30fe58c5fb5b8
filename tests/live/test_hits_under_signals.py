"""A breakpoint that is passed once counts once, also where a signal postpones the step over it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.libraries import needs_library
from tests.live.memwatching import run_gdb
from tests.live.test_native_engines import Played

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

ENGINES = ("gperftools", "jemalloc", "faults", "massif", "memcheck")
RATES = (10_000, 1_000, 500)  # microseconds from one signal to the next
CELLS = [(engine, rate) for engine in ENGINES for rate in RATES]
TURNS = 10


@pytest.mark.parametrize(
    ("engine", "microseconds"), cover(CELLS, lambda engine, rate: (engine, rate) == ("gperftools", 1_000))
)
def test_each_call_is_one_hit_and_has_one_return_whatever_signals_come(
    engine: str, microseconds: int, program: Program, tmp_path: Path
) -> None:
    if engine in ("gperftools", "jemalloc"):
        needs_library(engine)
    recipe = f"""
program: {program("signal_storm", "-O0")}
args: [{TURNS}, {microseconds}]
engine: {engine}
timeout: 100s
points:
  - {{at: turn, name: before}}
  - {{at: turn, name: after, after: true}}
  - {{at: passed, name: passed, hits: {{only: [100000]}}}}
expect:
  - {{between: ["before#1", "after#{TURNS}"], at_least: {TURNS * 100_000 - 20_000}B}}
"""
    played = Played(tmp_path, recipe)
    calls, blocks = (int(number) for number in re.findall(r"\d+", played.output))
    assert blocks == TURNS * 100
    points = {point["name"]: point for point in played.result["points"]}
    assert points["passed"]["hits"] == calls, "in a loop, by recursion and from the handler"
    assert {name: len(points[name]["snapshots"]) for name in ("before", "after")} == {
        "before": TURNS,
        "after": TURNS,
    }
    assert "call-left" not in played.messages, "no call was left by an exception"
    assert played.status == 0, played.messages


@pytest.mark.parametrize("microseconds", cover(RATES, lambda rate: rate == 1_000))
def test_each_request_for_memory_is_one_event_whatever_signals_come(
    microseconds: int, program: Program, tmp_path: Path
) -> None:
    found = {}
    for name, arguments in (("calm", "40 0"), ("storm", f"40 {microseconds}")):
        commands = ["break turn", f"run {arguments}", "delete", f"memwatch growth --json -o {name}.json"]
        run_gdb(program("signal_storm", "-O0"), commands, folder=tmp_path)
        found[name] = json.loads((tmp_path / f"{name}.json").read_text())
    requests = {name: [path["calls"] for path in document["paths"]] for name, document in found.items()}
    assert requests["storm"] == requests["calm"]
    assert found["storm"]["total_bytes"] == found["calm"]["total_bytes"]


@pytest.mark.parametrize("engine", ["gperftools"])
def test_two_points_at_one_place_count_each_call_once(engine: str, program: Program, tmp_path: Path) -> None:
    """gdb stops for them; the thread that makes the call for a snapshot comes back to both."""
    needs_library(engine)
    recipe = f"""
program: {program("signal_storm", "-O0")}
args: [{TURNS}, 10000]
engine: {engine}
points:
  - {{at: turn, name: one}}
  - {{at: turn, name: other}}
"""
    played = Played(tmp_path, recipe)
    points = {point["name"]: point for point in played.result["points"]}
    assert {name: (point["hits"], len(point["snapshots"])) for name, point in points.items()} == {
        "one": (TURNS, TURNS),
        "other": (TURNS, TURNS),
    }
