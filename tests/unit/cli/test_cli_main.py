"""The `gdbmem` command's own part: finding the subcommand, statuses, one sentence for each failure."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from typing import Callable, NoReturn

import pytest

from gdbmem import __version__
from gdbmem.cli import main as cli
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import (
    GdbmemError,
    InputError,
    Interrupted,
    MissingToolError,
    TargetError,
    ToolError,
    UsageError,
)


@pytest.fixture
def show_does(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Return a function that puts another body under `gdbmem show`."""

    def replace(body: Callable[[], int]) -> None:
        def run(argv: Sequence[str], parser: ArgumentParser) -> int:
            if argv:
                parser.parse_args(argv)
            return body()

        monkeypatch.setattr(cli, "load", lambda name: run)

    return replace


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    for name, command in SHELL_COMMANDS.items():
        assert name in shown and command.summary in shown


def test_without_a_command_the_overview_is_shown_and_the_status_states_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([]) == 2
    assert "usage: gdbmem COMMAND" in capsys.readouterr().out


def test_version_is_printed_for_bug_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"gdbmem {__version__}\n"


def test_a_mistyped_command_is_met_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lanch"]) == 2
    assert (
        capsys.readouterr().err == "gdbmem: gdbmem has no command 'lanch'; did you mean 'launch'? [usage]\n"
    )


def test_an_unknown_command_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["\x1b[2J"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("x.out is empty", slug="empty", hint="run it again"), 1),
        (TargetError("no memory at 0x10", slug="memory"), 1),
        (ToolError("valgrind failed", slug="valgrind"), 1),
        (UsageError("--top needs a number"), 2),
        (MissingToolError("gdb is not here", slug="missing"), 3),
    ],
)
def test_a_failure_is_one_sentence_on_stderr_and_a_status(
    error: GdbmemError,
    status: int,
    show_does: Callable[[Callable[[], int]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        raise error

    show_does(fail)
    assert cli.main(["show"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"gdbmem: {error} [{error.slug}]\n"


def test_an_error_that_quotes_a_strangers_file_name_cannot_write_to_the_terminal(
    show_does: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise InputError("\x1b]0;owned\x07.out is empty", slug="empty")

    show_does(fail)
    assert cli.main(["show"]) == 1
    assert "\\x1b]0;owned\\x07.out" in capsys.readouterr().err


def test_ctrl_c_ends_without_a_traceback(
    show_does: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    show_does(interrupted)
    assert cli.main(["show"]) == 130
    assert capsys.readouterr().err == "gdbmem: interrupted\n"


def test_a_commands_own_status_is_passed_on(show_does: Callable[[Callable[[], int]], None]) -> None:
    show_does(lambda: 4)
    assert cli.main(["show"]) == 4


def test_help_of_a_command_ends_well_and_a_wrong_option_names_that_help(
    show_does: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    show_does(lambda: 0)
    assert cli.main(["show", "--help"]) == 0
    assert "usage: gdbmem show" in capsys.readouterr().out
    assert cli.main(["show", "--nonsense"]) == 2
    assert "see 'gdbmem show --help'" in capsys.readouterr().err


def test_too_many_open_files_are_named_and_no_bug_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("gdbmem.cli.main._dispatch", fail)
    assert cli.main(["show", "x"]) == 1
    assert "too many files are open" in (said := capsys.readouterr().err) and "bug" not in said


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, "gdbmem: interrupted\n"),
        (signal.SIGTERM, 143, "gdbmem: interrupted by SIGTERM\n"),
    ],
)
def test_an_interrupted_command_is_no_bug_to_report(
    show_does: Callable[[Callable[[], int]], None],
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    status: int,
    said: str,
) -> None:
    def interrupted() -> int:
        raise Interrupted(number)

    show_does(interrupted)
    assert cli.main(["show"]) == status
    assert capsys.readouterr().err == said
