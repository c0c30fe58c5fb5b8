"""`memwatch growth` and `memwatch limit`: who makes the process grow, without stepping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.memwatching import line_of, run_gdb

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
MIB = 1 << 20


def growth(program: Program, folder: Path, options: str = "") -> dict[str, Any]:
    run_gdb(
        program("asks_kernel"),
        ["break main", "run", f"memwatch growth --json -o growth.json {options}"],
        folder=folder,
    )
    found: dict[str, Any] = json.loads((folder / "growth.json").read_text())
    return found


def at(text: str) -> int:
    return line_of("asks_kernel.cpp", text)


def lines(path: dict[str, Any]) -> list[int]:
    return [frame["line"] for frame in path["frames"] if (frame["file"] or "").endswith("asks_kernel.cpp")]


def test_each_request_is_charged_to_the_line_that_made_it(program: Program, scratch: Path) -> None:
    paths = growth(program, scratch)["paths"]
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
    found = growth(program, scratch, "--raw --until small_blocks")
    asked = {(path["call"], tuple(lines(path))): path for path in found["paths"]}
    whole = asked[("mmap", (at("mmap(nullptr"), at("fresh(10 << 20)")))]
    assert (whole["bytes"], whole["calls"]) == (10 * MIB, 1)
    assert asked[("munmap", (at("munmap(area"),))]["bytes"] == -10 * MIB


def test_a_request_by_another_thread_names_it(program: Program, scratch: Path) -> None:
    paths = growth(program, scratch, "--above 1MiB")["paths"]
    five = next(path for path in paths if path["bytes"] == 5 * MIB)
    assert five["thread"] == 2 and at("fill(5 << 20)") in lines(five)


def test_small_requests_are_left_out_and_counted(program: Program, scratch: Path) -> None:
    found = growth(program, scratch, "--above 9MiB")
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


def test_it_ends_after_a_time(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("asks_kernel"),
        ["break main", "run more", "memwatch growth --json -o growth.json --for 50ms", "info program"],
        folder=scratch,
    )
    assert "recording ended" not in said.complaints
    assert "It stopped at" in said.output or "received signal SIGINT" in said.output


def test_a_limit_stops_in_the_thread_that_passed_it(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("asks_kernel"),
        ["break fill", "run", "delete", "thread 1", "memwatch limit +2MiB", "thread", "info locals"],
        folder=scratch,
    )
    assert "The resident set passed" in said.output and "in thread 2, fill" in said.output
    assert "Current thread is 2" in said.output


def test_a_limit_that_is_not_reached_is_said(program: Program, scratch: Path) -> None:
    said = run_gdb(program("asks_kernel"), ["break main", "run", "memwatch limit 100GiB"], folder=scratch)
    assert "was not reached: the program ended with status 0" in said.output


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("limit", "name a size"),
        ("limit +3", "has no unit"),
        ("limit 1B", "holds"),
        ("growth --until nothing_there", "not defined"),
        ("growth --for soon", "is no duration"),
    ],
)
def test_a_wrong_word_is_answered_in_one_sentence(
    program: Program, scratch: Path, command: str, sentence: str
) -> None:
    said = run_gdb(program("asks_kernel"), ["break main", "run", f"memwatch {command}"], folder=scratch)
    assert sentence in said.output and "Traceback" not in said.output + said.complaints


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
