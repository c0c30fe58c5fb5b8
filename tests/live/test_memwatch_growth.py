"""`memwatch growth` and `memwatch limit`: who makes the process grow, without stepping."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.live.memwatching import answers, line_of, run_gdb
from tests.live.python_programs import every_third

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
MIB = 1 << 20


class Recorded(NamedTuple):
    """What one gdb recorded of five runs of asks_kernel."""

    whole: dict[str, Any]
    above_1mib: dict[str, Any]
    above_9mib: dict[str, Any]
    text: str  # of a fourth
    limited: str  # of the fifth, with a limit that it never reaches


@pytest.fixture(scope="module")
def recorded(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    commands = ["break main"]
    for number, options in enumerate(("", "--above 1MiB", "--above 9MiB")):
        commands += ["run", f"memwatch growth --json -o {number}.json {options}"]
    commands += ["run", "echo ----\\n", "memwatch growth", "run", "echo ----\\n", "memwatch limit 100GiB"]
    said = run_gdb(program("asks_kernel"), commands, folder=folder)
    found = [json.loads((folder / f"{number}.json").read_text()) for number in range(3)]
    return Recorded(*found, *said.output.split("----\n")[1:])


def at(text: str) -> int:
    return line_of("asks_kernel.cpp", text)


def lines(path: dict[str, Any]) -> list[int]:
    return [frame["line"] for frame in path["frames"] if (frame["file"] or "").endswith("asks_kernel.cpp")]


def test_each_request_is_charged_to_the_line_that_made_it(recorded: Recorded) -> None:
    paths = recorded.whole["paths"]
    asked = {(path["call"], tuple(lines(path))): path for path in paths}
    whole = asked[("mmap", (at("mmap(nullptr"), at("fresh(10 << 20)")))]
    assert (whole["bytes"], whole["calls"], whole["resident_bytes"]) == (10 * MIB, 1, 0)
    assert asked[("munmap", (at("munmap(area"),))]["bytes"] == -10 * MIB
    often = asked[("mmap", (at("mmap(nullptr"), at("char *area = fresh(size)"), at("fill(256 << 10)")))]
    # The last request of the program is not seen to have an effect: it has ended.
    assert (often["calls"], often["bytes"]) == (50, 49 << 18)
    assert often["resident_bytes"] >= 49 << 18
    brk = [path for path in paths if path["call"] == "brk" and at("malloc(100)") in lines(path)]
    assert sum(path["bytes"] for path in brk) >= 20000 * 112 - 200_000


def test_raw_sees_the_same_requests_through_the_kernel(program: Program, scratch: Path) -> None:
    commands = ["break main", "run", "memwatch growth --json -o growth.json --raw --until small_blocks"]
    run_gdb(program("asks_kernel"), commands, folder=scratch)
    found = json.loads((scratch / "growth.json").read_text())
    asked = {(path["call"], tuple(lines(path))): path for path in found["paths"]}
    whole = asked[("mmap", (at("mmap(nullptr"), at("fresh(10 << 20)")))]
    assert (whole["bytes"], whole["calls"]) == (10 * MIB, 1)
    assert asked[("munmap", (at("munmap(area"),))]["bytes"] == -10 * MIB


def test_a_temporary_breakpoint_ends_raw_recording_as_any_stop_does(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("asks_kernel"),
        ["break main", "run", "tbreak small_blocks", "memwatch growth --raw", "info breakpoints", "frame"],
        folder=scratch,
    )
    assert "gdbmem failed" not in said.output and "mapped" in said.output
    assert "recording ended: breakpoint 2" in said.complaints
    assert "catchpoint" not in said.output.split("Num ")[1]


def test_requests_with_one_stack_pointer_are_each_charged_to_their_own_callers(
    program: Program, scratch: Path
) -> None:
    commands = ["break main", "run", "memwatch growth --json -o growth.json"]
    run_gdb(program("same_stack"), commands, folder=scratch)
    counts: dict[tuple[str, ...], int] = {}
    for path in json.loads((scratch / "growth.json").read_text())["paths"]:
        own = [
            frame["function"] for frame in path["frames"] if (frame["file"] or "").endswith("same_stack.c")
        ]
        if own[:1] == ["asks"]:
            counts[tuple(own)] = counts.get(tuple(own), 0) + path["calls"]
    assert counts == {
        ("asks", "left", "main"): 81 + 1,  # the C library first asks where the heap ends
        ("asks", "right", "main"): 40,
        ("asks", "left", "padded", "main"): 40,
        ("asks", "left", "again", "again", "main"): 40,
        ("asks", "left", "again", "again", "again", "main"): 40,
        ("asks", "left", "turns", "main"): 40,
        ("asks", "right", "turns", "main"): 40,
    }


def test_a_request_by_another_thread_names_it(recorded: Recorded) -> None:
    paths = recorded.above_1mib["paths"]
    five = next(path for path in paths if path["bytes"] == 5 * MIB)
    assert five["thread"] == 2 and at("fill(5 << 20)") in lines(five)


def test_small_requests_are_left_out_and_counted(recorded: Recorded) -> None:
    found = recorded.above_9mib
    assert all(abs(path["bytes"]) >= 9 * MIB for path in found["paths"])
    assert found["left_out"] >= 50
    assert found["events"] > found["left_out"]


def test_it_ends_at_a_place_and_leaves_no_breakpoint(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("asks_kernel"),
        ["break main", "run", "delete", "memwatch growth --until small_blocks", "info breakpoints", "frame"],
        folder=scratch,
    )
    assert "No breakpoints" in said.output and "small_blocks" in said.output.split("No breakpoints")[1]


def test_where_no_request_was_seen_nothing_is_reported_of_how_the_process_grew(
    program: Program, scratch: Path
) -> None:
    line = line_of("touches_later.c", "// here")
    said = run_gdb(program("touches_later"), [f"break {line}", "run", "memwatch growth"], folder=scratch)
    assert "no request was recorded" in said.output
    assert "0 B resident" not in said.output and "mapped" not in said.output


def test_it_ends_after_a_time(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("asks_kernel"),
        ["break main", "run more", "memwatch growth --json -o growth.json --for 50ms", "info program"],
        folder=scratch,
    )
    assert "recording ended" not in said.complaints
    assert "Program stopped at" in said.output and "received signal" not in said.output


def test_a_limit_stops_in_the_thread_that_passed_it(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("asks_kernel"),
        ["break fill", "run", "delete", "thread 1", "memwatch limit +2MiB", "thread", "info locals"],
        folder=scratch,
    )
    assert "The resident set passed" in said.output and "in thread 2, fill" in said.output
    assert "Current thread is 2" in said.output


def test_a_limit_is_not_reported_to_be_passed_by_a_thread_that_only_waits(
    program: Program, scratch: Path
) -> None:
    line = line_of("thread_maps_and_ends.c", "// here")
    said = run_gdb(
        program("thread_maps_and_ends"), [f"break {line}", "run 16", "memwatch limit +8MiB"], folder=scratch
    )
    # It ends within less than a look takes; a machine that stops it before finds it where it maps.
    assert re.search(r"passed [\d.]+ MiB in (a thread that has ended|thread 2, )", said.output), said


def test_a_limit_that_the_c_library_passes_names_the_users_line(program: Program, scratch: Path) -> None:
    said = run_gdb(program("asks_kernel"), ["break set", "run set", "memwatch limit +20MiB"], folder=scratch)
    line = line_of("asks_kernel.cpp", "memset(fresh(size)")
    assert f"in thread 1, set at asks_kernel.cpp:{line} (in " in said.output
    assert "memset" in said.output.partition("The resident set passed")[2]


def test_a_path_leaves_out_the_librarys_callers(recorded: Recorded) -> None:
    assert "asks_kernel.cpp" in recorded.text and "operator()" in recorded.text
    assert "std_thread.h" not in recorded.text and "__invoke" not in recorded.text


def test_a_limit_that_is_not_reached_is_reported(recorded: Recorded) -> None:
    assert "was not reached: the program ended with status 0" in recorded.limited


def test_a_wrong_word_is_answered_in_one_sentence(program: Program, scratch: Path) -> None:
    sentences = {
        "limit": "name a size",
        "limit +3": "has no unit",
        "limit 1B": "holds",
        "growth --until nothing_there": "not defined",
        "growth --for soon": "is not a duration",
    }
    said = answers(program("asks_kernel"), ["break main", "run"], "memwatch", sentences, scratch)
    for words, sentence in sentences.items():
        assert sentence in said[words] and said[words].count("\n") == 1, words


def test_threads_that_ask_at_the_same_time_are_each_charged_for_their_own(
    program: Program, scratch: Path
) -> None:
    run_gdb(
        program("asks_together"),
        ["break main", "run", "memwatch growth --until done --json -o growth.json"],
        folder=scratch,
    )
    paths = json.loads((scratch / "growth.json").read_text())["paths"]
    asked = {
        (path["call"], path["thread"]): (path["calls"], path["bytes"])
        for path in paths
        if "ask" in [frame["function"] for frame in path["frames"]]
    }
    for number in range(4):
        size = 4096 << (2 * number)
        assert asked[("mmap", number + 2)] == (40, 40 * size)
        assert asked[("munmap", number + 2)] == (20, -20 * size)


@pytest.mark.parametrize("options", ["", "--raw"])
def test_memory_past_the_c_library_is_charged_to_no_request_of_the_c_library(
    program: Program, scratch: Path, options: str
) -> None:
    run_gdb(
        program("past_libc"),
        ["break main", "run", f"memwatch growth {options} --until done --json -o growth.json"],
        folder=scratch,
    )
    found = json.loads((scratch / "growth.json").read_text())
    listed = sum(path["bytes"] for path in found["paths"])
    assert found["total_bytes"] == listed + found["unseen_bytes"]
    paths = [p for p in found["paths"] if "take" in [frame["function"] for frame in p["frames"]]]
    assert sorted(path["bytes"] for path in paths) == [256 << 10, 512 << 10]
    # Only the C library touches a page or two in between.
    assert all(0 <= path["resident_bytes"] - path["bytes"] < 64 << 10 for path in paths)
    assert found["unseen_bytes"] == (0 if options else MIB)
    assert abs(found["unseen_resident_bytes"] - found["unseen_bytes"]) < 64 << 10


def test_pages_are_charged_to_the_request_of_the_thread_that_touched_them(
    program: Program, scratch: Path
) -> None:
    usleep = line_of("crowd.c", "usleep(50000)")
    run_gdb(
        program("crowd"),
        [f"break {usleep}", "run 5", "delete", f"tbreak {line_of('crowd.c', 'usleep(2000)')}", "ignore 2 3",
         "memwatch growth --json -o growth.json", "kill"],
        folder=scratch,
    )  # fmt: skip
    found = json.loads((scratch / "growth.json").read_text())
    by_thread: dict[int, int] = {}
    rounds: dict[int, int] = {}
    for path in found["paths"]:
        number = path["thread"]
        by_thread[number] = by_thread.get(number, 0) + path["resident_bytes"] // 4096
        if path["call"] == "munmap":
            rounds[number] = path["calls"]
    # Each round of a worker leaves one page; the first and the last are seen in part. Those of main are 117.
    for thread in range(2, 7):
        assert -21 <= by_thread[thread] - rounds[thread] <= 11
    assert 100 * 4 <= by_thread[1] <= 137 * 4 + 117
    total = sum(path["resident_bytes"] for path in found["paths"])
    assert total + found["unseen_resident_bytes"] == found["resident_bytes"]


def test_the_effect_of_a_request_before_the_end_is_unknown(program: Program, scratch: Path) -> None:
    run_gdb(
        program("past_libc"),
        ["break done", "run", "delete", "memwatch growth --json -o growth.json"],
        folder=scratch,
    )
    found = json.loads((scratch / "growth.json").read_text())
    assert found["unsettled"] == 1 and [path["bytes"] for path in found["paths"]] == [None]


def test_what_a_thread_gives_back_as_it_ends_changes_no_mapping_and_is_not_unknown(
    program: Program, scratch: Path
) -> None:
    run_gdb(
        program("threads_end", "-pthread"),
        ["break main", "run", "delete", "memwatch growth --json -o growth.json"],
        folder=scratch,
    )
    found = json.loads((scratch / "growth.json").read_text())
    given = [path for path in found["paths"] if path["call"] == "madvise"]
    assert given and all(path["bytes"] == 0 for path in given)
    assert found["unsettled"] == 0


def test_what_was_recorded_is_printed_where_gdb_has_no_packages(program: Program, scratch: Path) -> None:
    shown = {
        "growth --until small_blocks": r"\+10\.0 MiB +0 B +1 +mmap",
        "function fill": r"line +hits +resident",
        "next 3": r"resident +steps +where",
    }
    commands = ["break main"]
    for command in shown:
        commands += ["run", "echo ----\\n", f"memwatch {command}", "kill"]
    said = run_gdb(program("asks_kernel"), commands, folder=scratch, is_installed=False)
    for found, wanted in zip(said.output.split("----\n")[1:], shown.values()):
        assert re.search(wanted, found), said
    assert "gdbmem failed" not in said.output


def test_a_ledger_is_printed_where_gdb_has_no_packages(program: Program, scratch: Path) -> None:
    commands = ["break main", "run", "memexplain --sizes", "memexplain --remedies", "memexplain --bins"]
    commands += ["memexplain --types", "memcontainers", "memcontainers --everywhere"]
    said = run_gdb(program("asks_kernel"), commands, folder=scratch, is_installed=False)
    assert len(re.findall(r"^ *\S+ [KM]iB +100\.0 % +total$", said.output, re.M)) == 2, said.output
    assert "needs the Python package" not in said.output + said.complaints
    assert "report this as a bug" not in said.output + said.complaints


def test_what_a_program_mapped_before_it_executed_another_is_not_set_off_against_the_new_one(
    program: Program, scratch: Path
) -> None:
    commands = ["break main", "run", "delete", "memwatch growth --until done --json -o growth.json"]
    run_gdb(program("executes"), commands, folder=scratch)
    found = json.loads((scratch / "growth.json").read_text())
    taken = [path for path in found["paths"] if "take" in [frame["function"] for frame in path["frames"]]]
    # The effect of the first request is unknown: the next one was made by another program.
    assert sorted((path["bytes"] is None, path["bytes"]) for path in taken) == [
        (False, 5 * MIB),
        (True, None),
    ]
    assert found["unsettled"] >= 1 and 5 * MIB <= found["total_bytes"] < 20 * MIB
    assert found["total_bytes"] == sum(path["bytes"] or 0 for path in found["paths"]) + found["unseen_bytes"]


TAKING = """
import os
def inner(size):
    return bytearray(size)  # the line that takes
def outer(size):
    return inner(size)
os.getppid()
kept = [outer(10 << 20)]
kept.append(inner(20 << 20))
os.getppid()
"""


@every_third(0)
def test_the_lines_of_python_stand_in_the_paths_of_what_they_ask_for(python: str, tmp_path: Path) -> None:
    script = tmp_path / "taking.py"
    script.write_text(TAKING)
    said = run_gdb(
        Path(python),
        [
            "set breakpoint pending on",
            "tbreak getppid",
            f"run -I {script}",
            "memwatch growth --above 1MiB --json -o growth.json --until getppid",
            "kill",
        ],
        folder=tmp_path,
    )
    assert (tmp_path / "growth.json").is_file(), said
    found = json.loads((tmp_path / "growth.json").read_text())
    lines = [line.partition("  #")[0] for line in TAKING.splitlines()]

    def at(text: str) -> int:
        return lines.index(text) + 1

    takes, calls = ("inner", at("    return bytearray(size)")), ("outer", at("    return inner(size)"))
    paths = {
        path["bytes"] >> 20: [
            (frame["function"], frame["line"]) for frame in path["frames"] if frame["file"] == str(script)
        ]
        for path in found["paths"]
    }
    assert paths == {
        10: [takes, calls, ("<module>", at("kept = [outer(10 << 20)]"))],
        20: [takes, ("<module>", at("kept.append(inner(20 << 20))"))],
    }


# It goes on at this line, with no more memory, until it is ended.
FILLING = """
import itertools, os
def fill(kept):
    for n in itertools.cycle(range(len(kept))): kept[n] = bytes([1]) * 65536
os.getppid()
fill([None] * 3000)
"""


@every_third(1)
def test_a_limit_that_python_passes_names_its_line(python: str, tmp_path: Path) -> None:
    script = tmp_path / "filling.py"
    script.write_text(FILLING)
    said = run_gdb(
        Path(python),
        ["set breakpoint pending on", "tbreak getppid", f"run -I {script}", "memwatch limit +40MiB", "kill"],
        folder=tmp_path,
    )
    assert re.search(r"in thread 1, fill at filling\.py:4[ ;]", said.output), said
