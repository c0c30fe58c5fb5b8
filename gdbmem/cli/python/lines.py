"""gdbmem python lines: run a Python program, and show how each line of selected functions changed memory."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.arguments import add_output_options
from gdbmem.errors import InputError, UsageError
from gdbmem.exit_status import ExitStatus
from gdbmem.report.output import open_output
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

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
    from gdbmem.report.python.lines_text import (  # 3 ms, not needed for --help
        lines_json,
        print_lines,
        read_lines,
    )

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
