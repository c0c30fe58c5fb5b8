"""Processes that a program starts, counted by the kernel's records of them, beside what the program itself did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.linux.faults import event
from gdbmem.linux.faults.event import Births, Children

PROGRAM = """
import os, shutil, subprocess, sys, tempfile
from multiprocessing.shared_memory import SharedMemory

def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)

def on(processor):
    os.sched_setaffinity(0, {processor})

def spawn(*words):
    os.waitpid(os.posix_spawn(words[0], words, os.environ), 0)

def spawn_copy():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([shutil.copy(sys.executable, folder + "/copy"), "-c", ""])
        print(flush=True)
        sys.stdin.readline()

def spawn_in_memory(path):
    copy = os.memfd_create("copy")
    with open(path, "rb") as file:
        os.write(copy, file.read())
    pid = os.fork()
    if not pid:
        os.execve(copy, ["copy", "-c", ""], os.environ)
    os.waitpid(pid, 0)

def spawn_with_other_rights(path, folder):
    file = shutil.copy(path, folder)
    os.chown(file, 65534, 65534)
    os.chmod(file, 0o4755)
    spawn(file, "-c", "")

def tracker():
    memory = SharedMemory(create=True, size=4096)
    memory.close()
    memory.unlink()

print(flush=True)
for line in sys.stdin:
    exec(line)
    print(flush=True)
"""


PROCESSORS = sorted(os.sched_getaffinity(0))


def count(does: str) -> Optional[Children]:
    """Run a program that does something; return how many of the processes that it started count."""
    words = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdout.readline()
        try:
            births = Births(program.pid, Path(sys.executable))
        except PermissionError:
            program.kill()
            pytest.skip("the kernel allows no perf events here")
        program.stdin.write(does + "\n")
        program.stdin.flush()
        program.stdout.readline()
        births.take()
        program.stdin.write("\n")
        program.stdin.close()
        program.wait()
        births.take()
        births.close()
    return births.children(())


@pytest.mark.parametrize(
    ("does", "expected"),
    [
        ("fork()", Children(1, 0)),
        ("[fork() for _ in range(300)]", Children(300, 0)),
        ("subprocess.run(['/bin/true'])", Children(0, 0)),
        ("[spawn('/bin/true') for _ in range(300)]", Children(0, 0)),
        # More than the records of a processor hold, on which nothing is recorded later.
        (
            f"on({PROCESSORS[0]}); [fork() for _ in range(1300)]; on({PROCESSORS[-1]})",
            Children(1300, 0),
        ),
        ("subprocess.run([sys.executable, '-c', ''])", Children(0, 1)),
        ("spawn('/bin/sh', '-c', f'{sys.executable} -c 1; true')", Children(0, 1)),
        ("spawn_copy()", Children(0, 1)),
        ("spawn_in_memory('/bin/true')", Children(0, 0)),
        ("spawn_in_memory(sys.executable)", Children(0, 1)),
        ("spawn('/bin/sh', '-c', '(true); (true); true')", Children(0, 0)),
        ("tracker()", Children(0, 0)),
    ],
)
def test_only_children_that_run_the_programs_code_count(does: str, expected: Children) -> None:
    found = count(does)
    assert found == expected or (found is None and "300" in does), found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a file that gives root other rights")
def test_a_copy_of_the_program_that_runs_with_other_rights_counts_and_programs_of_the_system_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel records nothing of a process after it has executed a setuid program but the name."""
    assert count(f"spawn_with_other_rights({sys.executable!r}, {str(tmp_path)!r})") == Children(0, 1)
    assert count(f"spawn_with_other_rights('/bin/true', {str(tmp_path)!r})") == Children(0, 1), (
        "nothing tells"
    )
    monkeypatch.setattr(event, "_SYSTEM_FOLDERS", (str(tmp_path / "none"), str(tmp_path)))
    assert count(f"spawn_with_other_rights('/bin/true', {str(tmp_path)!r})") == Children(0, 0)
