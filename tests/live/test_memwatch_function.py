"""`memwatch function`: one function, line by line, however it is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.memwatching import line_of, run_gdb

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096


def profile(program: Program, folder: Path, function: str, *, stop: str, options: str = "") -> dict[str, Any]:
    run_gdb(
        program("function_lines"),
        [
            f"break {at(stop)}",
            "run",
            "delete",
            f"memwatch function --json -o function.json {options} {function}",
        ],
        folder=folder,
    )
    found: dict[str, Any] = json.loads((folder / "function.json").read_text())
    return found


def at(text: str) -> int:
    return line_of("function_lines.cpp", text)


def rows(found: dict[str, Any]) -> dict[int, tuple[int, int]]:
    return {line["line"]: (line["hits"], line["delta_bytes"] // PAGE) for line in found["lines"]}


def test_each_line_of_a_function_gets_its_hits_and_its_pages(program: Program, scratch: Path) -> None:
    found = profile(program, scratch, "work", stop="i < 1000", options="--calls 40")
    lines = rows(found)
    assert found["calls"] == 40
    assert lines[at("touch(1);")] == (40, 40)
    assert lines[at("        touch(2);")] == (20, 40)
    assert lines[at("sum--") + 1] == (40, 40)
    assert lines[at("i < 3")] == (160, 0)
    assert lines[at("        sum += i;")] == (120, 0)
    assert lines[at("return 1;") - 1] == (40, 0)
    assert found["delta_bytes"] == 120 * PAGE


def test_what_a_call_does_is_left_out_with_own(program: Program, scratch: Path) -> None:
    found = profile(program, scratch, "work", stop="i < 1000", options="--own --calls 10")
    assert rows(found)[at("touch(1);")] == (10, 0)
    assert rows(found)[at("sum--") + 1] == (10, 10)
    assert found["outside_bytes"] == 20 * PAGE


def test_recursion_counts_each_change_once(program: Program, scratch: Path) -> None:
    found = profile(program, scratch, "recursive", stop="    recursive(3);")
    assert found["calls"] == 1 and found["recursive_calls"] == 3 and found["abandoned_calls"] == 0
    first = at("static int recursive") + 1
    assert rows(found)[first] == (4, 4) and rows(found)[first + 3] == (4, 8)
    assert found["delta_bytes"] == 12 * PAGE


def test_a_call_left_by_an_exception_is_named_and_no_later_line_is_charged_for_it(
    program: Program, scratch: Path
) -> None:
    found = profile(program, scratch, "thrower", stop="i < 10;", options="--calls 5")
    first = at("static int thrower") + 1
    assert found["calls"] == 5 and found["abandoned_calls"] == 4
    assert rows(found)[first] == (9, 9) and rows(found)[first + 3] == (5, 15)


def test_a_program_that_ends_early_still_gets_its_table(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("function_lines"),
        [f"break {at('i < 10;')}", "run", "memwatch function --calls 50 thrower"],
        folder=scratch,
    )
    assert "the program ended with status 0 after 5 calls of 50" in said.complaints
    assert "5 calls left by an exception" in said.output


def test_gdb_stands_in_the_caller_afterwards_with_no_breakpoint_more(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("function_lines"),
        [
            "break main",
            "run",
            "memwatch function --calls 2 --json -o f.json work",
            "info breakpoints",
            "next",
        ],
        folder=scratch,
    )
    table = said.output.split("Num ")[1]
    assert table.count("breakpoint     keep") == 1
    assert "#0" in said.output and "main ()" in said.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nothing_there", 'Function "nothing_there" not defined'),
        ("", "name a function"),
        ("--calls 0 work", "at least one call"),
    ],
)
def test_a_wrong_word_is_answered_in_one_sentence(
    program: Program, scratch: Path, words: str, sentence: str
) -> None:
    said = run_gdb(
        program("function_lines"), ["break main", "run", f"memwatch function {words}"], folder=scratch
    )
    assert sentence in said.output and "Traceback" not in said.output + said.complaints
