"""Events in a program while memwatch steps it: nothing may hang, get lost, or leave gdb changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cover import cover
from tests.live.memwatching import answers, line_of, run_gdb, steps

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]


def walk(
    program: Program, folder: Path, trouble: str, *between: str, options: str = ""
) -> list[dict[str, Any]]:
    """Step through the program's *trouble* to its end; return the steps."""
    run_gdb(
        program("troubles", "-O0"),
        [
            f'break go if $_streq(what, "{trouble}")',
            f"run {trouble}",
            "delete",
            *between,
            f"memwatch next --json -o steps.json {options} 60",
        ],
        folder=folder,
    )
    return steps(folder)


def lines_of(found: list[dict[str, Any]]) -> list[int]:
    return [step["line"] for step in found if step["function"] in ("go", "main")]


def at(text: str) -> int:
    return line_of("troubles.c", text)


def test_a_program_that_is_killed_in_a_step_leaves_the_steps_before_it(
    program: Program, scratch: Path
) -> None:
    found = walk(program, scratch, "killed")
    assert found[-1]["line"] == at("kill(getpid()")
    assert found[-1]["delta_bytes"] is None and found[-1]["ended"] == "the program ended"
    assert all(step["delta_bytes"] is not None for step in found[:-1])


def test_a_program_that_exits_in_a_step_is_reported_to_have_ended_with_its_status(
    program: Program, scratch: Path
) -> None:
    found = walk(program, scratch, "exits")
    assert (found[-1]["line"], found[-1]["ended"]) == (at("exit(3)"), "the program ended with status 3")


def test_a_fault_stops_the_stepping_at_its_line(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "segv")
    assert (found[-1]["line"], found[-1]["ended"]) == (at("*nothing = 1"), "signal SIGSEGV")


def test_a_signal_that_gdb_stops_for_stops_the_stepping(program: Program, scratch: Path) -> None:
    assert walk(program, scratch, "usr1")[-1]["ended"] == "signal SIGUSR1"


def test_a_signal_that_gdb_passes_on_does_not(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "usr1", "handle SIGUSR1 nostop noprint")
    assert at("return 0;") in lines_of(found)


def test_a_timer_that_fires_at_every_step_loses_no_line(program: Program, scratch: Path) -> None:
    without = lines_of(walk(program, scratch, "none"))
    (scratch / "steps.json").unlink()
    assert lines_of(walk(program, scratch, "alarm")) == without


@pytest.mark.parametrize("trouble", ["fork", "vfork"])
def test_a_step_over_a_fork_stays_in_the_parent(program: Program, scratch: Path, trouble: str) -> None:
    found = walk(program, scratch, trouble)
    assert [line for line in lines_of(found) if line == at("wait(NULL)") or line == at("return 0;")]
    assert found[-1]["ended"] == "the program ended with status 0"


def test_steps_that_gdb_refuses_over_a_vfork_whose_child_it_holds_show_the_refusal(
    program: Program, scratch: Path
) -> None:
    said = run_gdb(
        program("troubles", "-O0"),
        [
            'break go if $_streq(what, "vfork")',
            "run vfork",
            "delete",
            "set detach-on-fork off",
            "memwatch next 20",
        ],
        folder=scratch,
    )
    assert "Can not resume the parent process over vfork" in said.output
    assert re.search(r'Try "set (set )?detach-on-fork"', said.output)  # gdb 18 stutters


def test_following_the_child_of_a_fork_ends_the_stepping_and_reports_it(
    program: Program, scratch: Path
) -> None:
    found = walk(program, scratch, "fork", "set follow-fork-mode child")
    assert found[-1]["line"] == at("if (fork() == 0)")
    assert found[-1]["delta_bytes"] is None
    # The parent runs on without gdb: nothing has ended.
    assert re.fullmatch(r"gdb now follows process \d+", found[-1]["ended"])


def test_a_step_over_exec_ends_with_the_new_program(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "exec")
    assert found[-1]["line"] == at("execl(")


def test_stepping_out_of_main_ends_with_the_program(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "none")
    assert found[-1]["ended"] == "the program ended with status 0"
    assert sum(step["delta_bytes"] or 0 for step in found) == found[-2]["total_bytes"]


@pytest.mark.parametrize("threads", cover(["many", "hundreds"], lambda threads: threads == "many"))
def test_sixty_and_two_hundred_threads_are_stepped_beside(
    program: Program, scratch: Path, threads: str
) -> None:
    found = walk(program, scratch, threads)
    assert at("return 0;") in lines_of(found)
    assert all(step["lock"] == "on" for step in found if step["function"] == "go")


def test_a_line_that_waits_for_a_mutex_is_shared_with_its_holder(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "mutex")
    shared = [step for step in found if step["lock"] == "shared"]
    assert shared[0]["line"] == at('what, "mutex")) {') + 1
    assert shared[0]["shared_threads"] == [2]
    assert "waited for mutex held, held by thread 2" in shared[0]["note"]
    assert at("return 0;") in lines_of(found)


def test_a_join_is_waited_for_and_not_a_deadlock(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "join")
    assert at("return 0;") in lines_of(found)


def test_a_thread_that_a_line_begins_and_ends_is_named_with_it(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "begin")
    line = next(step for step in found if step["line"] == at("pthread_create(&thread, NULL, toucher"))
    # If gdb held the thread at first, its changes are attributed separately.
    assert line["delta_bytes"] + (line["others_bytes"] or 0) >= 100 * 4096
    assert (line["lock"], line["shared_threads"]) == ("shared", [2])


def test_a_line_that_spins_until_another_thread_acts_is_let_go_after_the_timeout(
    program: Program, scratch: Path
) -> None:
    found = walk(program, scratch, "spin", options="--timeout 300ms")
    spun = next(step for step in found if step["line"] == at("while (!flag)"))
    assert spun["lock"] == "shared" and spun["shared_threads"] == [2]
    assert at("return 0;") in lines_of(found)


def test_with_lock_on_a_wait_is_given_up_and_explained_instead_of_hanging(
    program: Program, scratch: Path
) -> None:
    found = walk(program, scratch, "mutex", options="--lock on")
    assert found[-1]["ended"] == "given up" and "held by thread 2" in found[-1]["note"]


def test_with_lock_off_what_others_did_is_called_shared(program: Program, scratch: Path) -> None:
    found = walk(program, scratch, "mutex", options="--lock off")
    assert [2] in [step["shared_threads"] for step in found if step["lock"] == "shared"]
    assert not [step for step in found if step["lock"] == "on"]


def test_a_breakpoint_with_commands_is_charged_its_own_step_only(program: Program, scratch: Path) -> None:
    line = at('"stuck")) {') + 5
    found = walk(program, scratch, "none", f"break {line}\ncommands\nsilent\nprint 42\nend")
    assert found[-1]["ended"] == "breakpoint 2"


def test_a_breakpoint_whose_commands_go_on_ends_the_stepping_and_reports_it(
    program: Program, scratch: Path
) -> None:
    line = at('"stuck")) {') + 5
    found = walk(program, scratch, "none", f"break {line}\ncommands\nsilent\ncontinue\nend")
    assert found[-1]["ended"] in (
        "a breakpoint's commands resumed the program",
        "the program ended with status 0",
    )


def test_a_temporary_breakpoint_ends_the_stepping(program: Program, scratch: Path) -> None:
    line = at('"stuck")) {') + 5
    found = walk(program, scratch, "none", f"tbreak {line}")
    assert found[-1]["ended"] == "breakpoint 2"


def test_a_watchpoint_ends_the_stepping(program: Program, scratch: Path) -> None:
    assert walk(program, scratch, "none", "watch steps")[-1]["ended"] == "watchpoint 2"


SETTINGS = [
    "info breakpoints",
    "show scheduler-locking",
    "show width",
    "show pagination",
    "show confirm",
    "show logging",
    "show print frame-info",
]


@pytest.mark.parametrize("trouble", ["none", "mutex", "segv", "killed"])
def test_gdb_is_left_as_it_was(program: Program, scratch: Path, trouble: str) -> None:
    said = run_gdb(
        program("troubles", "-O0"),
        [
            f'break go if $_streq(what, "{trouble}")',
            "tbreak nothing_there",
            "set scheduler-locking step" if trouble == "none" else "set width 77",
            f"run {trouble}",
            "up",
            "down",
            "echo BEFORE\\n",
            *SETTINGS,
            "echo AFTER\\n",
            "memwatch next 13" if trouble != "none" else "memwatch next",
            "start" if trouble == "killed" else "echo \\n",
            "echo BEFORE\\n",
            *SETTINGS,
            "echo AFTER\\n",
        ],
        folder=scratch,
    )
    before, after = (
        # gdb itself counts hits anew when the program is started again.
        [line for line in part.partition("AFTER")[0].splitlines() if "already hit" not in line]
        for part in said.output.split("BEFORE")[1:]
    )
    assert before == after


def test_without_a_program_one_sentence_states_what_to_type(program: Program, scratch: Path) -> None:
    commands = ["next", "step", "finish", "report", "until"]
    for command, said in answers(program("troubles", "-O0"), [], "memwatch", commands, scratch).items():
        expected = "has recorded no step yet" if command == "report" else "is not being run; type 'run'"
        assert expected in said and said.count("\n") == 1, command


def test_after_the_end_the_report_is_still_there(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("troubles", "-O0"),
        ["break go", "run none", "memwatch next 60", "memwatch report --json -o steps.json", "memwatch next"],
        folder=scratch,
    )
    assert len(steps(scratch)) > 10
    assert "is not being run" in said.output


def test_non_stop_mode_is_refused_in_one_sentence(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("troubles", "-O0"),
        ["set non-stop on", "break go", "run none", "memwatch next"],
        folder=scratch,
    )
    assert "memwatch needs gdb's all-stop mode" in said.output


def test_without_debug_information_next_runs_on_as_gdb_does_and_stepi_is_measured(
    program: Program, scratch: Path
) -> None:
    run_gdb(
        program("troubles", "-O0", "-g0", "-s"),
        ["break *main", "starti none", "memwatch stepi --json -o steps.json 50"],
        folder=scratch,
    )
    found = steps(scratch)
    assert len(found) == 50 and found[0]["file"] is None
