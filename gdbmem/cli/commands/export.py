"""Run `gdbmem export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.api.profiles import (
    Loaded,
    ReadOptions,
    Run,
    as_growth,
    diff,
    find_operand,
    has_series,
    open_profile,
    read_series,
    read_shown,
)
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import InputError, Notice, UsageError
from gdbmem.files import spool_operands
from gdbmem.model.diff import Diff
from gdbmem.profiles.export import BINARY, TRACE, encode, encode_course
from gdbmem.profiles.paths import Query, counts_blocks
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
    if arguments.to == TRACE:
        return _export_course(arguments)
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
    _tell([*said, *what.notices])
    return encode(what, arguments.to, is_change=is_change)


def _tell(notices: Sequence[Notice]) -> None:
    for notice in dict.fromkeys(notices):
        print(f"gdbmem: {printable(notice.sentence)}", file=sys.stderr)


_LISTED = 20  # lines that have a counter of their own
_UNITS = {"s": 1.0, "ms": 1e-3}


def _export_course(arguments: argparse.Namespace) -> int:
    """Write the snapshots of a run or of a file over time."""
    if len(arguments.operands) > 1:
        raise UsageError(
            f"{TRACE} shows a series over time, not a difference", hint="name one run or one file of several"
        )
    (operand,) = spool_operands(arguments.operands)
    options = read_options_from(arguments)
    loaded = read_series(operand, options)
    seconds = _times(operand, loaded, options)
    found = diff(*loaded, options=options)
    _tell(found.notices)
    content = encode_course(found, seconds, Query(by="line", top=_LISTED, unchanged=True))
    with open_output(arguments.output, force=arguments.force) as stream:
        stream.write(content.decode())
    return 0


def _times(operand: str, loaded: Sequence[Loaded], options: ReadOptions) -> list[float]:
    place, _ = find_operand(operand)
    times: list[Optional[float]]
    if isinstance(place, Run):
        known = {record.name: record.seconds for record in place.snapshots}
        times = [known.get(one.snapshot.name) for one in loaded]
    else:
        scale = _UNITS.get(open_profile(place, options).time_unit)
        times = [None if scale is None else one.snapshot.totals.time * scale for one in loaded]
    seconds = [time for time in times if time is not None]
    if len(seconds) < len(times) or sorted(seconds) != seconds:
        raise InputError(
            f"the snapshots of {printable(operand)} have no times in seconds, which {TRACE} needs",
            slug="no-times",
            hint="take them with gdbmem launch, or massif's with --time-unit=ms; 'gdbmem report' draws any series",
        )
    return seconds


def _export_series(folder: Path, arguments: argparse.Namespace) -> int:
    """Write a monitor's series, row by row."""
    if arguments.to not in ("csv", "json", TRACE):
        raise UsageError(
            f"a recorded series can be exported to csv, json and {TRACE}", hint=f"--to csv, json or {TRACE}"
        )
    from gdbmem.api.series import Recording, summary_of  # for a series only, as the next
    from gdbmem.series.document import (  # slow to import
        write_series_csv,
        write_series_json,
        write_series_trace,
    )

    recording = Recording(folder)
    with open_output(arguments.output, force=arguments.force) as stream:
        if arguments.to == "csv":
            write_series_csv(stream, recording.samples(), recording.lines)
        elif arguments.to == TRACE:
            write_series_trace(stream, recording.facts, recording.samples(), recording.marks, recording.lines)
        else:
            write_series_json(
                stream, summary_of(recording), recording.samples(), recording.marks, recording.lines
            )
    return 0
