"""memwatch on what is not simply a process of this gdb: gdbserver, a core file, several inferiors."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gdbmem.setup.gdb_python import loader_file
from tests.live.memwatching import line_of, run_gdb, steps
from tests.live.user import SECONDS

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096


@contextlib.contextmanager
def serving(scratch: Path, *words: str) -> Iterator[str]:
    """Yield the port of a gdbserver that holds the program of *words*."""
    child = subprocess.Popen(
        ["gdbserver", "--once", "127.0.0.1:0", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=scratch,
    )  # fmt: skip
    assert child.stderr is not None
    port = next(line.split()[-1] for line in child.stderr if line.startswith("Listening on port"))
    try:
        yield port
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


@pytest.fixture
def served(program: Program, scratch: Path) -> Iterator[str]:
    """Yield the port of a gdbserver that holds touches_pages."""
    with serving(scratch, str(program("touches_pages"))) as port:
        yield port


@pytest.mark.needs("gdbserver")
def test_behind_gdbserver_the_numbers_come_through_gdbs_own_file_access(
    program: Program, scratch: Path, served: str
) -> None:
    said = run_gdb(
        program("touches_pages"),
        [
            "set sysroot /",
            f"target remote 127.0.0.1:{served}",
            "break work if round == 1",
            "continue",
            "memwatch next --json -o steps.json 10",
            "print $rss() > 100000",
            "memwatch growth",
            "show scheduler-locking",
            "kill",
        ],
        folder=scratch,
    )
    found = {step["line"]: step["delta_bytes"] // PAGE for step in steps(scratch)}
    assert found[line_of("touches_pages.c", "touch(0, 1)")] in (0, 1)
    assert found[line_of("touches_pages.c", "touch(83, 1000)")] == 1000
    assert found[line_of("touches_pages.c", "touch(19, 64)")] == 64
    assert {step["source"] for step in steps(scratch)} == {"smaps"}
    assert "$1 = 1" in said.output
    assert "needs a process of this machine, not one behind gdbserver" in said.output
    assert 'is "replay"' in said.output


@pytest.mark.needs("gdbserver")
def test_behind_gdbserver_a_step_that_waits_ends_though_the_program_blocks_the_signal_that_interrupts_it(
    program: Program, scratch: Path
) -> None:
    path = program("takes_sigint", "-O0")
    turn = line_of("takes_sigint.c", "        take_turn(0);")
    with serving(scratch, str(path), "blocked") as port:
        said = run_gdb(
            path,
            [
                "set sysroot /",
                f"target remote 127.0.0.1:{port}",
                f"break {turn} if turn == 1",
                "continue",
                "memwatch next --lock on --timeout 200ms",
                "memwatch next --timeout 200ms",
                "info symbol $pc",
                "print taken",
                "show scheduler-locking",
                "kill",
            ],
            folder=scratch,
        )
    assert "the program blocks SIGINT, the only signal with which gdbserver can stop it" in said.output
    assert "'memwatch next --lock off'" in said.output
    assert "the other threads were not locked: the program blocks SIGINT" in said.complaints
    assert f"takes_sigint.c:{turn}" in said.output and "main + " in said.output
    assert "$1 = 0" in said.output and 'is "replay"' in said.output


def test_a_core_file_is_refused_with_the_reason(program: Program, scratch: Path) -> None:
    run_gdb(program("troubles", "-O0"), ["break go", "run", "generate-core-file core.file"], folder=scratch)
    said = run_gdb(
        program("troubles", "-O0"), ["core-file core.file", "memwatch next", "print $rss()"], folder=scratch
    )
    assert said.output.count("a core file can't be stepped") == 2


def test_each_inferior_has_its_own_account(program: Program, scratch: Path) -> None:
    pages, loops = program("touches_pages"), program("loops")
    run_gdb(
        pages,
        [
            "break work if round == 1",
            "run",
            "memwatch next 3",
            f"add-inferior -exec {loops}",
            "inferior 2",
            "break returns",
            "run",
            "memwatch next --json -o second.json 2",
            "memwatch report --json -o steps.json",
            "inferior 1",
            "memwatch report --json -o first.json",
            "kill inferiors 1 2",
        ],
        folder=scratch,
    )
    assert {step["function"] for step in steps(scratch, "first.json")} == {"work"}
    assert {step["function"] for step in steps(scratch)} == {"returns"}
    # A looping line in the second inferior ends where it should: threads have two numbers.
    assert len(steps(scratch, "second.json")) == 2


def test_a_new_process_begins_a_new_account(program: Program, scratch: Path) -> None:
    run_gdb(
        program("touches_pages"),
        [
            "break work",
            "run",
            "memwatch next 3",
            "run",
            "memwatch next 2",
            "memwatch report --json -o steps.json",
        ],
        folder=scratch,
    )
    assert len(steps(scratch)) == 2


def test_attaching_and_leaving_again_leaves_the_process_running(program: Program, scratch: Path) -> None:
    child = subprocess.Popen([str(program("queue", "-O0"))], stdin=subprocess.DEVNULL)
    try:
        said = run_gdb(
            program("queue", "-O0"),
            [f"attach {child.pid}", "memwatch finish --timeout 1s", "memwatch next 2", "detach"],
            folder=scratch,
        )
        assert "Traceback" not in said.output + said.complaints
        assert child.poll() is None or child.returncode == 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.needs("unshare")
def test_a_process_in_another_pid_namespace_is_measured_and_its_threads_named(
    program: Program, scratch: Path
) -> None:
    wrapper = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*wrapper, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may make no PID namespace")
    binary = program("troubles", "-O0")
    outer = subprocess.Popen([*wrapper, str(binary), "stuck"], stdin=subprocess.DEVNULL)
    try:
        pid = waiting_child(outer.pid)
        said = run_gdb(
            binary,
            [
                f"attach {pid}",
                "memwatch finish --lock on --json -o steps.json",
                "print $rss()",
                f"shell cat /proc/{pid}/statm",
                "detach",
            ],
            folder=scratch,
        )
    finally:
        outer.kill()
        outer.wait()
    (step,) = steps(scratch)
    assert "waited for mutex never" in step["note"] and "held by thread 1" in step["note"]
    rss = int(said.output.split("$1 = ")[1].split()[0])
    assert rss == PAGE * int(said.output.split("$1 = ")[1].splitlines()[1].split()[1])


def test_a_system_call_in_an_inlined_function_is_not_ended_by_the_wait_for_its_end(
    program: Program, scratch: Path
) -> None:
    binary = program("waits_inlined", "-O1")
    with subprocess.Popen([binary], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as target:
        try:
            await_futex(target.pid)
            run_gdb(
                binary,
                [f"attach {target.pid}", "memwatch finish --lock on --json -o steps.json", "detach"],
                folder=scratch,
            )
            await_futex(target.pid)
        finally:
            target.kill()
        said = target.communicate()[0]
    (step,) = steps(scratch)
    assert step["ended"] == "given up", "it waits as before"
    assert said == "", "the kernel's ERESTARTSYS is not for the program"


def await_futex(pid: int) -> None:
    """Return once the main thread of *pid* sleeps in a futex call, and a second thread is there."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
        if call in ("202", "98") and len(list(Path(f"/proc/{pid}/task").iterdir())) == 2:
            return
        time.sleep(0.01)
    raise AssertionError("it does not wait")


def waiting_child(parent: int) -> int:
    """Return the child of *parent* once it sleeps in a futex call with a second thread beside it."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if children:
            tasks = list(Path(f"/proc/{children[0]}/task").iterdir())
            if len(tasks) == 2 and Path(f"/proc/{children[0]}/syscall").read_text().split()[0] in (
                "202",
                "98",
            ):
                return int(children[0])
        time.sleep(0.01)
    raise AssertionError("the program never came to wait")


GROWS = """
#include <stdlib.h>
#include <string.h>
char filled[100000];
void *grow(int size) { memset(filled, size, sizeof filled); return memset(malloc(size), 1, size); }
"""
CALLS = "void *grow(int);\nint main(void) {\n  for (int i = 0; i < 9; i++)\n    grow(100000 + i);\n  return 0;\n}\n"


def test_sources_and_libraries_whose_names_are_not_utf_8_end_no_command(scratch: Path) -> None:
    folder = scratch / os.fsdecode(b"\xff")
    folder.mkdir()
    (folder / "grows.c").write_text(GROWS)
    (folder / "calls.c").write_text(CALLS)
    for build in ("-shared -fPIC -o libgrows.so grows.c", "-o calls calls.c -L. -lgrows -Wl,-rpath,$ORIGIN"):
        subprocess.run(["gcc", "-g", "-O0", *build.split()], cwd=folder, check=True)
    commands = (
        "break grow", "run", "memwatch written finish", "delete", "memwatch function --calls 2 grow",
        "memwatch next 2", "memcontainers --everywhere",
    )  # fmt: skip
    words = [word for command in commands for word in ("-ex", command)]
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", loader_file(), *words, folder / "calls"],
        cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert "report this" not in said and "Unicode" not in said, said
    assert "written by 'finish' from grow" in said and "variables around filled" in said, said
    assert "grow  ?  2 calls" in said and "in 2 steps" in said and "no vector was found" in said, said
