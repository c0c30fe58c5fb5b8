"""Threads under memwatch: no deadlock, and what is shared is marked."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gdbmem.setup.gdb_python import loader_file
from tests.conftest import PROGRAMS
from tests.cover import cover
from tests.live.memwatching import line_of, run_gdb, steps
from tests.live.user import SECONDS

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
    assert sum(step["delta_bytes"] + (step["others_bytes"] or 0) for step in found) == after - before
    shared = [step for step in found if step["lock"] == "shared"]
    assert len(shared) >= 8
    assert all(
        step["line"] == line_of("queue.c", "        take();") and step["shared_threads"] == [2]
        for step in shared
    )
    notes = [step["note"] for step in shared]
    assert sum("waited for condition variable filled" in note for note in notes) >= 8
    # The producer may have been held where it has the lock.
    places = ("waited for condition variable filled", "waited for mutex lock")
    assert [note for note in notes if not any(place in note for place in places)] == []
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
    assert sum(step["delta_bytes"] + (step["others_bytes"] or 0) for step in found) == after - before
    shared = [step for step in found if step["lock"] == "shared"]
    assert len(shared) == 30
    for step in shared:
        assert (step["line"], step["delta_bytes"]) == (line_of("rendezvous.c", "        take();"), 0)
        assert step["others_bytes"] == PAGE and step["divided_exactly"]
        assert step["shared_threads"] == [2] and "waited for semaphore made" in step["note"]
    own = [step for step in found if step["lock"] == "on"]
    assert len(own) == 30 and {step["delta_bytes"] for step in own} == {2 * PAGE}


def test_with_all_threads_running_a_line_shows_its_own_part_and_the_others_beside_it(
    program: Program, scratch: Path
) -> None:
    first = line_of("crowd.c", "pages(100)")
    run_gdb(
        program("crowd"),
        [f"break {first}", "run 12", "delete", "memwatch next --lock off --json -o steps.json 3", "kill"],
        folder=scratch,
    )
    found = steps(scratch)
    assert [(step["line"], step["delta_bytes"] // PAGE) for step in found] == [
        (first, 100),
        (first + 1, 37),
        (first + 2, -20),
    ]
    assert any(step["others_bytes"] for step in found)
    assert [step["total_bytes"] // PAGE for step in found] == [100, 137, 117]


def test_a_stop_of_gdbs_own_shows_the_part_of_the_thread_that_stopped(
    program: Program, scratch: Path
) -> None:
    first = line_of("crowd.c", "pages(100)")
    commands = [f"break {first}", "run 12", "delete", "memwatch auto on", "next", "next"]
    run_gdb(program("crowd"), [*commands, "memwatch report --json -o steps.json", "kill"], folder=scratch)
    found = steps(scratch)
    # Where all faults were the thread's own and other threads released pages, nobody knows whose these were.
    for step, pages in zip(found, (100, 37)):
        assert step["delta_bytes"] // PAGE == pages or "which thread released" in step["note"], found
    assert len(found) == 2
    assert all(step["others_bytes"] is not None for step in found)


def test_a_line_that_waits_in_inlined_code_ends_where_gdbs_own_next_ends(
    program: Program, scratch: Path
) -> None:
    said = run_gdb(
        program("waits_inline"),
        [
            f"break {line_of('waits_inline.cpp', 'taken = 1;')}",
            "run",
            "next",
            "memwatch next --json -o steps.json",
            "python print('AT', gdb.newest_frame().name(), gdb.newest_frame().find_sal().line)",
            "print taken",
        ],
        folder=scratch,
    )
    assert f"AT main {line_of('waits_inline.cpp', 'taken = 2;')}" in said.output and "= 5\n" in said.output
    assert "waited for" in steps(scratch)[0]["note"]


WAYS = tuple(re.findall(r"WAY_(\w+)\)", (PROGRAMS / "hands_over.cpp").read_text()))
LEVELS = ("-O0", "-Og", "-O1", "-O2", "-O3")
IN_GDB = Path(__file__).parent / "steps_beside_gdb.py"
_MOST_FOREIGN_PAGES = 48  # of libraries, and of a thread that begins
_PAGES_OF_A_THROW = 48  # of the C++ runtime, whose unwind tables the first throw reads


def _usually(way: str, level: str) -> bool:
    return (way, level) in (("engine_like", "-O2"), ("condvar", "-O3"), ("epoll", "-O1"))


@pytest.mark.parametrize(("way", "level"), cover(itertools.product(WAYS, LEVELS), _usually))
def test_a_line_that_waits_ends_where_gdbs_own_next_ends_whatever_lets_the_others_run(
    program: Program, scratch: Path, monkeypatch: pytest.MonkeyPatch, way: str, level: str
) -> None:
    path = program("hands_over", level, f"-DWAY_{way}")
    lines = (PROGRAMS / "hands_over.cpp").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if f"WAY_{way})" in line)
    start = next(number for number, line in enumerate(lines[begin:], start=begin + 1) if "START" in line)
    monkeypatch.setenv("GDB_START", str(start))
    monkeypatch.setenv("GDB_TIMEOUTS", "20ms 200ms 5s")
    said = run_gdb(path, [f"source {IN_GDB}"], folder=scratch, seconds=200)
    assert (scratch / "stops.json").exists(), said
    found = json.loads((scratch / "stops.json").read_text())
    own = found.pop("gdb")
    assert len(own) > 5
    foreign = _MOST_FOREIGN_PAGES + (_PAGES_OF_A_THROW if "throw" in way else 0)
    for timeout, stops in found.items():
        # gdb's own step may run away with an exception.
        assert [stop[:3] for stop in stops[: len(own)]] == own, timeout
        for before, after in zip(stops, stops[1:]):
            touched = (after[2] - before[2]) * PAGE
            assert touched <= after[3] <= touched + foreign * PAGE, (timeout, before, after)


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
        deadline = time.monotonic() + SECONDS
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
    """Stop where `troubles` is about to go the *way*, type *command*, press Ctrl-C; return gdb's output."""
    stop = f'break go if $_streq(what, "{way}")'
    return interrupted(
        program("troubles", "-O0"), folder, stop, f"run {way}", "echo MARK\\n", command, marker="MARK"
    )


def test_ctrl_c_during_a_step_ends_it_and_restores_the_lock(program: Program, scratch: Path) -> None:
    said = interrupted_in(program, scratch, "spin", "memwatch next --timeout 60s 70")
    assert "interrupted (Ctrl-C)" in said.split("MARK")[1]
    assert 'is "replay"' in said.split("AFTER")[1]


def test_ctrl_c_while_the_others_have_been_let_go_ends_it_too(program: Program, scratch: Path) -> None:
    said = interrupted_in(program, scratch, "stuck", "memwatch next 70")
    assert "interrupted (Ctrl-C)" in said.split("MARK")[1]
    assert 'is "replay"' in said.split("AFTER")[1]


def test_ctrl_c_during_growth_prints_what_was_recorded(program: Program, scratch: Path) -> None:
    said = interrupted_in(program, scratch, "stuck", "memwatch growth --json")
    assert '"kind": "growth"' in said and "recording ended: interrupted (Ctrl-C)" in said
    assert "AFTER" in said


def test_a_line_that_has_spun_for_the_timeout_is_let_go_soon_the_next_time_and_gdbs_history_is_left_alone(
    program: Program, scratch: Path
) -> None:
    said = run_gdb(
        program("spins", "-O0"),
        [
            f"break {line_of('spins.c', '        flag = 0;')}",
            "run",
            "delete",
            "print 41",
            "memwatch next --json -o steps.json --timeout 1s 8",
            "print $",
        ],
        folder=scratch,
    )
    waits = [one for one in steps(scratch) if one["line"] == line_of("spins.c", "        wait_for_flag();")]
    assert "ran for 1." in waits[0]["note"] and "ran for 0." in waits[1]["note"]
    assert "$2 = 41" in said.output


def test_a_wait_is_called_by_the_function_that_the_program_called(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("reads_and_waits", "-O0"),
        [f"break {line_of('reads_and_waits.c', 'long got = read(')}", "run", "memwatch next"],
        folder=scratch,
    )
    assert "waited in read]" in said.output


def test_a_thread_that_ends_in_a_step_is_reported_to_have_ended_and_so_is_what_to_type(
    program: Program, scratch: Path
) -> None:
    start = ["break work", "run", "delete", "memwatch next 60"]
    ended = run_gdb(program("threads_end"), start, folder=scratch)
    assert "of 60 steps: its thread has ended" in ended.output
    for command in ("next", "limit +1MiB", "growth", "function work"):
        said = run_gdb(program("threads_end"), [*start, f"memwatch {command}"], folder=scratch)
        assert "the selected thread has ended; 'info threads'" in said.output + said.complaints


def test_what_threads_that_began_in_a_step_did_is_not_counted_as_the_steps_own(
    program: Program, scratch: Path
) -> None:
    start = [f"break {line_of('spawns.c', 'HERE')}", "run"]
    run_gdb(program("spawns", "-O0"), [*start, "memwatch next --json -o steps.json"], folder=scratch)
    (step,) = steps(scratch)
    assert step["lock"] == "shared"
    # gdb lets threads that begin run, also where it has locked the others: their part is known whole, or not at all.
    assert step["others_bytes"] is None or step["others_bytes"] >= 16 << 20
