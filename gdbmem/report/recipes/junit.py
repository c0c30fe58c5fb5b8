"""Verdicts as JUnit XML, which continuous-integration servers read."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.profiles.expectation import BLOCKS, Expectation, ExpectationVerdict
from gdbmem.patterns import lazy_pattern

# XML 1.0 allows no other characters, not even escaped.
_ILLEGAL = lazy_pattern("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(suite: str, verdicts: Sequence[ExpectationVerdict], *, seconds: float = 0.0) -> str:
    """Return the report on *suite* (the recipe's name): one test case per expectation.

    An expectation not met is a failure; one that could not be judged is an error, so that it never counts as passed.
    """
    from xml.etree import ElementTree  # 3 ms

    counts = {
        "tests": str(len(verdicts)),
        "failures": str(sum(verdict.met is False for verdict in verdicts)),
        "errors": str(sum(verdict.met is None for verdict in verdicts)),
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", counts)
    element = ElementTree.SubElement(root, "testsuite", {"name": _legal(suite), **counts, "skipped": "0"})
    for verdict in verdicts:
        case = ElementTree.SubElement(
            element, "testcase", {"classname": _legal(suite), "name": _legal(_name(verdict.expectation))}
        )
        if verdict.met is None:
            ElementTree.SubElement(case, "error", {"message": _legal(verdict.text)})
        elif not verdict.met:
            ElementTree.SubElement(case, "failure", {"message": _legal(verdict.text)})
        else:
            ElementTree.SubElement(case, "system-out").text = _legal(verdict.text)
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
