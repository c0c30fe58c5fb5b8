"""Cuts a series at its change points into stretches of time, each best described by a straight line.

Optimal partitioning with a penalty for each cut, on medians of equal stretches of time; then each cut is
moved to the sample where it belongs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from gdbmem.analysis.series.statistics import bins, fit_line, likeness_of, noise_of, theil_sen

_BINS, _BINS_OF_STRETCH = 100, 60
_FEWEST = 4  # bins of a regime
_MOST = 8  # regimes
_LONG = 0.4  # of the series
_AGAIN = 3  # number of times that the last one is cut again
_PENALTY = 18.0  # twice the log likelihood that another cut has to gain
QUANTUM_BYTES = 2048.0  # memory comes in pages: residuals below this mean nothing
_TELLING_BINS, _ALIKE = 20, 0.4  # with this many bins a higher correlation is not chance
_JUMP_BYTES = 64 << 10
_STANDS_OUT = 6.0  # times the noise: a jump


class Stretch(NamedTuple):
    """A stretch of a series, samples *begin* to *end* (exclusive), and the line through its bins."""

    begin: int
    end: int
    xs: Sequence[float]
    ys: Sequence[float]
    slope: float  # bytes per second
    jump: float  # jump, bytes, from the end of the previous stretch; 0 if it continues from there

    @property
    def seconds(self) -> float:
        """The duration, seconds."""
        return self.xs[-1] - self.xs[0]

    @property
    def level(self) -> float:
        """Its median, bytes."""
        return median(self.ys)

    def at(self, t: float) -> float:
        """Return the value of its line at *t*, bytes."""
        return self.level + self.slope * (t - median(self.xs))

    @property
    def change(self) -> float:
        """The rise of its line from its beginning to its end, bytes."""
        return self.slope * self.seconds

    @property
    def wanders(self) -> bool:
        """True if its residuals are correlated from bin to bin."""
        residuals = [y - self.at(x) for x, y in zip(self.xs, self.ys)]
        return len(residuals) >= _TELLING_BINS and likeness_of(residuals) > _ALIKE

    @property
    def scatter(self) -> float:
        """The distance between the extremes around its line, bytes."""
        residuals = [y - self.slope * x for x, y in zip(self.xs, self.ys)]
        return max(residuals) - min(residuals)


def cut(times: Sequence[float], values: Sequence[float]) -> list[Stretch]:
    """Return the stretches of a series, in order."""
    found = _cut(times, values, 0)
    for _ in range(_AGAIN):
        # A bin with a jump outweighs finer structure: the part after the cut is examined by itself.
        last = found[-1]
        if len(found) == 1 or last.end - last.begin < _LONG * len(times):
            break
        more = _cut(times, values, last.begin)
        if len(more) == 1:
            break
        found = [*found[:-1], more[0]._replace(jump=last.jump), *more[1:]]
    return found


def merged(times: Sequence[float], values: Sequence[float], young: Sequence[Stretch]) -> Stretch:
    """Merge adjacent stretches."""
    first = young[0]
    return _stretch(times, values, first.begin, young[-1].end)._replace(jump=first.jump)


def _cut(times: Sequence[float], values: Sequence[float], first: int) -> list[Stretch]:
    size = len(times) - first
    xs, ys = bins(times[first:], values[first:], _BINS)
    edges = _partition(xs, ys)
    if len(edges) == 2:
        return [_stretch(times, values, first, len(times))]
    pieces = [(xs[a:b], ys[a:b]) for a, b in zip(edges, edges[1:])]
    places = [first, *(_place(times, values, *pair) for pair in zip(pieces, pieces[1:])), len(times)]
    least = max(2 * _FEWEST, 3 * size // _BINS)
    kept = [first]
    for place in places[1:]:
        # A short one is an artefact of a bin with a jump; a program may begin with one.
        if place - kept[-1] >= least or (place > first == kept[-1] == 0):
            kept.append(place)
    kept = [*kept[:-1], len(times)] if len(kept) > 1 else [first, len(times)]
    found: list[Stretch] = []
    for begin, end in zip(kept, kept[1:]):
        if end - begin < 2:
            continue
        stretch = _stretch(times, values, begin, end)
        if found:
            stretch = stretch._replace(jump=_jump(found[-1], stretch, values))
        found.append(stretch)
    return found


def _stretch(times: Sequence[float], values: Sequence[float], begin: int, end: int) -> Stretch:
    xs, ys = bins(times[begin:end], values[begin:end], _BINS_OF_STRETCH)
    return Stretch(begin, end, xs, ys, theil_sen(xs, ys), 0.0)


def _jump(before: Stretch, after: Stretch, values: Sequence[float]) -> float:
    height = after.at(after.xs[0]) - before.at(before.xs[-1])
    on_the_way = (abs(before.slope) + abs(after.slope)) * (after.xs[0] - before.xs[-1])
    least = max(_JUMP_BYTES, _STANDS_OUT * noise_of(values), 2 * on_the_way)
    return height if abs(height) > least else 0.0


Piece = tuple[Sequence[float], Sequence[float]]


def _place(times: Sequence[float], values: Sequence[float], before: Piece, after: Piece) -> int:
    """Return the first sample that is nearer to the line through *after*, near where the two meet."""
    low = bisect_left(times, before[0][max(len(before[0]) - 3, 0)])
    high = bisect_left(times, after[0][min(2, len(after[0]) - 1)])
    lines = [_inner_line(*piece, last=piece is before) for piece in (before, after)]
    errors = [[abs(values[i] - slope * times[i] - start) for i in range(low, high)] for slope, start in lines]
    left = [0.0, *accumulate(errors[0])]
    right = [0.0, *accumulate(errors[1])]
    return low + min(range(high - low + 1), key=lambda k: left[k] + right[-1] - right[k])


def _inner_line(xs: Sequence[float], ys: Sequence[float], *, last: bool) -> tuple[float, float]:
    # The bin at the cut may have samples of either side in it.
    if len(xs) > 3:
        xs, ys = (xs[:-1], ys[:-1]) if last else (xs[1:], ys[1:])
    slope = fit_line(xs, ys).slope if len(xs) > 2 else 0.0
    return slope, median(y - slope * x for x, y in zip(xs, ys))


def _partition(xs: Sequence[float], ys: Sequence[float]) -> list[int]:
    """Return the edges of the best partition into lines, 0 and len(xs) among them."""
    size = len(xs)
    squares = _squares_of_lines(xs, ys)
    best = [squares[0]]
    back: list[list[int]] = [[0] * (size + 1)]
    for count in range(1, min(_MOST, size // _FEWEST)):
        row, origin = [math.inf] * (size + 1), [0] * (size + 1)
        for end in range(_FEWEST * (count + 1), size + 1):
            for begin in range(_FEWEST * count, end - _FEWEST + 1):
                total = best[-1][begin] + squares[begin][end]
                if total < row[end]:
                    row[end], origin[end] = total, begin
        best.append(row)
        back.append(origin)
    scores = [
        size * math.log(max(row[size], 0.0) / size + QUANTUM_BYTES**2) + _PENALTY * k
        for k, row in enumerate(best)
    ]
    count = min(range(len(scores)), key=scores.__getitem__)
    edges = [size]
    for k in range(count, -1, -1):
        edges.append(back[k][edges[-1]])
    return edges[::-1]


def _squares_of_lines(xs: Sequence[float], ys: Sequence[float]) -> list[list[float]]:
    """Return the residual sums of squares of lines through bins i to j (exclusive), as [i][j]."""
    size = len(xs)
    middle_x, middle_y = xs[size // 2], median(ys)
    us, vs = [x - middle_x for x in xs], [y - middle_y for y in ys]
    sums = [
        [0.0, *accumulate(column)]
        for column in (us, vs, [u * u for u in us], [u * v for u, v in zip(us, vs)], [v * v for v in vs])
    ]
    su, sv, suu, suv, svv = sums
    table = []
    for i in range(size):
        row = [math.inf] * (size + 1)
        for j in range(i + _FEWEST, size + 1):
            n = j - i
            u, v = su[j] - su[i], sv[j] - sv[i]
            uu = suu[j] - suu[i] - u * u / n
            uv = suv[j] - suv[i] - u * v / n
            vv = svv[j] - svv[i] - v * v / n
            row[j] = max(vv - uv * uv / uu, 0.0) if uu > 0 else vv
        table.append(row)
    return table
