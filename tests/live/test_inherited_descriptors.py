"""The descriptors that a program would have without gdbmem, and no others, reach it: PMI_FD, a jobserver, <(…)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
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


@pytest.mark.needs("gdb")
@pytest.mark.parametrize("taken", [[], range(3, 10)], ids=["", "no-descriptor-is-free"])
def test_the_output_of_a_program_that_gdb_starts_comes_where_no_file_can_be_opened_anew(
    tmp_path: Path, taken: Sequence[int]
) -> None:
    """As under systemd, or by ssh without a terminal: the streams are sockets."""
    (tmp_path / "recipe.yaml").write_text(
        f"program: /bin/sh\nargs: [-c, '{LISTS}; echo x >&2']\n"
        "engine: none\npoints: [{at: _exit, do: [ledger]}]\n"
    )
    words = [str(GDBMEM), "launch", "--quiet", "--recipe", "recipe.yaml"]
    (ours, output), (mine, errors) = socket.socketpair(), socket.socketpair()
    with ours, output, mine, errors:
        if taken:  # then the program has to open what it gets
            opens = " ".join(f"{number}</dev/null" for number in taken)
            words = ["/bin/sh", "-c", f'exec "$@" {opens} >out 2>err', "-", *words]
        done = subprocess.run(
            words, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output.fileno(), stderr=errors.fileno(),
            timeout=100, check=False,
        )  # fmt: skip
        output.close()
        errors.close()
        printed = (tmp_path / "out").read_text() if taken else ours.makefile().read()
        complaints = (tmp_path / "err").read_text() if taken else mine.makefile().read()
    assert done.returncode == 0, complaints
    assert {int(line) for line in printed.split()} == {0, 1, 2, *taken}
    assert complaints.startswith("x\n")
