"""Attach your gdb to a running process; when you quit gdb, the process continues.

If the process has a heap profiler (gperftools' tcmalloc, jemalloc with prof:true) or runs under valgrind, memsnap,
memdiff and membreak work as after 'gdbmem launch'; the other commands need no profiler.

  gdbmem attach 4711
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gdbmem.arguments import ArgumentParser, add_gdb_commands, gdb_words
from gdbmem.errors import UsageError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `gdbmem attach`."""
    add_process_arguments(parser)
    add_gdb_commands(parser)


def add_process_arguments(parser: ArgumentParser) -> None:
    """Add the options that attach and snap share."""
    parser.add_argument("pid", metavar="PID", type=int, help="the process")
    parser.add_argument(
        "--run", metavar="DIR", help="save the snapshots in DIR; earlier ones of this process stay there"
    )
    parser.add_argument(
        "--gdb", metavar="PATH", help="the gdb to use (default: $GDBMEM_GDB, or the one in PATH)"
    )


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
