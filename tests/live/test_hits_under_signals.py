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


STACKS = [(stack, end) for stack in ("usual", "apart", "in-main") for end in ("returns", "jumps")]


@pytest.mark.parametrize("wanted", ["", ", hits: {only: [100000]}"], ids=["stops", "passes"])
@pytest.mark.parametrize(
    ("stack", "end"), cover(STACKS, lambda stack, end: (stack, end) == ("in-main", "returns"))
)
def test_a_call_that_a_handler_interrupts_at_its_breakpoint_to_make_such_calls_is_one_hit(
    stack: str, end: str, wanted: str, program: Program, tmp_path: Path
) -> None:
    """gdb forgets at a stop in the handler that the interrupted call is to go on."""
    if end == "jumps" and wanted:
        pytest.skip("without a stop, gdb takes a call for the one that the handler has left")
    recipe = f"""
program: {program("calls_from_handler", "-O0")}
args: [{stack}, {end}]
engine: faults
timeout: 100s
points:
  - {{at: "*turn", name: before{wanted}}}
  - {{at: "*turn", name: after, after: true{wanted}}}
  - {{at: helps, name: helps{wanted}}}
"""
    played = Played(tmp_path, recipe)
    calls, _, helped = (int(number) for number in re.findall(r"\d+", played.output))
    hits = {point["name"]: point["hits"] for point in played.result["points"]}
    assert hits == {"before": calls, "after": calls, "helps": helped}
    if end == "returns":
        assert "call-left" not in played.messages, "no call was left by an exception"


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


STOPS = 6


BREAKS = [("", "break brk"), ("--raw", "catch syscall brk")]


@pytest.mark.parametrize(
    ("option", "stop", "microseconds"),
    cover(
        [(*one, rate) for one in BREAKS for rate in RATES],
        lambda option, stop, rate: rate == 1_000,
    ),
)
def test_a_request_at_a_breakpoint_of_the_user_is_in_one_recording_whatever_signals_come(
    option: str, stop: str, microseconds: int, program: Program, tmp_path: Path
) -> None:
    """Each recording ends there before the request is made; the next begins with it."""
    found = {}
    for name, arguments, stops in (
        ("whole", "40 0", 0),
        ("calm", "40 0", STOPS),
        ("storm", f"40 {microseconds}", STOPS),
    ):
        folder = tmp_path / name
        folder.mkdir()
        recordings = [f"memwatch growth {option} --json -o {number}.json" for number in range(stops + 1)]
        commands = ["break turn", f"run {arguments}", "delete", stop, *recordings[:-1]]
        commands += ["delete", recordings[-1]]
        said = run_gdb(program("signal_storm", "-O0"), commands, folder=folder)
        assert "Traceback" not in said.output + said.complaints
        assert said.complaints.count("recording ended: breakpoint 2") <= stops
        assert said.complaints.count("recording ended:") == stops + 1
        found[name] = [json.loads((folder / f"{number}.json").read_text()) for number in range(stops + 1)]
    (whole,) = found["whole"]
    for name in ("calm", "storm"):
        assert sum(one["events"] for one in found[name]) == whole["events"]
        assert sum(one["total_bytes"] for one in found[name]) == whole["total_bytes"]
        assert sum(path["bytes"] for one in found[name] for path in one["paths"]) == sum(
            path["bytes"] for path in whole["paths"]
        )


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


@pytest.mark.parametrize(
    "engine", cover(["gperftools", "jemalloc", "faults"], lambda engine: engine == "faults")
)
def test_a_signal_at_a_breakpoint_leaves_the_programs_registers_unchanged(
    engine: str, program: Program, tmp_path: Path
) -> None:
    """gdb before 14 uses one of them to step, and forgets to restore it if a signal comes instead."""
    if engine in ("gperftools", "jemalloc"):
        needs_library(engine)
    recipe = f"""
program: {program("registers_in_a_storm")}
engine: {engine}
timeout: 100s
points:
  - {{at: "*turn", name: turn, hits: {{only: [100000]}}}}
"""
    played = Played(tmp_path, recipe)
    assert played.output == "2000 rounds, 0 changed\n"
    (point,) = played.result["points"]
    assert point["hits"] == 2000


@pytest.mark.parametrize(
    "commands", [["memwatch growth"], ["start", "memwatch until 60"]], ids=["growth", "until"]
)
def test_a_users_breakpoint_that_a_command_passes_leaves_the_programs_registers_unchanged(
    commands: list[str], program: Program, tmp_path: Path
) -> None:
    said = run_gdb(
        program("registers_in_a_storm"),
        ["break *turn if 0", "starti", *commands, "continue"],
        folder=tmp_path,
    )
    assert "2000 rounds, 0 changed\n" in said.output


@pytest.mark.parametrize("after", ["", ", after: true"], ids=["", "after"])
@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "gperftools"))
def test_an_inlined_call_of_a_handler_during_the_call_for_a_snapshot_is_a_hit(
    engine: str, after: str, program: Program, tmp_path: Path
) -> None:
    """Two points at one place: the program stops there, and gdb makes it call the engine's function."""
    if engine in ("gperftools", "jemalloc"):
        needs_library(engine)
    recipe = f"""
program: {program("handler_inlines", "-O2")}
engine: {engine}
timeout: 100s
points:
  - {{at: turn, name: before}}
  - {{at: turn, name: after, after: true}}
  - {{at: passed, name: passed, hits: {{only: [100000]}}{after}}}
"""
    played = Played(tmp_path, recipe)
    assert played.output == f"300 calls, {TURNS * 100} blocks\n"
    assert {point["name"]: point["hits"] for point in played.result["points"]} == {
        "before": TURNS,
        "after": TURNS,
        "passed": 300,
    }
    assert "call-left" not in played.messages, "no call was left by an exception"


@pytest.mark.parametrize(
    ("engine", "microseconds"), cover(CELLS, lambda engine, rate: (engine, rate) == ("faults", 1_000))
)
def test_a_program_gets_on_with_three_points_on_inlined_functions(
    engine: str, microseconds: int, program: Program, tmp_path: Path
) -> None:
    if engine in ("gperftools", "jemalloc"):
        needs_library(engine)
    names = ("load", "parse", "drop")
    points = "\n".join(f"  - {{at: {name}, name: {name}, after: true}}" for name in names)
    recipe = f"""
program: {program("three_inlined", "-O2")}
args: [{TURNS}, {microseconds}]
engine: {engine}
timeout: 200s
points:
{points}
"""
    played = Played(tmp_path, recipe)
    assert played.output == "total 402080\n"
    points_after = {one["name"]: (one["hits"], len(one["snapshots"])) for one in played.result["points"]}
    assert points_after == dict.fromkeys(names, (TURNS, TURNS))


@pytest.mark.thorough  # half a minute, in which gdb works
def test_signals_that_come_faster_than_gdb_passes_them_on_are_named(program: Program, tmp_path: Path) -> None:
    recipe = f"""
program: {program("signal_storm", "-O0")}
args: [{TURNS}, 20]
engine: faults
timeout: 30s
points:
  - {{at: turn, name: turn}}
"""
    played = Played(tmp_path, recipe)
    assert "signals come as fast as gdb passes them on" in played.messages


CALLS_AND_INLINED = """
program: {}
args: [{}]
engine: faults
timeout: 100s
points:
  - {{at: turn, name: turn, after: true}}
  - {{at: within, name: within, after: true}}
"""


@pytest.mark.parametrize("end", ["returns", "jumps"])
@pytest.mark.parametrize("level", cover(["-O0", "-O2"], lambda level: level == "-O2"))
def test_a_call_has_not_been_left_because_a_handlers_stack_lies_above_it(
    level: str, end: str, program: Program, tmp_path: Path
) -> None:
    played = Played(tmp_path, CALLS_AND_INLINED.format(program("handler_above", level), end))
    calls, inlined = (int(number) for number in re.findall(r"\d+", played.output))
    points = {one["name"]: (one["hits"], len(one["snapshots"])) for one in played.result["points"]}
    left = 5 if end == "jumps" else 0
    assert points == {"turn": (calls, calls - left), "within": (inlined, inlined)}
    slugs = [one["slug"] for one in played.result["warnings"]]
    assert ("call-left" in slugs) == bool(left)


@pytest.mark.parametrize("end", ["returns", "leaves"])
@pytest.mark.parametrize("level", cover(["-O0", "-O2"], lambda level: level == "-O2"))
def test_a_call_in_which_a_coroutine_is_suspended_has_not_been_left(
    level: str, end: str, program: Program, tmp_path: Path
) -> None:
    played = Played(tmp_path, CALLS_AND_INLINED.format(program("coroutines", level), end))
    calls, inlined, left = (int(number) for number in re.findall(r"\d+", played.output))
    points = {one["name"]: (one["hits"], len(one["snapshots"])) for one in played.result["points"]}
    assert points == {"turn": (calls, calls - left), "within": (inlined, inlined)}
    assert bool(played.result["warnings"]) == bool(left)


@pytest.mark.parametrize("stops", [False, True], ids=["passes", "stops"])
@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "gperftools"))
def test_a_snapshot_in_a_handler_leaves_the_stack_that_it_runs_on_as_it_is(
    engine: str, stops: bool, program: Program, tmp_path: Path
) -> None:
    """The call for it runs on another stack: the kernel would give that of the handler to the next one."""
    if engine in ("gperftools", "jemalloc"):
        needs_library(engine)
    second = "\n  - {at: turn, name: returns, after: true}" if stops else ""
    recipe = f"""
program: {program("nested_on_alternate", "-O1")}
engine: {engine}
timeout: 100s
points:
  - {{at: turn, name: turn}}{second}
"""
    played = Played(tmp_path, recipe)
    calls = 8 * 3 + 25
    assert played.output == f"{calls} calls, 0 words changed\n"
    assert {one["hits"] for one in played.result["points"]} == {calls}


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "faults"))
def test_threads_that_send_each_other_signals_make_each_hit_once(
    engine: str, program: Program, tmp_path: Path
) -> None:
    """A thread that is told to go on at a breakpoint may be stopped there again, by another thread's hit."""
    if engine in ("gperftools", "jemalloc"):
        needs_library(engine)
    recipe = f"""
program: {program("signals_among_threads", "-O1", "-pthread")}
engine: {engine}
timeout: 200s
points:
  - {{at: turn, name: turn}}
  - {{at: turn, name: after, after: true}}
  - {{at: within, name: within, hits: {{only: [100000]}}, after: true}}
"""
    played = Played(tmp_path, recipe)
    calls, inlined = (int(number) for number in re.findall(r"\d+", played.output))
    hits = {one["name"]: one["hits"] for one in played.result["points"]}
    assert hits == {"turn": calls, "after": calls, "within": inlined}
    assert all(one["slug"] != "call-left" for one in played.result["warnings"])


def test_a_program_that_handles_a_fatal_signal_often_is_said_to_have_got_it_once(
    program: Program, tmp_path: Path
) -> None:
    recipe = f"""
program: {program("write_barrier", "-O1")}
engine: faults
timeout: 100s
points:
  - {{at: turn, name: turn, after: true}}
"""
    played = Played(tmp_path, recipe)
    assert played.output == "30 calls\n"
    assert [one["hits"] for one in played.result["points"]] == [30]
    (warning,) = played.result["warnings"]
    assert warning["slug"] == "program-signal"
    assert warning["message"].endswith(" (30 times)")


NEIGHBOURS = {
    "places": ("at: '*last'", "at: '*turn'"),
    "return": ("at: '*passed'", "at: '*turn', after: true"),
}


@pytest.mark.parametrize("engine", ["massif", "faults"])
@pytest.mark.parametrize("pair", NEIGHBOURS)
def test_points_at_neighbouring_bytes_leave_the_program_as_it_is(
    pair: str, engine: str, program: Program, tmp_path: Path
) -> None:
    """gdb takes the second for the first under valgrind, and goes on there: the point is refused."""
    first, second = NEIGHBOURS[pair]
    recipe = f"""
program: {program("one_byte_before", "-O1")}
engine: {engine}
timeout: 100s
points:
  - {{{first}, name: first}}
  - {{{second}, name: second}}
"""
    played = Played(tmp_path, recipe)
    assert played.output == "5 calls, 5 others, 5 passes\n"
    hits = {one["name"]: one["hits"] for one in played.result["points"]}
    if engine == "massif":
        (warning,) = played.result["warnings"]
        assert "can't tell this place from the breakpoint at" in warning["message"]
        assert played.status == 125 and hits["first"] == 5
        assert not any(one["snapshots"] for one in played.result["points"] if one["name"] == "second")
    else:
        assert hits == {"first": 5, "second": 5}
