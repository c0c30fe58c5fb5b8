"""Messages from valgrind's log and at a launch's end, each with a hint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.launch.program import Program
from gdbmem.launch.valgrind import Order, Process, Valgrind, explain, fate, last_line

AVX512 = b"""==7== Massif, a heap profiler
vex amd64->IR: unhandled instruction bytes: 0x62 0xF1 0x7C 0x48 0x10 0x4 0x24 0x62 0xF1 0x7C
==7== valgrind: Unrecognised instruction at address 0x109151.
==7== Process terminating with default action of signal 4 (SIGILL)
"""
STRIPPED_LOADER = b"""valgrind:  Fatal error at startup: a function redirection
valgrind:  which is mandatory for this platform-tool combination
valgrind:  cannot be set up.  Details of the redirection are:
valgrind:
valgrind:  A must-be-redirected function
valgrind:  whose name matches the pattern:      strlen
valgrind:  in an object with soname matching:   ld-linux-x86-64.so.2
"""


@pytest.mark.parametrize(
    ("text", "slug", "words"),
    [
        (AVX512, "unhandled-instruction", "AVX-512"),
        (AVX512.replace(b"0x62", b"0xC5"), "unhandled-instruction", "use a newer valgrind"),
        (b"==7== valgrind: Unrecognised instruction at address 0x10d836.\n", "invalid-instruction", "__builtin_trap()"),
        (b"==7== Unsupported clone() flags: 0x111\n", "valgrind-unsupported", "clone()"),
        (b"**7** Program aborting because of call to pvalloc\n", "valgrind-unsupported", "pvalloc"),
        (STRIPPED_LOADER, "stripped-loader", "libc6-dbg"),
        (b"valgrind: failed to start tool 'massif' for platform 'amd64-linux'", "tool-missing", "reinstall"),
        (b"valgrind: Bad option: --depth=what\n", "valgrind-option", "--massif-opt"),
        (b"==7== Valgrind's memory management: out of memory:\n", "valgrind-memory", "raise the limit"),
        (b"error: can't open output file '/x/massif.1.7.out'\n", "run-unwritable", "free some space"),
    ],
)  # fmt: skip
def test_each_known_failure_has_its_sentence(text: bytes, slug: str, words: str) -> None:
    notice = explain(text)
    assert notice is not None
    assert notice.slug == slug
    assert words in notice.message


def test_an_ordinary_log_is_no_failure() -> None:
    text = b"==7== Massif, a heap profiler\n==7== Command: ./prog\n==7== (action at startup) vgdb me ... \n"
    assert explain(text) is None
    assert last_line(text) == "(action at startup) vgdb me ..."
    assert last_line(b"") == ""
    assert last_line(b"==7== \x1b[31m\xff\n==7== \n") == r"\x1b[31m\xff"


class Ended:
    """A child whose end is known."""

    pid = 7

    def __init__(self, status: Optional[int]) -> None:
        self.status = status
        self.alive = status is None


def process(run: Path, status: Optional[int], *options: str) -> Process:
    program = Program(Path("/p"), Path("/p"), is_static=False)
    order = Order(Valgrind("v", "g"), options, program, [], {}, run=run, runtime=run)
    return Process(order, Ended(status))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "exited", "history", "words"),
    [
        (0, True, True, ""),
        (3, True, False, ""),
        (137, False, False, "valgrind was killed (SIGKILL)"),
        (3, False, False, "with status 3 outside massif; launch with --trace-children"),
        (143, False, True, ""),
        (139, False, False, ""),
    ],
)
def test_what_became_of_the_program_is_distinguished_from_what_it_left(
    status: int, *, exited: bool, history: bool, words: str, tmp_path: Path
) -> None:
    ended = process(tmp_path, status)
    if history:
        ended.history.write_bytes(b"")
    sentence = fate(ended, exited=exited)
    assert words in sentence
    assert bool(words) == bool(sentence)


def test_a_program_that_valgrind_could_not_follow_is_not_to_be_launched_with_the_option_it_was_launched_with(
    tmp_path: Path,
) -> None:
    followed = fate(process(tmp_path, 1, "--trace-children=yes"), exited=False)
    assert "which valgrind could not start (status 1)" in followed and "/proc/self/exe" in followed
    assert "--trace-children" not in followed
    assert "/proc/self/exe" in fate(process(tmp_path, 1), exited=False)


def test_valgrind_can_be_reached_once_its_last_fifo_is_there(tmp_path: Path) -> None:
    started = process(tmp_path, None)
    assert not started.ready
    for name in (
        "shared-mem-vgdb-7-by-me-on-it",
        "to-vgdb-from-7-by-me-on-it",
        "from-vgdb-to-77-by-me-on-it",
    ):
        (tmp_path / f"vgdb1-{name}").touch()
        assert not started.ready
    (tmp_path / "vgdb1-from-vgdb-to-7-by-a b\non-call-on-box").touch()
    assert started.ready
    # vgdb finds the FIFO by the program's idea of user and host.
    assert started.vgdb("v.info")[:4] == ["env", "LOGNAME=a b\non-call", "USER=a b\non-call", "HOST=box"]
    assert started.vgdb("v.info")[-2:] == ["--pid=7", "v.info"]


def test_another_program_that_got_the_number_of_a_killed_child_is_not_ended_with_the_launch(
    tmp_path: Path,
) -> None:
    started = process(tmp_path, None)
    (tmp_path / f"vgdb1-from-vgdb-to-{os.getpid()}-by-me-on-it").touch()  # a SIGKILL leaves it
    assert started.reachable_pid(f"vgdb1-from-vgdb-to-{os.getpid()}-by-me-on-it") == os.getpid()
    assert not started.reachable_pids()
