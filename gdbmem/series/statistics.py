"""Robust statistics, lines with errors that allow for correlated residuals, gaps between samples. Pure Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import mul
from statistics import median
from typing import NamedTuple, Optional

from gdbmem.model.series import Slope

Z_95 = 1.96
_LONG_GAP = 0.05  # of the whole time
Z_STRICT = 3.29  # one in two thousand on either side: the test for a claim of growth


class Fit(NamedTuple):
    """A straight line, with or without an added curved term."""

    slope: float
    error: float  # standard error of the slope, corrected for correlation of neighbours
    residual: float  # sum of squares
    curve: float  # the weight of the curved term
    dof: int
    likeness: float  # of neighbouring residuals, 0 to 0.95

    @property
    def half(self) -> float:
        """Half the 95 % interval of the slope."""
        return t_critical(self.dof, Z_95) * self.error

    def around(self, value: float, least: float = 0.0) -> Slope:
        """Return the slope *value* with an interval that includes this line's, and is at least *least* either way."""
        half = max(self.half, least)
        return Slope(value, min(self.slope - half, value - least), max(self.slope + half, value + least))


def t_critical(dof: float, z: float) -> float:
    """Return Student's quantile that belongs to the normal's *z*. Source: Abramowitz and Stegun 26.7.5."""
    v = max(dof, 1.0)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def noise_of(values: Sequence[float]) -> float:
    """Return the standard deviation of the noise from one value to the next, excluding trends and jumps."""
    steps = [b - a for a, b in zip(values, values[1:])]
    return deviation(steps) / math.sqrt(2) if steps else 0.0


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of *values* by the median distance from their median, if they are normal."""
    middle = median(values)
    return median(abs(value - middle) for value in values) * 1.4826


def theil_sen(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the median of pair_slopes()."""
    slopes = pair_slopes(xs, ys)[0]
    return median(slopes) if slopes else 0.0


def pair_slopes(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], int]:
    """Return the slopes of all pairs of points, 150 at most and evenly chosen, and the number of points."""
    stride = -(-len(xs) // 150) or 1
    points = list(zip(xs[::stride], ys[::stride]))
    slopes = [
        (y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1 :] if x2 > x1
    ]
    return slopes, len(points)


def isotonic(ys: Sequence[float]) -> list[float]:
    """Return the curve nearest to *ys* that never falls: neighbours out of order are pooled."""
    pools: list[tuple[float, int]] = []  # sum, count
    for value in ys:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            (total, count), (before, members) = pools.pop(), pools.pop()
            pools.append((total + before, count + members))
    return [total / count for total, count in pools for _ in range(count)]


def fit_line(
    xs: Sequence[float], ys: Sequence[float], curve: Optional[Callable[[float], float]] = None
) -> Fit:
    """Fit ``a + b x`` (``+ c curve(x)``) by least squares; the error of b allows for correlated residuals."""
    columns: list[list[float]] = [[1.0] * len(xs), list(xs)]
    if curve is not None:
        columns.append([curve(x) for x in xs])
    size = len(columns)
    matrix = [[_dot(p, q) for q in columns] for p in columns]
    inverse = _inverse(matrix)
    right = [_dot(column, ys) for column in columns]
    weights = [_dot(row, right) for row in inverse]
    residuals = [y - _dot(weights, row) for row, y in zip(zip(*columns), ys)]
    squares = _dot(residuals, residuals)
    dof = max(len(xs) - size, 1)
    likeness = likeness_of(residuals)
    inflation = math.sqrt((1 + likeness) / (1 - likeness))
    error = math.sqrt(max(inverse[1][1], 0.0) * squares / dof) * inflation
    effective = max(dof * (1 - likeness) / (1 + likeness), 2)
    return Fit(weights[1], error, squares, weights[2] if size > 2 else 0.0, round(effective), likeness)


def likeness_of(residuals: Sequence[float]) -> float:
    """Return the correlation of neighbours, 0 to 0.95, corrected for small samples."""
    squares = _dot(residuals, residuals)
    if squares <= 0 or len(residuals) < 4:
        return 0.0
    raw = _dot(residuals, residuals[1:]) / squares
    return min(max(raw + (1 + 3 * raw) / len(residuals), 0.0), 0.95)


def bins(times: Sequence[float], values: Sequence[float], most: int) -> tuple[list[float], list[float]]:
    """Return the medians of equal intervals of time, excluding long gaps: of *most*, or one for two samples."""
    count = max(min(most, len(times) // 2), 2)
    covered = _covered(times)
    span = covered[-1] or 1.0
    members: list[list[int]] = [[] for _ in range(count)]
    for index, t in enumerate(covered):
        members[max(0, min(int(t / span * count), count - 1))].append(index)
    xs, ys = [], []
    for group in members:
        if group:
            xs.append(sum(times[i] for i in group) / len(group))
            ys.append(median(values[i] for i in group))
    return xs, ys


def _covered(times: Sequence[float]) -> list[float]:
    # With the gap, the samples before and after a night would be in two or three bins.
    longest = _LONG_GAP * (times[-1] - times[0])
    steps = [b - a for a, b in zip(times, times[1:])]
    usual = median(steps)
    return list(accumulate((step if step <= longest else usual for step in steps), initial=0.0))


def thinned(points: Iterable[tuple[float, float]], limit: int = 4000) -> tuple[list[float], list[float]]:
    """Return at most *limit* of *points*, including the minimum and maximum of each interval."""
    times: list[float] = []
    values: list[float] = []
    stride = 1
    group: list[tuple[float, float]] = []
    for point in points:
        group.append(point)
        if len(group) < 2 * stride:
            continue
        low = min(group, key=lambda p: p[1])
        high = max(group, key=lambda p: p[1])
        for t, v in sorted((low, high)) if low != high else (low, group[-1]):
            times.append(t)
            values.append(v)
        group = []
        if len(times) >= limit:
            times, values = _halved(times, values)
            stride *= 2
    for t, v in group:
        times.append(t)
        values.append(v)
    return times, values


def _halved(times: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    kept_t, kept_v = [], []
    for start in range(0, len(times) - 3, 4):
        four = range(start, start + 4)
        low = min(four, key=values.__getitem__)
        high = max(four, key=values.__getitem__)
        if low == high:
            low, high = start, start + 3
        for index in sorted((low, high)):
            kept_t.append(times[index])
            kept_v.append(values[index])
    return kept_t, kept_v


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    products: Iterable[float] = map(mul, left, right)
    return sum(products)


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    # Gauss-Jordan elimination on two or three rows; a singular matrix gets a huge error and no exception.
    size = len(matrix)
    rows = [list(row) + [float(i == j) for j in range(size)] for i, row in enumerate(matrix)]
    for i in range(size):
        best = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        pivot = rows[i][i] if abs(rows[i][i]) > 1e-12 else 1e-12
        rows[i] = [value / pivot for value in rows[i]]
        for k in range(size):
            if k != i:
                factor = rows[k][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [row[size:] for row in rows]


# Student's distribution, with the accuracy needed for a few runs. Pure Python.


_STEPS = 200
_PRECISE = 1e-12


def chance_of(t: float, dof: float) -> float:
    """Return the two-sided probability of a value at least as far from 0 as *t*, with *dof* degrees of freedom."""
    return _incomplete_beta(dof / (dof + t * t), dof / 2, 0.5)


def critical(chance: float, dof: float) -> float:
    """Return the t that is exceeded, in either direction, with the probability *chance*."""
    low, high = 0.0, 1.0
    while chance_of(high, dof) > chance and high < 1e9:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(middle, dof) > chance else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function. Source: Abramowitz and Stegun 26.5.8, by Lentz's method."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            c, d = 1 + term / c, 1 / (1 + term * d)
            fraction *= c * d
        if abs(c * d - 1) < _PRECISE:
            break
    return front * fraction / a


# Gaps without samples or changes: the time of a suspended machine does not count for a rate.


_SHARE = 0.05  # of the whole time: shorter gaps change no verdict
_FEWEST = 8  # samples on either side
_LEAST_BYTES = 64 << 10


class Awake(NamedTuple):
    """Times without standstills, and the removed standstills."""

    times: Sequence[float]
    left_out: Sequence[tuple[float, float]]  # its position in *times*, and its duration

    @property
    def seconds(self) -> float:
        """The total time of the standstills, seconds."""
        return sum(length for _, length in self.left_out)

    def original(self, t: float) -> float:
        """Return the original time of *t*."""
        return t + sum(length for at, length in self.left_out if at < t)


def without_standstills(times: Sequence[float], values: Sequence[float]) -> Awake:
    """Remove long gaps from *times* after which the series continues as if there had been none.

    A gap over which it changed as before (the monitor was stopped, the program wasn't) is kept.
    """
    span = times[-1] - times[0]
    gaps = [i for i in range(1, len(times)) if times[i] - times[i - 1] > _SHARE * span]
    gaps = [i for i in gaps if _stood_still(times, values, i, gaps)]
    if not gaps:
        return Awake(times, ())
    usual = median(b - a for a, b in zip(times, times[1:]))
    moved, left_out, shift = [], [], 0.0
    for i, t in enumerate(times):
        if i in gaps:
            length = t - times[i - 1] - usual
            left_out.append((times[i - 1] - shift, length))
            shift += length
        moved.append(t - shift)
    return Awake(moved, left_out)


def _stood_still(times: Sequence[float], values: Sequence[float], gap: int, gaps: Sequence[int]) -> bool:
    begin = max((other for other in gaps if other < gap), default=0)
    end = min((other for other in gaps if other > gap), default=len(times))
    if min(gap - begin, end - gap) < _FEWEST:
        return False
    sides = (slice(begin, gap), slice(gap, end))
    slopes = [theil_sen(times[side], values[side]) for side in sides]
    ranges = [max(values[side]) - min(values[side]) for side in sides]
    covered = [slope * (times[side][-1] - times[side][0]) for slope, side in zip(slopes, sides)]
    if slopes[0] * slopes[1] <= 0 or any(abs(c) < 0.5 * size for c, size in zip(covered, ranges)):
        return False  # teeth, or noise: there is no rate
    jump = median(values[gap : gap + 3]) - median(values[gap - 3 : gap])
    expected = min(slopes, key=abs) * (times[gap] - times[gap - 1])
    telling = max(_LEAST_BYTES, 6 * noise_of(values))
    return abs(expected) > telling and abs(jump) < 0.3 * abs(expected)


# The end of a program: samples taken while the kernel releases its memory, or after most of a tree has ended.


_SECONDS = 1.0  # a process of some GiB is torn down in less time on an idle machine
_TEARDOWN_SHARE, _MOST_SECONDS = 0.1, 3.0  # of the time, if that is more; but never more than this
_MOST_TEARDOWN_SAMPLES = 4  # number of samples that may belong to it, at any distance
_MOST_OF_LIFE = (
    4  # no more than one in so many samples, and seconds: a short program may well free what it held
)
_LEAST_TEARDOWN_BYTES = 64 << 10
_STANDS_OUT = 6.0  # times the noise

Point = tuple[float, float]  # seconds, bytes


def without_teardown(points: list[Point]) -> list[Point]:
    """Return the *points* of a program that has ended, without a final fall that was not followed by a rise."""
    least = max(_LEAST_TEARDOWN_BYTES, _STANDS_OUT * noise_of([value for _, value in points[-200:]]))
    life = points[-1][0] - points[0][0] if points else 0.0
    seconds = min(max(_SECONDS, min(_TEARDOWN_SHARE * life, _MOST_SECONDS)), life / _MOST_OF_LIFE)
    samples = min(_MOST_TEARDOWN_SAMPLES, max(len(points) // _MOST_OF_LIFE, 1))
    begin = len(points)
    highest = 0.0
    for number in range(len(points) - 1, 0, -1):
        t, value = points[number]
        if len(points) - number > samples and points[-1][0] - t > seconds:
            break
        highest = max(highest, value)
        if points[number - 1][1] - highest > least:
            begin = number
    return points[:begin]
