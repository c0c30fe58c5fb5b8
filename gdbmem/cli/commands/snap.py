"""Run `gdbmem snap`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gdbmem.commands.arguments import ArgumentParser, check_pid
from gdbmem.launch.attached import TakenSnapshot, find_target, take_one
from gdbmem.launch.interactive import shown
from gdbmem.runs.distrust import check_name
from gdbmem.runs.listing import snap_json
from gdbmem.setup.gdb_python import find_gdb
from gdbmem.terminal.console import open_output, say
from gdbmem.text import format_delta, format_size, printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_mixed(argv)

    if args.name is not None:
        check_name(args.name)
    with open_output(args.output, force=args.force) as stream:
        taken = take_one(
            find_target(check_pid(args.pid)),
            args.name,
            gdb=find_gdb(args.gdb),
            folder=Path(args.run) if args.run else None,
            command=["gdbmem", "snap", *argv],
            say=say,
        )
        for note in taken.notes:
            say(printable(note))
        if args.json:
            stream.write(snap_json(taken.record, taken.run.folder, taken.pause_seconds, taken.notes))
        else:
            stream.write(_line(taken) + "\n")
            _say_next(taken)
    return 0


def _line(taken: TakenSnapshot) -> str:
    record, before = taken.record, taken.before
    text = f"snapshot {printable(record.label)}: "
    if record.heap_bytes is None:
        text += f"kept in {printable(record.file)}"
    else:
        text += f"heap {format_size(record.heap_bytes)}"
        if before is not None and before.heap_bytes is not None:
            delta = format_delta(record.heap_bytes - before.heap_bytes)
            text += f", {delta} since {printable(before.label)}"
    return f"{text}; the process was stopped for {taken.pause_seconds:.2f} s"


def _say_next(taken: TakenSnapshot) -> None:
    folder = printable(shlex.quote(shown(taken.run.folder)))
    if taken.before is None:
        print(f"gdbmem: kept in {folder}/; see it with  gdbmem show {folder}", file=sys.stderr)
    else:
        print(f"gdbmem: kept in {folder}/; compare the last two with  gdbmem diff {folder}", file=sys.stderr)
