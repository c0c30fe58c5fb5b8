"""A program does not differ from itself, and differs from what really is another."""

from __future__ import annotations

import random

import pytest

from gdbmem.model.series import Slope
from gdbmem.series.comparison import Figures, compare
from gdbmem.series.statistics import chance_of, critical
from tests.cover import cover
from tests.equal_series import KINDS, compare_pairs
from tests.series_set import KIB, MIB


def run(rng: random.Random, *, peak: float = 100.0) -> Figures:
    level = rng.gauss(peak, 1) * MIB
    rate = rng.gauss(0, 5) * KIB
    return Figures(
        peak_bytes=level + rng.gauss(0, 1) * MIB,
        floor_bytes=level - rng.gauss(20, 1) * MIB,
        level_bytes=level - rng.gauss(5, 1) * MIB,
        slope=Slope(rate, rate - KIB, rate + KIB),
        most_threads=rng.choice((8, 9)),
        threads_started=rng.gauss(1000, 20),
        threads_per_second=rng.gauss(100, 5),
        wall_seconds=rng.gauss(10, 0.3),
        cpu_seconds=rng.gauss(20, 0.5),
        page_faults=rng.gauss(30_000, 500),
    )


@pytest.mark.slow
def test_a_program_compared_with_itself_differs_in_one_comparison_of_twenty_at_most() -> None:
    rng = random.Random(1)
    count = 100
    differing = sum(
        any(row.is_shown for row in compare([run(rng) for _ in range(3)], [run(rng) for _ in range(3)]))
        for _ in range(count)
    )
    assert differing <= 0.09 * count


@pytest.mark.slow
@pytest.mark.parametrize("kind", cover(KINDS, lambda kind: list(KINDS).index(kind) % 2 == 0))
def test_one_run_of_a_program_does_not_differ_from_another_of_its_runs(kind: str) -> None:
    pairs = 25  # scripts/verdicts --pairs 500
    assert compare_pairs(kind, pairs, count=60)["differ"] <= 0.12 * pairs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["AR(1) 0.5", "AR(1) 0.9", "AR(1) 0.99", "random walk"])
def test_the_interval_of_a_slope_allows_for_noise_that_wanders(kind: str) -> None:
    found = compare_pairs(kind, 30, count=100)
    assert found["hold 0"] >= 0.8 * found["slopes"]


@pytest.mark.slow
def test_a_leak_in_one_of_two_runs_is_shown() -> None:
    assert compare_pairs("independent noise", 10, more=20)["differ"] >= 8


def test_an_inconclusive_run_is_not_compared_by_its_slope() -> None:
    rng = random.Random(4)
    first, second = run(rng), run(rng)
    open_one = Figures(**{**second._asdict(), "is_settled": False, "slope": Slope(MIB, MIB - 1, MIB + 1)})
    assert all(row.low is None for row in compare([first], [open_one]))


def test_what_really_differs_is_shown_with_the_row_that_does() -> None:
    rng = random.Random(2)
    rows = compare([run(rng) for _ in range(5)], [run(rng, peak=150) for _ in range(5)])
    shown = {row.metric for row in rows if row.is_shown}
    assert {"peak", "floor", "middle"} <= shown
    assert not shown & {"CPU", "page faults", "wall time", "threads started"}


def test_what_one_run_did_not_record_is_no_row() -> None:
    rng = random.Random(3)
    first, second = run(rng), run(rng)
    blind = Figures(**{**second._asdict(), "cpu_seconds": None})
    assert "CPU" not in {row.metric for row in compare([first], [blind])}


@pytest.mark.parametrize(
    ("chance", "dof", "t"),
    # Source: the tables in every book of statistics
    [
        (0.05, 1, 12.706),
        (0.05, 2, 4.303),
        (0.05, 4, 2.776),
        (0.01, 4, 4.604),
        (0.001, 10, 4.587),
        (0.05, 120, 1.980),
    ],
)
def test_students_quantiles_are_those_of_the_tables(chance: float, dof: float, t: float) -> None:
    assert critical(chance, dof) == pytest.approx(t, abs=0.001)
    assert chance_of(t, dof) == pytest.approx(chance, rel=0.001)
