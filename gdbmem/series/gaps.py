"""Gaps without samples or changes: the time of a suspended machine does not count for a rate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from gdbmem.series.statistics import noise_of, theil_sen

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
_LEAST_TEARDOWN_BYTES = 64 << 10
_STANDS_OUT = 6.0  # times the noise

Point = tuple[float, float]  # seconds, bytes


def without_teardown(points: list[Point]) -> list[Point]:
    """Return the *points* of a program that has ended, without a final fall that was not followed by a rise."""
    least = max(_LEAST_TEARDOWN_BYTES, _STANDS_OUT * noise_of([value for _, value in points[-200:]]))
    seconds = (
        max(_SECONDS, min(_TEARDOWN_SHARE * (points[-1][0] - points[0][0]), _MOST_SECONDS)) if points else 0.0
    )
    begin = len(points)
    highest = 0.0
    for number in range(len(points) - 1, 0, -1):
        t, value = points[number]
        if len(points) - number > _MOST_TEARDOWN_SAMPLES and points[-1][0] - t > seconds:
            break
        highest = max(highest, value)
        if points[number - 1][1] - highest > least:
            begin = number
    return points[:begin]
