"""A program's end is not part of its life."""

from __future__ import annotations

import pytest

from gdbmem.series.statistics import without_teardown
from gdbmem.series.verdict import judge
from tests.series_set import MIB

LEVEL = [(0.2 * number, 50.0 * MIB) for number in range(60)]


@pytest.mark.parametrize("end", [[20], [40, 10, 0], [35, 35, 2], [0, 0]])
def test_a_flat_program_that_is_seen_being_torn_down_is_no_step(end: list[float]) -> None:
    points = [*LEVEL, *((12 + 0.2 * number, value * MIB) for number, value in enumerate(end))]
    kept = without_teardown(points)
    assert kept == LEVEL
    verdict = judge([t for t, _ in kept], [value for _, value in kept])
    assert verdict.kind == "plateau", verdict.evidence


def test_so_is_one_on_a_machine_so_busy_that_it_takes_a_tenth_of_the_time() -> None:
    level = [(0.2 * number, 50.0 * MIB) for number in range(90)]
    end = [46.9, 38.2, 6.9, 6.9, 6.9, 6.9, 6.8]
    assert without_teardown([*level, *((18 + 0.2 * n, value * MIB) for n, value in enumerate(end))]) == level


def test_memory_given_back_a_while_before_the_end_is_kept_as_what_it_is() -> None:
    points = [*LEVEL, *((12 + 0.2 * number, 20.0 * MIB) for number in range(20))]
    assert without_teardown(points) == points


def test_what_a_short_program_frees_while_it_runs_is_no_growth_that_it_kept() -> None:
    points = [(0.2 * number, value * MIB) for number, value in enumerate([5.0, 100, 100, 20, 20, 20, 20])]
    assert without_teardown(points) == points
    ended = [(0.2 * number, value * MIB) for number, value in enumerate([50.0] * 7 + [11, 0])]
    assert without_teardown(ended) == ended[:7]


def test_what_rises_to_the_end_is_kept_to_the_end() -> None:
    points = [(0.2 * number, number * MIB * 1.0) for number in range(60)]
    assert without_teardown(points) == points


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_program_of_few_samples_has_no_end_to_leave_out(count: int) -> None:
    assert without_teardown(LEVEL[:count]) == LEVEL[:count]


@pytest.mark.parametrize("begins", [0.2, 1.1, 2.4, 3.6])
def test_a_level_program_is_a_plateau_however_long_its_start_took(begins: float) -> None:
    # 50 runs of one program on a busy machine: its interpreter was there after 0.3 to 3.6 of 12 seconds.
    times = [0.2 * n for n in range(61)]
    verdict = judge(times, [(0.9 if t < begins else 54.6) * MIB for t in times])
    assert verdict.kind == "plateau", verdict.evidence
    assert "+53.7 MiB" in verdict.evidence, "and how it came there is told"


def test_what_comes_in_the_midst_or_onto_something_is_a_step() -> None:
    times = [0.2 * n for n in range(61)]
    late = judge(times, [(0.9 if t < 6 else 54.6) * MIB for t in times])
    onto = judge(times, [(20 if t < 3 else 54.6) * MIB for t in times])
    assert late.kind == onto.kind == "step"
