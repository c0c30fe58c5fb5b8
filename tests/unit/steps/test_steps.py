"""Steps summed, drawn and printed, without gdb."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from gdbmem.model.steps import LOCKED, SHARED, Step
from gdbmem.page.page import render
from gdbmem.page.steps_page import steps_page
from gdbmem.profiles.paths import Query
from gdbmem.steps.charts import steps_svg
from gdbmem.steps.steps import (
    GROUPINGS,
    reservations,
    step_line,
    steps_json,
    sum_steps,
    total_bytes,
    total_sentence,
)
from gdbmem.terminal.charting import count_ticks, size_ticks
from gdbmem.terminal.drawing import sparkline, thinned


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


def test_a_line_states_what_moved_and_who_shared_it() -> None:
    shared = STEPS[2]._replace(
        parts={"heap": 8192, "mapped": 0}, shared_threads=(2, 5), note="waited for mutex m"
    )
    line = step_line(shared, color=False, source_text="push(x);")
    assert "+8.0 KiB resident" in line and "a.c:1" in line and "push(x);" in line
    assert "(heap +8.0 KiB)" in line and "[shared with threads 2, 5; waited for mutex m]" in line


def test_a_line_names_the_part_of_the_others_and_marks_a_doubtful_one() -> None:
    divided = STEPS[2]._replace(shared_threads=(2,), others_bytes=-4096)
    assert "[shared with thread 2, whose part is -4.0 KiB]" in step_line(divided, color=False)
    assert "~" not in step_line(divided, color=False)
    assert "~+8.0 KiB" in step_line(divided._replace(divided_exactly=False), color=False)
    assert "~+8.0 KiB" in step_line(divided._replace(others_bytes=None), color=False)


def test_what_others_did_is_summed_apart() -> None:
    steps = [step(1, 4096, lock=SHARED)._replace(others_bytes=8192), step(1, 4096)]
    assert [(one.delta_bytes, one.others_bytes, one.doubtful_hits) for one in sum_steps(steps)] == [
        (8192, 8192, 0)
    ]


def test_a_line_states_that_its_number_is_not_exact() -> None:
    assert "source statm, not exact" in step_line(STEPS[0]._replace(exact=False), color=False)


def test_a_strangers_name_can_move_no_cursor_and_no_markup() -> None:
    evil = step(1, 4096, file="/src/\x1b[2J<script>.c")._replace(note="\x1b]0;x\x07")
    assert "\x1b" not in step_line(evil, color=False)
    page = render(steps_page([evil], "<script>", Query()))
    assert "<script>" not in steps_svg([evil]) and "<script>" not in page and "\x1b" not in page


@pytest.mark.parametrize("steps", [STEPS, STEPS[:1], [step(1, 0)], STEPS * 5000])
def test_a_drawing_is_wellformed_and_stays_small(steps: list[Step]) -> None:
    drawing = steps_svg(steps)
    ElementTree.fromstring(drawing)
    assert len(drawing) < 700_000


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 50 << 20, [n * (10 << 20) for n in range(6)]),
        (-4096, 8192, [n * 5120 for n in range(-1, 3)]),
        (0, 0, [0, 1]),
        (0, 3, [0, 1, 2, 3]),
    ],
)
def test_sizes_at_the_axis_are_round_and_hold_all_there_is(low: int, high: int, ticks: list[int]) -> None:
    assert size_ticks(low, high) == ticks


@pytest.mark.parametrize(
    ("count", "ticks"), [(57, [0, 10, 20, 30, 40, 50, 57]), (1, [0, 1]), (20, [*range(0, 21, 2)])]
)
def test_numbers_of_steps_at_the_axis_are_not_written_over_each_other(count: int, ticks: list[int]) -> None:
    assert count_ticks(count) == ticks


def test_a_drawing_holds_each_total_until_the_next_step() -> None:
    drawing = steps_svg([step(1, 0), step(2, 4096), step(3, 0)])
    path = re.search(r'path d="([^"]*)"', drawing)
    assert path is not None and re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){3}", path[1])


def test_a_short_peak_among_very_many_steps_is_drawn() -> None:
    many = [step(1, 0)] * 9000
    many[4321:4323] = [step(2, 1 << 20), step(3, -(1 << 20))]
    heights = [float(y) for y in re.findall(r"V([\d.]+)", steps_svg(many))]
    assert min(heights) < max(heights) - 100


def test_a_line_of_which_nothing_is_known_is_not_called_unchanged() -> None:
    sums = json.loads(steps_json(STEPS, sum_steps(STEPS)))["sums"]
    assert [one["delta_bytes"] for one in sums if one["line"] == 4] == [None]
    page = render(steps_page(STEPS, "t", Query()))
    assert '<td class="number none">?</td>' in page and "1 step of unknown size" in page


def test_where_no_step_could_be_measured_no_sum_is_claimed_and_the_reason_is_the_true_one() -> None:
    unread = step(4, None)._replace(exact=False, note="glibc's malloc was not found")
    left = step(5, None)._replace(ended="gdb now follows process 7")
    gone = step(6, None)
    assert total_sentence([unread, left]) == "unknown change in 2 steps"
    assert total_sentence([unread, step(1, 0)]) == "0 B in 2 steps"
    assert reservations([unread, unread, left, gone]) == [
        "2 steps of unknown size: glibc's malloc was not found",
        "1 step of unknown size: gdb now follows process 7",
        "1 step of unknown size: the process had ended",
    ]
    assert "not exact" not in step_line(unread, color=False)


def test_a_chart_keeps_the_last_value() -> None:
    assert thinned(range(1000), 10)[-1] == 999
    assert sparkline([0, 5, 10], " 12345678") == "148" or sparkline([0, 5, 10], " 12345678") == "158"
