"""The outcome of a recipe, as JSON (kind=recipe) and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from gdbmem.errors import Notice
from gdbmem.model.profiles.expectation import ExpectationVerdict
from gdbmem.records import asdict, dataclass
from gdbmem.report.document import head
from gdbmem.report.judgement import judgement_object


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
    status: Optional[int] = None,
    run: str = "",
) -> dict[str, object]:
    """Return the JSON object of a recipe that was run, into the folder *run*.

    *diffs* are objects of kind=diff, *ledger_diffs* of kind=ledger-growth, *container_diffs* of
    kind=containers-growth. *status* is the program's, as in a shell; None: unknown.
    """
    return {
        **head("recipe", notices),
        "run": run,
        "status": status,
        "points": [asdict(point) for point in points],
        "diffs": [dict(diff) for diff in diffs],
        "ledger_diffs": [dict(diff) for diff in ledger_diffs],
        "container_diffs": [dict(diff) for diff in container_diffs],
        "expectations": [verdict_object(verdict) for verdict in verdicts],
    }


def verdict_object(verdict: ExpectationVerdict) -> dict[str, object]:
    """Return the JSON object of one verdict."""
    expectation = verdict.expectation
    return {
        "between": [expectation.before, expectation.after],
        "metric": expectation.metric,
        "path": expectation.path or None,
        "met": verdict.met,
        **judgement_object(verdict.judgement),
        "relation": "at_most" if expectation.at_most is not None else "at_least",
        "text": verdict.text,
    }
