"""A straight line through the end of a series: its interval, and whether it is a trend or a level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Optional

from gdbmem.model.series import Slope, Verdict
from gdbmem.series import statistics

PAGES_BYTES = 2 * 4096  # memory comes in pages: a change of two is not a trend
MOST_BINS = 60
_LEAST_GROWTH_BYTES = 64 << 10  # over the whole window: less is irrelevant
_WALKS = 0.75  # with this correlation the residuals may be a random walk, for which a line is meaningless
_STRAIGHT = 0.01  # no random walk stays this close to its line, as a fraction of the change
_EXPLAINED = 1.5  # times the line's change: a larger movement has another cause
_WORTH = 0.05  # growth of this fraction of the level must not be hidden by the noise of a plateau
_WORTH_BYTES = 1 << 20


class FittedLine(NamedTuple):
    """A stretch of a series, with the line through it."""

    xs: Sequence[float]
    ys: Sequence[float]
    fit: statistics.Fit
    robust: float  # slope, bytes per second
    slope: Slope  # its interval allows for residuals that are alike, but not for wandering noise
    resolution: float
    drift: float = 0.0  # half the interval of a slope that wandering noise may have, bytes per second

    @property
    def stated(self) -> Slope:
        """The slope with the interval that allows for both."""
        low, high = (
            min(self.slope.low, self.robust - self.drift),
            max(self.slope.high, self.robust + self.drift),
        )
        return Slope(self.robust, low, high)

    @property
    def span(self) -> float:
        """The duration, seconds."""
        return self.xs[-1] - self.xs[0]

    @property
    def change(self) -> float:
        """Its rise, bytes."""
        return self.robust * self.span

    @property
    def not_excluded(self) -> float:
        """The largest slope, up or down, that is not excluded."""
        return max(self.resolution, self.stated.high, -self.stated.low)

    @property
    def hidden(self) -> float:
        """The growth that the noise could hide, bytes."""
        return self.resolution * self.span

    @property
    def worth(self) -> float:
        """The relevant growth, bytes, that it must not hide."""
        return worth_of(self.ys)

    @property
    def proves_change(self) -> bool:
        """True if its interval excludes a level, assuming noise that is independent of time."""
        return not self.slope.low <= 0 <= self.slope.high

    @property
    def changes(self) -> bool:
        """True if a level is excluded even under wandering noise."""
        return not self.stated.low <= 0 <= self.stated.high

    @property
    def is_level(self) -> bool:
        """True if it can't hide relevant growth, and nothing contradicts a level."""
        return not self.proves_change and self.hidden <= self.worth

    @property
    def is_trend(self) -> bool:
        """True if a rise or fall that continues to the end is proven."""
        return self.explains_change and self.changes and _is_trend(self.xs, self.ys, self.fit, self.robust)

    @property
    def explains_change(self) -> bool:
        """True if the line explains its change, unlike most of the change of a start-up."""
        return abs(self.ys[-1] - self.ys[0]) <= _EXPLAINED * abs(self.change)


def worth_of(ys: Sequence[float]) -> float:
    """Return the relevant growth, bytes, at the level of *ys*."""
    return max(_WORTH * median(ys), _WORTH_BYTES)


def fitted(times: Sequence[float], values: Sequence[float]) -> FittedLine:
    """Return the line through medians of equal intervals of time."""
    xs, ys = statistics.bins(times, values, MOST_BINS)
    fit, robust = statistics.fit_line(xs, ys), statistics.theil_sen(xs, ys)
    least = PAGES_BYTES / (xs[-1] - xs[0])
    # The slope detected with probability 0.8: the bound of the claim plus 0.84 standard errors.
    resolution = max((statistics.t_critical(fit.dof, statistics.Z_95) + 0.84) * fit.error, least)
    return FittedLine(xs, ys, fit, robust, fit.around(robust, least), resolution)


def _is_trend(xs: Sequence[float], ys: Sequence[float], fit: statistics.Fit, robust: float) -> bool:
    span = xs[-1] - xs[0]
    if abs(robust * span) < max(_LEAST_GROWTH_BYTES, PAGES_BYTES) or fit.slope * robust <= 0:
        return False
    strict = statistics.t_critical(fit.dof, statistics.Z_STRICT)
    straight = fit.residual < len(xs) * (_STRAIGHT * robust * span) ** 2
    proven = abs(fit.slope) > strict * fit.error and (fit.likeness < _WALKS or straight)
    if not proven and not _drifts(ys):
        return False
    return _goes_on(xs, ys)


def _drifts(ys: Sequence[float]) -> bool:
    """Return whether the increments have a nonzero mean: true for growth in jumps, false for a random walk."""
    stride = max(len(ys) // 20, 1)
    picked = ys[::stride]
    steps = [b - a for a, b in zip(picked, picked[1:])]
    count = len(steps)
    middle = sum(steps) / count
    spread = math.sqrt(sum((step - middle) ** 2 for step in steps) / max(count - 1, 1))
    return abs(middle) > statistics.t_critical(count - 1, statistics.Z_STRICT) * spread / math.sqrt(count)


def _goes_on(xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Return whether each third takes its share of the change, and the last one no less than a fair one."""
    size = len(xs)
    if size < 6:
        return True
    thirds = [slice(0, size // 3 + 1), slice(size // 3, 2 * size // 3 + 1), slice(2 * size // 3, size)]
    whole = statistics.theil_sen(xs, ys)
    slopes = [statistics.theil_sen(xs[part], ys[part]) / whole for part in thirds]
    return min(slopes) > 0.2 and slopes[2] > 0.45 * slopes[0]


# Growth that begins in the middle of a series, or accelerates: a line through the whole series misses it.


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
    squares = sum((y - curve) ** 2 for y, curve in zip(rest_y, statistics.isotonic(rest_y)))
    if early > 2 * _QUIET * change or squares > len(rest_y) * (_ROUGH * change) ** 2:
        return None
    third = len(rest_y) // 3
    thirds = [slice(begin, begin + third + 1) for begin in (0, third, len(rest_y) - third - 1)]
    slopes = [statistics.theil_sen(rest_x[part], rest_y[part]) for part in thirds]
    if min(slopes) <= 0 or slopes[2] < _SLOWING * max(slopes) or _is_one_leap(rest_y):
        return None
    return start


def _is_one_leap(ys: Sequence[float]) -> bool:
    steps = [b - a for a, b in zip(ys, ys[1:])]
    return max(steps) > 0.5 * (ys[-1] - ys[0]) or median(steps) <= 0


# The recording time until a slope of a given size would be called growing, by the noise so far.


_LEAST_BYTES = 96 << 10  # over the whole time: less is not called growth
_STRICT = 3.0  # factor of the least slope called growing over the least detectable one
_FEWEST_TEETH = 8


def seconds_to_resolve(verdict: Verdict, slope: float) -> Optional[float]:
    """Return the seconds to record, from the beginning, until *slope* (bytes per second) would be called growing.

    A line's error falls with the time to the power of 3/2, as the number of samples and the span increase.
    None if there are too few samples to estimate the noise.
    """
    if verdict.resolution is None or not verdict.regimes:
        return None
    last = verdict.regimes[-1]
    length = last.end - last.begin
    lever: float = (_STRICT * verdict.resolution / slope) ** (2 / 3)
    needed = max(length * lever, _LEAST_BYTES / slope)
    if verdict.period_seconds is not None:
        needed = max(needed, _FEWEST_TEETH * verdict.period_seconds)
    return last.begin - verdict.regimes[0].begin + needed


# Pauses of growth in jumps: a level at the end proves little if there were levels as long before.


_LEAST_RISE_BYTES = 64 << 10
_STANDS_OUT = 4.0  # times the noise; that of the medians is about half
_AROUND = 2  # samples on either side that a median is of
_USUAL, _OTHERS = 3.0, 2  # a pause is not an exception if this many others have a third of its length


class Pauses(NamedTuple):
    """The pauses of a rising series of any shape."""

    longest: float  # seconds, from one rise to the next, if it usually pauses for about as long; else 0
    now: float  # seconds since the last rise

    def hide_an_end(self, waits: float) -> bool:
        """Return whether the current pause is shorter than *waits* times the usual one."""
        return self.now < waits * self.longest


def find_pauses(times: Sequence[float], values: Sequence[float]) -> Pauses:
    """Return the longest usual pause, and the one at the end.

    A single long pause, as between a start-up and one step, is not usual and does not count.
    """
    rises = _rises(times, values)
    pauses = sorted((b - a for a, b in zip(rises, rises[1:])), reverse=True)
    usual = next((a for a, other in zip(pauses, pauses[_OTHERS:]) if other >= a / _USUAL), 0.0)
    return Pauses(usual, times[-1] - (rises[-1] if rises else times[0]))


def _rises(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return the times at which the series had risen permanently by more than its noise."""
    least = max(_LEAST_RISE_BYTES, _STANDS_OUT * statistics.noise_of(values))
    width = 2 * _AROUND + 1
    if len(values) < width:
        return []
    calm = [median(values[i : i + width]) for i in range(len(values) - width + 1)]
    level, rises = calm[0], []
    for t, now in zip(times[_AROUND:], statistics.isotonic(calm)):
        if now - level > least:
            rises.append(t)
            level = now
    return rises
