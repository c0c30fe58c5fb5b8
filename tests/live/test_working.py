"""What a command is busy with, on a terminal: drawn while it takes long, and gone when it prints."""

from __future__ import annotations

import errno
import os
import pty
import signal
import sys
import time
from collections.abc import Callable

import pytest

from gdbmem.terminal.console import Working, make_console, say

pytest.importorskip("rich")

LONG = 60.0  # until the line that is drawn is certainly there


def on_a_terminal(body: Callable[[], None], until: bytes = b"") -> str:
    """Return what *body* writes in a forked process whose terminal is ours; *until*: go on once this was drawn."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            sys.stderr, sys.stdout = open(2, "w", closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
            os.environ["TERM"] = "xterm"
            body()
            sys.stdout.flush()
        finally:
            os._exit(0)
    written = b""
    try:
        while block := os.read(terminal, 4096):
            written += block
            if until and until in written:
                os.write(terminal, b"\n")
                until = b""
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return written.decode()


def wait_for_line() -> None:
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdin.readline()


def test_what_takes_long_is_named_and_cleared_before_the_answer_is_printed() -> None:
    def body() -> None:
        with Working("reading big.massif", after=0.0):
            wait_for_line()
            make_console(sys.stdout).print("the answer")

    said = on_a_terminal(body, until=b"reading big.massif")
    assert said.endswith("the answer\r\n")
    assert "\x1b[2K" in said.rpartition("reading big.massif")[2], "the line is cleared"


def test_the_cursor_is_there_also_if_the_command_is_killed_while_it_works() -> None:
    def body() -> None:
        with Working("reading big.massif", after=0.0):
            wait_for_line()
            os.kill(os.getpid(), signal.SIGKILL)

    said = on_a_terminal(body, until=b"\x1b[?25h")
    assert said.rfind("\x1b[?25h") > said.rfind("\x1b[?25l") >= 0


def test_a_message_meanwhile_stands_on_a_line_of_its_own() -> None:
    def body() -> None:
        with Working("walking", after=0.0):
            wait_for_line()
            say("the process is copied")

    assert "gdbmem: the process is copied\r\n" in on_a_terminal(body, until=b"walking")


def test_a_file_name_with_escapes_or_markup_does_not_reach_the_terminal() -> None:
    def body() -> None:
        with Working("reading \x1b]0;title\x07[red]x", after=0.0):
            wait_for_line()

    said = on_a_terminal(body, until=b"[red]x")
    assert "\x1b]0" not in said


def test_what_is_quick_draws_nothing() -> None:
    def body() -> None:
        with Working("reading", after=LONG):
            make_console(sys.stdout).print("the answer")

    assert on_a_terminal(body) == "the answer\r\n"


def test_nothing_is_drawn_into_a_file_or_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Working("reading", after=0.0):
        time.sleep(0.01)
    assert capsys.readouterr().err == ""
