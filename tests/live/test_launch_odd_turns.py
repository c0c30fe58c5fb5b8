"""Turns that a session at the prompt takes: each is answered truly, and nothing captured is lost."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable

import pytest

from tests.live.test_launch_faults import small_disk
from tests.live.user import GDBMEM, Word, at_terminal, histories, launched, only_run, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]


def test_pages_are_not_called_heap(program: Program, scratch: Path) -> None:
    with launched(program("maps_memory"), "200", folder=scratch, options=["--pages-as-heap"]) as user:
        user.type("break mapped")
        user.type("continue")
        assert user.type("massif-snap").startswith("snapshot 1: mapped memory 2")
        assert user.type("massif-snap").startswith("snapshot 2: mapped memory 2")
        assert re.match(r"name +mapped +change", user.type("massif-list"))
        user.quit()


def test_a_program_that_is_let_go_runs_on_and_can_be_had_afresh(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        user.type("break tick")
        for command in ("detach", "disconnect"):
            user.type("continue")
            answer = user.type(command)
            assert "The program continues without gdb; 'run' starts it again." in answer
            assert "has lost" not in answer
            assert "is not running; type 'run'" in user.type("massif-snap x")
            assert "Breakpoint 1, tick" in user.type("run")
        user.quit()
    assert len(histories(only_run(scratch))) == 3


def test_a_second_inferior_is_no_end_of_the_first(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        user.type("break tick")
        user.type("continue")
        user.type("massif-snap one")
        user.type("add-inferior")
        answer = user.type("inferior 2")
        assert "gdbmem" not in answer and "ended" not in answer
        assert "the program is in inferior 1; type 'inferior 1'" in user.type("massif-snap two")
        user.type("inferior 1")
        assert "since one" in user.type("massif-snap two")
        user.type("inferior 2")
        assert re.search(r"Breakpoint 1(\.\d)?, tick", user.type("run"))
        assert "* 1 " in user.type("info inferiors")
        assert "snapshot three: heap" in user.type("massif-snap three")
        user.quit()


def test_what_kill_states_of_the_history_holds_whatever_one_answers(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        user.type("break tick")
        user.type("continue")
        user.send("kill")
        asked = user.see("(y or n) ")
        kept = re.search(r"history up to here is kept in (\S+), whatever you answer", asked)
        assert kept is not None and (scratch / kept[1]).stat().st_size > 0
        assert "Not confirmed" in user.type("n")
        assert "snapshot on: heap" in user.type("massif-snap on")
        user.quit()


def test_hooks_of_the_users_own_are_kept(program: Program, scratch: Path) -> None:
    home = Path(os.environ["HOME"])
    (home / ".gdbinit").write_text("define hook-kill\necho my own hook\\n\nend\n")
    with launched(program("ticks"), folder=scratch) as user:
        user.type("break tick")
        user.type("continue")
        user.type("set confirm off")
        answer = user.type("kill")
        assert "my own hook\n" in answer
        assert "massif's own history up to here is kept in" in answer
        assert "The program was killed" in answer
        user.quit()


def test_a_stripped_program_has_no_main_to_start_at_and_the_way_in_is_reported(
    program: Program, scratch: Path
) -> None:
    with launched(program("stripped"), folder=scratch, options=["--ex", "set breakpoint pending on"]) as user:
        assert "set a breakpoint (break __libc_start_main)" in user.type("massif-snap early")
        assert "has no symbol 'main'" in user.type("start")
        assert "new valgrind" not in user.text
        user.type("break __libc_start_main")
        assert re.search(r"Breakpoint 1(\.\d)?, .*__libc_start_main", user.type("run"))
        assert "snapshot here: heap 0 B" in user.type("massif-snap here")
        user.quit()


def test_arguments_of_several_lines_are_no_commands_of_gdbs_and_come_again_with_run(
    program: Program, scratch: Path
) -> None:
    words: list[Word] = ["one\nshell touch pwned\nthree", b"\xff", "it's", ""]
    with launched(program("shows_words"), *words, folder=scratch, options=["--stdout", "out"]) as user:
        assert "is stopped before its first instruction" in user.text
        assert "Traceback" not in user.text
        for command in ("continue", "run"):
            assert "status 0" in user.type(command)
            assert shown_arguments(scratch / "out") == [os.fsencode(word) for word in words]
            (scratch / "out").write_bytes(b"")
        text = user.type("show args").partition('started is "')[2].rpartition('".')[0]
        # Typed again by hand they are still the same.
        assert "status 0" in user.type(f"run {text} more")
        assert shown_arguments(scratch / "out")[0] == b"one\nshell touch pwned\nthree"
        assert shown_arguments(scratch / "out")[-1] == b"more"
        user.type("set args 'a b' c")
        for _ in range(2):
            assert "status 0" in user.type("run")
            assert shown_arguments(scratch / "out") == [b"a b", b"c"]
        user.quit()
    assert not (scratch / "pwned").exists()


def test_several_lines_reach_a_program_that_gdb_starts_itself(program: Program, scratch: Path) -> None:
    options = ["--engine", "none", "--stdout", "out", "--env", "TEXT=one\ntwo"]
    words: list[Word] = [
        GDBMEM,
        "launch",
        *options,
        program("shows_words"),
        "--",
        "one\nshell touch pwned\nthree",
        "it's",
    ]
    with at_terminal(words, scratch) as user:
        user.prompt()
        assert "is stopped before its first instruction" in user.text
        for command in ("continue", "run"):
            assert "exited normally" in user.type(command)
            assert shown_arguments(scratch / "out") == [b"one\nshell touch pwned\nthree", b"it's"]
        user.quit()
    assert (scratch / "out").read_bytes().count(b"folder ") == 2
    shown = (scratch / "out").read_bytes()
    assert b"environment TEXT=one\ntwo\0" in shown
    assert b"GDBMEM_NEWLINE" not in shown and b"GDBMEM_SESSION" not in shown
    assert not (scratch / "pwned").exists()


def shown_arguments(out: Path) -> list[bytes]:
    """Return the arguments that the last of the programs whose output is in *out* was given."""
    lines = out.read_bytes().split(b"\0")
    first = max(number for number, line in enumerate(lines) if line.startswith(b"folder "))
    shown = [line[len(b"argument ") :] for line in lines[first:] if line.startswith(b"argument ")]
    return shown[1:]


def test_the_place_is_the_programs_and_not_inside_valgrinds_own_malloc(
    program: Program, scratch: Path
) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        user.type("set breakpoint pending on")
        # Which of them it is depends on the release; it has to be known before it runs for the first time.
        user.type("break _vgr10010ZU_libcZdsoZa_malloc")
        user.type("break _vgr10010ZU_VgSoSynsomalloc_malloc")
        assert re.search(r"vgpreload|vg_replace_malloc", user.type("continue"))
        user.type("massif-snap here")
        assert re.search(r"^here .*\w+$", user.type("massif-list"), re.M)
        assert "_vgr" not in user.type("massif-list")
        user.quit()


def test_a_snapshot_at_each_malloc_is_warned_of_as_malloc_is_valgrinds_own(
    program: Program, scratch: Path
) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        assert "valgrind replaces libc's malloc" in user.type("massif-break --first 1 malloc")
        assert "of its own" not in user.type("massif-break tick")
        user.quit()


def test_a_place_without_a_name_is_named_by_its_file(program: Program, scratch: Path) -> None:
    with launched(program("stripped"), folder=scratch) as user:
        user.type("tbreak puts")
        user.type("continue")
        user.type("finish")
        user.type("massif-snap")
        assert re.search(r"^1 .* 0x[0-9a-f]+ in stripped$", user.type("massif-list"), re.M)
        user.quit()


def test_a_second_run_reads_the_input_file_from_its_beginning(program: Program, scratch: Path) -> None:
    (scratch / "words").write_text("one\ntwo\nthree\n")
    with launched(program("reads_lines"), folder=scratch, options=["--stdin", "words"]) as user:
        assert "3 lines" in user.type("continue")
        assert "3 lines" in user.type("run")
        user.quit()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
def test_a_run_folder_that_could_not_be_begun_is_taken_away_again(program: Program, scratch: Path) -> None:
    with small_disk(scratch, "4k") as disk:
        (disk / "full").write_bytes(b"x" * 4096)
        ended = shell(GDBMEM, "launch", program("leaky_map"), folder=disk)
        assert ended.returncode == 125 and "No space left on device" in ended.stderr
        assert [path.name for path in disk.iterdir()] == ["full"]


def test_a_current_folder_that_is_gone_is_one_sentence(program: Program, scratch: Path) -> None:
    command = (
        f'mkdir gone && cd gone && rmdir ../gone && exec "{GDBMEM}" launch --massif "{program("ticks")}"'
    )
    ended = shell("/bin/sh", "-c", command, folder=scratch)
    assert ended.returncode == 125
    assert "the current folder is gone" in ended.stderr and ended.stderr.count("\n") == 1


def test_another_target_costs_the_program_but_not_its_history(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), folder=scratch, options=["--ex", "set confirm off"]) as user:
        user.type("break tick")
        user.type("continue")
        answer = user.type("attach 99999999")  # gdb ends what it has before it looks for that one
        assert "massif's own history up to here is kept in" in answer
        assert "gdb has killed the program; 'run' starts it again" in answer
        assert "exec" not in answer
        assert "Breakpoint 1, tick" in user.type("run")
        user.quit()
    assert len(histories(only_run(scratch))) == 2
