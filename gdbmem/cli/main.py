"""The `gdbmem` command: finds the subcommand, runs it, turns errors into one sentence and a status."""

from __future__ import annotations

import errno
import fcntl
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Optional, TextIO

from gdbmem import __version__
from gdbmem.cli.start import forget_interrupts, raise_between_steps
from gdbmem.commands.arguments import ArgumentParser, ParserExit
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import (
    ExitStatus,
    GdbmemError,
    InputError,
    Interrupted,
    MissingToolError,
    UsageError,
    internal_error,
)
from gdbmem.text import printable

# Imports create hardly any garbage: collecting at Python's default threshold of 700 takes 5 % of the start-up.
_OBJECTS_A_COLLECTION = 50_000

# Disable the collector: they create many objects, of a profile or of modules, and hardly any are in cycles.
_WITHOUT_COLLECTOR = frozenset(("show", "diff", "report", "explain", "heap"))

# They exit without freeing their objects one by one, which would take a tenth of their time.
END_AT_ONCE = frozenset(("show", "diff", "report", "explain", "heap", "monitor", "python lines"))

_OF_RANKS = frozenset(("monitor", "grow", "launch"))  # commands that run the program of a rank

# Where the subject of a command is another one's, whose module has run_NAME.
_MODULE_OF = {"attach": "launch", "bisect": "baseline", "snap": "launch", "uninstall": "install"}

# It parses the words with the parser, does the work, prints, and returns the exit status.
Subcommand = Callable[[Sequence[str], ArgumentParser], int]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the `gdbmem` command with *argv* (default: the process's) and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    _open_closed_streams(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # paths may hold bytes that are not UTF-8
    with _labelled_outputs(words) if words[:1] and words[0] in _OF_RANKS else nullcontext():
        return _run(words, ends_process=argv is None)


def _labelled_outputs(words: list[str]) -> AbstractContextManager[None]:
    from gdbmem.runs.ranks import labelled_outputs  # for these commands only

    return labelled_outputs(words)


def _run(words: list[str], *, ends_process: bool) -> int:
    try:
        try:
            if ends_process:
                raise_between_steps()
            with _collector_paused() if words[:1] and words[0] in _WITHOUT_COLLECTOR else nullcontext():
                status = _dispatch(words)
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # closed before the start
                    stream.flush()
            if ends_process and not END_AT_ONCE.isdisjoint((*words[:1], " ".join(words[:2]))):
                os._exit(status)
        finally:
            forget_interrupts()  # what is left to do is a sentence
    except ParserExit:
        return 0
    except BrokenPipeError:
        # The reader has gone (`gdbmem show … | head`).
        _give_up_output()
        return 128 + 13
    except KeyboardInterrupt:
        print("gdbmem: interrupted", file=sys.stderr)
        return ExitStatus.INTERRUPTED
    except Interrupted as interrupted:
        by = "" if interrupted.number == signal.SIGINT else f" by {interrupted}"
        print(f"gdbmem: interrupted{by}", file=sys.stderr)
        return 128 + interrupted.number
    except GdbmemError as error:
        return _own_status(words, _complain(error))
    except Exception as error:  # noqa: BLE001  (a host: nothing else may leave)
        status = _unexpected(error)
        return ExitStatus.FAILED if _is_judge_or_runner(words) else _own_status(words, status)
    return status


def _own_status(words: list[str], status: int) -> int:
    """Return the status of an error of gdbmem's own: git takes 1 to 127 for bad, and ends a bisection from 128 on."""
    return 128 + status if words[:1] == ["bisect"] else status


@contextmanager
def _collector_paused() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_judge_or_runner(words: list[str]) -> bool:
    # In commands whose exit status is the program's own or a verdict, 1 would be mistaken for that.
    return words[:1] == ["launch"] or (words[:1] == ["monitor"] and "--" in words) or "--fail-on" in words


def _unexpected(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _give_up_output()
        return _complain(InputError("the disk is full", slug="output-unwritable", hint="free some space"))
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return _complain(
            InputError(
                f"too many files are open: {error.strerror}",
                slug="too-many-files",
                hint="raise the limit (ulimit -n), or give fewer files",
            )
        )
    if isinstance(error, OSError) and error.errno == errno.EBADF and not _can_write(sys.stdout):
        _give_up_output()
        return _complain(
            InputError("the standard output is closed", slug="output-unwritable", hint="name a file: -o FILE")
        )
    package = _missing_package(error)
    if package is not None:
        return _complain(package)
    if isinstance(error, MemoryError):
        return _complain(
            InputError(
                "not enough memory to read the input",
                slug="out-of-memory",
                hint="give smaller files, or raise the limit (ulimit -v)",
            )
        )
    print(f"gdbmem: {printable(internal_error(error))}", file=sys.stderr)
    return ExitStatus.ERROR


def _missing_package(error: Exception) -> Optional[MissingToolError]:
    """Return the message if *error* is that a Python package of gdbmem's is missing; None otherwise."""
    if not isinstance(error, ImportError):
        return None

    from gdbmem.setup.requirements import pip_install, required  # not always needed

    package = required(error.name)
    if package is None:
        return None
    return MissingToolError(
        f"the Python package {package.package} can't be imported: {error}",
        slug="python-package-missing",
        hint=pip_install(package.package),
    )


def _open_closed_streams(words: list[str]) -> None:
    # Started with one of them closed (`>&-`): the next file opened would get its number and receive a program's output.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # A report on a closed output fails; a run is kept in its folder, and a gate's result is its status.
            is_report = name == "stdout" and not _is_judge_or_runner(words)
            descriptor = os.open(os.devnull, os.O_RDONLY if is_report else os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _can_write(stream: TextIO) -> bool:
    return (fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE) != os.O_RDONLY


def _give_up_output() -> None:
    # Prevents an error message of the interpreter's final flush.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        print(_overview())
        return 0 if words else ExitStatus.USAGE
    name, rest = words[0], words[1:]
    if name in ("--version", "-V"):
        print(f"gdbmem {__version__}")
        return 0
    if name not in SHELL_COMMANDS:
        raise UsageError(f"gdbmem has no command '{printable(name)}'", hint=_nearest(name))
    return load(name)(rest, SHELL_COMMANDS[name].parser())


def load(name: str) -> Subcommand:
    """Import the function of subcommand *name*, with its module only, which keeps the start-up fast."""
    if name == "help":
        return _help
    module = importlib.import_module(f"gdbmem.cli.commands.{_MODULE_OF.get(name, name)}")
    run: Subcommand = getattr(module, f"run_{name}" if name in _MODULE_OF else "run")
    return run


def _help(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Print the paragraph of a message, or the help of a command."""
    from gdbmem.messages import explain_message  # not always needed

    name = parser.parse_args(argv).name
    command = SHELL_COMMANDS.get(name)
    sys.stdout.write(explain_message(name) if command is None else command.parser().format_help())
    return 0


def _nearest(name: str) -> str:
    import difflib  # not always needed

    close = difflib.get_close_matches(name, SHELL_COMMANDS, n=1)
    return f"did you mean '{close[0]}'?" if close else "see 'gdbmem --help'"


def _overview() -> str:
    lines = [
        "usage: gdbmem COMMAND [OPTIONS] …",
        "",
        f"gdbmem {__version__}: which line makes a process grow",
        "",
    ]
    lines += [f"  {name:<10} {command.summary}" for name, command in SHELL_COMMANDS.items()]
    lines += [
        "",
        "'gdbmem COMMAND --help' explains a command, 'gdbmem help NAME' a message [NAME]; inside gdb: 'help gdbmem'.",
    ]
    return "\n".join(lines)


def _complain(error: GdbmemError) -> int:
    print(f"gdbmem: {printable(error.sentence)}", file=sys.stderr)
    return error.status


if __name__ == "__main__":
    sys.exit(main())
