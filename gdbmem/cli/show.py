"""What a heap profile or a run holds: its course, its peak, and the lines that hold the memory.

gdbmem show massif.out.4711                 the timeline, and where the memory is at the peak
gdbmem show massif.out.4711 --snapshot 12   … at snapshot 12
gdbmem show gdbmem.decoder.4711             the snapshots of a run
gdbmem show mprofile_20260101.dat           memory over time, of mprof, psrecord, a CSV, Prometheus: with a verdict
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO, Union

from gdbmem.analysis.profiles.query import Query, add_query_options, query_from
from gdbmem.arguments import ArgumentParser, add_output_options
from gdbmem.cli.kept import add_kind_options, kept_kind, show_kept
from gdbmem.cli.reading import add_reading_options, collector_paused, reading_from, source_roots
from gdbmem.errors import UsageError
from gdbmem.report.output import open_output
from gdbmem.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gdbmem.errors import Notice
    from gdbmem.formats.opening import Reading
    from gdbmem.model.diff import Diff
    from gdbmem.model.snapshot import Profile
    from gdbmem.runs.run import Run


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `gdbmem show` takes."""
    parser.add_argument("operand", metavar="FILE|RUN", help="a profile, a run folder, or RUN:NAME")
    parser.add_argument(
        "--snapshot", metavar="N|NAME|peak", help="whose call tree (default: the peak's; of a run: the last)"
    )
    add_kind_options(parser)
    parser.add_argument("--base", metavar="FILE|RUN:NAME", help="subtract this: as 'gdbmem diff BASE FILE'")
    add_query_options(parser, by="line")
    add_reading_options(parser)
    add_output_options(parser)
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR does)")


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read and print."""
    from gdbmem.runs.operand import find_operand, spool_operands
    from gdbmem.runs.run import Run

    arguments = parser.parse_args(argv)
    query = replace(query_from(arguments), source_roots=source_roots())
    reading = reading_from(arguments)
    with collector_paused(), open_output(arguments.output, force=arguments.force) as stream:
        named = [arguments.operand] if arguments.base is None else [arguments.operand, arguments.base]
        arguments.operand, *base = spool_operands(named)
        arguments.base = base[0] if base else None
        place, selector = find_operand(arguments.operand)
        if selector is not None and arguments.snapshot is not None:
            raise UsageError(
                f"'{printable(selector)}' and --snapshot both name a snapshot", hint="leave one of them out"
            )
        wanted = arguments.snapshot if selector is None else selector
        if arguments.base is not None:
            _show_difference(arguments, wanted, query, reading, stream)
            return 0
        if _shows_series(place, wanted, arguments, stream):
            return 0
        if isinstance(place, Run):
            _show_run(place, wanted, query, reading, arguments, stream)
        else:
            from gdbmem.analysis.profiles.diff import as_difference
            from gdbmem.formats.opening import open_profile
            from gdbmem.runs.operand import difference_in

            profile = open_profile(place, reading)
            pair = difference_in(profile)
            if pair is not None:
                _write_difference(as_difference(*pair), profile.notices, query, arguments, stream)
            else:
                _show_profile(profile, wanted, query, arguments, stream)
    return 0


def _shows_series(
    place: Union[Path, Run], wanted: Optional[str], arguments: argparse.Namespace, stream: TextIO
) -> bool:
    """Print what is a recording of memory over time; return False for anything else."""
    from gdbmem.runs.run import Run, has_series

    if wanted is not None:
        return False
    if isinstance(place, Run):
        if place.snapshots or not has_series(place.folder):
            return False
        place = place.folder
    else:
        from gdbmem.formats.series import series_tool

        if series_tool(place) is None:
            return False
    from gdbmem.cli.monitor_report import show_series
    from gdbmem.series.imported import recorded

    with recorded([place]) as (folder,):
        show_series(folder, arguments, stream)
    return True


def _show_difference(
    arguments: argparse.Namespace, wanted: Optional[str], query: Query, reading: Reading, stream: TextIO
) -> None:
    from gdbmem.analysis.profiles.diff import diff_snapshots
    from gdbmem.runs.operand import load_all

    named = arguments.operand if arguments.snapshot is None else f"{arguments.operand}:{wanted}"
    sides = load_all([arguments.base, named], reading)
    diff = diff_snapshots(*(side.snapshot for side in sides))
    said = list(dict.fromkeys(notice for side in sides for notice in side.notices))
    _write_difference(diff, said, query, arguments, stream)


def _write_difference(
    diff: Diff, said: Sequence[Notice], query: Query, arguments: argparse.Namespace, stream: TextIO
) -> None:
    from gdbmem.report.profiles.diff_json import diff_json
    from gdbmem.report.profiles.diff_text import print_diff

    diff.check()
    if arguments.json:
        stream.write(diff_json(diff, query, notices=said))
    else:
        print_diff(diff, query, _console(arguments, stream), notices=said, known_from=arguments.known or "")


def _show_profile(
    profile: Profile, wanted: Optional[str], query: Query, arguments: argparse.Namespace, stream: TextIO
) -> None:
    from gdbmem.formats.stacks import PEAK
    from gdbmem.report.notices import print_notices
    from gdbmem.report.profiles.profile_text import print_sites, print_timeline
    from gdbmem.runs.operand import load_from_profile

    snapshot = None
    if wanted is not None or profile.peak_tree_index is not None:
        snapshot = load_from_profile(profile, wanted or "peak").snapshot
    if arguments.json:
        from gdbmem.report.profiles.profile_json import profile_json

        stream.write(profile_json(profile, query, snapshot=snapshot))
        return
    console = _console(arguments, stream)
    if len(profile.snapshots) > 1 or snapshot is None:
        print_timeline(profile, console)
    if snapshot is not None:
        if len(profile.snapshots) > 1:
            console.print()
        moment = f"snapshot {snapshot.totals.index}" if len(profile.snapshots) > 1 else snapshot.source
        moment = f"the peak of {moment}" if snapshot.totals.name == PEAK else moment
        print_sites(snapshot, query, console, moment=moment, known_from=arguments.known or "")
    if len(profile.snapshots) == 1 and snapshot is not None:
        print_notices(profile.notices, console)


def _show_run(
    run: Run,
    wanted: Optional[str],
    query: Query,
    reading: Reading,
    arguments: argparse.Namespace,
    stream: TextIO,
) -> None:
    from gdbmem.report.profiles.profile_text import print_sites
    from gdbmem.runs.operand import load_record
    from gdbmem.runs.run import asked_for

    records = run.snapshots
    kind = kept_kind(arguments, run, wanted)
    if kind:
        show_kept(run, kind, wanted, arguments, _console(arguments, stream))
        return
    record = run.record(wanted) if wanted is not None else asked_for(records)[-1] if records else None
    if arguments.json:
        _write_run(run, wanted, query, reading, stream)
        return
    console = _console(arguments, stream)
    _list_run(run, console)
    if record is not None:
        console.print()
        loaded = load_record(run, record, reading)
        print_sites(
            loaded.snapshot, query, console, moment=printable(record.name), known_from=arguments.known or ""
        )


def _list_run(run: Run, console: Console) -> None:
    from gdbmem.report.notices import print_notices
    from gdbmem.report.profiles.run_text import print_kept, print_snapshots
    from gdbmem.runs.operand import unit_of
    from gdbmem.runs.saved_results import kept_records

    records, kept = run.snapshots, kept_records(run)
    if records:
        print_snapshots(records, console, unit=unit_of(run, records[-1]))
    elif not kept:
        console.print("The run holds no snapshot.")
    print_kept(kept, console, after_others=bool(records))
    _name_histories(run, console)
    print_notices(run.notices, console)


def _write_run(run: Run, wanted: Optional[str], query: Query, reading: Reading, stream: TextIO) -> None:
    from gdbmem.formats.opening import open_profile
    from gdbmem.report.profiles.profile_json import profile_json
    from gdbmem.report.profiles.run_json import list_json
    from gdbmem.runs.operand import load_record
    from gdbmem.runs.saved_results import kept_records

    if wanted is None:
        stream.write(list_json(run.snapshots, run.notices, kept_records(run)))
        return
    record = run.record(wanted)
    loaded = load_record(run, record, reading)
    profile = open_profile(run.path(record), reading)
    stream.write(profile_json(profile, query, snapshot=loaded.snapshot))


def _name_histories(run: Run, console: Console) -> None:
    from gdbmem.engines.engine import end_of
    from gdbmem.report.console import print_sentence
    from gdbmem.runs.operand import histories

    words = end_of(str(run.facts.get("engine") or ""))
    recorded = {run.folder / record.file for record in run.snapshots}
    for history in histories(run):
        if history in recorded:
            continue
        print_sentence(console, f"{words}: gdbmem show {printable(str(history))}")


def _console(arguments: argparse.Namespace, stream: TextIO) -> Console:
    from gdbmem.report.console import make_console

    return make_console(stream, color=False if arguments.no_color else None)
