"""Two recordings of steps compared: what grew between them, unknown is not zero, and what a file may hold."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.documents import read_step_sums
from gdbmem.steps.by_line import (
    GROUPINGS,
    answer_changes,
    changes_json,
    compare_steps,
    known_bytes,
    print_changes,
)
from gdbmem.steps.steps import steps_json, sum_steps
from gdbmem.terminal.console import make_console
from gdbmem.terminal.drawing import SourceLines
from tests.unit.steps.test_steps import STEPS, step

LATER = [
    step(1, 4096),
    step(1, 4096),
    step(1, 65536),
    step(2, 0),
    step(9, 100),
    step(1, 4096, file="/src/b.c"),
]


def kept(**changes: Any) -> str:
    document = json.loads(steps_json(STEPS, sum_steps(STEPS)))
    document["sums"][0].update(changes)
    return json.dumps(document)


def test_what_was_saved_is_read_back_as_it_was() -> None:
    assert read_step_sums(kept(), "one") == (sum_steps(STEPS), "statm")


@pytest.mark.parametrize("by", GROUPINGS)
def test_the_differences_add_up_to_that_of_the_recordings(by: str) -> None:
    known = [one for one in STEPS if one.delta_bytes is not None]
    before, after = sum_steps(known), sum_steps(LATER)
    rows = compare_steps(before, after, by)
    assert sum(row.delta_bytes or 0 for row in rows) == known_bytes(after) - known_bytes(before) == 65636
    assert [abs(row.delta_bytes or 0) for row in rows] == sorted(
        (abs(r.delta_bytes or 0) for r in rows), reverse=True
    )


def test_a_line_that_did_the_same_is_left_out_and_one_that_was_not_known_is_no_zero() -> None:
    rows = {row.place.line: row for row in compare_steps(sum_steps(STEPS), sum_steps(LATER))}
    assert 2 not in rows
    assert (rows[4].delta_bytes, rows[3].delta_bytes, rows[9].delta_bytes) == (None, 4096, 100)
    document = json.loads(changes_json("it", list(rows.values())))
    unknown = next(row for row in document["rows"] if row["line"] == 4)
    assert (unknown["before_bytes"], unknown["before_hits"], unknown["after_hits"]) == (None, 1, None)


def test_the_first_sentence_names_the_line_that_differs_most() -> None:
    before, after = sum_steps(STEPS), sum_steps(LATER)
    rows = compare_steps(before, after)
    said = answer_changes(before, after, rows, "one")
    assert said == (
        "+76.1 KiB in 6 steps; +12.0 KiB in 6 steps in one; most of the difference: +60.0 KiB at a.c:1"
    )
    stream = io.StringIO()
    print_changes(said, rows, make_console(stream, color=False), SourceLines(), 1)
    assert "and 3 smaller ones (--top)" in stream.getvalue()


@pytest.mark.parametrize(
    "changes",
    [{"hits": "many"}, {"own_bytes": None}, {"own_bytes": 1.5}, {"file": 7}, {"line": True}, {"hits": [1]}],
)
def test_a_file_that_is_no_recording_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        read_step_sums(kept(**changes), "one")
    assert caught.value.slug == "bad-steps"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "7", '{"kind": "steps"}', '{"kind": "ledger", "format_version": 1}']
)
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_step_sums(text, "one")
