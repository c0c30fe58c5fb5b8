"""The diffs and verdicts of a recipe that was played; where one can't be made, what happened instead."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.diff import diff_snapshots
from gdbmem.analysis.expectations import judge, unjudged
from gdbmem.errors import InputError
from gdbmem.formats.opening import Reading
from gdbmem.launch.symbols import GdbSymbols
from gdbmem.launch.unattended import Outcome, PlayedPoint
from gdbmem.model.diff import Diff
from gdbmem.model.expectation import Expectation, Verdict
from gdbmem.runs.operand import load_record
from gdbmem.text import plural, printable

_ORDINAL = re.compile(r"#[1-9]\d*$")


class Diffs:
    """The diffs between snapshots of one run, each computed once; why one can't be."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._reading = Reading(symbols=GdbSymbols())
        self._made: dict[tuple[str, str], Optional[Diff]] = {}
        self.reasons: dict[tuple[str, str], str] = {}

    def between(self, before: str, after: str) -> Optional[Diff]:
        """Return the diff, or None where a snapshot is missing or unreadable (`reasons` says why)."""
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


def verdict_of(
    expectation: Expectation, diffs: Diffs, outcome: Outcome, known: Sequence[re.Pattern[str]]
) -> Verdict:
    """Judge *expectation*, less the *known* paths.

    A broken expectation is news even where the program was cut short; one that holds until then proves nothing.
    """
    if outcome.interrupted is not None:
        return unjudged(expectation, interruption(outcome.interrupted))
    diff = diffs.between(expectation.before, expectation.after)
    if diff is None:
        return unjudged(expectation, diffs.reasons[expectation.before, expectation.after])
    verdict = judge(expectation, diff, known)
    return unjudged(expectation, outcome.failure) if verdict.met and outcome.failure else verdict


def interruption(number: int) -> str:
    """Return the sentence on a launch that signal *number* ended."""
    what = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    return f"the launch was interrupted ({what})"


def _why_missing(name: str, error: InputError, outcome: Outcome) -> str:
    """Return why the snapshot *name* was never taken, as the program's course tells it."""
    if outcome.failure:
        return outcome.failure
    base = _ORDINAL.sub("", name)
    point = next((point for point in outcome.points if point.name == base), None)
    reason = error.message if point is None else _course(point, outcome)
    ends = [n.message for n in outcome.notices if n.slug in ("program-signal", "program-ended")]
    return "; ".join(dict.fromkeys([reason, *ends]))


def _course(point: PlayedPoint, outcome: Outcome) -> str:
    name, at = printable(point.name), printable(point.at)
    if point.snapshots:
        return f"'{name}' was recorded {plural(len(point.snapshots), 'time')} only"
    said = f"{point.place}: "
    for notice in outcome.notices:
        # What was said of the point on stderr, less its place in the recipe's file.
        if notice.slug.startswith("point-") and notice.message.startswith(said):
            return notice.message[len(said) :]
    if point.pending:
        return f"the program has no location '{at}'"
    if point.hits:
        return f"'{at}' was hit {plural(point.hits, 'time')}, but '{name}' was not recorded"
    return f"'{at}' was never hit"
