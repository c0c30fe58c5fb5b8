"""Run `gdbmem attach`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gdbmem.arguments import ArgumentParser, gdb_words
from gdbmem.errors import UsageError

if TYPE_CHECKING:
    import argparse


def check_pid(args: argparse.Namespace) -> int:
    """Return the pid that *args* name; raises UsageError if it is not a valid pid."""
    pid: int = args.pid
    if pid <= 0:
        raise UsageError(f"{pid} is not a process id", hint="'ps' lists them")
    return pid


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)

    from gdbmem.launch.attached import find_target, run_attached  # 60 ms, not needed for --help
    from gdbmem.setup.gdb_python import find_gdb  # with it

    return run_attached(
        find_target(check_pid(args)),
        gdb=find_gdb(args.gdb),
        folder=Path(args.run) if args.run else None,
        gdb_arguments=gdb_words(args),
        command=["gdbmem", "attach", *argv],
    )
