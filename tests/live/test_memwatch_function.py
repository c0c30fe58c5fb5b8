"""`memwatch function`: one function, line by line, however it is left."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.memwatching import Said, answers, line_of, run_gdb

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096


def profile(
    program: Program,
    folder: Path,
    function: str,
    *,
    stop: str,
    options: str = "",
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    run_gdb(
        program("function_lines", *flags),
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


def test_a_function_is_recorded_as_a_whole_where_gdb_reads_modula(program: Program, scratch: Path) -> None:
    """gdb waits no longer for the program after a command has failed in a breakpoint's stop()."""
    found = {}
    for language in ("c++", "modula-2"):
        name = f"{language}.json"
        commands = [f"break {at('i < 1000')}", "run", "delete", f"set language {language}"]
        commands += [f"memwatch function --calls 10 --json -o {name} work", "info threads"]
        said = run_gdb(program("function_lines"), commands, folder=scratch)
        assert "running" not in said.output, said.output
        found[language] = rows(json.loads((scratch / name).read_text()))
    assert found["modula-2"] == found["c++"]


def test_a_function_of_a_program_optimised_at_link_time_has_the_lines_of_its_own_file(
    program: Program, scratch: Path
) -> None:
    found = profile(program, scratch, "work", stop="i < 1000", options="--calls 10", flags=("-flto",))
    assert Path(found["file"]).name == "function_lines.cpp"
    assert rows(found)[at("touch(1);")] == (10, 10)
    assert found["delta_bytes"] == 30 * PAGE


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
    found = profile(program, scratch, "thrower", stop="i < 10;", options="--calls 9")
    first = at("static int thrower") + 1
    assert found["calls"] == 9 and found["abandoned_calls"] == 4 and found["unseen_calls"] == 0
    assert rows(found)[first] == (9, 9) and rows(found)[first + 3] == (5, 15)


def test_a_program_that_ends_early_still_gets_its_table(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("function_lines"),
        [f"break {at('i < 10;')}", "run", "memwatch function --calls 50 thrower"],
        folder=scratch,
    )
    assert "the program ended with status 0: 10 calls of 50" in said.complaints
    assert "5 calls left by an exception" in said.output


def test_a_last_call_that_throws_is_counted_and_gdb_stands_where_it_is_caught(
    program: Program, scratch: Path
) -> None:
    said = run_gdb(
        program("function_lines"),
        [f"break {at('i < 10;')}", "run", "memwatch function thrower --calls 10"],
        folder=scratch,
    )
    assert "10 calls" in said.output and "5 calls left by an exception" in said.output
    assert "main ()" in said.output.partition("#0")[2] and "calls of" not in said.complaints


def test_a_call_left_by_longjmp_is_named_and_counted_once(program: Program, scratch: Path) -> None:
    found = profile(program, scratch, "jumper", stop="(volatile int i = 0", options="--calls 9")
    first = at("static void jumper") + 1
    assert found["calls"] == 9 and found["abandoned_calls"] == 3 and found["unseen_calls"] == 0
    assert rows(found)[first] == (9, 9) and rows(found)[first + 3] == (6, 12)
    assert found["delta_bytes"] == found["process_bytes"] == 21 * PAGE


def test_a_last_call_that_jumps_is_counted_and_gdb_stands_where_it_leads(
    program: Program, scratch: Path
) -> None:
    stop = at("(volatile int i = 0")
    said = run_gdb(
        program("function_lines"), [f"break {stop}", "run", "memwatch function jumper"], folder=scratch
    )
    assert "1 call left by an exception or longjmp" in said.output
    assert f":{stop + 1}" in said.output.partition("#0")[2] or f":{stop}" in said.output.partition("#0")[2]


def test_a_longjmp_inside_a_call_leaves_it_alone(program: Program, scratch: Path) -> None:
    found = profile(program, scratch, "tries", stop="(volatile int i = 0", options="--calls 9")
    assert found["calls"] == 9 and found["abandoned_calls"] == 0
    assert rows(found)[at("    if (!setjmp(place)) jumper(n);")] == (9, 21)


def test_a_call_that_is_under_way_is_counted_from_the_line_that_it_is_on(
    program: Program, scratch: Path
) -> None:
    found = profile(program, scratch, "work", stop="if (n % 2)")
    assert found["calls"] == 1 and found["under_way_from"] == at("if (n % 2)")
    lines = rows(found)
    assert lines[at("touch(1);")] == (0, 0) and lines[at("if (n % 2)")] == (1, 0)
    assert lines[at("sum--") + 1] == (1, 1) and found["delta_bytes"] == PAGE


def test_a_function_that_calls_the_one_where_gdb_stands_is_under_way_too(
    program: Program, scratch: Path
) -> None:
    found = profile(program, scratch, "recursive", stop="    if (depth)")
    assert found["calls"] == 1 and found["under_way_from"] == at("    if (depth)")
    assert found["recursive_calls"] == 3 and found["delta_bytes"] == 11 * PAGE


def test_every_nth_call_is_watched_and_the_others_are_left_out(program: Program, scratch: Path) -> None:
    found = profile(program, scratch, "work", stop="i < 1000", options="--every 10 --calls 7")
    # Calls 0, 10, 20, …: all of even numbers, which take a page less.
    assert found["calls"] == 7 and found["delta_bytes"] == 14 * PAGE
    assert rows(found)[at("        touch(2);")] == (0, 0)


def test_it_ends_after_a_time(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("function_lines"),
        ["break main", "run", "memwatch function work --for 200ms --calls 1000000", "info program"],
        folder=scratch,
    )
    assert re.search(r"stopped after 200 ms: \d+ calls? of 1,000,000", said.complaints)


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


def test_a_wrong_word_is_answered_in_one_sentence(program: Program, scratch: Path) -> None:
    sentences = {
        "nothing_there": 'Function "nothing_there" not defined',
        "": "name a function",
        "--calls 0 work": "at least one call",
    }
    said = answers(program("function_lines"), ["break main", "run"], "memwatch function", sentences, scratch)
    for words, sentence in sentences.items():
        assert sentence in said[words] and said[words].count("\n") == 1, words


def crowd(program: Program, folder: Path, *commands: str) -> Said:
    start = ["break " + str(line_of("crowd.c", "usleep(50000)")), "run 12", "delete"]
    return run_gdb(program("crowd"), [*start, *commands, "kill"], folder=folder)


def test_a_line_that_many_threads_run_through_is_charged_for_each_thread_once(
    program: Program, scratch: Path
) -> None:
    crowd(program, scratch, "memwatch function --calls 200 --json -o function.json work")
    found = json.loads((scratch / "function.json").read_text())
    pages = {line["line"]: line["delta_bytes"] / line["hits"] / PAGE for line in found["lines"]}
    taken = line_of("crowd.c", "some = pages(10)")
    # The threads' last hits are still unknown: 12 of some 200.
    assert 9 <= pages[taken] <= 10.2 and -10.2 <= pages[taken + 2] <= -9 and 0.9 <= pages[taken + 3] <= 1.1
    assert abs(pages[taken + 1]) < 0.1
    assert 0 < found["delta_bytes"] <= found["process_bytes"]


def test_a_thread_that_sleeps_makes_no_number_doubtful(program: Program, scratch: Path) -> None:
    commands = [
        "break work",
        "ignore 1 200",  # by then main sleeps: its last page faults are over
        "run 1 idle",
        "delete",
        "memwatch function --calls 3 --json -o f.json work",
        "kill",
    ]
    run_gdb(program("crowd"), commands, folder=scratch)
    found = json.loads((scratch / "f.json").read_text())
    assert found["calls"] == 3 and not any(line["shared_hits"] for line in found["lines"])
    assert [line["delta_bytes"] // PAGE for line in found["lines"]][1:4] == [30, 0, -30]


def test_a_call_that_a_signal_interrupts_at_its_first_instruction_is_counted_once(
    program: Program, scratch: Path
) -> None:
    document = scratch / "calls.json"
    run_gdb(
        program("alarms", "-O0"),
        ["break main", "run", f"memwatch function --calls 60 --json -o {document} tick", "kill"],
        folder=scratch,
    )
    found = json.loads(document.read_text())
    assert found["calls"] == 60 and found["abandoned_calls"] == 0
    assert {line["hits"] for line in found["lines"]} == {60}


def quiet_lines(program: Program, folder: Path, function: str, calls: int) -> dict[str, tuple[int, int]]:
    """Return the hits and the pages of each line of *function*, by its text; a text that comes twice has a #2."""
    commands = [
        "handle SIGUSR1 nostop noprint pass",
        "break drop",
        "run",
        "delete",
        f"memwatch function --json -o quiet.json --calls {calls} {function}",
    ]
    run_gdb(program("quiet_lines"), commands, folder=folder)
    found = json.loads((folder / "quiet.json").read_text())
    named: dict[str, tuple[int, int]] = {}
    for line in found["lines"]:
        text = line["source_text"].strip()
        named[text + "#2" * (text in named)] = line["hits"], line["delta_bytes"] // PAGE
    return named


def test_a_plain_line_is_charged_for_each_page_that_it_makes_resident(
    program: Program, scratch: Path
) -> None:
    lines = quiet_lines(program, scratch, "refills", 30)
    assert lines["pool[0] = 1;"] == lines["pool[4096] = 1;"] == lines["pool[0] = 2;"] == (30, 30)
    assert lines["drop();"] == (30, -60) and lines["drop();#2"] == (30, -30)
    assert lines["sum += a;"] == lines["a++;"] == lines["return a;"] == (30, 0)


def test_lines_before_and_after_a_caught_exception_have_their_hits(program: Program, scratch: Path) -> None:
    lines = quiet_lines(program, scratch, "catches", 30)
    assert lines["thrower(n);"] == (30, 30) and lines["touch(2);"] == (15, 30)
    assert lines["sum++;"] == lines["caught++;"] == lines["caught++;#2"] == (15, 0)
    assert lines["sum += n;"] == lines["sum ^= caught;"] == (30, 0)


def test_a_frame_on_fresh_pages_of_the_stack_is_charged_to_the_line_that_touches_them(
    program: Program, scratch: Path
) -> None:
    lines = quiet_lines(program, scratch, "deeper", 1)
    assert {hits for hits, _ in lines.values()} == {21}
    assert 19 <= lines["frame[6000] = 1;"][1] <= 21  # the first may have been resident before
    assert lines["sum ^= n;"][1] == 0


def test_the_lines_of_a_call_in_which_the_program_ends_have_their_hits(
    program: Program, scratch: Path
) -> None:
    lines = quiet_lines(program, scratch, "ends", 10)
    assert lines["sum += n;"] == lines["sum ^= n;"] == lines["if (n == 4) exit(0);"] == (5, 0)
    assert lines["sum--;"] == (4, 0)


def test_what_a_signal_handler_does_is_charged_to_the_line_that_it_interrupts(
    program: Program, scratch: Path
) -> None:
    lines = quiet_lines(program, scratch, "raises", 10)
    assert lines["raise(SIGUSR1);"] == (10, 30)
    assert {hits for hits, _ in lines.values()} == {10}


@pytest.mark.parametrize("function", ["touch", "even", "cloned"])
def test_calls_and_bytes_are_the_programs_own_though_its_code_is_entered_otherwise(
    program: Program, scratch: Path, function: str
) -> None:
    if function == "cloned" and platform.machine() != "x86_64":
        pytest.skip("the clones are for x86-64")
    said = run_gdb(
        program("entered_again"),
        ["break main", "run", f"memwatch function --source heap --calls 999 --json -o f.json {function}"],
        folder=scratch,
    )
    found = json.loads((scratch / "f.json").read_text())
    own = re.search(rf"^own {function} (\d+) (\d+)$", said.output, re.M)
    assert own is not None
    assert (found["calls"] + found["recursive_calls"], found["delta_bytes"]) == (int(own[1]), int(own[2]))
    assert found["abandoned_calls"] == 0


def test_a_second_function_of_the_name_is_named_with_what_to_type_for_it(
    program: Program, scratch: Path
) -> None:
    commands = ["break main", "run", "memwatch function --calls 2 tick"]
    said = run_gdb(program("entered_again"), commands, folder=scratch).complaints
    first, second = (
        line_of("entered_again.c", f"APART void tick(int size) {{ take(3, {size}); }}")
        for size in ("size", "2 * size")
    )
    assert re.search(rf"this is tick \(entered_again\.c:({first}|{second}), \*0x", said)
    other = re.search(r"'memwatch function (\*0x\w+)' counts them", said)
    assert other is not None and f"({other[1]})" not in said


def test_finish_of_an_inlined_call_measures_what_is_left_of_it_or_says_that_it_cannot(
    program: Program, scratch: Path
) -> None:
    for level in ("-O1", "-O2", "-O3"):
        commands = ["break half", "run", "memwatch finish --source heap"]
        said = run_gdb(program("inlined_early", level), commands, folder=scratch)
        assert "+384 B heap" in said.output or "the end of this inlined call can't be told" in said.complaints
