"""Growth that begins in the middle of a series, or accelerates: a line through the whole series misses it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Optional

from gdbmem.analysis.series.statistics import isotonic, theil_sen

_QUIET = 0.02  # of the whole change: not begun yet
_FEWEST = 15  # positions tried after the beginning
_ROUGH = 0.03  # distance from the nearest monotonic curve, as a fraction of the change
_SLOWING = 0.45  # of the rate in the first third: slower growth at the end is levelling off


def find_onset(xs: Sequence[float], ys: Sequence[float], least_bytes: float) -> Optional[int]:
    """Return the index from which *ys* rise to the end, steadily or accelerating; None if they don't."""
    change = ys[-1] - ys[0]
    if change < least_bytes:
        return None
    start = max((i for i, y in enumerate(ys) if y - ys[0] <= _QUIET * change), default=0)
    rest_x, rest_y = xs[start:], ys[start:]
    if len(rest_y) < _FEWEST:
        return None
    early = max(ys[: start + 1]) - min(ys[: start + 1])
    squares = sum((y - curve) ** 2 for y, curve in zip(rest_y, isotonic(rest_y)))
    if early > 2 * _QUIET * change or squares > len(rest_y) * (_ROUGH * change) ** 2:
        return None
    third = len(rest_y) // 3
    thirds = [slice(begin, begin + third + 1) for begin in (0, third, len(rest_y) - third - 1)]
    slopes = [theil_sen(rest_x[part], rest_y[part]) for part in thirds]
    if min(slopes) <= 0 or slopes[2] < _SLOWING * max(slopes) or _is_one_leap(rest_y):
        return None
    return start


def _is_one_leap(ys: Sequence[float]) -> bool:
    steps = [b - a for a, b in zip(ys, ys[1:])]
    return max(steps) > 0.5 * (ys[-1] - ys[0]) or median(steps) <= 0
