"""Run `gdbmem python`."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO

from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import ArgumentParser, checked_pid, pid_or_core
from gdbmem.errors import ExitStatus, InputError, UsageError
from gdbmem.terminal.console import Working, make_console, open_output, say
from gdbmem.terminal.document import head, to_json
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from gdbmem.model.python import RecordedFunction, RecordedProcess

# gdbmem python lines: run a Python program, and show how each line of selected functions changed memory.


# It runs in the program; importing it here would take 15 ms.
_RECORDER = Path(__file__).resolve().parents[2] / "line_recorder.py"
# Imported by the program's Python, not run as a script, which would be compiled each time.
_RUN = f"""\
import sys
sys.path.insert(0, {str(_RECORDER.parent)!r})
from {_RECORDER.stem} import main
del sys.path[0]
main(*sys.argv[1:3])
"""


def run_lines(args: argparse.Namespace) -> int:
    """Run the script and write the tables; return the script's status."""
    from gdbmem.formats.documents import read_lines

    script = Path(args.script)
    if not script.is_file():
        raise InputError(
            f"there is no script {printable(args.script)}",
            slug="no-such-file",
            hint="name a file: what follows '--' is the script's own",
        )
    python = _python(args.python)
    with open_output(args.output, force=args.force) as stream, _folder() as folder:
        own_output = args.json and args.output in (None, "-")
        status = _run(args, python, folder, output=sys.stderr.fileno() if own_output else None)
        processes = read_lines(folder)
        if args.json:
            stream.write(_lines_json(processes))
        else:
            sys.stdout.flush()
            print_lines(processes, stream, named=bool(args.function))
    return status


def print_lines(processes: Sequence[RecordedProcess], stream: TextIO, *, named: bool) -> None:
    """Print the tables of each process that ran a recorded function; *named*: functions were given by name."""
    from gdbmem.line_recorder import plain_tables  # slow to import

    shown = [one for one in processes if one["functions"]]
    if not shown:
        how = "no function of that name" if named else "no function with @profile"
        stream.write(f"{how} was called\n")
    for process in shown:
        if len(shown) > 1:
            stream.write(f"Process {process['pid']}, started by {process['parent']}\n\n")
        stream.write(plain_tables(_made_safe(process)))
        if process["threads"] > 1:
            stream.write(
                f"{plural(process['threads'], 'thread')} ran at once: memory taken by another one while a line ran"
                " is charged to that line, too.\n\n"
            )


def _made_safe(process: RecordedProcess) -> RecordedProcess:
    functions: list[RecordedFunction] = [
        {
            **one,
            "file": printable(one["file"]),
            "function": printable(one["function"]),
            "lines": [{**row, "text": printable(row["text"].expandtabs())} for row in one["lines"]],
        }
        for one in process["functions"]
    ]
    return {**process, "functions": functions}


def _lines_json(processes: Sequence[RecordedProcess]) -> str:
    """Return the tables as ``kind=python-lines``; sizes are bytes."""
    return to_json({**head("python-lines", ()), "processes": list(processes)})


def _python(name: Optional[str]) -> str:
    found = shutil.which(name or "python3") or (None if name else sys.executable)
    if found is None:
        raise UsageError(f"there is no Python {printable(name or 'python3')}", hint="name it with --python")
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    import tempfile  # not always needed

    folder = Path(tempfile.mkdtemp(prefix="gdbmem-lines-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(args: argparse.Namespace, python: str, folder: Path, *, output: Optional[int]) -> int:
    import subprocess  # not always needed

    settings = {"backend": args.backend, "names": args.function, "folder": str(folder)}
    command = [python, "-c", _RUN, json.dumps(settings), args.script, *args.arguments]
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the program; its table is still shown
    try:
        program = subprocess.Popen(
            command, stdout=output, close_fds=False, preexec_fn=lambda: signal.signal(signal.SIGINT, ours)
        )
        try:
            status = program.wait()
        except BaseException:
            program.terminate()
            program.wait()
            raise
    except OSError as error:
        print(f"gdbmem: {printable(python)} can't be run: {error.strerror}", file=sys.stderr)
        return ExitStatus.NOT_EXECUTABLE
    finally:
        signal.signal(signal.SIGINT, ours)
    if status < 0:
        print(f"gdbmem: the script was ended by {signal.Signals(-status).name}", file=sys.stderr)
    return status if status >= 0 else 128 - status


_LONGEST_WAIT = 86400


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    if args.action == "lines":
        return run_lines(args)
    if args.action in ("start", "stop"):
        return _change(args)
    pid = pid_or_core(args, f"python {args.action}")
    unwind_when_ended()

    from gdbmem.api.python import (  # with it
        WRITERS,
        ReportWords,
        Target,  # not needed for --help
    )

    with open_output(args.output, force=args.force) as stream:
        target = Target(
            pid, core=args.core, program=args.target if args.core else None, copy=args.fork,
            swapped=args.swapped, progress=say,
        )  # fmt: skip
        wanted = ReportWords(
            json=args.json, top=getattr(args, "top", 0), since=getattr(args, "since", None),
            profile=getattr(args, "profile", None), force=args.force, holders=getattr(args, "holders", None),
        )  # fmt: skip
        with Working(
            f"reading the Python {args.action} of {args.target if pid is None else f'process {pid}'}"
        ):
            WRITERS[args.action](target, wanted, stream, make_console(stream))
    return 0


def _change(args: argparse.Namespace) -> int:
    """Start or stop tracemalloc."""
    from gdbmem.api.python import LONGEST_TRACEBACK, start_tracing, stop_tracing  # slow to import
    from gdbmem.python.objects import change_json, print_change  # with it

    frames = getattr(args, "frames", 1)
    if not 1 <= frames <= LONGEST_TRACEBACK:
        raise UsageError(f"--frames takes a number from 1 to {LONGEST_TRACEBACK}")
    if not 0 < args.wait <= _LONGEST_WAIT:
        raise UsageError(f"--wait takes seconds, up to {_LONGEST_WAIT}")
    pid = checked_pid(args.target, f"python {args.action}", reads_cores=False)
    unwind_when_ended()
    with open_output(args.output, force=args.force) as stream:
        if args.action == "start":
            change = start_tracing(pid, frames=frames, wait_seconds=args.wait)
        else:
            change = stop_tracing(pid, wait_seconds=args.wait)
        if args.json:
            stream.write(change_json(change))
        else:
            print_change(change, make_console(stream))
    return 0
