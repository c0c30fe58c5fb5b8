"""`gdbmem launch --recipe`: snapshots without typing, judged; and everything that can go wrong on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from tests.cover import cover
from tests.live.user import GDBMEM, Word, at_terminal, environment, histories, only_run, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]

RESET = """
points:
  - {at: reset, name: reset}
"""


class Played:
    """The result of a recipe."""

    def __init__(self, ended: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.status = ended.returncode
        self.out, self.err = ended.stdout, ended.stderr
        self.folder = folder
        assert "Traceback" not in self.out + self.err
        assert "please report" not in self.err

    @property
    def run(self) -> Path:
        return only_run(self.folder)

    @property
    def facts(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.run / "run.json").read_bytes())
        return read


def play(
    text: str, folder: Path, *options: str, program: Optional[Path] = None, arguments: Optional[str] = None
) -> Played:
    """Write *text* as a recipe for *program* into *folder* and play it with *options*."""
    head = f"program: {json.dumps(str(program))}\n" if program else ""
    if arguments is not None:
        head += f"args: {arguments}\n"
    (folder / "leak.yaml").write_text(head + text.lstrip("\n"))
    return Played(shell(GDBMEM, "launch", "--recipe", "leak.yaml", *options, folder=folder), folder)


# -- what it measures --------------------------------------------------------------------------------------


def test_a_call_left_by_an_exception_is_reported_where_after_waits_for_its_return(
    program: Program, scratch: Path
) -> None:
    played = play(
        "points:\n  - {at: throws, name: thrown, after: true}\n", scratch, program=program("returns")
    )
    (notice,) = [w for w in played.facts["warnings"] if w["slug"] == "call-left"]
    assert "1 call of 'throws' left by an exception or longjmp" in notice["message"]
    assert notice["message"] in played.err
    assert [point["hits"] for point in played.facts["points"]] == [2]
    assert len(list((played.run / "snapshots").iterdir())) == 1  # of the call that returned


def test_an_expectation_that_is_met_is_status_0_and_one_that_is_not_is_4(
    program: Program, scratch: Path
) -> None:
    text = RESET + "diff: [[reset#1, reset]]\nexpect:\n  - {between: [reset#1, reset], at_most: %s}\n"
    for limit, status, verdict in (("1MiB", 0, "ok "), ("10KiB", 4, "NOT MET")):
        folder = scratch / limit
        folder.mkdir()
        played = play(text % limit, folder, program=program("leaky_map"))
        assert played.status == status, played.err
        assert played.out.splitlines()[-1].startswith(verdict)
        assert "heap grew by 26.6 KiB from reset#1 to reset#3" in played.out
        assert "300 entries" in played.out
        assert "16.6 KiB more than expected" in played.out or status == 0
        assert re.search(r"^\[ *\d+\.\d s\] snapshot reset#3: heap ", played.err, re.M)
        assert f"the run is kept in {played.run.name}/" in played.err
        assert len(histories(played.run)) == 1
        assert [point["snapshots"] for point in played.facts["points"]] == [["reset", "reset#2", "reset#3"]]
        assert shell(GDBMEM, "show", played.run, folder=folder).returncode == 0


def test_json_has_the_standard_output_to_itself(program: Program, scratch: Path) -> None:
    text = RESET + "diff: [[reset#1, reset]]\nexpect:\n  - {between: [reset#1, reset], at_most: 1MiB}\n"
    played = play(text, scratch, "--json", "--quiet", program=program("leaky_map"))
    assert played.status == 0
    document = json.loads(played.out)
    assert document["kind"] == "recipe"
    assert (
        document["points"] == [{"name": "reset", "hits": 3, "snapshots": ["reset", "reset#2", "reset#3"]}]
        or document["points"][0]["hits"] == 3
    )
    assert document["diffs"][0]["delta_bytes"] == 200 * 136
    assert [entry["met"] for entry in document["expectations"]] == [True]
    assert played.err == "" and document["run"] == str(played.run)
    assert (played.run / "stdout").read_text() == "300 entries\n"


def test_results_go_to_files_that_are_whole_or_absent(program: Program, scratch: Path) -> None:
    text = RESET + "expect:\n  - {between: [reset#1, reset], at_most: 1KiB}\n"
    played = play(text, scratch, "--junit", "j.xml", "-o", "o.txt", "-q", program=program("leaky_map"))
    assert played.status == 4
    assert f"\ngdbmem: the run is kept in {played.run.name}/\n" in f"\n{played.err}", (
        "a script needs its name"
    )
    assert played.out == "300 entries\n"
    assert (scratch / "o.txt").read_text().startswith("NOT MET")
    suite = ElementTree.parse(scratch / "j.xml").getroot()
    assert len(list(suite.iter("failure"))) == 1
    before = set(scratch.iterdir())
    again = play(text, scratch, "--junit", "j.xml", "-o", "o.txt", program=program("leaky_map"))
    assert (again.status, "o.txt exists" in again.err) == (125, True)
    suite = ElementTree.parse(scratch / "j.xml").getroot()
    assert len(list(suite.iter("failure"))) == 0 and len(list(suite.iter("error"))) == 1, (
        "it is of this launch"
    )
    assert set(scratch.iterdir()) == before


def test_points_filter_by_condition_and_hits_and_wait_for_the_return(program: Program, scratch: Path) -> None:
    played = play(
        """
points:
  - {at: remember, name: even, when: key % 2 == 0, hits: {only: [2, 4]}}
  - {at: remember, name: tenth, hits: {every: 10, first: 1}}
  - {at: fill, name: filled, after: true, hits: {first: 1}}
diff: [[even#1, even], [even#1, filled]]
""",
        scratch,
        program=program("leaky_map"),
        arguments="[1, 20]",
    )
    assert played.status == 0, played.err
    document = shell(GDBMEM, "show", played.run, "--json", folder=scratch)
    assert document.returncode == 0, document.stderr
    log = [json.loads(line) for line in (played.run / "snapshots.jsonl").read_text().splitlines()]
    assert [(record["base_name"], record["hit"]) for record in log] == [
        ("even", 2), ("even", 4), ("tenth", 10), ("filled", 1),
    ]  # fmt: skip
    # Between the second even key (2) and the fourth (6) four entries were made.
    assert log[1]["heap_bytes"] - log[0]["heap_bytes"] == 4 * 136


def test_actions_are_all_done_and_a_failing_one_is_named(program: Program, scratch: Path) -> None:
    played = play(
        """
points:
  - at: fill
    name: filling
    hits: {only: [2]}
    do: [snap, backtrace, {print: round + 40}, {print: no_such}, {gdb: info breakpoints}, {gdb: nonsense}]
""",
        scratch,
        program=program("leaky_map"),
    )
    assert "filling: print: round + 40 = 41" in played.err
    assert "in main (argc=" in played.err
    assert "snapshot filling: heap" in played.err
    assert re.search(r'leak.yaml:3:\d+: print at filling: No symbol "no_such"', played.err)
    assert re.search(r'leak.yaml:3:\d+: gdb at filling: Undefined command: "nonsense"', played.err)
    assert played.out == "300 entries\n"
    assert played.status == 0
    slugs = [warning["slug"] for warning in played.facts["warnings"]]
    assert slugs.count("action-failed") == 2


def test_arguments_environment_and_stdin_reach_the_program(program: Program, scratch: Path) -> None:
    (scratch / "words.txt").write_text("a\nb\n")
    played = play("stdin: words.txt\npoints:\n  - {at: keep}\n", scratch, program=program("reads_lines"))
    assert played.out == "line 1: a\nline 2: b\n2 lines\n"
    folder = scratch / "more"
    folder.mkdir()
    text = "env: {WITH: from recipe, OTHER: x y}\npoints:\n  - {at: main}\n"
    played = play(
        text, folder, "--env", "WITH=from option", "--", "--from", "line", program=program("shows_words"),
        arguments="[from, recipe]",
    )  # fmt: skip
    lines = played.out.split("\0")
    assert [line for line in lines if line.startswith("argument")][1:] == ["argument --from", "argument line"]
    assert "environment WITH=from option" in lines
    assert "environment OTHER=x y" in lines


def test_a_script_is_followed_into_the_program_that_it_runs(program: Program, scratch: Path) -> None:
    script = scratch / "script"
    script.write_text(f"#!/bin/sh\nexec {program('leaky_map')} 2\n")
    script.chmod(0o755)
    text = "program: ./script\noptions: {trace-children: yes}\n" + RESET + "diff: [[reset#1, reset]]\n"
    played = play(text, scratch)
    assert played.status == 0, played.err
    assert "heap grew by 13.3 KiB from reset#1 to reset#2" in played.out


# -- the program's end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    cover(
        [
            ("[exit, 0]", 0, ""),
            ("[exit, 3]", 3, ""),
            ("[abort]", 134, "the program got SIGABRT (Aborted) in "),
            ("[signal, 11]", 139, "the program got SIGSEGV (Segmentation fault) in "),
            ("[signal, 15]", 143, ""),
        ],
        lambda words, status, sentence: status in (3, 139, 143),
    ),
)
def test_the_programs_own_status_is_passed_on_and_a_fatal_signal_named_with_its_place(
    words: str, status: int, sentence: str, program: Program, scratch: Path
) -> None:
    text = "points:\n  - {at: allocate, name: start}\n"
    played = play(text, scratch, program=program("ends"), arguments=words)
    assert played.status == status, played.err
    assert sentence in played.err
    if sentence:
        assert re.search(re.escape(sentence) + r"main at ends.c:\d+$", played.err, re.M)
    assert "snapshot start: heap" in played.err
    assert len(histories(played.run)) == 1


def test_a_program_that_died_before_a_point_cannot_be_judged(program: Program, scratch: Path) -> None:
    text = """
points:
  - {at: allocate, name: start}
  - {at: never_reached, name: late}
expect:
  - {between: [start, late], at_most: 1MiB}
"""
    played = play(text, scratch, program=program("ends"), arguments="[abort]")
    assert played.status == 125
    assert re.search(
        r"NOT JUDGED heap from start to late: .*'never_reached' was never hit; the program got SIGABRT",
        played.out,
    )
    assert re.search(r"leak.yaml:5:\d+: 'never_reached' was never hit", played.err)


def test_a_program_that_does_not_end_is_ended_after_the_timeout(program: Program, scratch: Path) -> None:
    # On a busy machine valgrind may need longer than that to come to the point at all.
    for seconds in (2, 8, 32):
        text = f"timeout: {seconds}s\npoints:\n  - {{at: tick, hits: {{first: 1}}}}\n"
        folder = scratch / str(seconds)
        folder.mkdir()
        played = play(text, folder, program=program("ticks"))
        assert played.status == 124, played.err
        assert f"had not ended after {seconds}.0 s (timeout in the recipe)" in played.err
        if "snapshot tick: heap" in played.err:
            break
    assert "snapshot tick: heap" in played.err
    assert len(histories(played.run)) == 1


def test_exec_without_following_is_reported(program: Program, scratch: Path) -> None:
    text = "points:\n  - {at: main, name: start}\n"
    played = play(text, scratch, program=program("execs"), arguments=f"[{program('ends')}, exit, '3']")
    assert "--trace-children" in played.err
    assert "snapshot start: heap" in played.err


@pytest.mark.parametrize("follow", ["no", "yes"])
def test_a_program_that_executes_itself_by_its_link_in_proc_learns_of_the_way_out(
    program: Program, scratch: Path, follow: str
) -> None:
    text = f"options: {{trace-children: {follow}}}\npoints:\n  - {{at: main, name: start}}\n"
    played = play(text, scratch, program=program("execs"), arguments="[/proc/self/exe]")
    assert "make it execute its own path" in played.err
    assert ("launch with --trace-children" in played.err) == (follow == "no")


# -- what is wrong with the recipe -------------------------------------------------------------------------


def test_places_that_do_not_exist_or_are_never_reached_are_named_with_line_and_column(
    program: Program, scratch: Path
) -> None:
    text = """
points:
  - {at: reset, name: fine}
  - {at: nowhere, name: lost}
  - {at: "leaky_map.cpp:9999"}
  - {at: remember, when: key == 12345, name: never}
  - {at: fill, when: no_such > 1, name: bad}
"""
    played = play(text, scratch, program=program("leaky_map"))
    assert played.status == 125
    assert re.search(r"leak.yaml:4:\d+: .*nowhere", played.err)
    assert re.search(r"leak.yaml:5:\d+: .*9999", played.err)
    assert re.search(r"leak.yaml:6:\d+: 'remember' was never hit", played.err)
    assert re.search(r'leak.yaml:7:\d+: .*No symbol "no_such" in current context', played.err)
    assert "snapshot fine#3: heap" in played.err
    assert "300 entries" in played.out


def test_a_recipe_that_is_wrong_runs_nothing(program: Program, scratch: Path) -> None:
    played = play("points:\n  - {at: reset, nam: x}\n", scratch, program=program("leaky_map"))
    assert played.status != 0
    assert "did you mean 'name'" in played.err
    assert [path.name for path in scratch.iterdir()] == ["leak.yaml"]
    played = play(RESET + "program: ./absent\n", scratch)
    assert (played.status, "no program" in played.err) == (127, True)
    assert [path.name for path in scratch.iterdir()] == ["leak.yaml"]


# -- interrupted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["before-ready", "running", "ending"])
def test_ctrl_c_at_any_stage_of_a_recipe_keeps_the_run_and_leaves_nothing(
    stage: str, program: Program, scratch: Path
) -> None:
    name = {"before-ready": "leaky_map", "running": "ticks", "ending": "handles_term"}[stage]
    arguments = "args: [stay]\n" if stage == "ending" else ""
    text = {"running": "points:\n  - {at: tick, hits: {first: 2}}\n"}.get(stage, RESET)
    expect = "expect:\n  - {between: [tick#1, tick], at_least: 1MiB}\n" if stage == "running" else ""
    (scratch / "leak.yaml").write_text(f"program: {program(name)}\n{arguments}{text}{expect}")
    env = environment()
    if stage == "before-ready":
        env = environment(PATH=slow_valgrind(scratch))
    with at_terminal([GDBMEM, "launch", "--recipe", "leak.yaml"], scratch, env) as user:
        user.see({"before-ready": "valgrind begins", "running": "snapshot tick", "ending": "ready"}[stage])
        user.press("c")
        if stage == "ending":
            user.see("asked to end")  # the first SIGTERM has come
            user.press("c")
        said = user.end()
    assert user.status == 130, user.text
    if stage != "before-ready":
        assert "the run is kept in" in said
        assert "the launch was interrupted (Ctrl-C)" in said
        assert len(histories(only_run(scratch))) == 1, (said, sorted(only_run(scratch).rglob("*")))
    if stage == "running":
        assert "NOT JUDGED" in said and "NOT MET" not in said
    assert "Traceback" not in user.text


@pytest.mark.parametrize("stage", ["gdb.log", "snapshots/0001.massif"])
def test_ctrl_c_while_gdb_loads_or_a_snapshot_is_taken_states_where_the_run_is(
    stage: str, program: Program, scratch: Path
) -> None:
    (scratch / "leak.yaml").write_text(f"program: {program('leaky_map')}\n{RESET}diff: [[reset#1, reset]]\n")
    with at_terminal([GDBMEM, "launch", "--recipe", "leak.yaml", "--run", "a run"], scratch) as user:
        while not (scratch / "a run" / stage).exists():
            assert user.child.isalive()
        user.press("c")
        assert "gdbmem show 'a run'" in user.end()
    assert user.status == 130, user.text
    assert "Traceback" not in user.text


def test_ctrl_backslash_ends_a_recipe_and_keeps_what_it_has(program: Program, scratch: Path) -> None:
    (scratch / "leak.yaml").write_text(
        f"program: {program('ticks')}\npoints:\n  - {{at: tick, hits: {{first: 1}}}}\n"
    )
    with at_terminal([GDBMEM, "launch", "--recipe", "leak.yaml"], scratch) as user:
        user.see("snapshot tick")
        user.press("\\")
        said = user.end()
    assert user.status == 131, user.text
    assert "the launch was interrupted" in said and "the run is kept in" in said
    assert len(histories(only_run(scratch))) == 1


def slow_valgrind(folder: Path) -> str:
    """Return a PATH whose valgrind prints that it begins, and is never ready."""
    only = folder / "bin"
    only.mkdir()
    fake = only / "valgrind"
    fake.write_text("#!/bin/sh\necho valgrind begins\nexec sleep 1000\n")
    fake.chmod(0o755)
    return f"{only}:{os.environ['PATH']}"


def slow_command(folder: Path) -> Path:
    """Return a program that prints that gdb is slow, and sleeps; from then on any SIGINT ends it.

    A shell's `echo …; sleep` isn't that: dash loses a SIGINT that comes while it forks (5 in 100 here).
    """
    command = folder / "slow"
    command.write_text(
        f"#!{sys.executable}\nimport signal, time\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "print('gdb is slow', flush=True)\ntime.sleep(1000)\n"
    )
    command.chmod(0o755)
    return command


@pytest.mark.parametrize("stage", ["before-ready", "before-the-prompt", "after-quit"])
def test_ctrl_c_at_any_stage_of_a_launch_keeps_the_run_and_leaves_nothing(
    stage: str, program: Program, scratch: Path
) -> None:
    env = environment()
    words: list[Word] = [GDBMEM, "launch", program("leaky_map")]
    if stage == "before-ready":
        env = environment(PATH=slow_valgrind(scratch))
    elif stage == "before-the-prompt":
        words = [GDBMEM, "launch", "--ex", f"shell exec {slow_command(scratch)}", program("leaky_map")]
    elif stage == "after-quit":
        words = [GDBMEM, "launch", "--on-quit", "finish", program("ticks")]
    with at_terminal(words, scratch, env) as user:
        if stage == "before-ready":
            user.see("valgrind begins")
            user.press("c")
            user.end()
            assert user.status == 130
        elif stage == "before-the-prompt":
            user.see("gdb is slow")
            user.press("c")
            user.prompt()
            user.quit()
        else:
            user.prompt()
            user.send("quit")
            user.see("(y or n) ")
            user.send("y")
            user.see("Ctrl-C ends it now")
            if "ready" not in user.text:  # the program and the launcher write as they run
                user.see("ready")
            user.press("c")
            assert "the run is kept in" in user.end()
            assert user.status == 130
            assert len(histories(only_run(scratch))) == 1
    assert "Traceback" not in user.text
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_recipe_that_leaves_the_engine_to_gdbmem_states_which_one_it_was_and_why(
    program: Program, scratch: Path
) -> None:
    text = "engine: auto\npoints: [{at: work, name: worked, after: true}]\n"
    played = play(text, scratch, program=program("forks"))
    assert played.status == 0, played.err
    assert "--engine auto chooses massif: it counts every byte" in played.err
    assert played.facts["engine"] == "massif"
    said = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"valgrind-{played.facts['versions']['valgrind']}"
    assert os.uname().release in played.facts["machine"]
    (point,) = played.facts["points"]
    assert point["hits"] == 1 and len(list((played.run / "snapshots").iterdir())) == 1


def test_an_engine_on_the_command_line_goes_before_auto_in_the_recipe(
    program: Program, scratch: Path
) -> None:
    text = "engine: auto\npoints: [{at: work, do: [ledger]}]\n"
    played = play(text, scratch, "--engine", "none", program=program("forks"))
    assert "auto chooses" not in played.err and played.facts["engine"] == "none"
