"""Failures during a launch: no captured data is lost, and no process or file is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import psutil
import pytest

from tests.cover import cover, diagonals
from tests.live.user import (
    GDBMEM,
    User,
    Word,
    at_terminal,
    environment,
    histories,
    launched,
    only_run,
    packages,
    shell,
)

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")


def facts(run: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run / "run.json").read_bytes())
    return read


def children(user: User, name: str) -> list[psutil.Process]:
    """Return the processes under the launcher whose name has *name* in it."""
    return [p for p in psutil.Process(user.pid).children(recursive=True) if p.name().startswith(name)]


def valgrind_of(user: User) -> psutil.Process:
    (found,) = children(user, "massif")
    return found


@pytest.fixture(autouse=True)
def no_runtime_folder_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaves FIFOs and sockets behind; no other launch on this machine uses this folder."""
    with tempfile.TemporaryDirectory(prefix="gm-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield
        assert list(Path(folder).iterdir()) == []


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Yield a disk of *size* that fills up, mounted in *folder*."""
    place = folder / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def stop_at(user: User, place: str) -> None:
    user.type(f"break {place}")
    assert "Breakpoint" in user.type("continue")


# -- the program -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "answer", "status"),
    cover(
        [
            (["exit", "3"], r"exited with code 03", 3),
            (["abort"], r"Program received signal SIGABRT", None),
            (["signal", "11"], r"Program received signal SIGSEGV", None),
            (["signal", "15"], r"SIGTERM", None),
        ],
        lambda words, answer, status: words[0] != "signal",
    ),
)
def test_a_program_that_ends_before_the_breakpoint_leaves_gdb_usable_and_its_history_kept(
    words: list[str], answer: str, status: object, program: Program, scratch: Path
) -> None:
    with launched(program("ends"), *words, folder=scratch) as user:
        user.type("break never_reached")
        assert re.search(answer, user.type("continue"))
        if status is None:
            # The program stands where the signal came: a snapshot is still to be had.
            assert "snapshot last: heap 12.1 KiB" in user.type("massif-snap last")
            user.type("continue")
        assert "'run' starts it again" in user.text
        assert "is not running; type 'run'" in user.type("massif-snap too-late")
        assert "Breakpoint 2" in user.type("break allocate")
        assert re.search(r"Breakpoint 2(\.1)?, allocate", user.type("run"))
        user.quit()
    run = only_run(scratch)
    assert len(histories(run)) == 2
    if status is not None:
        assert facts(run)["starts"][0]["status"] == status


@pytest.mark.parametrize("word", cover(["go", "stay"], lambda word: word == "stay"))
def test_a_program_that_will_not_end_on_sigterm_is_ended_with_its_history_saved(
    program: Program, scratch: Path, word: str
) -> None:
    with launched(program("handles_term"), word, folder=scratch) as user:
        user.send("continue")
        user.see("ready")
        user.press("c")
        user.prompt()
        user.quit()
    assert len(histories(only_run(scratch))) == 1


# -- valgrind killed ---------------------------------------------------------------------------------------


def test_valgrind_killed_while_stopped_leaves_the_snapshots_and_a_sentence(
    program: Program, scratch: Path
) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        stop_at(user, "reset")
        user.type("massif-snap kept")
        valgrind_of(user).kill()
        answer = user.type("massif-snap lost")
        assert "went away" in answer or "valgrind was killed (SIGKILL)" in answer
        assert "Traceback" not in user.text
        assert "valgrind was killed (SIGKILL)" in user.text
        assert "kept" in user.type("massif-list")
        assert "Breakpoint 1, reset" in user.type("run")
        user.quit()
    run = only_run(scratch)
    ended = shell(GDBMEM, "show", f"{run.name}:kept", folder=scratch)
    assert ended.returncode == 0, ended.stderr
    assert facts(run)["starts"][0]["status"] == 137


def test_valgrind_killed_in_the_middle_of_a_snapshot_loses_only_this_one(
    program: Program, scratch: Path
) -> None:
    with launched(program("many_paths"), "20000", folder=scratch) as user:
        stop_at(user, "built")
        user.type("massif-snap whole")
        process = valgrind_of(user)
        run = only_run(scratch)
        user.send("massif-snap cut")
        cut = run / "snapshots" / "0002.massif"
        while not cut.exists():  # massif has just begun to write it
            assert process.is_running()
        process.kill()
        user.prompt()
        assert "Traceback" not in user.text
        user.type("massif-list")
        user.quit()
    assert (run / "snapshots" / "0001.massif").stat().st_size > 100_000
    ended = shell(GDBMEM, "show", f"{run.name}:whole", folder=scratch)
    assert ended.returncode == 0, ended.stderr
    assert user.status == 0


# -- gdb and the launcher killed ---------------------------------------------------------------------------


@pytest.mark.parametrize("at_breakpoint", [True, False])
def test_a_killed_gdb_leaves_the_terminal_sane_and_the_history_kept(
    *, at_breakpoint: bool, program: Program, scratch: Path
) -> None:
    # A shell in front, so that there is a terminal to look at afterwards.
    words = ["sh", "-c", 'stty -a; "$@"; echo "status $?"; stty -a; read -r line; echo "got $line"', "sh"]
    with at_terminal([*words, GDBMEM, "launch", program("ticks")], scratch) as user:
        before = user.prompt().split("Reading symbols")[0]
        if at_breakpoint:
            stop_at(user, "tick")
        else:
            user.send("continue")
            user.see("ready")
        (gdb,) = [process for process in children(user, "gdb") if process.name() == "gdb"]
        gdb.kill()
        ended, _, after = user.see("status ", "-echoprt").partition("status ")
        assert "gdb was ended by SIGKILL" in ended
        assert after.startswith("125")
        assert settings(before) == settings(after)
        user.send("a line")
        assert "got a line" in user.end()
    assert "the run is kept" in user.text
    assert len(histories(only_run(scratch))) == 1


def settings(text: str) -> set[str]:
    """Return what `stty -a` printed in *text*."""
    return set(re.findall(r"(?<![\w-])-?(?:echo|icanon|isig|ixon|opost|onlcr|icrnl|iexten)\b", text))


@pytest.mark.parametrize(
    ("number", "running"), diagonals([signal.SIGTERM, signal.SIGHUP], [True, False], (0,))
)
def test_a_launcher_told_to_end_ends_everything_and_keeps_the_run(
    number: signal.Signals, *, running: bool, program: Program, scratch: Path
) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        if running:
            user.send("continue")
            user.see("ready")
        else:
            stop_at(user, "tick")
            user.type("massif-snap kept")
        os.kill(user.pid, number)
        assert "the run is kept" in user.end()
    assert user.status == 128 + number
    assert len(histories(only_run(scratch))) == 1


@pytest.mark.usefixtures("orphans_are_ours")
@pytest.mark.parametrize("stage", ["first-instruction", "breakpoint", "running", "deaf"])
def test_a_killed_launcher_leaves_no_process_and_no_snapshot_is_lost(
    stage: str, program: Program, scratch: Path
) -> None:
    name = "handles_term" if stage == "deaf" else "ticks"
    with launched(program(name), *(["stay"] if stage == "deaf" else []), folder=scratch) as user:
        if stage == "breakpoint":
            stop_at(user, "tick")
            user.type("massif-snap kept")
        elif stage in ("running", "deaf"):
            user.send("continue")
            user.see("ready")
        processes = psutil.Process(user.pid).children(recursive=True)
        os.kill(user.pid, signal.SIGKILL)
        psutil.wait_procs(processes, timeout=20)
        assert not [process for process in processes if alive(process)]
    run = only_run(scratch)
    if stage == "breakpoint":
        assert shell(GDBMEM, "show", f"{run.name}:kept", folder=scratch).returncode == 0


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# -- what can't be launched --------------------------------------------------------------------------------


def refused(*words: Word, folder: Path, env: Any = None) -> tuple[int, str]:
    """Return the status and the sentence of a launch that is refused before a run folder is made."""
    before = set(folder.iterdir())
    ended = shell(GDBMEM, "launch", "--massif", *words, folder=folder, env=env)
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert set(folder.iterdir()) == before
    return ended.returncode, ended.stderr


def test_what_cannot_be_run_is_reported_in_one_sentence_with_the_status_of_timeout(
    program: Program, scratch: Path
) -> None:
    (scratch / "text").write_text("no program\n")
    (scratch / "notes").write_text("#!/bin/sh\n")
    (scratch / "lost").write_text("#!/no/such/interpreter\n")
    (scratch / "setuid").write_bytes(program("ends").read_bytes())
    (scratch / "text").chmod(0o755)
    (scratch / "lost").chmod(0o755)
    (scratch / "setuid").chmod(0o4755)
    (scratch / "folder").mkdir()
    expected = {
        "./absent": (127, "no program"),
        "absent-word": (127, "no program 'absent-word' in PATH"),
        "text": (127, "did you mean ./text?"),
        "./notes": (126, "is not executable"),
        "./text": (126, "neither a program (ELF) nor a script"),
        "./lost": (126, "the interpreter that"),
        "./setuid": (126, "setuid"),
        "./folder": (126, "is a folder"),
    }
    for name, (status, sentence) in expected.items():
        got, said = refused(name, folder=scratch)
        assert (got, sentence in said) == (status, True), said


def test_missing_tools_are_named(program: Program, scratch: Path) -> None:
    only = scratch / "bin"
    only.mkdir()
    (only / "gdb").symlink_to("/usr/bin/gdb")
    status, said = refused(program("ends"), folder=scratch, env=environment(PATH=str(only)))
    assert status == 125
    assert "valgrind is not installed" in said
    (only / "gdb").unlink()
    status, said = refused(program("ends"), folder=scratch, env=environment(PATH=str(only)))
    assert (status, "gdb is not installed" in said) == (125, True)
    status, said = refused("--gdb", "./no-gdb", program("ends"), folder=scratch)
    assert (status, "./no-gdb" in said) == (125, True)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("echo 'Scripting in the \"Python\" language is not supported in this copy of GDB.' >&2", "no working Python"),
        ("echo gdbmem-python 3 6 8.2", "has Python 3.6, and gdbmem needs 3.9 or later"),
        ("exit 1", "no working Python (it prints nothing)"),
    ],
)  # fmt: skip
def test_a_gdb_that_will_not_do_is_found_out_before_valgrind_is_started(
    answer: str, sentence: str, program: Program, scratch: Path
) -> None:
    fake = scratch / "gdb"
    fake.write_text(f"#!/bin/sh\n{answer}\n")
    fake.chmod(0o755)
    status, said = refused("--gdb", "./gdb", program("ends"), folder=scratch)
    assert (status, sentence in said) == (125, True), said


def test_valgrinds_own_refusal_becomes_a_sentence_and_leaves_nothing(program: Program, scratch: Path) -> None:
    ended = shell(GDBMEM, "launch", "--massif-opt=--depth=what", program("ends"), folder=scratch)
    assert ended.returncode == 125
    assert "Bad option: --depth=what" in ended.stderr
    assert "valgrind ended with status 1 before the program began; its message is above" in ended.stderr
    assert list(scratch.iterdir()) == []


def test_stripped_scripted_and_static_programs(program: Program, scratch: Path) -> None:
    with launched(program("stripped"), folder=scratch) as user:
        user.type("break puts")
        user.type("continue")
        assert "heap 97." in user.type("massif-snap here")
        user.quit()
    script = scratch / "script"
    script.write_text(f"#!/bin/sh\nexec {program('ends')} exit 5\n")
    script.chmod(0o755)
    with launched(script, folder=scratch, options=["--trace-children"]) as user:
        user.type("set breakpoint pending on")
        user.type("break allocate")
        assert "has executed another" in user.type("continue")
        assert re.search(r"Breakpoint 1(\.1)?, allocate", user.type("continue"))
        user.quit()
    with launched(program("static_program"), folder=scratch) as user:
        assert "is statically linked" in user.text
        user.quit()


def test_an_instruction_that_valgrind_does_not_know_is_named(program: Program, scratch: Path) -> None:
    with launched(program("avx512"), folder=scratch) as user:
        user.type("continue")
        user.type("continue")
        said = user.text + user.quit()
    assert "AVX-512" in said


# -- the run folder ----------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_reported_with_the_way_out(
    program: Program, scratch: Path
) -> None:
    (scratch / "file").write_text("")
    status, said = refused("--run", "file/run", program("ends"), folder=scratch)
    assert (status, "name one with --run DIR" in said) == (125, True)
    status, said = refused("--run", "file", program("ends"), folder=scratch)
    assert (status, "file exists" in said) == (125, True)


@as_root
def test_a_read_only_folder_is_reported_with_the_way_out(program: Program, scratch: Path) -> None:
    with small_disk(scratch, "1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        status, said = refused(program("ends"), folder=disk)
        assert (status, "Read-only file system; go to a folder" in said) == (125, True)


@as_root
def test_a_disk_that_fills_up_during_a_snapshot_costs_only_this_one(program: Program, scratch: Path) -> None:
    with small_disk(scratch, "2m") as disk, launched(program("many_paths"), "4000", folder=disk) as user:
        stop_at(user, "built")
        answers = [user.type(f"massif-snap s{number}") for number in range(5)]
        assert "snapshot s0: heap" in answers[0]
        failed = [answer for answer in answers if "heap" not in answer]
        assert failed and all("No space left on device" in answer or "disk" in answer for answer in failed)
        assert "Traceback" not in user.text and "report this as a bug" not in user.text
        assert "s0" in user.type("massif-list")
        user.quit()
        assert user.status == 0
        assert "Traceback" not in user.text
        assert shell(GDBMEM, "show", f"{only_run(disk).name}:s0", folder=disk).returncode == 0


@as_root
@pytest.mark.parametrize("size", cover(["4k", "12k", "16k", "24k"], lambda size: size in ("4k", "16k")))
def test_a_disk_that_is_full_from_the_start_stops_the_launch_with_one_sentence(
    size: str, program: Program, scratch: Path
) -> None:
    with small_disk(scratch, size) as disk:
        ended = shell(GDBMEM, "launch", program("leaky_map"), folder=disk, input="continue\n")
        assert "Traceback" not in ended.stdout + ended.stderr
        assert "report this as a bug" not in ended.stderr
        assert "space" in ended.stdout + ended.stderr or len(histories(only_run(disk))) == 1


# -- names -------------------------------------------------------------------------------------------------

NASTY = [
    b"two words, quo'te\"s, #hash$HOME`id` 100%p%d",
    b"\x1b]0;x\x07 \xff\xfe",
    b"-dash",
    b"-two words, quo'te\"s, #hash$HOME`id` 100%p%d \x1b]0;x\x07 \xff\xfe",  # all of it at once
    b"line\nbreak",
]


@pytest.mark.parametrize("name", cover(NASTY, lambda name: name == NASTY[-1]))
def test_any_name_will_do_for_the_program_and_its_folder(
    name: bytes, program: Program, scratch: Path
) -> None:
    folder = Path(os.fsdecode(os.fsencode(scratch) + b"/" + name))
    folder.mkdir()
    path = folder / os.fsdecode(name)
    path.write_bytes(program("leaky_map").read_bytes())
    path.chmod(0o755)
    with launched(b"./" + name, folder=folder) as user:
        stop_at(user, "reset")
        user.type("massif-snap a")
        user.type("continue")
        assert "grew most at leaky_map.cpp:16" in user.type("massif-snap b")
        assert "from a to b" in user.type("massif-diff")
        assert "Breakpoint 1, reset" in user.type("run")
        user.quit()
    assert user.status == 0
    run = only_run(folder)
    assert len(histories(run)) == 2
    # gdb's own farewell shows the path as it is; nothing else may.
    assert not [line for line in user.shown.splitlines() if b"\x1b" in line and b"Detaching from" not in line]
    ended = shell(GDBMEM, "diff", f"{run}:a", f"{run}:b", folder=folder)
    assert ended.returncode == 0, ended.stderr
    assert "leaky_map.cpp:16" in ended.stdout.splitlines()[0]


def test_escapes_in_symbol_names_never_reach_the_terminal(program: Program, scratch: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[31m"
    path = scratch / "renamed"
    # The plain symbol table is all there is: debug information would give the true names.
    words: list[Word] = ["objcopy", "--redefine-sym", f"work={evil}", program("forks", "-g0"), path]
    subprocess.run(words, check=True)
    with launched(path, folder=scratch) as user:
        user.type("break waitpid")
        user.type("continue")
        user.type("massif-snap a")
        answers = [user.type(command) for command in ("massif-list", "massif-all", "massif-diff a a")]
        answers.append(user.type("massif-snap b"))
        user.quit()
    run = only_run(scratch)
    assert evil.encode() in (run / "snapshots" / "0001.massif").read_bytes()
    shown = shell(GDBMEM, "show", f"{run.name}:a", folder=scratch).stdout
    assert r"\x1b]0;owned\x07" in shown
    assert "\x1b" not in shown + "".join(answers)


@as_root
def test_a_folder_of_another_users_is_reported_with_the_way_out(program: Program, scratch: Path) -> None:
    folder = scratch / "theirs"
    folder.mkdir(mode=0o755)
    scratch.chmod(0o755)
    nobody = 65534
    as_nobody = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
    if subprocess.run([*as_nobody, "test", "-x", GDBMEM], check=False).returncode:
        pytest.skip("this checkout is private to root")
    ended = subprocess.run(
        [*as_nobody, GDBMEM, "launch", "/bin/true"],
        cwd=folder,
        env=environment(XDG_DATA_HOME=None, XDG_RUNTIME_DIR=None, HOME="/nonexistent"),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 125
    assert "Permission denied" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_limit_of_address_space_in_which_no_gdb_starts_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    limited = f"ulimit -v 65536; exec {GDBMEM} launch --engine massif /bin/true"
    done = shell("bash", "-c", limited, folder=tmp_path)
    assert done.returncode == 125 and "[little-room]" in done.stderr, done.stderr
    assert "limit of address space is 64.0 MiB here" in done.stderr and "ulimit -v unlimited" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["GDBMEM_ATTACHED", "GDBMEM_NATIVE"])
def test_a_gdb_whose_launcher_was_killed_before_they_met_leaves_the_terminal(way: str, scratch: Path) -> None:
    command = "python __import__('importlib').import_module('gdbmem.debugger.launched.launched').connect()"
    env = environment(XDG_DATA_HOME=packages(), GDBMEM_SESSION=str(scratch / "gone"), **{way: "1"})
    loader = Path(__file__).parents[2] / "gdbinit" / "gdbmem"
    with at_terminal(["gdb", "-q", "-nx", "-x", loader, "-ex", command], scratch, env) as user:
        assert "(gdb)" not in user.end()
