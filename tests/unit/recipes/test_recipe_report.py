"""The result of a recipe, for CI: JUnit XML that every parser takes, JSON, exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Optional
from xml.etree import ElementTree

import pytest

from gdbmem.errors import Notice
from gdbmem.gates.reports import Gate, Judged, junit
from gdbmem.json_values import from_fields
from gdbmem.model.diff import Expectation, ExpectationVerdict, Position
from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET, Judgement, Unseen, exit_status
from gdbmem.recipes.verdicts import PointOutcome, recipe_object, verdict_object
from gdbmem.recipes.verdicts import case_name as case_of
from gdbmem.terminal.document import judgement_line

NASTY = "\x00\x1b[31m<&\"'>]]>\ud800\udcff\ufffe\U0001f600\r\n\u2028"


def verdict(
    met: Optional[bool], text: str = "sentence", *, line: int = 9, path: str = ""
) -> ExpectationVerdict:
    expectation = Expectation("a", "b", Position(line, 5), at_most=10, path=path)
    measured = None if met is None else 12
    outcome = {True: MET, False: NOT_MET, None: NOT_JUDGED}[met]
    judgement = Judgement("heap", text, 10, measured, measured, measured, outcome=outcome)
    return ExpectationVerdict(expectation, judgement)


def test_bisect_and_ranks_that_read_a_verdict_from_a_run_give_its_reason_once() -> None:
    never = Unseen("never-hit", "'step' was never hit")
    said = ExpectationVerdict(
        Expectation("a", "b", Position(9, 5), at_most=10),
        Judgement("heap", "heap from a to b", unseen=(never,)),
    )
    saved = json.loads(json.dumps(verdict_object(said)))
    assert from_fields(Judgement, saved).sentence == said.text
    assert said.text.count("never hit") == 1


def junit_xml(suite: str, verdicts: Sequence[ExpectationVerdict]) -> str:
    return junit(Gate(suite, [Judged(one.judgement, case=case_of(one.expectation)) for one in verdicts]))


def test_a_failed_expectation_is_a_failure_and_an_unjudged_one_an_error() -> None:
    suite = ElementTree.fromstring(
        junit_xml("leak", [verdict(True), verdict(False, line=10), verdict(None, line=11)])
    )[0]
    assert (suite.get("name"), suite.get("tests")) == ("leak", "3")
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert [case[0].tag for case in suite] == ["system-out", "failure", "error"]
    assert suite[1][0].get("message") == "sentence"


def test_test_cases_keep_apart_by_name_or_a_server_would_merge_them() -> None:
    suite = ElementTree.fromstring(junit_xml("leak", [verdict(True, line=9), verdict(True, line=12)]))[0]
    names = [case.get("name") for case in suite]
    assert names == ["heap from a to b at_most 10 B (line 9:5)", "heap from a to b at_most 10 B (line 12:5)"]


def test_characters_that_xml_forbids_do_not_break_the_file() -> None:
    text = junit_xml(NASTY, [verdict(False, NASTY, path=NASTY)])
    suite = ElementTree.fromstring(text.encode("utf-8"))[0]
    message = suite[0][0].get("message")
    assert message is not None
    assert message.startswith("\ufffd\ufffd[31m<&\"'>]]>\ufffd\ufffd\ufffd\U0001f600")


def test_no_expectation_is_an_empty_suite_not_a_broken_file() -> None:
    suite = ElementTree.fromstring(junit_xml("leak", []))[0]
    assert (suite.get("tests"), list(suite)) == ("0", [])


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [([True, True], 0), ([True, False], 4), ([True, None], 125), ([None, False], 4)],
)
def test_the_exit_status_tells_a_failure_from_what_could_not_be_judged(
    outcomes: list[Optional[bool]], status: int
) -> None:
    assert exit_status([verdict(met).judgement for met in outcomes]) == status


def test_json_states_unknown_as_null_never_as_zero() -> None:
    document = recipe_object(
        [PointOutcome("loaded", 3, ["loaded#1", "loaded#2"], ["loaded"])],
        [{"kind": "diff"}],
        [verdict(None, path="x")],
        [Notice("slug", "message")],
        ledger_diffs=[{"kind": "ledger-growth"}],
        status=139,
        run="gdbmem.decoder.4711",
    )
    assert json.loads(json.dumps(document)) == {
        "format_version": 1,
        "kind": "recipe",
        "warnings": [{"slug": "slug", "message": "message"}],
        "run": "gdbmem.decoder.4711",
        "status": 139,
        "points": [
            {
                "name": "loaded",
                "hits": 3,
                "snapshots": ["loaded#1", "loaded#2"],
                "ledgers": ["loaded"],
                "containers": [],
                "heaps": [],
            }
        ],
        "diffs": [{"kind": "diff"}],
        "ledger_diffs": [{"kind": "ledger-growth"}],
        "container_diffs": [],
        "heap_diffs": [],
        "expectations": [
            {
                "between": ["a", "b"],
                "metric": "heap",
                "path": "x",
                "holder": None,
                "relation": "at_most",
                "met": None,
                "judged": "not_judged",
                "name": "heap",
                "measured": None,
                "limit": 10,
                "low": None,
                "high": None,
                "unseen": [],
                "unit": "bytes",
                "outcome": "not_judged",
                "seconds": None,
                "text": "sentence",
            }
        ],
    }


def test_each_verdict_starts_with_a_word_that_can_be_searched_for() -> None:
    words = [judgement_line(verdict(met).judgement).split("  ")[0] for met in (True, False)]
    assert words == ["ok", "NOT MET"]
    assert judgement_line(verdict(None).judgement) == "NOT JUDGED sentence"
