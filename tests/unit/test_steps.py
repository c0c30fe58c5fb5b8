"""Steps summed, drawn and printed, without gdb."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from gdbmem.analysis.steps import GROUPINGS, sum_steps, total_bytes
from gdbmem.model.step import LOCKED, SHARED, Step
from gdbmem.report.sparkline import sparkline, thinned
from gdbmem.report.steps import step_line, steps_json
from gdbmem.report.steps_plot import steps_html, steps_svg


def step(
    line: int, delta: int | None, *, thread: int = 1, lock: str = LOCKED, file: str = "/src/a.c"
) -> Step:
    return Step("next", f"f{line % 2}", file, line, thread, delta, delta, "statm", True, lock=lock)


STEPS = [
    step(1, 4096),
    step(2, 0),
    step(1, 8192, lock=SHARED),
    step(3, -4096, thread=2),
    step(4, None),
    step(1, 4096, file="/src/b.c"),
]


@pytest.mark.parametrize("by", GROUPINGS)
def test_the_sums_add_up_to_the_steps(by: str) -> None:
    sums = sum_steps(STEPS, by)
    assert sum(one.delta_bytes for one in sums) == total_bytes(STEPS) == 12288
    assert sum(one.hits for one in sums) == len(STEPS)


def test_what_happened_while_others_ran_stands_apart() -> None:
    first = sum_steps(STEPS)[0]
    assert (first.line, first.own_bytes, first.shared_bytes, first.shared_hits) == (1, 4096, 8192, 1)


def test_a_step_of_unknown_size_is_counted_and_never_taken_for_zero() -> None:
    unknown = next(one for one in sum_steps(STEPS) if one.line == 4)
    assert unknown.unknown_hits == 1
    assert json.loads(steps_json(STEPS))["steps"][4]["delta_bytes"] is None


def test_json_holds_every_step_and_the_sums() -> None:
    document = json.loads(steps_json(STEPS, sum_steps(STEPS)))
    assert (document["kind"], document["total_bytes"], len(document["steps"])) == ("steps", 12288, 6)
    assert document["sums"][0]["delta_bytes"] == 12288
    assert json.loads(steps_json([]))["steps"] == []


def test_a_line_says_what_moved_and_who_shared_it() -> None:
    shared = STEPS[2]._replace(
        parts={"heap": 8192, "mapped": 0}, shared_threads=(2, 5), note="waited for mutex m"
    )
    line = step_line(shared, color=False, source_text="push(x);")
    assert "+8.0 KiB resident" in line and "a.c:1" in line and "push(x);" in line
    assert "(heap +8.0 KiB)" in line and "[shared with threads 2, 5; waited for mutex m]" in line


def test_a_line_says_that_its_number_is_not_exact() -> None:
    assert "source statm, not exact" in step_line(STEPS[0]._replace(exact=False), color=False)


def test_a_strangers_name_can_move_no_cursor_and_no_markup() -> None:
    evil = step(1, 4096, file="/src/\x1b[2J<script>.c")._replace(note="\x1b]0;x\x07")
    assert "\x1b" not in step_line(evil, color=False)
    assert "<script>" not in steps_svg([evil]) and "<script>" not in steps_html([evil], "<script>")


@pytest.mark.parametrize("steps", [STEPS, STEPS[:1], [step(1, 0)], STEPS * 5000])
def test_a_drawing_is_wellformed_and_stays_small(steps: list[Step]) -> None:
    drawing = steps_svg(steps)
    ElementTree.fromstring(drawing)
    assert len(drawing) < 700_000


def test_a_chart_keeps_the_last_value() -> None:
    assert thinned(range(1000), 10)[-1] == 999
    assert sparkline([0, 5, 10], " 12345678") == "148" or sparkline([0, 5, 10], " 12345678") == "158"
