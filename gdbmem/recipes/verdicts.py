"""The outcome of a recipe, as JSON (kind=recipe) and as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import as_json
from gdbmem.model.diff import BLOCKS, Expectation, ExpectationVerdict
from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET, Judgement
from gdbmem.terminal.document import head, judgement_object


class PointOutcome(NamedTuple):
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
        "points": [as_json(point) for point in points],
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


# Verdicts as JUnit XML, which continuous-integration servers read.


# XML 1.0 allows no other characters, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_OUTCOMES = {MET: "system-out", NOT_MET: "failure", NOT_JUDGED: "error"}


def junit_xml(suite: str, verdicts: Sequence[ExpectationVerdict], *, seconds: float = 0.0) -> str:
    """Return the report on *suite* (the recipe's name): one test case per expectation.

    An expectation not met is a failure; one that could not be judged is an error, so that it never counts as passed.
    """
    rows = [(_name(one.expectation), _OUTCOMES[one.judgement.judged], one.text) for one in verdicts]
    return junit_of_rows(suite, rows, seconds)


def junit_of_judgements(suite: str, judgements: Mapping[str, Sequence[Judgement]]) -> str:
    """Return the report on *suite*: one test case for each name of *judgements*, with the worst outcome of its own."""
    rows = []
    for name, those in judgements.items():
        outcomes = {one.judged for one in those}
        worst = NOT_MET if NOT_MET in outcomes else MET if outcomes == {MET} else NOT_JUDGED
        text = "; ".join(one.sentence for one in those if one.judged == worst) or "nothing was judged"
        rows.append((name, _OUTCOMES[worst], text))
    return junit_of_rows(suite, rows, 0.0)


def junit_error(suite: str, reason: str) -> str:
    """Return the report on *suite* of a recipe that could not be run, for *reason*: one test case with an error."""
    return junit_of_rows(suite, [("launch", "error", reason)], 0.0)


def junit_of_rows(suite: str, rows: Sequence[tuple[str, str, str]], seconds: float) -> str:
    """Return the report with a test case for each of *rows*: its name, the element of its outcome, and the sentence."""
    from xml.etree import ElementTree  # not always needed

    outcomes = [outcome for _, outcome, _ in rows]
    counts = {
        "tests": str(len(rows)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", counts)
    element = ElementTree.SubElement(root, "testsuite", {"name": _legal(suite), **counts, "skipped": "0"})
    for name, outcome, text in rows:
        case = ElementTree.SubElement(element, "testcase", {"classname": _legal(suite), "name": _legal(name)})
        if outcome == "system-out":
            ElementTree.SubElement(case, outcome).text = _legal(text)
        else:
            ElementTree.SubElement(case, outcome, {"message": _legal(text)})
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _name(expectation: Expectation) -> str:
    what = f"path {expectation.path}" if expectation.path else expectation.metric
    limit = "at_most" if expectation.at_most is not None else "at_least"
    unit = BLOCKS if expectation.metric == BLOCKS else "B"
    # Servers distinguish test cases by their names: the place makes each one unique.
    return (
        f"{what} from {expectation.before} to {expectation.after} {limit} {expectation.limit} {unit}"
        f" (line {expectation.position.line}:{expectation.position.column})"
    )


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
