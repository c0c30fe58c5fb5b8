"""Run `gdbmem attach`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.commands.arguments import ArgumentParser, check_pid, gdb_words


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)

    from gdbmem.launch.attached import find_target, run_attached  # not needed for --help
    from gdbmem.setup.gdb_python import find_gdb  # with it

    return run_attached(
        find_target(check_pid(args.pid)),
        gdb=find_gdb(args.gdb),
        folder=Path(args.run) if args.run else None,
        gdb_arguments=gdb_words(args),
        command=["gdbmem", "attach", *argv],
        engine=args.engine or "",
    )
