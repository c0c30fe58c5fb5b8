"""The diffs and verdicts of a recipe that was run, or the reasons why one can't be made."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.profiles.diff import diff_snapshots
from gdbmem.analysis.profiles.expectations import judge, judge_ledgers, unjudged
from gdbmem.analysis.profiles.query import Query
from gdbmem.errors import InputError
from gdbmem.formats.opening import OpenOptions
from gdbmem.launch.unattended import Outcome, PlayedPoint
from gdbmem.model.containers import Survey
from gdbmem.model.judgement import Unseen
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.model.profiles.diff import Diff
from gdbmem.model.profiles.expectation import LEDGER_METRICS, Expectation, ExpectationVerdict
from gdbmem.recipes.recipe import Point, Recipe
from gdbmem.records import dataclass, field
from gdbmem.report.containers.containers import read_survey
from gdbmem.report.ledger.ledger_json import read_ledger
from gdbmem.report.recipes.recipe import verdict_object
from gdbmem.runs.named_records import split_name
from gdbmem.runs.operand import load_record
from gdbmem.runs.saved_results import CONTAINERS, LEDGER, find_kept, kept_text
from gdbmem.runs.unseen import SNAP, check_order, unseen_in_run
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.text import plural, printable


class Diffs:
    """The diffs between snapshots of one run, each computed once, or the reasons why one can't be computed."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._reading = OpenOptions(symbols=GdbSymbols())
        self._made: dict[tuple[str, str], Optional[Diff]] = {}
        self.reasons: dict[tuple[str, str], str] = {}

    def between(self, before: str, after: str) -> Optional[Diff]:
        """Return the diff, or None if a snapshot is missing or unreadable (see `reasons`)."""
        pair = (before, after)
        if pair not in self._made:
            run = self._outcome.run
            at = before
            try:
                sides = []
                for at in pair:
                    sides.append(load_record(run, run.record(at), self._reading).snapshot)
                self._made[pair] = diff_snapshots(*sides)
            except InputError as error:
                self._made[pair] = None
                is_missing = error.slug == "no-such-snapshot"
                self.reasons[pair] = _why_missing(at, error, self._outcome) if is_missing else error.message
        return self._made[pair]


class KeptPairs:
    """The ledgers and surveys of one run, two at a time, each read once."""

    def __init__(self, points: Sequence[Point], outcome: Outcome) -> None:
        self._points = {point.name: point.records for point in points}
        self._outcome = outcome
        self._ledgers: dict[str, Ledger] = {}

    def ledgers(self, before: str, after: str) -> tuple[Ledger, Ledger]:
        """Return the two ledgers; raises InputError with the reason if one was not taken."""
        return self._ledger(before), self._ledger(after)

    def _ledger(self, name: str) -> Ledger:
        if name not in self._ledgers:
            self._ledgers[name] = read_ledger(self._text(LEDGER, name), name)
        return self._ledgers[name]

    def surveys(self, before: str, after: str) -> tuple[Survey, Survey]:
        """Return the two container scans; raises InputError with the reason if one was not taken."""
        first, second = (read_survey(self._text(CONTAINERS, name), name) for name in (before, after))
        return first, second

    def _text(self, kind: str, name: str) -> str:
        run = self._outcome.run
        try:
            return kept_text(run, find_kept(run, kind, name))
        except InputError as error:
            if error.slug not in ("no-such-ledger", "no-such-survey"):
                raise
            why = _why_missing(name, error, self._outcome, kind)
            raise InputError(why, slug=error.slug, hint=error.hint) from None

    def recorded(self, kind: str, before: str, after: str) -> bool:
        """Return whether the recipe has both points of a pair record *kind*."""
        return all(kind in self._points.get(split_name(name)[0], ()) for name in (before, after))


@dataclass
class Compared:
    """The comparisons and verdicts that the recipe asks for; *reasons* explain why a pair has none."""

    diffs: list[Diff] = field(default_factory=list)
    ledgers: list[tuple[tuple[str, str], Ledger, Ledger]] = field(default_factory=list)
    surveys: list[tuple[tuple[str, str], Survey, Survey]] = field(default_factory=list)
    verdicts: list[ExpectationVerdict] = field(default_factory=list)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)


def compare_all(recipe: Recipe, outcome: Outcome, query: Query) -> Compared:
    """Compare each pair of *recipe* in everything that both of its points record, and judge the expectations.

    The verdicts are also written into the run.
    """
    diffs, kept, result = Diffs(outcome), KeptPairs(recipe.points, outcome), Compared()
    for pair in recipe.diffs:
        names = (pair.before, pair.after)
        try:
            if kept.recorded(SNAP, *names):
                diff = diffs.between(*names)
                result.diffs += [diff] if diff is not None else []
            if kept.recorded("ledger", *names):
                result.ledgers.append((names, *kept.ledgers(*names)))
            if kept.recorded("containers", *names):
                result.surveys.append((names, *kept.surveys(*names)))
        except InputError as error:
            result.reasons[names] = error.message
    result.verdicts = [verdict_of(one, diffs, kept, outcome, query.known) for one in recipe.expectations]
    result.reasons = {**result.reasons, **diffs.reasons}
    if result.verdicts and outcome.run.folder.is_dir():
        outcome.run.update(expectations=[verdict_object(verdict) for verdict in result.verdicts])
    return result


def verdict_of(
    expectation: Expectation,
    diffs: Diffs,
    kept: KeptPairs,
    outcome: Outcome,
    known: Sequence[re.Pattern[str]],
) -> ExpectationVerdict:
    """Judge *expectation*, less the *known* paths.

    An expectation that fails counts even if the program ended early; one that held until then could not be judged.
    """
    if outcome.interrupted is not None:
        return unjudged(expectation, Unseen("interrupted", interruption(outcome.interrupted)))
    names = (expectation.before, expectation.after)
    kind = LEDGER if expectation.metric in LEDGER_METRICS else SNAP
    try:
        if kind == LEDGER:
            sides = kept.ledgers(*names)
            check_order(outcome.run, kind, names)
            return judge_ledgers(expectation, *sides, unseen_in_run(outcome.run, kind, names))
        diff = diffs.between(*names)
        if diff is None:
            reason = Unseen("expectation-unjudged", diffs.reasons[names])
            return unjudged(expectation, reason, *outcome.end.unseen())
        check_order(outcome.run, kind, names)
        return judge(expectation, diff, known, unseen_in_run(outcome.run, kind, names, unit=diff.unit))
    except InputError as error:
        return unjudged(expectation, Unseen(error.slug, error.message), *outcome.end.unseen())


def interruption(number: int) -> str:
    """Return the sentence on a launch that signal *number* ended."""
    what = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    return f"the launch was interrupted ({what})"


def _why_missing(name: str, error: InputError, outcome: Outcome, action: str = "snap") -> str:
    """Return the reason why *name*, recorded by *action*, was never taken, from the outcome of the program."""
    base = split_name(name)[0]
    point = next((point for point in outcome.points if point.name == base), None)
    return error.message if point is None else _course(point, outcome, action)


def _course(point: PlayedPoint, outcome: Outcome, action: str) -> str:
    name, at = printable(point.name), printable(point.at)
    recorded = point.recorded(action)
    if recorded:
        return f"'{name}' was recorded {plural(len(recorded), 'time')} only"
    said = f"{point.place}: "
    for notice in outcome.notices:
        # The message about the point on stderr, without its location in the recipe's file.
        if notice.slug.startswith("point-") and notice.message.startswith(said):
            return notice.message[len(said) :]
    if point.pending:
        return f"the program has no location '{at}'"
    if point.hits:
        return f"'{at}' was hit {plural(point.hits, 'time')}, but '{name}' was not recorded"
    return f"'{at}' was never hit"
