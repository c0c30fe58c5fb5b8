"""Run `gdbmem export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.profiles import as_growth, diff, has_series, read_shown
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import Notice, UsageError
from gdbmem.files import spool_operands
from gdbmem.model.diff import Diff
from gdbmem.profiles.export import BINARY, encode
from gdbmem.profiles.paths import counts_blocks
from gdbmem.terminal.console import open_output
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read, convert, write."""
    arguments = parser.parse_args(argv)
    if len(arguments.operands) > 2:
        raise UsageError("gdbmem export takes one snapshot, or two for their difference")
    if counts_blocks(arguments.metric):
        raise UsageError("an export always has both bytes and blocks", hint="leave 'blocks' out of --metric")
    if len(arguments.operands) == 1 and has_series(Path(arguments.operands[0])):
        return _export_series(Path(arguments.operands[0]), arguments)
    with open_output(arguments.output, force=arguments.force) as stream:
        if arguments.to in BINARY and stream.isatty():
            raise UsageError(
                f"{arguments.to} is a binary format and is not written to a terminal",
                hint="name a file with -o",
            )
        arguments.operands = spool_operands(arguments.operands)
        content = _converted(arguments)
        stream.flush()
        stream.buffer.write(content)
    return 0


def _converted(arguments: argparse.Namespace) -> bytes:
    options, operands = read_options_from(arguments), arguments.operands
    said: list[Notice] = []
    if len(operands) > 1:
        what, is_change = diff(operands[0], operands[1], options=options), True
    else:
        shown = read_shown(operands[0], options)
        is_change = isinstance(shown, Diff)
        what = shown if isinstance(shown, Diff) else as_growth(shown.snapshot)
        said += () if isinstance(shown, Diff) else shown.notices
    for notice in dict.fromkeys([*said, *what.notices]):
        print(f"gdbmem: {printable(notice.sentence)}", file=sys.stderr)
    return encode(what, arguments.to, is_change=is_change)


def _export_series(folder: Path, arguments: argparse.Namespace) -> int:
    """Write a monitor's series, row by row."""
    if arguments.to not in ("csv", "json"):
        raise UsageError("a recorded series can be exported to csv and json", hint="--to csv or --to json")
    from gdbmem.api.series import Recording, summary_of  # for a series only, as the next
    from gdbmem.series.document import write_series_csv, write_series_json  # slow to import

    recording = Recording(folder)
    with open_output(arguments.output, force=arguments.force) as stream:
        if arguments.to == "csv":
            write_series_csv(stream, recording.samples(), recording.lines)
        else:
            write_series_json(
                stream, summary_of(recording), recording.samples(), recording.marks, recording.lines
            )
    return 0
