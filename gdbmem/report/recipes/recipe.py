"""The outcome of a recipe, as JSON (kind=recipe) and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gdbmem.errors import Notice
from gdbmem.exit_status import ExitStatus
from gdbmem.model.profiles.expectation import ExpectationVerdict
from gdbmem.records import asdict, dataclass
from gdbmem.report.document import head


@dataclass(frozen=True)
class PointOutcome:
    """The outcome of one point of a recipe."""

    name: str
    hits: int
    snapshots: Sequence[str]  # their names, oldest first
    ledgers: Sequence[str] = ()
    containers: Sequence[str] = ()


def recipe_object(
    points: Sequence[PointOutcome],
    diffs: Sequence[Mapping[str, Any]],
    verdicts: Sequence[ExpectationVerdict],
    notices: Sequence[Notice] = (),
    *,
    ledger_diffs: Sequence[Mapping[str, Any]] = (),
    container_diffs: Sequence[Mapping[str, Any]] = (),
) -> dict[str, object]:
    """Return the JSON object of a recipe that was run.

    *diffs* are objects of kind=diff, *ledger_diffs* of kind=ledger-growth, *container_diffs* of
    kind=containers-growth.
    """
    return {
        **head("recipe", notices),
        "points": [asdict(point) for point in points],
        "diffs": [dict(diff) for diff in diffs],
        "ledger_diffs": [dict(diff) for diff in ledger_diffs],
        "container_diffs": [dict(diff) for diff in container_diffs],
        "expectations": [verdict_object(verdict) for verdict in verdicts],
    }


def verdict_line(verdict: ExpectationVerdict) -> str:
    """Return ``ok``, ``NOT MET`` or ``NOT JUDGED`` and the verdict's sentence."""
    word = {True: "ok", False: "NOT MET", None: "NOT JUDGED"}[verdict.met]
    return f"{word:<10} {verdict.text}"


def recipe_status(verdicts: Sequence[ExpectationVerdict]) -> int:
    """Return the exit status: 0 all met, 4 one is not met, 125 one could not be judged."""
    if any(verdict.met is False for verdict in verdicts):
        return ExitStatus.NOT_MET
    return ExitStatus.NOT_JUDGED if any(verdict.met is None for verdict in verdicts) else ExitStatus.DONE


def verdict_object(verdict: ExpectationVerdict) -> dict[str, object]:
    """Return the JSON object of one verdict."""
    expectation = verdict.expectation
    return {
        "between": [expectation.before, expectation.after],
        "metric": expectation.metric,
        "path": expectation.path or None,
        "relation": "at_most" if expectation.at_most is not None else "at_least",
        "met": verdict.met,
        "measured": verdict.measured,
        "limit": verdict.limit,
        "uncertain": verdict.uncertain,
        "text": verdict.text,
    }
