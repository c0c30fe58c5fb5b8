"""The recording time until a slope of a given size would be called growing, by the noise so far."""

from __future__ import annotations

from typing import Optional

from gdbmem.model.series.verdict import Verdict

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
