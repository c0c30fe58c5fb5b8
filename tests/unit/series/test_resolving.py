"""The time needed to detect a small leak: the prediction holds."""

from __future__ import annotations

import random

import pytest

from gdbmem.series.fitted import seconds_to_resolve
from gdbmem.series.verdict import judge
from tests.series_set import KIB, MIB

SLOPE = 50 * KIB / 60  # bytes per second


def watched(seconds: float, slope: float, seed: int) -> tuple[list[float], list[float]]:
    rng = random.Random(seed)
    times = [0.5 * number for number in range(round(seconds / 0.5))]
    return times, [50 * MIB + slope * t + rng.gauss(0, 100 * KIB) for t in times]


@pytest.mark.parametrize("seed", range(3))
def test_a_leak_shows_when_watched_for_as_long_as_promised(seed: int) -> None:
    seconds = seconds_to_resolve(judge(*watched(60, 0, seed)), SLOPE)
    assert seconds is not None and 60 < seconds < 900
    assert judge(*watched(1.5 * seconds, SLOPE, seed + 10)).kind == "growing"


def test_a_slope_that_would_have_shown_already_needs_no_more_time() -> None:
    seconds = seconds_to_resolve(judge(*watched(600, 0, 1)), 10 * MIB / 60)
    assert seconds is not None and seconds <= 600


def test_too_few_samples_promise_nothing() -> None:
    assert seconds_to_resolve(judge([0.0, 1.0], [1.0, 2.0]), SLOPE) is None
