"""gdb's own output about the last of many steps equals that after a single one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.memwatching import run_gdb

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
START = ("break work if round == 1", "run", "delete", "echo MARK\\n")


def said_after(program: Path, folder: Path, *commands: str) -> str:
    return run_gdb(program, [*START, *commands], folder=folder).output.split("MARK")[1]


def test_a_breakpoint_in_a_function_is_shown_with_the_functions_arguments(
    program: Program, scratch: Path
) -> None:
    said = said_after(program("touches_pages", "-O0"), scratch, "break touch", "memwatch next 50")
    assert "Breakpoint 2, touch (first=0, pages=1) at " in said
    assert "Stopped after" in said


def test_a_function_stepped_into_is_shown_with_its_arguments(program: Program, scratch: Path) -> None:
    said = said_after(program("touches_pages", "-O0"), scratch, "memwatch next", "memwatch step 2")
    assert re.search(r"^resident \(\) at .*:\d+\n\d+\t    int file = open", said, re.M)


def test_a_breakpoints_commands_print_arguments_as_ever(program: Program, scratch: Path) -> None:
    said = said_after(
        program("touches_pages", "-O0"),
        scratch,
        "break touch\ncommands\nsilent\nbacktrace\nend",
        "memwatch next 50",
    )
    assert "#0  touch (first=0, pages=1) at " in said


def test_a_hook_of_the_users_prints_arguments_as_ever(program: Program, scratch: Path) -> None:
    said = said_after(
        program("touches_pages", "-O0"),
        scratch,
        "define hook-stop\nbacktrace\nend",
        "tbreak touch",
        "memwatch next 50",
    )
    assert "#0  touch (first=0, pages=1) at " in said


def test_the_users_own_way_of_printing_frames_stays(program: Program, scratch: Path) -> None:
    said = said_after(
        program("touches_pages", "-O0"),
        scratch,
        "set print frame-info location",
        "set print frame-arguments all",
        "memwatch next 5",
        "show print frame-info",
        "show print frame-arguments",
    )
    assert 'is "location"' in said and 'is "all"' in said
