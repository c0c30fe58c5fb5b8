"""Cuts a series at its change points into stretches of time, each best described by a straight line.

Optimal partitioning with a penalty for each cut, on medians of equal stretches of time; then each cut is
moved to the sample where it belongs.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple, Optional

from gdbmem.model.series import Regime, Slope
from gdbmem.series import statistics
from gdbmem.series.fitted import PAGES_BYTES
from gdbmem.text import format_delta, format_duration, format_size

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
        return len(residuals) >= _TELLING_BINS and statistics.likeness_of(residuals) > _ALIKE

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
    xs, ys = statistics.bins(times[first:], values[first:], _BINS)
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
    xs, ys = statistics.bins(times[begin:end], values[begin:end], _BINS_OF_STRETCH)
    return Stretch(begin, end, xs, ys, statistics.theil_sen(xs, ys), 0.0)


def _jump(before: Stretch, after: Stretch, values: Sequence[float]) -> float:
    height = after.at(after.xs[0]) - before.at(before.xs[-1])
    on_the_way = (abs(before.slope) + abs(after.slope)) * (after.xs[0] - before.xs[-1])
    least = max(_JUMP_BYTES, _STANDS_OUT * statistics.noise_of(values), 2 * on_the_way)
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
    slope = statistics.fit_line(xs, ys).slope if len(xs) > 2 else 0.0
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


# The error of a slope in noise that may wander: neighbours alike, up to a random walk.
#
# A line's own residuals are not enough: a stretch that was cut out because it is straight has hardly any, and few
# samples show too little of a slow drift. So how far the values wander is taken from the increments of the whole
# series and of the stretch, whichever is more, and close to a random walk the noise is taken to be one.


_INCREMENT_BINS = 100
_FEWEST_VALUES = 4  # values of a stretch with three increments
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
        first = min(bisect_left(self.xs, begin), max(len(self.xs) - _FEWEST_VALUES, 0))
        part = self.ys[first:]
        size = len(part)
        if size < _FEWEST_VALUES:
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
        return statistics.t_critical(size - 2, _Z_CHOSEN if first else statistics.Z_95) * error


def wandering_of(
    times: Sequence[float], values: Sequence[float], stretches: Sequence[Stretch] = ()
) -> Wandering:
    """Return the increments of a series; single jumps and a short start-up do not count.

    Those of a curve are alike for longer than those of a random walk: then the slopes of its *stretches* are left out.
    """
    xs, ys = statistics.bins(times, values, _INCREMENT_BINS)
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
    return statistics.deviation(steps) ** 2


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


# The history before the last regime of a series, as text and as regimes.


_START = 0.1  # of the time: an earlier step is part of the start-up
# The same for a program with less than this of its later level until then.
_LATE_START, _NEXT_TO_NOTHING = 1 / 3, 1 / 8
_MOST_TOLD = 3  # stretches that are described individually
_LEVEL_BYTES = 64 << 10  # a change below this, or below
_LEVEL_SHARE = 0.02  # this fraction of the largest change, is not a change


class LastStep(NamedTuple):
    """One step between two levels, or the last of several."""

    words: str
    size_bytes: float
    at: float  # in the series' own time


def before_now(
    stretches: Sequence[Stretch], times: Sequence[float], values: Sequence[float], until: float
) -> str:
    """Describe the history before *until*, where the last regime begins; "" if it is the only one."""
    before = [s for s in stretches if s.xs[0] < until and s is not stretches[-1]]
    last = stretches[-1]
    begin = times[0]
    if not before:
        head = last.xs[0] < until - 0.3 * last.seconds
        return _grown(last.ys[-1] - last.ys[0], until - begin, "the first ") if head else ""
    # A step has its own time, however much later the judged part begins.
    end = times[last.begin] if last.jump else max(until, times[last.begin])
    ends = [*(times[s.begin] for s in before[1:]), end]
    following = [*before[1:], last]
    if len(before) > _MOST_TOLD:
        level = _is_level(before[0], before) and not before[1].jump
        start = ends[0] if level else begin
        change = last.at(ends[-1]) - (before[0].level if level else values[0])
        grown = _grown(change, ends[-1] - start, "" if level else "the first ")
        return f"{_level_words(before[0], start - begin)}, {grown}" if level else grown
    words: list[str] = []
    told, since = "", begin  # the last described level, and its begin
    for stretch, after, end in zip(before, following, ends):
        start = times[stretch.begin]
        if _is_level(stretch, before):
            if format_size(stretch.level) == told:
                words.pop()
            else:
                told, since = format_size(stretch.level), start
            words.append(_level_words(stretch, end - since))
        else:
            told = ""
            first = stretch is before[0]
            change = after.at(end) - after.jump - (values[0] if first else stretch.at(start))
            words.append(_grown(change, end - start, "the first " if first else ""))
        if after.jump:
            words.append(f"{format_delta(after.jump)} at once")
            told = ""
    return ", ".join(words)


def _grown(change: float, seconds: float, first: str) -> str:
    return f"{format_delta(change)} in {first}{format_duration(seconds)}"


def _level_words(stretch: Stretch, seconds: float) -> str:
    return f"level at {format_size(stretch.level)} for {format_duration(seconds)}"


def _is_level(stretch: Stretch, among: Sequence[Stretch]) -> bool:
    largest = max(abs(s.change) for s in among)
    return abs(stretch.change) <= max(_LEVEL_BYTES, _LEVEL_SHARE * largest, 2 * stretch.scatter)


def tell_step(stretches: Sequence[Stretch], times: Sequence[float]) -> Optional[LastStep]:
    """Return the last step between levels; None if the series began with it, or there was another change."""
    steps = [(a, b) for a, b in zip(stretches, stretches[1:]) if b.jump]
    if not steps or len(steps) < len(stretches) - 1:
        return None
    biggest = max(abs(b.jump) for _, b in steps)
    if any(abs(s.change) > 0.25 * biggest for s in stretches):
        return None
    before, after = steps[-1]
    begin = times[0]
    at = (times[after.begin - 1] + times[after.begin]) / 2
    start = _LATE_START if before.level <= _NEXT_TO_NOTHING * after.level else _START
    if at - begin < start * (times[-1] - begin):
        return None
    size = after.level - before.level
    levels = f"level before ({format_size(before.level)}) and after ({format_size(after.level)})"
    one = "one step" if len(steps) == 1 else f"{len(steps)} steps, the last"
    return LastStep(f"{one} of {format_delta(size)} after {format_duration(at - begin)}, {levels}", size, at)


def regimes_of(stretches: Sequence[Stretch], times: Sequence[float], until: Optional[float]) -> list[Regime]:
    """Return *stretches* as regimes, with steps at jumps between them; the last one ends at *until*."""
    found: list[Regime] = []
    for number, stretch in enumerate(stretches):
        begin = times[stretch.begin]
        if stretch.jump and number:
            found.append(Regime(times[stretch.begin - 1], begin, "step", stretch.jump))
        following = stretches[number + 1] if number + 1 < len(stretches) else None
        if following is not None:
            end = times[following.begin - 1] if following.jump else times[following.begin]
        else:
            end = until if until is not None else times[min(stretch.end, len(times) - 1)]
        slope = _slope(stretch)
        kind = "growing" if slope.low > 0 else "shrinking" if slope.high < 0 else "plateau"
        found.append(Regime(begin, end, kind, stretch.change, slope))
    return found


def _slope(stretch: Stretch) -> Slope:
    least = PAGES_BYTES / stretch.seconds if stretch.seconds > 0 else 0.0
    return statistics.fit_line(stretch.xs, stretch.ys).around(stretch.slope, least)
