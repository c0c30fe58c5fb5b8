"""Two groups of recordings → differences with confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Optional

from gdbmem.analysis.robust import Z_95, t_critical
from gdbmem.model.comparison import Difference
from gdbmem.model.verdict import Slope


@dataclass(frozen=True)
class Figures:
    """What a recording is compared by."""

    peak_bytes: float
    floor_bytes: float
    level_bytes: float
    slope: Optional[Slope]
    most_threads: float
    threads_started: float
    threads_per_second: (
        float  # the same work takes longer on a busy machine: then it falls, and the count stays
    )


def figures_of(
    values: Sequence[float],
    slope: Optional[Slope],
    *,
    most_threads: float,
    threads_started: float,
    threads_per_second: float,
) -> Figures:
    """Return the figures of a series of *values*: its peak, its floor (the lowest twentieth), its middle."""
    # The start of a program is no floor: every program begins small.
    later = sorted(values[len(values) // 10 :]) or [0.0]
    return Figures(
        peak_bytes=max(values, default=0.0),
        floor_bytes=later[len(later) // 20],
        level_bytes=later[len(later) // 2],
        slope=slope,
        most_threads=most_threads,
        threads_started=threads_started,
        threads_per_second=threads_per_second,
    )


def compare(first: Sequence[Figures], second: Sequence[Figures]) -> list[Difference]:
    """Return how the *second* group differs from the *first*.

    With several runs on either side intervals come from the spread between runs (Welch's test); with one
    run only the slope has one, from within the run.
    """

    def row(metric: str, unit: str, figure: str) -> Difference:
        return _difference(
            metric, unit, [getattr(f, figure) for f in first], [getattr(f, figure) for f in second]
        )

    found = [
        row("peak", "B", "peak_bytes"),
        row("floor", "B", "floor_bytes"),
        row("middle", "B", "level_bytes"),
        _slopes([f.slope for f in first], [f.slope for f in second]),
        row("threads", "", "most_threads"),
        row("threads started", "", "threads_started"),
        row("thread churn", "1/s", "threads_per_second"),
    ]
    return [difference for difference in found if difference is not None]


def _difference(metric: str, unit: str, first: Sequence[float], second: Sequence[float]) -> Difference:
    value = mean(second) - mean(first)
    half = _half_width(first, second)
    low, high = (None, None) if half is None else (value - half, value + half)
    return Difference(metric, unit, mean(first), mean(second), value, low, high)


def _half_width(first: Sequence[float], second: Sequence[float]) -> Optional[float]:
    if len(first) < 2 or len(second) < 2:
        return None
    a, b = variance(first) / len(first), variance(second) / len(second)
    if a + b == 0:
        return 0.0
    dof = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return t_critical(dof, Z_95) * math.sqrt(a + b)


def _slopes(first: Sequence[Optional[Slope]], second: Sequence[Optional[Slope]]) -> Optional[Difference]:
    known_first = [slope for slope in first if slope is not None]
    known_second = [slope for slope in second if slope is not None]
    if not known_first or not known_second:
        return None
    spread = _difference("slope", "B/s", [s.value for s in known_first], [s.value for s in known_second])
    if spread.low is not None:
        return spread
    one, other = known_first[0], known_second[0]
    half = math.hypot((one.high - one.low) / 2, (other.high - other.low) / 2)
    return Difference(
        "slope", "B/s", spread.first, spread.second, spread.value, spread.value - half, spread.value + half
    )
