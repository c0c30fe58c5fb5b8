"""Pauses of growth in jumps: a level at the end proves little if there were levels as long before."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from gdbmem.analysis.series.statistics import isotonic, noise_of

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
    least = max(_LEAST_RISE_BYTES, _STANDS_OUT * noise_of(values))
    width = 2 * _AROUND + 1
    if len(values) < width:
        return []
    calm = [median(values[i : i + width]) for i in range(len(values) - width + 1)]
    level, rises = calm[0], []
    for t, now in zip(times[_AROUND:], isotonic(calm)):
        if now - level > least:
            rises.append(t)
            level = now
    return rises
