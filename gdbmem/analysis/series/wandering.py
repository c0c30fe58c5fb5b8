"""The error of a slope in noise that may wander: neighbours alike, up to a random walk.

A line's own residuals are not enough: a stretch that was cut out because it is straight has hardly any, and few samples
show too little of a slow drift. So how far the values wander is taken from the increments of the whole series and of
the stretch, whichever is more, and close to a random walk the noise is taken to be one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.analysis.series.regimes import Stretch
from gdbmem.analysis.series.statistics import Z_95, bins, deviation, t_critical

_BINS = 100
_FEWEST = 4  # values of a stretch with three increments
_DOUBT = 1.5  # standard errors by which noise that may be a random walk can seem to be something else
_CURVE = 2.5  # times the square of an increment in that of two: 2 for a random walk, 4 for a smooth curve
_Z_CHOSEN = 2.3  # a stretch that was cut out for its slope is steeper than one at random


class Wandering(NamedTuple):
    """Medians of equal intervals of time of a whole series, and their increments."""

    xs: Sequence[float]
    ys: Sequence[float]
    squares: float  # mean square of an increment, without its mean
    likeness: float  # of neighbours: 0 for independent noise, 1 for a random walk

    def half(self, begin: float) -> float:
        """Return half the 95 % interval of a slope since *begin* (seconds), bytes per second."""
        first = min(bisect_left(self.xs, begin), max(len(self.xs) - _FEWEST, 0))
        part = self.ys[first:]
        size = len(part)
        if size < _FEWEST:
            return 0.0
        mean = (part[-1] - part[0]) / (size - 1)
        own = _squares(part, 1, mean) * (size - 1) / (size - 2)
        twice = _squares(part, 2, mean) * (size - 2) / max(size - 3, 1)
        raw = twice / own - 1 if own > 0 else 0.0
        # All of it is used for itself; the rest is read robustly, so less exactly.
        likeness = max(self.likeness if first else 0.0, raw + (2 + 4 * raw) / size, 0.0)
        if likeness + _DOUBT / math.sqrt(len(self.xs)) >= 1:
            likeness = 1.0
        step = (self.xs[-1] - self.xs[first]) / (size - 1)
        error = math.sqrt(_variance(size, likeness) * max(own, self.squares)) / step
        return t_critical(size - 2, _Z_CHOSEN if first else Z_95) * error


def wandering_of(
    times: Sequence[float], values: Sequence[float], stretches: Sequence[Stretch] = ()
) -> Wandering:
    """Return the increments of a series; single jumps and a short start-up do not count.

    Those of a curve are alike for longer than those of a random walk: then the slopes of its *stretches* are left out.
    """
    xs, ys = bins(times, values, _BINS)
    once, twice = _robust(ys, 1), _robust(ys, 2)
    if twice > _CURVE * once:
        levelled = _levelled(xs, ys, stretches)
        once, twice = _robust(levelled, 1), _robust(levelled, 2)
    return Wandering(xs, ys, once, twice / once - 1 if once > 0 else 0.0)


def _levelled(xs: Sequence[float], ys: Sequence[float], stretches: Sequence[Stretch]) -> list[float]:
    """Return *ys* less what the slopes of the *stretches* add from one to the next."""
    risen, found = 0.0, [ys[0]]
    for (begin, end), y in zip(zip(xs, xs[1:]), ys[1:]):
        here = [stretch.slope for stretch in stretches if stretch.xs[0] <= (begin + end) / 2]
        risen += here[-1] * (end - begin) if here else 0.0
        found.append(y - risen)
    return found


def _robust(ys: Sequence[float], lag: int) -> float:
    steps = [b - a for a, b in zip(ys, ys[lag:])] or [0.0]
    return deviation(steps) ** 2


def _squares(ys: Sequence[float], lag: int, mean: float) -> float:
    steps = [b - a - lag * mean for a, b in zip(ys, ys[lag:])]
    return sum(step * step for step in steps) / len(steps)


def _variance(size: int, likeness: float) -> float:
    """Return the variance of the slope of *size* values, per step, where one increment has the variance 1.

    Var b = -sum of w_i w_j V(j - i) over i < j, with the weights w of least squares and the variogram V of a
    first-order autoregression, whose limit is that of a random walk: V(k) = k.
    """
    middle = (size - 1) / 2
    weights = [i - middle for i in range(size)]
    spread = sum(weight * weight for weight in weights)
    total, apart = 0.0, 0.0
    for lag in range(1, size):
        apart = 1.0 + likeness * apart
        total -= apart * sum(a * b for a, b in zip(weights, weights[lag:]))
    return max(total, 0.0) / spread**2
