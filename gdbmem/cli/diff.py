"""Compare two heap snapshots: which call paths grew, and at which source line.

A and B are profiles (FILE, FILE:NUMBER, FILE:peak) of massif, gperftools, jemalloc, DHAT, heaptrack, pprof
and others, or snapshots of a run (RUN:NAME, as 'gdbmem show RUN' lists them). A run alone
compares its last two snapshots. Of three or more, oldest first, the report tells which paths grow steadily, and
which did only once; --series takes all snapshots of a run, of a name that was hit often, or of a file.

  gdbmem diff gdbmem.decoder.4711:loaded gdbmem.decoder.4711:reset
  gdbmem diff before.massif after.massif --by line --min 10KiB
  gdbmem diff server.*.heap
  gdbmem diff --series gdbmem.decoder.4711:reset
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbmem.analysis.profiles.query import Query, add_query_options, query_from
from gdbmem.arguments import ArgumentParser, add_output_options, value
from gdbmem.cli.kept import add_kind_options, diff_kept, judge_kept, kept_kind
from gdbmem.cli.reading import add_reading_options, collector_paused, reading_from, source_roots
from gdbmem.errors import GdbmemError, UsageError
from gdbmem.model.diff import Diff
from gdbmem.report.output import open_output
from gdbmem.runs.operand import find_operand, spool_operands
from gdbmem.runs.run import Run
from gdbmem.text import printable
from gdbmem.units import format_delta, format_size, parse_size

if TYPE_CHECKING:
    from gdbmem.model.holding import Holding
    from gdbmem.runs.operand import Loaded

STATUS_NOT_MET = 4
STATUS_NOT_JUDGED = 125


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `gdbmem diff` takes."""
    parser.usage = "gdbmem diff [OPTIONS] A [B …]"
    parser.add_argument(
        "operands", metavar="A B", nargs="+", help="FILE, FILE:NUMBER, FILE:peak, RUN:NAME or RUN"
    )
    add_kind_options(parser)
    parser.add_argument(
        "--series", action="store_true", help="A is a run, RUN:NAME or a file: follow all its snapshots"
    )
    add_query_options(parser)
    parser.add_argument(
        "--fail-on",
        type=value(parse_size, "SIZE"),
        metavar="SIZE",
        help="exit with status 4 when it grew by more than SIZE, with 125 where samples can't tell; what is known does"
        " not count",
    )
    group = parser.add_argument_group("how to compare")
    group.add_argument(
        "--compare",
        action="store_true",
        help="each change in percent of what was there before, or new, or gone",
    )
    group.add_argument(
        "--normalize",
        action="store_true",
        help="scale all to the total of the last: what takes a larger part?",
    )
    add_reading_options(parser)
    add_output_options(parser)
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR does)")


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Compare, print, and judge where --fail-on asks for it."""
    arguments = parser.parse_args(argv)
    query = replace(query_from(arguments), source_roots=source_roots())
    if arguments.series and len(arguments.operands) > 1:
        raise UsageError("--series takes one run, RUN:NAME or file", hint="leave --series out")
    if arguments.normalize and (query.by_blocks or arguments.fail_on is not None):
        other = "blocks cannot be counted" if query.by_blocks else "--fail-on has nothing to judge"
        raise UsageError(f"--normalize makes all sides equally large: {other}", hint="leave one of them out")
    try:
        arguments.operands = spool_operands(arguments.operands)
        place, name = find_operand(arguments.operands[0])
        kind = kept_kind(arguments, place, name)
        if kind:
            return _compare_kept(kind, arguments)
        diff = _report(arguments, query)
    except GdbmemError as error:
        if arguments.fail_on is None:
            raise
        print(f"gdbmem: not judged: {printable(str(error))}", file=sys.stderr)
        return STATUS_NOT_JUDGED
    if arguments.fail_on is None:
        return 0
    from gdbmem.analysis.profiles.samples import of_one_process

    return _judge(of_one_process(diff) if _is_of_one_run(arguments) else diff, query, arguments.fail_on)


def _is_of_one_run(arguments: argparse.Namespace) -> bool:
    places = [find_operand(text)[0] for text in arguments.operands]
    return isinstance(places[0], Run) and all(
        isinstance(place, Run) and place.folder == places[0].folder for place in places
    )


def _compare_kept(kind: str, arguments: argparse.Namespace) -> int:
    from gdbmem.report.console import make_console

    with open_output(arguments.output, force=arguments.force) as stream:
        console = make_console(stream, color=False if arguments.no_color else None)
        grown = diff_kept(kind, arguments.operands, arguments, console)
    return 0 if arguments.fail_on is None else judge_kept(kind, grown, arguments.fail_on)


def _report(arguments: argparse.Namespace, query: Query) -> Diff:
    from gdbmem.analysis.profiles.diff import diff_series
    from gdbmem.analysis.profiles.same_program import stranger_notices
    from gdbmem.analysis.profiles.scaling import normalized, scaling_notices
    from gdbmem.runs.operand import same_run_notices
    from gdbmem.runs.ordering import order_notices

    with collector_paused(), open_output(arguments.output, force=arguments.force) as stream:
        sides = _load(arguments)
        snapshots = [side.snapshot for side in sides]
        diff = diff_series(normalized(snapshots) if arguments.normalize else snapshots)
        diff.check()
        if arguments.normalize:
            diff = replace(diff, outside=())  # the heap alone is scaled
        said = list(dict.fromkeys(notice for side in sides for notice in side.notices))
        said += scaling_notices(snapshots) if arguments.normalize else []
        said += same_run_notices(sides)
        said += order_notices(arguments.operands) if len(sides) > 2 else []
        said += stranger_notices(diff)
        if arguments.json:
            from gdbmem.report.profiles.diff_json import diff_json

            stream.write(diff_json(diff, query, notices=said, held=_holdings(arguments, diff, query)))
        else:
            from gdbmem.report.console import make_console
            from gdbmem.report.profiles.diff_text import print_diff

            console = make_console(stream, color=False if arguments.no_color else None)
            held = _holdings(arguments, diff, query)
            print_diff(diff, query, console, notices=said, known_from=arguments.known or "", held=held)
    return diff


def _holdings(arguments: argparse.Namespace, diff: Diff, query: Query) -> Sequence[Holding]:
    from gdbmem.inspection.holdings import holdings
    from gdbmem.runs.run import asked_for

    places = [find_operand(text) for text in arguments.operands]
    run = places[0][0]
    if arguments.series or arguments.normalize or not isinstance(run, Run) or not _is_of_one_run(arguments):
        return []
    if len(places) == 1:
        return holdings(run, asked_for(run.snapshots)[-2:], diff, query)
    chosen = [run.record(name) if name is not None else asked_for(run.snapshots)[-1] for _, name in places]
    return holdings(run, chosen, diff, query)


def _load(arguments: argparse.Namespace) -> Sequence[Loaded]:
    from gdbmem.runs.operand import find_operand, last_two, load_all, load_series

    operands, reading = arguments.operands, reading_from(arguments)
    if arguments.series:
        return load_series(operands[0], reading)
    if len(operands) > 1:
        return load_all(operands, reading)
    place, selector = find_operand(operands[0])
    if not isinstance(place, Run) or selector is not None:
        raise UsageError("gdbmem diff needs a second snapshot", hint="gdbmem diff A B, or a run alone")
    return last_two(place, reading)


def _unlisted(diff: Diff) -> tuple[int, int]:
    """Return the bytes that each side counts without naming their paths: all of them may be known, or none."""
    from gdbmem.model.calltree import PRUNED

    places = [number for number, frame in enumerate(diff.frame) if frame == PRUNED] if diff.is_cut else []
    return sum(diff.before[place] for place in places), sum(diff.after[place] for place in places)


def _judge(diff: Diff, query: Query, limit_bytes: int) -> int:
    from gdbmem.analysis.profiles.ranking import rank
    from gdbmem.analysis.profiles.samples import is_met, samples_off, sampling_error

    ranking = rank(diff, replace(query, by="line", top=None, min_bytes=0))
    grown, rows = ranking.delta_matched_bytes, ranking.rows
    # The total is exact; what is left of it beside known or unmatched paths may be more than it looks.
    divided = bool(query.known or query.filters)
    hidden = rows.together().hidden_bytes if divided else 0
    if divided:
        before, after = _unlisted(diff)
        # Of these it grew by anything from -before to +after.
        grown -= (after - before) // 2
        hidden += (after + before) // 2
    sampling = sampling_error(
        sum(amount.error_bytes**2 for amount in rows.amounts()) if divided else sum(diff.variance or ())
    )
    outside = 0 if query.filters else sum(one.delta_bytes for one in diff.outside)
    grown += outside
    met = is_met(grown - limit_bytes, hidden=hidden, sampling=sampling)
    if met:
        return 0
    text = f"it grew by {format_size(grown)}" if grown > 0 else f"it changed by {format_delta(grown)}"
    text += f", {format_delta(outside)} of it outside the heap" if outside else ""
    text += f", give or take {format_size(hidden)}" if hidden else ""
    text += f", and {samples_off(sampling)}" if sampling else ""
    more = "; sample more often (MALLOC_CONF's lg_prof_sample, Go's MemProfileRate)" if met is None else ""
    verdict = "not judged" if met is None else "not met"
    print(f"gdbmem: {verdict}: {text}; --fail-on allows {format_size(limit_bytes)}{more}", file=sys.stderr)
    return STATUS_NOT_JUDGED if met is None else STATUS_NOT_MET
