"""Write a snapshot, or the difference of two, in another tool's format.

gdbmem export profile.heap --to pprof -o profile.pb.gz       go tool pprof, pyroscope
gdbmem export RUN:loaded --to speedscope -o loaded.json      speedscope.app
gdbmem export before.heap after.heap --to csv                what changed, path by path
gdbmem export RUN --to csv -o server.csv                     a series that 'gdbmem monitor' recorded (csv, json)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.profiles import as_growth, diff, has_series, read_shown, spool_operands
from gdbmem.api.series import Recording, summary_of
from gdbmem.arguments import ArgumentParser
from gdbmem.cli.reading import add_reading_options, read_options_from
from gdbmem.errors import Notice, UsageError
from gdbmem.model.diff import Diff
from gdbmem.profiles.export import BINARY, NAMES, encode
from gdbmem.profiles.query import counts_blocks
from gdbmem.series.document import write_series_csv, write_series_json
from gdbmem.terminal.console import open_output
from gdbmem.text import printable


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `gdbmem export`."""
    parser.usage = "gdbmem export [OPTIONS] --to FORMAT A [B]"
    parser.add_argument(
        "operands", metavar="A B", nargs="+", help="FILE, FILE:NUMBER, FILE:peak, RUN:NAME or RUN"
    )
    parser.add_argument("--to", metavar="FORMAT", required=True, choices=NAMES, help=", ".join(NAMES))
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE ('-' is the standard output)")
    parser.add_argument("--force", action="store_true", help="let -o replace an existing file")
    add_reading_options(parser)


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
    recording = Recording(folder)
    with open_output(arguments.output, force=arguments.force) as stream:
        if arguments.to == "csv":
            write_series_csv(stream, recording.samples(), recording.lines)
        else:
            write_series_json(
                stream, summary_of(recording), recording.samples(), recording.marks, recording.lines
            )
    return 0
