"""A recorded series as CSV or JSON.

gdbmem export gdbmem.server.123 --to csv -o server.csv
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.arguments import ArgumentParser
from gdbmem.report.output import open_output


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `gdbmem export`."""
    parser.add_argument("run", metavar="RUN", help="a run folder that 'gdbmem monitor' made")
    parser.add_argument("--to", choices=("csv", "json"), required=True, help="what to write")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to ('-', the default, is the standard output)"
    )
    parser.add_argument("--force", action="store_true", help="let -o replace an existing file")


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Write it, row by row."""
    from gdbmem.runs.series_store import Recording

    args = parser.parse_args(argv)
    recording = Recording(Path(args.run))
    with open_output(args.output, force=args.force) as stream:
        if args.to == "csv":
            from gdbmem.report.series_json import write_series_csv

            write_series_csv(stream, recording.samples(), recording.lines)
        else:
            from gdbmem.report.series_json import write_series_json
            from gdbmem.runs.series_summary import summarize

            write_series_json(
                stream, summarize(recording), recording.samples(), recording.marks, recording.lines
            )
    return 0
