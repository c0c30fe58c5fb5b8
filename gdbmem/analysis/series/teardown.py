"""The end of a program: samples taken while the kernel releases its memory, or after most of a tree has ended."""

from __future__ import annotations

from gdbmem.analysis.series.statistics import noise_of

_SECONDS = 1.0  # a process of some GiB is torn down in less time on an idle machine
_SHARE, _MOST_SECONDS = 0.1, 3.0  # of the time, if that is more; but never more than this
_FEWEST = 4  # number of samples that may belong to it, at any distance
_LEAST_BYTES = 64 << 10
_STANDS_OUT = 6.0  # times the noise

Point = tuple[float, float]  # seconds, bytes


def without_teardown(points: list[Point]) -> list[Point]:
    """Return the *points* of a program that has ended, without a final fall that was not followed by a rise."""
    least = max(_LEAST_BYTES, _STANDS_OUT * noise_of([value for _, value in points[-200:]]))
    seconds = max(_SECONDS, min(_SHARE * (points[-1][0] - points[0][0]), _MOST_SECONDS)) if points else 0.0
    begin = len(points)
    highest = 0.0
    for number in range(len(points) - 1, 0, -1):
        t, value = points[number]
        if len(points) - number > _FEWEST and points[-1][0] - t > seconds:
            break
        highest = max(highest, value)
        if points[number - 1][1] - highest > least:
            begin = number
    return points[:begin]
