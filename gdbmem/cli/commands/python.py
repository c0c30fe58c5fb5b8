"""Read a Python process from outside: objects by type, arenas, tracemalloc's traces, stacks, what forked workers copy.

No code runs in the process and none of its memory is written, except to start and stop tracemalloc. The process is
paused while it is copied, and the copy is read; if it cannot be copied, it is paused while it is read. CPython 3.8 to
3.15, with or without symbols.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.arguments import ArgumentParser, add_output_options
from gdbmem.cli.process_operand import add_ways_to_read, checked_pid, unwind_when_ended
from gdbmem.errors import ExitStatus, InputError, UsageError
from gdbmem.terminal.console import make_console, open_output, say
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse


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
BACKENDS = ("rss", "uss", "tracemalloc")  # as it has them


def add_lines(actions: Any) -> None:
    """Add the subcommand to *actions*."""
    lines = actions.add_parser(
        "lines",
        help="run a script, and show how each line changed memory",
        description=(
            "Run SCRIPT in your Python, and show how each line changed memory, for functions that"
            " SCRIPT decorates with @profile (or @gdbmem.profile) or that --function names. The lines of a function add"
            " up to its total change; a line that calls another function includes the changes of that call."
            " With --json the script's output goes to stderr unless -o names a file for the report."
        ),
        epilog=(
            "examples:\n  gdbmem python lines train.py -- --epochs 2\n"
            "  gdbmem python lines --function Loader.fill --backend tracemalloc train.py\n"
        ),
    )
    lines.usage = "%(prog)s [OPTIONS] SCRIPT [-- ARGS]"
    lines.add_argument("script", metavar="SCRIPT", help="the program")
    lines.add_argument("arguments", metavar="ARGS", nargs="*", help="its arguments")
    lines.add_argument(
        "--function",
        metavar="NAME",
        action="append",
        default=[],
        help="record functions of this name, in any module: NAME, or Class.NAME (3.11 and later); may be repeated",
    )
    lines.add_argument(
        "--backend",
        choices=BACKENDS,
        default=BACKENDS[0],
        help="measure the resident set, unshared memory (slow), or Python's own allocations (default rss)",
    )
    lines.add_argument(
        "--python", metavar="PYTHON", help="run it in this Python (default: python3 of your PATH)"
    )
    add_output_options(lines)


def run_lines(args: argparse.Namespace) -> int:
    """Run the script and write the tables; return the script's status."""
    from gdbmem.python.lines import lines_json, print_lines, read_lines

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
        processes = read_lines(sorted(folder.glob("*.json"), key=lambda path: int(path.stem)))
        if args.json:
            stream.write(lines_json(processes))
        else:
            sys.stdout.flush()
            print_lines(processes, stream, named=bool(args.function))
    return status


def _python(name: Optional[str]) -> str:
    found = shutil.which(name or "python3") or (None if name else sys.executable)
    if found is None:
        raise UsageError(f"there is no Python {printable(name or 'python3')}", hint="name it with --python")
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    import tempfile  # 2 ms

    folder = Path(tempfile.mkdtemp(prefix="gdbmem-lines-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(args: argparse.Namespace, python: str, folder: Path, *, output: Optional[int]) -> int:
    import subprocess  # 4 ms

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


if TYPE_CHECKING:
    import argparse

    _Actions = argparse._SubParsersAction[ArgumentParser]

_TOP = 20
_LONGEST_WAIT = 86400


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="objects|arenas|traces|stack|cow|start|stop|lines"
    )
    readers = [_add_objects(actions), _add_traces(actions), *_add_without_options(actions)]
    _add_changes(actions)
    add_lines(actions)
    for action in readers:
        action.usage = "%(prog)s [OPTIONS] PID\n       %(prog)s [OPTIONS] --core CORE [PROGRAM]"
        add_ways_to_read(action)
        if not action.prog.endswith(" stack"):
            action.add_argument(
                "--top", metavar="N", type=int, default=_TOP, help=f"list the N largest (default {_TOP})"
            )
        add_output_options(action)


def _add_objects(actions: _Actions) -> ArgumentParser:
    objects = actions.add_parser(
        "objects",
        help="count its live objects by type",
        description="Count the live objects of a Python process by type, including those in malloc's blocks.",
        epilog=(
            "examples:\n  gdbmem python objects 4711\n"
            "  gdbmem python objects --holders Node 4711\n"
            "  gdbmem python objects 4711 --json -o before.json; gdbmem python objects 4711 --since before.json\n"
        ),
    )
    what = objects.add_mutually_exclusive_group()
    what.add_argument(
        "--holders",
        metavar="TYPE",
        help="show references to the objects of TYPE: paths from modules, frames and variables",
    )
    what.add_argument("--since", metavar="FILE", help="the change since FILE, written by --json -o FILE")
    return objects


def _add_traces(actions: _Actions) -> ArgumentParser:
    traces = actions.add_parser(
        "traces",
        help="the lines that allocated the live memory, from tracemalloc's own tables",
        description="Read what tracemalloc has recorded (the process may have been started with PYTHONTRACEMALLOC=1).",
        epilog=(
            "examples:\n  gdbmem python traces 4711\n"
            "  gdbmem python traces 4711 --profile a.pb.gz; sleep 60; gdbmem python traces 4711 --profile b.pb.gz\n"
            "  gdbmem diff a.pb.gz b.pb.gz\n"
        ),
    )
    traces.add_argument(
        "--profile",
        metavar="FILE",
        help="write the traces into FILE (pprof), which show, diff, report and export read",
    )
    return traces


def _add_without_options(actions: _Actions) -> tuple[ArgumentParser, ...]:
    """Add the actions that read and have no further options."""
    arenas = actions.add_parser(
        "arenas",
        help="show the use of its arenas, and the types that keep them",
        description="Show how full the arenas of Python's allocator are, and which types keep nearly empty ones.",
        epilog="example:\n  gdbmem python arenas 4711\n",
    )
    stack = actions.add_parser(
        "stack",
        help="the Python frames of each thread",
        description=(
            "Show the Python frames of each thread, with file and line, the innermost first. The process is stopped for"
            " a few milliseconds. In gdb, 'mempython stack' shows the native frames between them."
        ),
        epilog="example:\n  gdbmem python stack 4711\n",
    )
    copies = actions.add_parser(
        "cow",
        help="memory that its forked workers have copied, by type",
        description=(
            "Show how much of a Python process's memory its forked processes (such as a DataLoader's workers)"
            " have copied by writing to it, and the types of the objects on those pages."
        ),
        epilog="example:\n  gdbmem python cow 4711\n",
    )
    return arenas, stack, copies


def _add_changes(actions: _Actions) -> None:
    """Add the actions that run code in the process."""
    start = actions.add_parser(
        "start",
        help="start tracemalloc in it (runs code there)",
        description=(
            "Start tracemalloc in a running Python process: gdbmem runs a few lines in its main thread, between two"
            " Python instructions. Earlier allocations are not traced. Tracing costs time and memory until"
            " 'gdbmem python stop PID'."
        ),
        epilog="example:\n  gdbmem python start --frames 5 4711; sleep 60; gdbmem python traces 4711\n",
    )
    start.add_argument(
        "--frames", metavar="N", type=int, default=1, help="keep N frames of each traceback (default 1)"
    )
    stop = actions.add_parser(
        "stop",
        help="stop tracemalloc in it (runs code there)",
        description="Stop tracemalloc in a Python process and discard its traces.",
        epilog="example:\n  gdbmem python stop 4711\n",
    )
    for action in (start, stop):
        action.usage = "%(prog)s [OPTIONS] PID"
        action.add_argument("target", metavar="PID", nargs="?", help="the process")
        action.add_argument(
            "--wait",
            metavar="SECONDS",
            type=float,
            default=10.0,
            help="wait this long for its main thread, then withdraw the code (default 10)",
        )
        add_output_options(action)


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    if args.action == "lines":
        return run_lines(args)
    if args.action in ("start", "stop"):
        return _change(args)
    if getattr(args, "top", 1) < 1:
        raise UsageError("--top takes a number of lines from 1 on")
    pid = checked_pid(args.target, core=args.core, command=f"python {args.action}")
    if args.core is not None and (args.fork is not None or args.swapped):
        raise UsageError("a core is a copy already", hint="leave out --fork, --hold and --swapped")
    unwind_when_ended()

    from gdbmem.api.python import (  # with it
        WRITERS,
        ReportWords,
        Target,  # 100 ms, not needed for --help
    )

    with open_output(args.output, force=args.force) as stream:
        target = Target(
            pid, core=args.core, program=args.target if args.core else None, copy=args.fork,
            swapped=args.swapped, progress=say,
        )  # fmt: skip
        wanted = ReportWords(
            json=args.json, top=getattr(args, "top", _TOP), since=getattr(args, "since", None),
            profile=getattr(args, "profile", None), force=args.force, holders=getattr(args, "holders", None),
        )  # fmt: skip
        WRITERS[args.action](target, wanted, stream, make_console(stream))
    return 0


def _change(args: argparse.Namespace) -> int:
    """Start or stop tracemalloc."""
    from gdbmem.api.python import LONGEST_TRACEBACK, start_tracing, stop_tracing  # 40 ms
    from gdbmem.python.objects import change_json, print_change  # with it

    frames = getattr(args, "frames", 1)
    if not 1 <= frames <= LONGEST_TRACEBACK:
        raise UsageError(f"--frames takes a number from 1 to {LONGEST_TRACEBACK}")
    if not 0 < args.wait <= _LONGEST_WAIT:
        raise UsageError(f"--wait takes seconds, up to {_LONGEST_WAIT}")
    pid = checked_pid(args.target, core=None, command=f"python {args.action}", reads_cores=False)
    assert pid is not None
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
