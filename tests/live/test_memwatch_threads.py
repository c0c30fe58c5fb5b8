"""Threads under memwatch: no deadlock, and what is shared is marked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gdbmem.launch.gdbpython import loader_file
from tests.live.memwatching import line_of, run_gdb, steps

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096


def test_a_consumer_is_walked_without_hanging_and_the_deltas_add_up(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("queue", "-O0"),
        [
            f"break {line_of('queue.c', '        take();')}",
            "run",
            "delete",
            # The first rounds make the C library's pages resident.
            "memwatch next 12",
            "print $rss()",
            "memwatch next --json -o steps.json 60",
            "print $rss()",
            "show scheduler-locking",
        ],
        folder=scratch,
    )
    found = steps(scratch)
    before, after = (int(said.output.split(f"${n} = ")[1].split()[0]) for n in (1, 2))
    assert len(found) == 60
    assert sum(step["delta_bytes"] for step in found) == after - before
    shared = [step for step in found if step["lock"] == "shared"]
    assert len(shared) >= 8
    assert all(
        step["line"] == line_of("queue.c", "        take();") and step["shared_threads"] == [2]
        for step in shared
    )
    assert all("waited for condition variable filled" in step["note"] for step in shared)
    own = [step for step in found if step["line"] == line_of("queue.c", "ours[item * 8192] =")]
    assert {step["delta_bytes"] for step in own} == {2 * PAGE} and {step["lock"] for step in own} == {"on"}
    assert 'is "replay"' in said.output


def test_a_consumer_that_waits_at_every_second_line_is_walked_and_each_wait_marked(
    program: Program, scratch: Path
) -> None:
    said = run_gdb(
        program("rendezvous", "-O0"),
        [
            "break take",
            "run",
            "delete",
            "finish",
            # The first rounds make the C library's pages resident.
            "memwatch next 5",
            "print $rss()",
            "memwatch next --json -o steps.json 60",
            "print $rss()",
        ],
        folder=scratch,
    )
    found = steps(scratch)
    before, after = (int(said.output.split(f"${n} = ")[1].split()[0]) for n in (1, 2))
    assert sum(step["delta_bytes"] for step in found) == after - before
    shared = [step for step in found if step["lock"] == "shared"]
    assert len(shared) == 30
    for step in shared:
        assert (step["line"], step["delta_bytes"]) == (line_of("rendezvous.c", "        take();"), PAGE)
        assert step["shared_threads"] == [2] and "waited for semaphore made" in step["note"]
    own = [step for step in found if step["lock"] == "on"]
    assert len(own) == 30 and {step["delta_bytes"] for step in own} == {2 * PAGE}


def interrupted(program: Path, folder: Path, *commands: str, marker: str) -> str:
    """Run gdb, send it Ctrl-C once *marker* is in its output and the program runs on; return the output."""
    argv = [
        "gdb",
        "-nx",
        "-q",
        "-x",
        str(loader_file()),
        "-ex",
        "set pagination off",
        "-ex",
        "set confirm off",
    ]
    for command in commands:
        argv += ["-ex", command]
    log = folder / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*argv, str(program)], stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=folder
        )
        assert child.stdin is not None
        deadline = time.monotonic() + 20
        while marker not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        wait_until_it_runs_on(child.pid)
        os.kill(child.pid, signal.SIGINT)
        child.stdin.write(b"echo AFTER\\n\nshow scheduler-locking\nbt 1\nkill\nquit\n")
        child.stdin.flush()
        child.wait(20)
        child.stdin.close()
    return log.read_text()


def wait_until_it_runs_on(gdb: int) -> None:
    """Wait until the program of *gdb* is seen running or asleep, and not stopped, half a second long."""
    looks, deadline = 0, time.monotonic() + 20
    while looks < 25 and time.monotonic() < deadline:
        # Its first child: a later one may be what tries out this kernel.
        program = Path(f"/proc/{gdb}/task/{gdb}/children").read_text().split()[0]
        state = Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0]
        looks = 0 if state in "tT" else looks + 1
        time.sleep(0.02)


def interrupted_in(program: Program, folder: Path, way: str, command: str) -> str:
    """Stop where `troubles` is about to go the *way*, type *command*, press Ctrl-C; return what gdb said."""
    stop = f'break go if $_streq(what, "{way}")'
    return interrupted(
        program("troubles", "-O0"), folder, stop, f"run {way}", "echo MARK\\n", command, marker="MARK"
    )


def test_ctrl_c_during_a_step_ends_it_and_restores_the_lock(program: Program, scratch: Path) -> None:
    said = interrupted_in(program, scratch, "spin", "memwatch next --timeout 60s 70")
    assert "signal SIGINT" in said.split("MARK")[1]
    assert 'is "replay"' in said.split("AFTER")[1]


def test_ctrl_c_while_the_others_have_been_let_go_ends_it_too(program: Program, scratch: Path) -> None:
    said = interrupted_in(program, scratch, "stuck", "memwatch next 70")
    assert "signal SIGINT" in said.split("MARK")[1]
    assert 'is "replay"' in said.split("AFTER")[1]


def test_ctrl_c_during_growth_prints_what_was_recorded(program: Program, scratch: Path) -> None:
    said = interrupted_in(program, scratch, "stuck", "memwatch growth --json")
    assert '"kind": "growth"' in said and "recording ended: signal SIGINT" in said
    assert "AFTER" in said
