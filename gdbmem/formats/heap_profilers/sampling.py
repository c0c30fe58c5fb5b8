"""Counts of a sampled heap profile, scaled to what the program holds, with their standard errors."""

from __future__ import annotations

import math
from typing import NamedTuple


class Estimate(NamedTuple):
    """The estimate that a number of sampled blocks stands for."""

    bytes: int
    blocks: int
    variance: float  # bytes²; its root is the standard error


def unsample(blocks: int, size_bytes: int, rate_bytes: int) -> Estimate:
    """Return what *blocks* sampled blocks of *size_bytes* together stand for.

    *rate_bytes* is the mean distance between two samples (a Poisson process); at 1 or below nothing was
    left out. A block of s bytes is sampled with the probability p = 1 - exp(-s / rate), so each stands for 1 / p
    blocks; the estimate's variance is the sum of (s / p)² (1 - p).
    """
    if rate_bytes <= 1 or blocks <= 0 or size_bytes <= 0:
        return Estimate(size_bytes, blocks, 0.0)
    average = size_bytes / blocks
    share = -math.expm1(-average / rate_bytes)
    estimated = average / share
    # Cut, not rounded, as pprof and jeprof do: the totals of the three are equal.
    scale = 1.0 / share
    return Estimate(
        int(size_bytes * scale), int(blocks * scale), blocks * estimated * estimated * (1.0 - share)
    )
