"""Verdicts as JUnit XML, which continuous-integration servers read."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET
from gdbmem.model.profiles.expectation import BLOCKS, Expectation, ExpectationVerdict
from gdbmem.patterns import lazy_pattern

# XML 1.0 allows no other characters, not even escaped.
_ILLEGAL = lazy_pattern("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_OUTCOMES = {MET: "system-out", NOT_MET: "failure", NOT_JUDGED: "error"}


def junit_xml(suite: str, verdicts: Sequence[ExpectationVerdict], *, seconds: float = 0.0) -> str:
    """Return the report on *suite* (the recipe's name): one test case per expectation.

    An expectation not met is a failure; one that could not be judged is an error, so that it never counts as passed.
    """
    rows = [(_name(one.expectation), _OUTCOMES[one.judgement.judged], one.text) for one in verdicts]
    return _xml(suite, rows, seconds)


def junit_error(suite: str, reason: str) -> str:
    """Return the report on *suite* of a recipe that could not be run, for *reason*: one test case with an error."""
    return _xml(suite, [("launch", "error", reason)], 0.0)


def _xml(suite: str, rows: Sequence[tuple[str, str, str]], seconds: float) -> str:
    """Return the report with a test case for each of *rows*: its name, the element of its outcome, and the sentence."""
    from xml.etree import ElementTree  # 3 ms

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
