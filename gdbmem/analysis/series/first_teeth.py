"""Growth that only repeats what was lost again at once before: the first teeth of a sawtooth look like a trend.

Three teeth make a sawtooth; with fewer there is a rise, a fall, and a rise that is not yet higher than the first.
Both are read from the samples: with few samples per tooth, the fall is not a separate stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.series.fitted import FittedLine
from gdbmem.analysis.series.sawtooth import turning_points
from gdbmem.analysis.series.statistics import noise_of
from gdbmem.records import dataclass

_ALIKE = 0.4  # of the rate before the fall, and its inverse: within these it rises as it did
_LEAST = 0.5  # of the rise since: a smaller fall is none
_NOISE = 6.0  # times the noise: a fall
_OUTLASTS = 1.3  # times the rise before the fall: what has risen by more is not another tooth
_PART = 0.1  # of the fall: a recording that began within a tooth has seen so much of its rise
_NEAR = 0.1  # of the fall: a level this close is the same


@dataclass(frozen=True)
class Repeated:
    """A rise like the one before the last fall."""

    fall_bytes: float
    needs_seconds: float  # until it has outlasted the rise before


def repeated_rise(times: Sequence[float], values: Sequence[float], line: FittedLine) -> Optional[Repeated]:
    """Return whether *line*, the end of *values*, repeats the rise before the last fall; None if not."""
    if line.robust <= 0:
        return None
    peaks, troughs = turning_points(values, max(_NOISE * noise_of(values), _LEAST * line.change))
    trough = troughs[-1] if troughs else 0
    peak = max((turn for turn in peaks if turn < trough), default=0)
    if not peak or line.xs[0] < times[peak]:
        return None
    peak = max(range(peak, trough), key=values.__getitem__)  # not smoothed
    trough = min(range(peak, trough + 1), key=values.__getitem__)
    fall = values[peak] - values[trough]
    foot = max((turn for turn in troughs if turn < peak), default=0)
    foot = _last_low(values, foot, peak, values[trough] + _NEAR * fall)
    rise = values[peak] - values[foot]
    top = max(range(trough + 1, len(values)), key=values.__getitem__)  # it may have begun to fall again
    since, rate = values[top] - values[trough], rise / (times[peak] - times[foot])
    alike = _ALIKE * rate <= since / (times[top] - times[trough]) <= rate / _ALIKE
    missing = _OUTLASTS * max(rise, fall) - since
    if not alike or missing < 0 or rise < _PART * fall:
        return None
    return Repeated(fall, missing / line.robust)


def _last_low(values: Sequence[float], first: int, end: int, level: float) -> int:
    """Return the last sample of *first* to *end* (exclusive) at *level* or below; the lowest, if none is."""
    low = next((at for at in range(end - 1, first - 1, -1) if values[at] <= level), None)
    return min(range(first, end), key=values.__getitem__) if low is None else low
