"""`gdbmem launch --massif`, as a user at a terminal uses it: gdb in front, valgrind beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.live.user import GDBMEM, Word, at_terminal, histories, launched, only_run, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]


def facts(run: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run / "run.json").read_bytes())
    return read


def test_two_snapshots_at_a_breakpoint_name_the_line_that_grew(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        assert "stopped before its first instruction" in user.text
        assert "Breakpoint 1 at" in user.type("break reset")
        assert "Breakpoint 1, reset" in user.type("continue")
        assert re.search(r"^snapshot first: heap [\d.]+ KiB", user.type("massif-snap first"))
        user.type("continue")
        answer = user.type("massif-snap second")
        assert re.search(r"^snapshot second: heap .* since first; grew most at leaky_map.cpp:16", answer)
        answer = user.type("massif-diff")
        assert re.match(
            r"heap grew by 13\.3 KiB from first to second; all of it from leaky_map\.cpp:16[^;]*;"
            r"\s+outside the heap, allocator overhead grew by [\d.]+ KiB\n",
            answer,
        )
        assert "entries[key] = Entry();  // the leak" in answer
        said = user.quit()
    assert user.status == 0
    run = only_run(scratch)
    assert f"the run is kept in {run.name}/" in said
    assert f"gdbmem diff {run.name}:first {run.name}:second" in said
    assert len(histories(run)) == 1
    assert [p.name for p in sorted((run / "snapshots").iterdir())] == ["0001.massif", "0002.massif"]
    ended = shell(GDBMEM, "diff", f"{run.name}:first", f"{run.name}:second", folder=scratch)
    assert ended.returncode == 0, ended.stderr
    assert "leaky_map.cpp:16" in ended.stdout.splitlines()[0]


def test_run_starts_a_fresh_valgrind_and_keeps_breakpoints_snapshots_and_the_old_history(
    program: Program, scratch: Path
) -> None:
    with launched(program("leaky_map"), "2", folder=scratch) as user:
        user.type("break reset")
        user.type("continue")
        user.type("massif-snap one")
        assert re.search(r"A new valgrind runs.*Breakpoint 1, reset", user.type("run"), re.S)
        # A snapshot is never compared with one of another process.
        assert "since" not in user.type("massif-snap two")
        assert "Breakpoint 1, reset" in user.type("run 1 50")
        user.type("delete 1")
        assert "50 entries" in user.type("continue")
        assert "status 0; 'run' starts it again" in user.text
        assert "temporary breakpoint" in user.type("start 3").lower()
        assert "main (argc=2" in user.type("frame")
        user.quit()
    run = only_run(scratch)
    assert len(histories(run)) == 4
    starts = facts(run)["starts"]
    program_at = starts[0]["argv"].index(str(program("leaky_map")))
    words = [start["argv"][program_at + 1 :] for start in starts]
    assert words == [["2"], ["2"], ["1", "50"], ["3"]]
    assert all(start["status"] is not None for start in starts)


def test_a_redirection_behind_run_is_refused_with_the_option_that_does_it(
    program: Program, scratch: Path
) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        assert "--stdout FILE" in user.type("run 3 > out")
        assert "close the quotation" in user.type("run 'open")
        # The first valgrind still waits.
        assert "in _start" in user.type("frame")
        user.quit()


def test_ctrl_c_stops_the_running_program_in_gdb_and_nothing_else(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        user.send("continue")
        user.see("ready")
        user.press("c")
        assert "Program received signal" in user.prompt()
        assert re.search(r"^snapshot here: heap", user.type("massif-snap here"))
        user.press("c")  # at the prompt
        assert "Quit" in user.prompt()
        assert "ticks" in user.type("info symbol tick")
        user.quit()
    assert len(histories(only_run(scratch))) == 1
    assert user.status == 0


def test_quit_can_be_taken_back_and_confirmed(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        user.type("break reset")
        user.type("continue")
        user.send("quit")
        user.see("Quit anyway? (y or n) ")
        assert "Not confirmed" in user.type("n")
        user.type("massif-snap still-here")
        user.send("quit")
        user.see("Quit anyway? (y or n) ")
        user.send("y")
        assert "1 snapshot" in user.end()
    assert len(histories(only_run(scratch))) == 1


def test_end_of_input_leaves_gdb_as_quit_does(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        user.press("d")
        user.see("(y or n) ")
        user.send("y")
        assert "the run is kept" in user.end()
    assert user.status == 0


def test_on_quit_finish_lets_the_program_run_to_its_end(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), "3000000", folder=scratch, options=["--on-quit", "finish"]) as user:
        user.type("break tick")
        user.type("continue")
        said = user.quit()
    assert re.search(r"continues to its end.*3000000 ticks", said, re.S)
    (start,) = facts(only_run(scratch))["starts"]
    assert start["status"] == 0


def test_a_program_that_reads_the_keyboard_gets_what_is_typed_while_it_runs(
    program: Program, scratch: Path
) -> None:
    with launched(program("reads_lines"), folder=scratch) as user:
        user.type("break keep if number == 2")
        user.send("continue")
        user.see("Continuing.")
        for number in (1, 2):
            user.send(f"word {number}")
            user.see(f"line {number}: word {number}")
        user.send("word 3")
        assert "Breakpoint 1, keep (number=" in user.prompt()
        user.send("continue")
        user.see("line 3: word 3")
        user.press("d")
        assert "3 lines" in user.prompt()
        user.quit()


def test_standard_input_and_output_can_be_files(program: Program, scratch: Path) -> None:
    (scratch / "in put").write_text("a\nb\n")
    options = ["--stdin", "in put", "--stdout", "out put"]
    with launched(program("reads_lines"), folder=scratch, options=options) as user:
        assert "status 0" in user.type("continue")
        user.quit()
    assert (scratch / "out put").read_text() == "line 1: a\nline 2: b\n2 lines\n"
    assert "2 lines" not in user.text


def test_a_missing_input_file_is_reported_before_anything_starts(program: Program, scratch: Path) -> None:
    ended = shell(GDBMEM, "launch", "--stdin", "absent", program("reads_lines"), folder=scratch)
    assert ended.returncode == 125
    assert ended.stderr == (
        "gdbmem: --stdin absent: No such file or directory; name a file that can be opened [bad-stream]\n"
    )
    assert list(scratch.iterdir()) == []


def test_a_program_on_its_own_terminal_owns_one_and_is_seen_and_fed(program: Program, scratch: Path) -> None:
    with launched(program("terminal"), folder=scratch, options=["--own-terminal"]) as user:
        answer = user.type("continue")
        for word in ("stdin terminal", "stdout terminal", "stderr terminal", "/dev/tty opens"):
            assert word in answer
        user.quit()
    with launched(program("reads_lines"), folder=scratch, options=["--own-terminal"]) as user:
        user.send("continue")
        user.see("Continuing.")
        user.send("hello")
        user.see("line 1: hello")
        user.press("d")
        assert "1 lines" in user.prompt()
        user.quit()


def test_gdb_commands_can_come_from_a_pipe(program: Program, scratch: Path) -> None:
    commands = "break reset\ncontinue\nmassif-snap a\ncontinue\nmassif-snap b\nmassif-diff --top 1\n"
    ended = shell(GDBMEM, "launch", program("leaky_map"), folder=scratch, input=commands)
    assert ended.returncode == 0, ended.stderr
    assert "heap grew by 13.3 KiB from a to b" in ended.stdout
    assert "2 snapshots, massif's own history" in ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr


def test_scripts_and_commands_on_the_command_line_are_done_in_their_order(
    program: Program, scratch: Path
) -> None:
    (scratch / "my script.gdb").write_text("break reset\ncontinue\n")
    options = ["-x", "my script.gdb", "--ex", "massif-snap from-ex", "--ex", "echo done\\n"]
    with launched(program("leaky_map"), folder=scratch, options=options) as user:
        assert re.search(r"Breakpoint 1, reset.*snapshot from-ex: heap.*done", user.text, re.S)
        user.quit()


def test_the_users_own_gdbinit_is_respected(program: Program, scratch: Path, private_home: Path) -> None:
    (private_home / ".gdbinit").write_text(
        "set prompt (my gdb) \nset sysroot /\ndefine hello\necho hello from home\\n\nend\n"
    )
    with at_terminal([GDBMEM, "launch", program("leaky_map")], scratch) as user:
        user.see("(my gdb) ")
        user.send("hello")
        user.see("hello from home\r\n", "(my gdb) ")
        user.send("show sysroot")
        user.see('"/"', "(my gdb) ")
        user.send("massif-list")
        user.see("No snapshot yet", "(my gdb) ")
        user.quit()


def test_exec_without_following_states_where_the_program_went(program: Program, scratch: Path) -> None:
    with launched(program("execs"), program("ends"), "exit", "3", folder=scratch) as user:
        user.type("break main")
        assert "Breakpoint 1, main" in user.type("continue")
        user.type("massif-snap before")
        answer = user.type("continue")
        assert "exec" in answer and "--trace-children" in answer
        user.quit()
    assert shell(GDBMEM, "show", only_run(scratch), folder=scratch).returncode == 0


def test_exec_is_followed_with_trace_children(program: Program, scratch: Path) -> None:
    words: list[Word] = [program("execs"), program("ends"), "exit", "3"]
    with launched(*words, folder=scratch, options=["--trace-children"]) as user:
        user.type("break main")
        user.type("continue")
        assert "has executed another" in user.type("continue")
        assert re.search(r"Breakpoint 1, main.*ends.c", user.type("continue"), re.S)
        user.type("massif-snap in-the-new-one")
        assert "status 3" in user.type("continue")
        user.quit()


def test_a_child_that_is_forked_and_one_that_is_executed_run_and_get_their_own_files(
    program: Program, scratch: Path
) -> None:
    with launched(program("forks"), folder=scratch) as user:
        user.type("break reaped")
        assert "Breakpoint 1, reaped" in user.type("continue")
        assert "heap 9.8 KiB" in user.type("massif-snap parent")
        user.quit()
    assert len(histories(only_run(scratch))) == 2
    folder = scratch / "traced"
    folder.mkdir()
    words = ["/bin/sh", "-c", f"{program('ends')} exit 3; exit 4"]
    with launched(*words, folder=folder, options=["--trace-children"]) as user:
        assert "status 4" in user.type("continue")
        user.quit()
    assert len(histories(only_run(folder))) == 2


def test_threads_are_stopped_and_named_in_the_list(program: Program, scratch: Path) -> None:
    with launched(program("threads"), "100", folder=scratch) as user:
        user.type("massif-break --name made produce")
        user.type("massif-break --name used consume")
        user.type("break joined")
        assert "Breakpoint 3, joined" in user.type("continue")
        user.type("massif-snap end")
        listed = json.loads(user.type("massif-list --json"))["snapshots"]
        # Each thread's own blocks, from its function's entry to its end.
        for name, function, size in (("made", "produce", 6400), ("used", "consume", 3200)):
            grown = json.loads(user.type(f"massif-diff --json --focus {function} {name} end"))["paths"]
            assert [path["delta_bytes"] for path in grown if path["delta_bytes"]] == [size]
        user.quit()
    assert {entry["name"] for entry in listed} == {"made", "used", "end"}
    by_name = {entry["name"]: entry for entry in listed}
    assert by_name["end"]["thread"] == 1
    assert by_name["made"]["thread"] != by_name["used"]["thread"]


def test_two_launches_at_once_in_one_folder_keep_apart(program: Program, scratch: Path) -> None:
    path = program("leaky_map")
    with launched(path, folder=scratch) as one, launched(path, folder=scratch) as two:
        for user in (one, two):
            user.type("break reset")
            user.type("continue")
        assert "snapshot same:" in one.type("massif-snap same")
        assert "snapshot same:" in two.type("massif-snap same")
        one.quit()
        assert "snapshot still:" in two.type("massif-snap still")
        two.quit()
    runs = sorted(scratch.glob("gdbmem.*"))
    assert len(runs) == 2
    assert [len(histories(run)) for run in runs] == [1, 1]


def test_the_program_inherits_its_folder_arguments_and_environment(program: Program, scratch: Path) -> None:
    words = [b"--massif", b"two words", b"", b'quo"te', b"%p #$HOME", b"\xff\xfe", b"line\nbreak"]
    options = ["--env", "WITH=a = b", "--env", "USER=somebody else", "--stdout", "out"]
    with launched(program("shows_words"), *words, folder=scratch, options=options) as user:
        assert "status 0" in user.type("continue")
        user.quit()
    lines = (scratch / "out").read_bytes().split(b"\0")
    assert lines[0] == f"folder {scratch}".encode()
    shown = [line[len(b"argument ") :] for line in lines if line.startswith(b"argument ")]
    assert shown[1:] == words
    assert b"environment WITH=a = b" in lines
    assert b"environment USER=somebody else" in lines
    assert not [line for line in lines if b"GDBMEM_SESSION" in line]


def test_the_program_may_stand_behind_the_dashes_as_other_tools_have_it(scratch: Path) -> None:
    words = ("--engine", "none", "--ex", "run", "--ex", "quit", "--", "echo", "--of", "it")
    ended = shell(GDBMEM, "launch", *words, folder=scratch)
    assert "--of it\n" in ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--no-such", "x"],
            "no option --no-such; the program's own arguments and options go after '--'",
        ),
        (["x", "y"], "got an extra argument 'y'; the program's own arguments and options go after '--'"),
        (["--recpe", "x"], "no option --recpe; did you mean --recipe?"),
        ([], "name a program"),
        (["--json", "x"], "--json needs --recipe"),
        (["--env", "NAME", "true"], "--env NAME"),
        (["--threshold", "many", "true"], "'many' is not a percentage"),
        (["--valgrind-opt=--log-file=x", "true"], "--log-file is set by the launch itself"),
        (["--massif-opt=x", "true"], "'x' is not an option of valgrind's"),
        (["--recipe", "x", "true"], "a recipe names its program itself"),
    ],
)
def test_wrong_words_are_refused_with_what_to_write(options: list[str], sentence: str, scratch: Path) -> None:
    ended = shell(GDBMEM, "launch", *options, folder=scratch)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(scratch.iterdir()) == []


# -- what a gdb user types without thinking ----------------------------------------------------------------


def test_set_args_reaches_the_next_run_and_show_args_tells_the_truth(program: Program, scratch: Path) -> None:
    with launched(program("ends"), "exit", "3", folder=scratch) as user:
        assert "exit 3" in user.type("show args")
        user.type("set args exit 5")
        assert "exited with code 05" in user.type("run")
        assert "exited with code 06" in user.type("run exit 6")
        assert "exit 6" in user.type("show args")
        user.quit()


def test_a_first_snapshot_only_costs_no_further_stops_and_comes_again_after_run(
    program: Program, scratch: Path
) -> None:
    with launched(program("ticks"), "500", folder=scratch) as user:
        user.type("massif-break --name tick --first 1 tick")
        user.type("continue")
        assert "keep n" in user.type("info breakpoints")
        user.type("run")
        assert {"tick#1", "tick#2"} <= set(user.type("massif-list").split())
        user.quit()


def test_a_snapshot_when_main_returns_needs_no_trick(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), "5", folder=scratch) as user:
        user.type("massif-break --after --name end main")
        assert "snapshot end: heap" in user.type("continue")
        user.quit()


def test_tab_completes_options_and_snapshot_names(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), "5", folder=scratch) as user:
        user.type("break tick")
        user.type("continue")
        user.type("massif-snap alpha")
        assert "massif-diff alpha" in user.type("complete massif-diff al")
        assert "massif-diff --inverted" in user.type("complete massif-diff --inv")
        user.quit()


@pytest.mark.needs("less")
def test_a_curses_program_gets_each_key_at_once_in_its_own_terminal(scratch: Path) -> None:
    (scratch / "text").write_text("one line\n" * 9)
    options = ["--own-terminal"]
    with launched(
        "/usr/bin/less", scratch / "text", folder=scratch, options=options, env={"TERM": "xterm"}, rows=24
    ) as user:
        user.send("continue")
        user.see("END")
        user.child.send("q")
        assert "exited normally" in user.prompt()
        user.quit()


def test_the_quit_key_leaves_the_session_as_plain_gdb_does(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), "5", folder=scratch) as user:
        user.press("\\")
        assert "still here" in user.type("echo still here\\n")
        user.quit()


def test_memory_that_massif_cannot_see_is_not_passed_over_in_silence(program: Program, scratch: Path) -> None:
    with launched(program("maps_memory"), "200", folder=scratch) as user:
        user.type("break mapped")
        user.type("continue")
        answer = user.type("massif-snap")
        user.quit()
    assert "snapshot 1: heap 0 B" in answer
    assert re.search(
        r"holds 2\d\d\.\d MiB that it mapped.*doesn't come from malloc.*--pages-as-heap", answer, re.S
    )


def test_ctrl_c_while_gdb_loads_ends_the_launch_with_one_sentence(program: Program, scratch: Path) -> None:
    with at_terminal([GDBMEM, "launch", "--massif", program("ticks")], scratch) as user:
        user.see("Reading symbols from")
        user.press("c")
        said = user.end()
    assert "gdbmem: interrupted" in said
    assert "Traceback" not in user.text and "no working Python" not in user.text
    assert user.status == 130
