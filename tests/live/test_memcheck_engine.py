"""The engine memcheck: exact snapshots, what is lost, what has increased, which pointer keeps a block alive."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.conftest import PROGRAMS, Program
from tests.live.test_decoder import bytes_through, own_frames, play
from tests.live.test_decoder import line_of as decoder_line
from tests.live.user import GDBMEM, User, Word, at_terminal, environment, only_run, shell

pytestmark = [pytest.mark.needs("gdb", "valgrind", "vgdb", "g++"), pytest.mark.usefixtures("no_process_left")]


def line_of(text: str) -> int:
    lines = (PROGRAMS / "loses.cpp").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def counted(text: str) -> list[dict[str, int]]:
    """Return the program's own counts, round by round."""
    rounds = re.findall(r"round \d+: (.*)", text)
    return [{word: int(number) for word, number in re.findall(r"(\w+) (\d+)", line)} for line in rounds]


def report(*words: object) -> dict[str, Any]:
    ended = shell(GDBMEM, *map(str, words), "--json", folder=Path.cwd())
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


@pytest.fixture
def user(program: Program, scratch: Path) -> Iterator[User]:
    """Somebody whose gdb stands before the first instruction of a program that loses memory."""
    with at_terminal([GDBMEM, "launch", "--engine", "memcheck", program("loses")], scratch) as found:
        found.see("under memcheck")
        found.prompt()
        yield found


def test_snapshots_differ_by_what_the_program_counted_to_the_byte(user: User) -> None:
    user.type("membreak --name round stop_here")
    user.type("continue")
    told = counted(user.text)
    run = only_run(user.folder)
    diff = report("diff", f"{run}:round#1", f"{run}:round#3")
    expected = sum(told[2][word] - told[0][word] for word in ("lost", "indirect", "kept"))
    assert diff["delta_bytes"] == expected
    own = {path["frames"][0]["line"]: path["delta_bytes"] for path in diff["paths"]}
    assert own[line_of("the line that loses")] == 5000 and own[line_of("the line that keeps")] == 1000
    whole = report("diff", f"{run}:round#1", f"{run}:round#3", "--metric", "lost")
    lost = report("diff", f"{run}:round#1", f"{run}:round#3", "--metric", "definitely-lost")
    assert lost["delta_bytes"] == told[2]["lost"] - told[0]["lost"]
    behind = told[2]["indirect"] - told[0]["indirect"]
    assert whole["delta_bytes"] == lost["delta_bytes"] + behind > lost["delta_bytes"]


def test_memleaks_tells_what_is_lost_and_what_of_it_is_new(user: User) -> None:
    user.type("break stop_here")
    user.type("continue")
    assert "leaked 1.5 KiB" in user.type("memsnap first")
    assert "0 B since the last snapshot" in user.type("memleaks")
    user.type("continue")
    user.type("memleaks --json -o leaks.json")
    found = json.loads((user.folder / "leaks.json").read_text())
    before, now = counted(user.text)
    assert found["sums"]["definitely-lost"]["bytes"] == now["lost"]
    assert found["lost_bytes"] == now["lost"] + now["indirect"]
    assert found["since"] == "the last memleaks"
    new = sum(record["delta_bytes"] for record in found["records"])
    assert new == now["lost"] + now["indirect"] - before["lost"] - before["indirect"]
    (loser,) = [r for r in found["records"] if r["frames"][0]["line"] == line_of("the line that loses")]
    assert (loser["bytes"], loser["blocks"]) == (3000, 3)
    shown = user.type(f"memleaks --blocks {loser['number']}")
    assert "3 blocks, 2.9 KiB" in shown and len(re.findall(r"^0x\w+  1,000 B", shown, re.M)) == 3


def test_the_pointer_that_keeps_a_block_alive_is_named_as_the_program_names_it(user: User) -> None:
    user.type("break stop_here")
    user.type("continue")
    user.type("continue")
    assert "is held by the global table + 8" in user.type("memleaks --holder table.rows[1]")
    assert "a pointer to byte 10 of it" in user.type("memleaks --holder inside")
    user.type("up")
    assert "is held by the local 'local' in frame #1, main of thread 1" in user.type(
        "memleaks --holder local"
    )
    listed = user.type("memleaks")
    record = re.search(r"^ *(\d+) +336 B", listed, re.M) or re.search(r"^ *(\d+) +224 B", listed, re.M)
    assert record is not None, listed
    blocks = re.findall(r"^( *)(0x\w+)", user.type(f"memleaks --blocks {record[1]}"), re.M)
    assert "no pointer to it was found: it is lost" in user.type(f"memleaks --holder {blocks[0][1]}")
    assert "only other lost blocks point to it" in user.type(f"memleaks --holder {blocks[1][1]}")
    assert "is in no live block" in user.type("memleaks --holder &table")
    assert "no loss record 99" in user.type("memleaks --blocks 99")


def test_a_run_that_ends_where_it_stands_keeps_the_heap_as_it_was_and_what_was_lost(user: User) -> None:
    user.type("break stop_here")
    user.type("continue")
    user.type("print (void) _exit(0)")
    ended = user.quit()
    run = only_run(user.folder)
    (heap,) = run.glob("memcheck.1.*.ms")
    (log,) = run.glob("valgrind.1.*.log")
    assert f"the heap at the end in {heap.name}" in ended
    lost = report("show", log, "--metric", "definitely-lost")["sites"]["paths"][0]
    assert (lost["site"]["line"], lost["after_bytes"]) == (line_of("the line that loses"), 1000)
    told = counted(user.text)[0]
    assert report("show", heap)["snapshots"][0]["total_bytes"] == sum(told.values()) + 300


def test_gdbs_kill_saves_the_heap_first_and_run_starts_afresh(user: User) -> None:
    user.type("break stop_here")
    user.type("continue")
    user.type("memsnap one")
    user.type("set confirm off")
    assert "the heap profile up to here is kept" in user.type("kill")
    assert (only_run(user.folder) / "history-1.ms").stat().st_size
    assert "Breakpoint 1" in user.type("run")
    assert "snapshot again: heap" in user.type("memsnap again")
    assert "only massif keeps its own history" in user.type("massif-all")


def test_a_program_that_handles_sigterm_still_leaves_its_heap(program: Program, scratch: Path) -> None:
    words: list[Word] = [GDBMEM, "launch", "--engine", "memcheck", program("handles_term"), "--", "stay"]
    with at_terminal(words, scratch) as user:
        user.prompt()
        user.send("continue")
        user.see("ready")
        user.press("c")
        user.prompt()
        user.quit()
    (heap,) = only_run(scratch).glob("memcheck.1.*.ms")
    assert b"curB" in heap.read_bytes()


def test_ctrl_c_stops_the_program_and_a_snapshot_is_taken_there(program: Program, scratch: Path) -> None:
    with at_terminal([GDBMEM, "launch", "--engine", "memcheck", program("ticks")], scratch) as user:
        user.prompt()
        user.send("continue")
        user.see("ready")
        user.press("c")
        assert "received signal" in user.prompt()
        assert "nothing leaked" in user.type("memsnap here")


def test_children_that_are_followed_leave_files_of_their_own(program: Program, scratch: Path) -> None:
    words: list[Word] = [
        GDBMEM,
        "launch",
        "--engine",
        "memcheck",
        "--trace-children",
        program("many_children"),
        "--",
        "2",
    ]
    with at_terminal(words, scratch) as user:
        user.prompt()
        user.type("continue")
        user.quit()
    assert len(list(only_run(scratch).glob("memcheck.1.*.ms"))) > 1


def test_a_killed_valgrind_loses_no_snapshot(user: User) -> None:
    user.type("break stop_here")
    user.type("continue")
    user.type("memsnap kept")
    run = only_run(user.folder)
    pid = json.loads((run / "run.json").read_text())["starts"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    try:
        shown = user.type("continue") + user.type("memsnap late")
        assert "the heap at the end is lost, the snapshots are kept" in shown
    except pexpect.EOF:  # gdb 10, with or without gdbmem, aborts when its remote target has died
        assert "gdb was ended by SIGABRT; earlier snapshots are in the run folder" in user.text
    assert report("show", f"{run}:kept")["sites"]["paths"]


def test_commands_of_memcheck_say_what_they_need_elsewhere(program: Program, scratch: Path) -> None:
    with at_terminal([GDBMEM, "launch", "--massif", program("loses")], scratch) as user:
        user.prompt()
        user.type("break stop_here")
        user.type("continue")
        assert "runs under massif; quit gdb and type: gdbmem launch --engine memcheck" in user.type(
            "memleaks"
        )
        assert "has no option --no" in user.type("memleaks --no")


def test_names_that_are_no_utf8_are_shown_escaped_and_lose_nothing(scratch: Path) -> None:
    folder = scratch / os.fsdecode(b"d\xff")
    folder.mkdir()
    shutil.copy(PROGRAMS / "loses.cpp", folder)
    subprocess.run(["g++", "-g", "-O0", "-o", "loses", "loses.cpp"], cwd=folder, check=True)
    with at_terminal([GDBMEM, "launch", "--engine", "memcheck", folder / "loses"], scratch) as user:
        user.prompt()
        user.type("break stop_here")
        user.type("continue")
        assert "leaked 1.5 KiB" in user.type("memsnap one")
        assert "most at loses.cpp" in user.type("memleaks")
        assert "the global table" in user.type("memleaks --holder table.rows[0]")


def test_options_of_another_engine_are_refused_by_name(program: Program, scratch: Path) -> None:
    ended = shell(
        GDBMEM, "launch", "--engine", "memcheck", "--threshold", "1", program("loses"), folder=scratch
    )
    assert ended.returncode == 2
    assert "--threshold cannot be used with --engine memcheck" in ended.stderr
    assert list(scratch.iterdir()) == []


# A recipe under memcheck is played by tests/live/test_blind_gates.py, a diff of its snapshots by the tests above.
@pytest.mark.thorough
def test_the_decoders_recipe_names_the_same_line_with_the_same_bytes(tmp_path: Path) -> None:
    played = play(
        tmp_path, "--engine", "memcheck", "--", "--batches", "2", "--states", "2000", "--utterances", "500"
    )
    assert played.status == 4, played.messages
    (diff,) = played.result["diffs"]
    first, told = diff["paths"][0], played.counted("reset", "tasks")
    assert own_frames(first)[0][1] == decoder_line("tasks_[utterance.id]")
    assert first["delta_bytes"] == diff["delta_bytes"] == told[-1] - told[0] > 0
    back = report("diff", f"{played.run}:loaded#1", f"{played.run}:reset#1", "--top", "1000")
    assert bytes_through(back, "Decoder::load") == -played.counted("loaded", "graph")[0]


def test_a_plain_gdb_recognises_a_memcheck_that_somebody_started(program: Program, scratch: Path) -> None:
    gdb = ["gdb", "-q", "-nx", str(program("loses"))]
    valgrind = subprocess.Popen(
        ["valgrind", "--vgdb=yes", "--vgdb-error=0", f"--vgdb-prefix={scratch}/vgdb", str(program("loses"))],
        cwd=scratch, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with at_terminal(gdb, scratch) as user:
            user.prompt()
            user.type(f"source {loader()}")
            user.type(f"target remote | vgdb --wait=20 --vgdb-prefix={scratch}/vgdb --pid={valgrind.pid}")
            user.type("break stop_here")
            user.type("continue")
            assert "snapshot one: heap" in user.type("memsnap one")
            assert "can't be reached by any pointer" in user.type("memleaks")
            user.type("set confirm off")
            user.type("kill")
    finally:
        valgrind.kill()
        valgrind.wait()


def loader() -> str:
    from gdbmem.setup.gdb_python import loader_file

    return str(loader_file())
