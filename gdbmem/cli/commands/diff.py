"""Run `gdbmem diff`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.api import profiles
from gdbmem.api.profiles import diff as diff_of
from gdbmem.api.runs import HEAP, containers_holding, is_of_one_run, judge_growth, kept_kind, unseen_between
from gdbmem.commands.arguments import ArgumentParser, kind_asked, read_options_from
from gdbmem.errors import ExitStatus, UsageError, failing
from gdbmem.files import spool_operands
from gdbmem.gates.reports import Gate, Judged, Place, ci_files, ci_reports, grown_lines
from gdbmem.model.diff import Diff
from gdbmem.model.judgement import MET, NOT_MET, Judgement, exit_status
from gdbmem.profiles.paths import Query, query_from
from gdbmem.profiles.text import print_diff
from gdbmem.terminal.console import Working, make_console, open_output
from gdbmem.terminal.drawing import source_roots
from gdbmem.text import format_size, printable

if TYPE_CHECKING:
    from gdbmem.model.containers import Holding
    from gdbmem.model.heap_graph import HeapLimit


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Compare, print, and judge with --fail-on."""
    arguments = parser.parse_args(argv)
    if arguments.series and (len(arguments.operands) > 1 or _is_stretch(arguments)):
        raise UsageError("--series takes one run, RUN:NAME or file, as a whole", hint="leave --series out")
    with failing(unjudged=arguments.fail_on is not None):
        query = query_from(arguments)._replace(source_roots=source_roots())
        judges = arguments.fail_on is not None or arguments.ci
        if arguments.normalize and (query.by_blocks or judges):
            other = (
                "blocks cannot be counted" if query.by_blocks else "--fail-on and --ci have nothing to judge"
            )
            raise UsageError(
                f"--normalize makes all sides equally large: {other}", hint="leave one of them out"
            )
        arguments.operands = spool_operands(arguments.operands)
        with ci_reports(ci_files(arguments, needs="--fail-on"), "diff") as gate:
            place, name = profiles.find_operand(arguments.operands[0])
            kind = kept_kind(place, name, kind_asked(arguments))
            if kind != HEAP:
                arguments.fail_on = _size_of(arguments.fail_on)
            if kind:
                return _compare_kept(kind, arguments, gate)
            return _compare_profiles(arguments, query, gate)


def _compare_kept(kind: str, arguments: argparse.Namespace, gate: Gate) -> int:
    from gdbmem.cli.show_run import diff_kept  # a run may hold results of any kind

    with open_output(arguments.output, force=arguments.force) as stream:
        console = make_console(stream, color=arguments.color)
        judgements = diff_kept(kind, arguments.operands, arguments, console)
    gate.judged += [Judged(one, origin=Place(str(arguments.operands[-1]))) for one in judgements]
    return _status(judgements)


def _size_of(limits: Optional[Sequence[HeapLimit]]) -> Optional[int]:
    """Return the only limit, which is on all growth; None if there is none. Raises UsageError for others."""
    if not limits:
        return None
    if len(limits) > 1 or limits[0].subject:
        raise UsageError(
            "the growth of profiles, ledgers and containers has one limit, a SIZE",
            hint="leaked=SIZE and HOLDER=SIZE are limits of saved heaps",
        )
    return limits[0].bytes


def _compare_profiles(arguments: argparse.Namespace, query: Query, gate: Gate) -> int:
    with open_output(arguments.output, force=arguments.force) as stream:
        with Working("reading and comparing " + ", ".join(map(str, arguments.operands))):
            diff, sides = _diff(arguments)
        held: Sequence[Holding] = ()
        if not arguments.series and not arguments.normalize and not _is_stretch(arguments):
            held = containers_holding(arguments.operands, diff, query)
        judgement = None if arguments.fail_on is None and not arguments.ci else _judge(diff, query, arguments)
        if judgement is not None:
            origin = Place(str(arguments.operands[-1]))
            gate.judged.append(Judged(judgement, grown_lines(diff, query), origin))
        if arguments.json:
            from gdbmem.profiles.documents import diff_json  # not always needed

            asked = None if arguments.fail_on is None else judgement
            whole_paths = query._replace(all_frames=query.all_frames or query.by == "path")
            uses, said = profiles.uses_between(sides, diff, whole_paths)
            stream.write(diff_json(diff, query, held=held, judgement=asked, uses=uses, notices=said))
        else:
            console = make_console(stream, color=arguments.color)
            uses, said = profiles.uses_between(sides, diff, query)
            known = arguments.known or ""
            print_diff(diff, query, console, known_from=known, held=held, uses=uses, notices=said)
    return _status([] if judgement is None else [judgement])


def _diff(arguments: argparse.Namespace) -> tuple[Diff, Sequence[profiles.Loaded]]:
    """Return the difference, and the two sides if the blocks of both may be known."""
    operands, options = arguments.operands, read_options_from(arguments)
    sides: Sequence[profiles.DiffSide] = operands
    if arguments.series:
        sides = profiles.read_series(operands[0], options)
    elif len(operands) == 1 and options.is_stretch:
        return profiles.read_stretch(operands[0], options), ()
    elif len(operands) == 1:
        place, selector = profiles.find_operand(operands[0])
        if not isinstance(place, profiles.Run) or selector is not None:
            raise UsageError("gdbmem diff needs a second snapshot", hint="gdbmem diff A B, or a run alone")
        sides = profiles.read_last_two(place, options)
    elif len(operands) == 2:
        before, after = profiles.read_snapshots(operands, options)
        return diff_of(before, after, options=options, normalize=arguments.normalize), (before, after)
    return diff_of(*sides, options=options, normalize=arguments.normalize), ()


def _is_stretch(arguments: argparse.Namespace) -> bool:
    return arguments.begin is not None or arguments.end is not None


def _judge(diff: Diff, query: Query, arguments: argparse.Namespace) -> Judgement:
    operands = arguments.operands
    is_stretch = len(operands) == 1 and _is_stretch(arguments)
    unseen = unseen_between(operands, is_series=arguments.series, is_stretch=is_stretch)
    return judge_growth(diff, query, arguments.fail_on, one_process=is_of_one_run(operands), unseen=unseen)


def _status(judgements: Sequence[Judgement]) -> int:
    """Print those of *judgements* that are not met, and return the exit status."""
    limited = [one for one in judgements if one.limit is not None]
    for judgement in limited:
        if judgement.judged != MET:
            _print_unmet(judgement)
    return exit_status(limited) if limited else ExitStatus.DONE


def _print_unmet(judgement: Judgement) -> None:
    word = "not met" if judgement.judged == NOT_MET else "not judged"
    reasons = "; ".join(one.message for one in judgement.unseen) if word == "not judged" else ""
    text = judgement.text + (f", but {reasons}" if reasons else "")
    is_noise = not reasons and word == "not judged" and "samples may be" in text
    more = "; sample more often (MALLOC_CONF's lg_prof_sample, Go's MemProfileRate)" if is_noise else ""
    limit = format_size(int(judgement.limit or 0))
    print(f"gdbmem: {word}: {printable(text)}; --fail-on allows {limit}{more}", file=sys.stderr)
