"""Two groups of recordings → differences with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, variance
from typing import Optional

from gdbmem.analysis.series.student import chance_of, critical
from gdbmem.model.series.comparison import Difference
from gdbmem.model.series.verdict import Slope
from gdbmem.records import dataclass, replace

_MANY = 1000.0  # degrees of freedom: Student's distribution is the normal one
_FROM_RUN_TO_RUN = 0.1  # standard deviation of a rate, of the rate, on a machine that does other things, too
_ALPHA = 0.05  # probability that runs of the same program seem to differ, in any row


@dataclass(frozen=True)
class Figures:
    """The numbers by which recordings are compared."""

    peak_bytes: float
    floor_bytes: float
    level_bytes: float
    slope: Optional[Slope]
    most_threads: Optional[float]  # None in this and what follows: not recorded
    threads_started: Optional[float]
    threads_per_second: Optional[float]  # falls on a busy machine, where the same work takes longer
    wall_seconds: Optional[float] = None
    cpu_seconds: Optional[float] = None
    page_faults: Optional[float] = None
    is_settled: bool = True  # whether the verdict on the run is conclusive


def levels_of(values: Sequence[float], peak_bytes: float = 0.0) -> tuple[float, float, float]:
    """Return peak, floor (the lowest twentieth) and middle of *values*; *peak_bytes* is known from elsewhere."""
    # The start of a program is not a floor: every program begins small.
    later = sorted(values[len(values) // 10 :]) or [0.0]
    return max([*values, peak_bytes]), later[len(later) // 20], later[len(later) // 2]


def compare(first: Sequence[Figures], second: Sequence[Figures]) -> list[Difference]:
    """Return the differences of the *second* group from the *first*.

    With several runs on each side intervals come from the variance between runs (Welch's test); with one run only the
    slope has one, from within the run and an assumed variance between runs, if the verdicts on both are conclusive.
    They are widened for the number of rows (Holm's method).
    """

    def row(metric: str, unit: str, figure: str) -> Optional[Difference]:
        known = [[getattr(f, figure) for f in group] for group in (first, second)]
        if any(value is None for group in known for value in group):
            return None
        return difference_of(metric, unit, *known)

    found = [
        row("peak", "B", "peak_bytes"),
        row("floor", "B", "floor_bytes"),
        row("middle", "B", "level_bytes"),
        _slopes(first, second),
        row("threads", "", "most_threads"),
        row("threads started", "", "threads_started"),
        row("thread churn", "1/s", "threads_per_second"),
        row("CPU", "s", "cpu_seconds"),
        row("page faults", "", "page_faults"),
        row("wall time", "s", "wall_seconds"),
    ]
    return _together([difference for difference in found if difference is not None])


def _together(rows: Sequence[Difference]) -> list[Difference]:
    """Return *rows* with intervals of which any excludes zero by chance in one comparison of twenty (Holm's method)."""
    tested = sorted((row for row in rows if row.chance is not None), key=lambda row: row.chance or 0.0)
    wider = {}
    level = _ALPHA
    is_open = True  # once one is not shown, none with a larger chance is
    for number, row in enumerate(tested):
        if is_open:
            level = _ALPHA / (len(tested) - number)
            is_open = row.chance is not None and row.chance <= level
        wider[row.metric] = level
    return [_widened(row, wider[row.metric]) if row.metric in wider else row for row in rows]


def _widened(row: Difference, level: float) -> Difference:
    if row.low is None or row.dof is None:
        return row
    half = (row.value - row.low) * critical(level, row.dof) / critical(_ALPHA, row.dof)
    return replace(row, low=row.value - half, high=row.value + half)


def difference_of(metric: str, unit: str, first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of the mean of *second* and that of *first*, with its 95 % interval (Welch's test)."""
    value = mean(second) - mean(first)
    if len(first) < 2 or len(second) < 2:
        return Difference(metric, unit, mean(first), mean(second), value)
    a, b = variance(first) / len(first), variance(second) / len(second)
    if a + b == 0:
        chance = 0.0 if value else 1.0
        return Difference(metric, unit, mean(first), mean(second), value, value, value, chance, None)
    dof = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return _tested(metric, unit, mean(first), mean(second), math.sqrt(a + b), dof)


def _tested(metric: str, unit: str, first: float, second: float, error: float, dof: float) -> Difference:
    value = second - first
    half = critical(_ALPHA, dof) * error
    chance = chance_of(value / error, dof)
    return Difference(metric, unit, first, second, value, value - half, value + half, chance, dof)


def _slopes(first: Sequence[Figures], second: Sequence[Figures]) -> Optional[Difference]:
    known = [[(f.slope, f.is_settled) for f in group if f.slope is not None] for group in (first, second)]
    if not all(known):
        return None
    spread = difference_of("slope", "B/s", *([slope.value for slope, _ in group] for group in known))
    if spread.low is not None or not all(is_settled for group in known for _, is_settled in group):
        return spread
    one, other = known[0][0][0], known[1][0][0]
    # Half a 95 % interval in standard errors of a normal distribution.
    within = math.hypot(one.high - one.low, other.high - other.low) / (2 * critical(_ALPHA, _MANY))
    error = math.hypot(within, _FROM_RUN_TO_RUN * one.value, _FROM_RUN_TO_RUN * other.value)
    if error == 0:
        return spread
    return _tested("slope", "B/s", spread.first, spread.second, error, _MANY)
