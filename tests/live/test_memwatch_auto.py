"""memwatch's account at every stop, and the uses of the recorded steps: report, plot, save, the TUI."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from gdbmem.setup.gdb_python import loader_file
from tests.live.memwatching import line_of, run_gdb, steps
from tests.live.user import packages

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096
AT_WORK = ["break work if round == 1", "run"]


def at(text: str) -> int:
    return line_of("touches_pages.c", text)


def test_every_stop_is_accounted_for_however_it_came_about(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("touches_pages"),
        [
            *AT_WORK,
            "memwatch auto on",
            "next",
            "next",
            "memwatch next",
            "next",
            f"break {at('touch(83, 1000)')}",
            "continue",
            "next",
            "memwatch auto off",
            "next",
            "memwatch report --json -o steps.json",
        ],
        folder=scratch,
    )
    found = [(step["command"], step["line"], step["delta_bytes"] // PAGE) for step in steps(scratch)]
    assert found == [
        ("run", at("touch(0, 1)"), 1),
        ("run", at("touch(0, 1)") + 1, 0),
        ("next", at("touch(1, 2)"), 2),
        ("run", at("touch(1, 2)") + 1, 0),
        ("run", at("touch(3, 16)"), 80),  # to the breakpoint, over the next line too
        ("run", at("touch(83, 1000)"), 1000),
    ]
    assert re.search(r"\+3\.9 MiB resident +touches_pages\.c:\d+ +touch\(83, 1000\);", said.output)


@pytest.mark.parametrize("others", [False, True])
def test_what_a_thread_did_that_has_ended_by_the_next_stop_is_not_charged_to_the_thread_that_stops(
    program: Program, scratch: Path, others: bool
) -> None:
    line = line_of("troubles.c", "pthread_create(&thread, NULL, toucher")
    word = "begin beside" if others else "begin"
    run_gdb(
        program("troubles", "-O0"),
        [f"break {line}", f"run {word}", "memwatch auto on", "next", "memwatch report --json -o steps.json"],
        folder=scratch,
    )
    (step,) = steps(scratch)
    assert (step["line"], step["lock"]) == (line, "shared")
    assert step["shared_threads"][-1] == (
        3 if others else 2
    )  # the one beside it may still be on its way to its pause
    assert step["others_bytes"] >= 100 * PAGE  # those that the thread touched
    assert step["delta_bytes"] < 100 * PAGE


def test_a_report_compares_with_steps_that_were_saved(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("touches_pages"),
        [
            *AT_WORK,
            "memwatch next 2",
            "memwatch save first",
            "memwatch report --since first",
            "memwatch next",
            "memwatch report --since first",
            "memwatch report --since first --json -o changes.json",
            "memwatch report --since second",
            "memwatch report --since first --by thread",
        ],
        folder=scratch,
    )
    rows = json.loads((scratch / "changes.json").read_text())["rows"]
    third = at("touch(1, 2)")
    assert [(row["line"], row["before_hits"], row["after_hits"]) for row in rows] == [(third, None, 1)]
    assert rows[0]["delta_bytes"] == rows[0]["after_bytes"] > 0
    assert f"at touches_pages.c:{third}" in said.output
    assert "second can't be read" in said.output
    assert "--since compares lines, functions or files" in said.output


def test_the_report_plot_and_save_hold_what_was_recorded(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("touches_pages"),
        [
            *AT_WORK,
            "memwatch next 20",
            "memwatch report --by function --top 1",
            "memwatch plot",
            "memwatch plot steps.svg",
            "memwatch plot steps.html",
            "memwatch plot steps.svg",
            "memwatch save ../evil",
            "memwatch clear",
            "memwatch report",
        ],
        folder=scratch,
    )
    assert "resident memory over 20 steps" in said.output
    assert "touches_pages.c" in (scratch / "steps.svg").read_text()
    assert "<svg" in (scratch / "steps.html").read_text()
    assert "steps.svg exists" in said.output
    (saved,) = scratch.glob("gdbmem.touches_pages.*/steps/0001.json")
    assert json.loads(saved.read_text())["name"] == "../evil"
    assert said.output.rstrip().endswith("'memwatch auto on' and then any command [no-steps]")


def test_enter_repeats_a_step(program: Program, scratch: Path) -> None:
    said = typed(
        program("touches_pages"),
        [*AT_WORK, "memwatch next", "", "", "memwatch report --json -o r.json"],
        scratch,
    )
    assert len(steps(scratch, "r.json")) == 3, said


def test_a_misspelt_command_is_answered_with_the_nearest(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("touches_pages"),
        ["memwatch nxet", "memwatch next --lokc on", "memwatch next 0"],
        folder=scratch,
    )
    assert "did you mean 'memwatch next'?" in said.output
    assert "no option --lokc; did you mean --lock?" in said.output
    assert "0 is not a number of steps" in said.output


def test_settings_are_gdbs_own_kind(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("touches_pages"),
        ["set memwatch lock off", "show memwatch lock", "set memwatch timeout soon", "show memwatch timeout",
         "set memwatch source nothing", "show memwatch"],
        folder=scratch,
    )  # fmt: skip
    assert "step is 'off'" in said.output and "'soon' is not a duration" in said.output
    assert said.output.count("runs alone for 5.0 s") == 2
    assert "The source of memwatch's numbers is 'auto'" in said.output


def typed(program: Path, lines: list[str], folder: Path, *, smaller: bool = False) -> str:
    """Type *lines* into a gdb on a terminal; return what the screen got."""
    child = pexpect.spawn(
        "gdb",
        ["-nx", "-q", "-x", str(loader_file()), str(program)],
        env={**os.environ, "TERM": "xterm", "XDG_DATA_HOME": packages()},
        dimensions=(40, 120),
        encoding="utf-8",
        timeout=20,
        cwd=str(folder),
    )
    with (folder / "screen").open("w") as log:
        child.logfile_read = log
        child.expect_exact("(gdb)")
        for line in ["set pagination off", "set confirm off", *lines]:
            child.sendline(line)
        if smaller:
            # The answer to what was typed last shows that gdb has got so far.
            child.sendline('printf "%d\\n", 1234567 * 3')
            child.expect_exact("3703701")
            child.setwinsize(24, 80)
            child.sendline("next")
            child.sendline("tui disable")
        child.sendline('printf "%d\\n", 1234567 * 7')
        child.expect_exact("8641969")
        child.sendline("kill")
        child.sendline("quit")
        child.expect(pexpect.EOF)
    return (folder / "screen").read_text()


def test_the_layout_shows_memory_and_survives_a_smaller_terminal(program: Program, scratch: Path) -> None:
    screen = typed(
        program("touches_pages"),
        [*AT_WORK, "layout memwatch", "next", "memwatch next", "next"],
        scratch,
        smaller=True,
    )
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", screen)
    # A terminal gets what has changed: "steps" may come in pieces, over "step or continue".
    assert "memory" in plain and "resident" in plain and "step" in plain
    assert re.search("[▁█]| #", plain)
    assert "Traceback" not in plain
