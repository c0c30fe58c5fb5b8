"""The descriptors that a program would have without gdbmem, and no others, reach it: PMI_FD, a jobserver, <(…)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_process_left")

GDBMEM = Path(sys.executable).with_name("gdbmem")
MASSIF, NONE = ["launch", "-q", "--recipe"], ["launch", "--quiet", "--recipe"]
LISTS = "ls /proc/$$/fd; sleep 0.2"


@pytest.fixture
def inherited() -> Iterator[int]:
    """Yield a descriptor that a child inherits."""
    found = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(found, True)
    yield found
    os.close(found)


def descriptors(words: list[str], folder: Path, inherited: int) -> set[int]:
    done = subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        check=True, pass_fds=[inherited],
    )  # fmt: skip
    return {int(line) for line in done.stdout.splitlines() if line.isdecimal()}


@pytest.mark.parametrize(
    "words",
    [
        ["monitor", "-q", "--"],
        ["monitor", "-q", "--mark", "^x", "--"],
        ["grow", "--for", "5s", "--"],
        pytest.param(MASSIF, marks=pytest.mark.needs("gdb", "valgrind", "vgdb")),
        pytest.param(NONE, marks=[pytest.mark.needs("gdb"), pytest.mark.thorough]),
    ],
    ids=["monitor", "monitor-mark", "grow", "massif", "none"],
)
def test_a_program_gets_the_descriptors_that_it_would_have_alone(
    words: list[str], tmp_path: Path, inherited: int
) -> None:
    program = ["/bin/sh", "-c", LISTS]
    alone = descriptors(program, tmp_path, inherited)
    assert inherited in alone
    if words[-1] == "--recipe":
        engine, does = ("massif", "snap") if words == MASSIF else ("none", "ledger")
        points = f"engine: {engine}\npoints: [{{at: _exit, do: [{does}]}}]\n"
        text = f"program: /bin/sh\nargs: [-c, '{LISTS}']\n{points}"
        (tmp_path / "recipe.yaml").write_text(text)
        program = ["recipe.yaml"]
    found = descriptors([str(GDBMEM), *words, *program], tmp_path, inherited)
    # valgrind's own stand above the limit that it gives the program, but for that of its log.
    log = {3} if words == MASSIF else set()
    assert {number for number in found if number < 1000} - log == alone - log
