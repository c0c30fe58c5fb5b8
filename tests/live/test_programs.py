"""Tests of the programs and guards on which other live tests depend."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable

import pytest

from tests.conftest import PROGRAMS
from tests.live.user import SECONDS
from tests.processes import MARKER, marked_processes

pytestmark = pytest.mark.needs("gcc", "g++", "nm")

Program = Callable[..., Path]


def test_no_program_is_left_over_that_no_test_runs() -> None:
    words = {word for path in PROGRAMS.parent.rglob("*.py") for word in re.findall(r"\w+", path.read_text())}
    names = {path.stem for path in PROGRAMS.glob("*.c*")}
    assert len(names) > 50
    assert sorted(name for name in names if not {name, name.removeprefix("stl_")} & words) == []


def test_a_program_is_compiled_once(program: Program) -> None:
    path = program("ends")
    assert os.access(path, os.X_OK)
    made = path.stat().st_mtime_ns
    assert program("ends") == path
    assert path.stat().st_mtime_ns == made


def test_flags_make_another_program_instead_of_replacing_it(program: Program) -> None:
    assert program("ends") != program("ends", "-O2")
    assert program("ends").exists()


def test_the_static_program_has_no_loader_and_the_stripped_one_no_symbols(program: Program) -> None:
    assert b"/ld-linux" not in program("static_program").read_bytes()
    ended = subprocess.run(["nm", program("stripped")], capture_output=True, text=True, check=False)
    assert "no symbols" in ended.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["exit", "3"], 3),
        (["signal", "15"], -15),
        (["abort"], -signal.SIGABRT),
    ],
)
def test_ends_ends_as_told(words: list[str], status: int, program: Program, scratch: Path) -> None:
    ended = subprocess.run([program("ends"), *words], cwd=scratch, check=False)
    assert ended.returncode == status


def test_a_process_that_outlived_its_parent_is_found_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "test-of-the-guard")
    # In a separate session, as valgrind is: neither the process tree nor the group would show it.
    started = subprocess.run(
        ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    pid = int(started.stdout)
    try:
        deadline = time.monotonic() + SECONDS
        while "sleep 60" not in marked_processes("test-of-the-guard").get(pid, ""):  # between fork and exec
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_test_never_sees_the_users_home(private_home: Path) -> None:
    assert os.environ["HOME"] == str(private_home)
    assert list(private_home.iterdir()) == []
