"""Show a heap profile or a run: its timeline, its peak, and the lines that hold the memory.

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
from gdbmem.api.profiles import (
    PEAK,
    ReadOptions,
    Run,
    asked_for,
    diff,
    difference_in_file,
    end_of,
    find_operand,
    has_series,
    histories,
    load_from_profile,
    open_profile,
    read_record,
    series_tool,
    spool_operands,
    unit_of,
)
from gdbmem.api.runs import kept_records
from gdbmem.arguments import ArgumentParser, add_output_options
from gdbmem.cli.profiles.kinds import add_kind_options, kept_kind
from gdbmem.cli.profiles.reading import add_reading_options, collector_paused, read_options_from, source_roots
from gdbmem.errors import UsageError
from gdbmem.report.console import make_console, print_sentence
from gdbmem.report.notices import print_notices
from gdbmem.report.output import open_output
from gdbmem.report.profiles.profile_json import profile_json
from gdbmem.report.profiles.profile_text import print_sites, print_timeline
from gdbmem.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gdbmem.model.diff import Diff
    from gdbmem.model.snapshot import Profile


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
    arguments = parser.parse_args(argv)
    query = replace(query_from(arguments), source_roots=source_roots())
    options = read_options_from(arguments)
    with collector_paused(), open_output(arguments.output, force=arguments.force) as stream:
        given = [arguments.operand] if arguments.base is None else [arguments.operand, arguments.base]
        arguments.operand, *rest = spool_operands(given)
        arguments.base = rest[0] if rest else None
        place, selector = find_operand(arguments.operand)
        if selector is not None and arguments.snapshot is not None:
            raise UsageError(
                f"'{printable(selector)}' and --snapshot both name a snapshot", hint="leave one of them out"
            )
        wanted = arguments.snapshot if selector is None else selector
        if arguments.base is not None:
            named = arguments.operand if arguments.snapshot is None else f"{arguments.operand}:{wanted}"
            _write_difference(diff(arguments.base, named, options=options), query, arguments, stream)
            return 0
        if _shows_series(place, wanted, arguments, stream):
            return 0
        if isinstance(place, Run):
            _show_run(place, wanted, query, options, arguments, stream)
        else:
            profile = open_profile(place, options)
            difference = difference_in_file(profile)
            if difference is not None:
                _write_difference(difference, query, arguments, stream)
            else:
                _show_profile(profile, wanted, query, arguments, stream)
    return 0


def _shows_series(
    place: Union[Path, Run], wanted: Optional[str], arguments: argparse.Namespace, stream: TextIO
) -> bool:
    """Print what is a recording of memory over time; return False for anything else."""
    if wanted is not None:
        return False
    if isinstance(place, Run):
        if place.snapshots or not has_series(place.folder):
            return False
        place = place.folder
    else:
        if series_tool(place) is None:
            return False

    from gdbmem.api.series import recorded  # 10 ms, as the next: for series only
    from gdbmem.cli.series.reporting import show_series  # 20 ms

    with recorded([place]) as (folder,):
        show_series(folder, arguments, stream)
    return True


def _write_difference(diff: Diff, query: Query, arguments: argparse.Namespace, stream: TextIO) -> None:
    from gdbmem.report.profiles.diff_json import diff_json  # 1 ms
    from gdbmem.report.profiles.diff_text import print_diff  # 2 ms

    if arguments.json:
        stream.write(diff_json(diff, query))
    else:
        print_diff(diff, query, _console(arguments, stream), known_from=arguments.known or "")


def _show_profile(
    profile: Profile, wanted: Optional[str], query: Query, arguments: argparse.Namespace, stream: TextIO
) -> None:
    snapshot = None
    if wanted is not None or profile.peak_tree_index is not None:
        snapshot = load_from_profile(profile, wanted or "peak").snapshot
    if arguments.json:
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
    options: ReadOptions,
    arguments: argparse.Namespace,
    stream: TextIO,
) -> None:
    records = run.snapshots
    kind = kept_kind(arguments, run, wanted)
    if kind:
        from gdbmem.cli.profiles.kept import show_kept  # 5 ms

        show_kept(run, kind, wanted, arguments, _console(arguments, stream))
        return
    record = run.record(wanted) if wanted is not None else asked_for(records)[-1] if records else None
    if arguments.json:
        _write_run(run, wanted, query, options, stream)
        return
    console = _console(arguments, stream)
    _list_run(run, console)
    if record is not None:
        console.print()
        loaded = read_record(run, record, options)
        print_sites(
            loaded.snapshot, query, console, moment=printable(record.name), known_from=arguments.known or ""
        )


def _list_run(run: Run, console: Console) -> None:
    from gdbmem.report.profiles.run_text import print_kept, print_snapshots  # 2 ms

    records, kept = run.snapshots, kept_records(run)
    if records:
        print_snapshots(records, console, unit=unit_of(run, records[-1]))
    elif not kept:
        console.print("The run holds no snapshot.")
    print_kept(kept, console, after_others=bool(records))
    _name_histories(run, console)
    print_notices(run.notices, console)


def _write_run(run: Run, wanted: Optional[str], query: Query, options: ReadOptions, stream: TextIO) -> None:
    from gdbmem.report.profiles.run_json import list_json  # 1 ms

    if wanted is None:
        stream.write(list_json(run.snapshots, run.notices, kept_records(run)))
        return
    record = run.record(wanted)
    loaded = read_record(run, record, options)
    profile = open_profile(run.path(record), options)
    stream.write(profile_json(profile, query, snapshot=loaded.snapshot))


def _name_histories(run: Run, console: Console) -> None:
    words = end_of(str(run.facts.get("engine") or ""))
    recorded = {run.folder / record.file for record in run.snapshots}
    for history in histories(run):
        if history in recorded:
            continue
        print_sentence(console, f"{words}: gdbmem show {printable(str(history))}")


def _console(arguments: argparse.Namespace, stream: TextIO) -> Console:
    return make_console(stream, color=False if arguments.no_color else None)
