"""Judging sampled or incomplete data against a limit: whether it allows a decision."""

from __future__ import annotations

import math

from gdbmem.model.profiles.diff import Diff
from gdbmem.records import replace
from gdbmem.units import format_size

STANDARD_ERRORS = 3  # the true value is further from the estimate in one of 370 cases


def sampling_error(variance: float) -> int:
    """Return the error bound in bytes of an estimate with *variance* (bytes²)."""
    return round(STANDARD_ERRORS * math.sqrt(variance))


def of_one_process(diff: Diff) -> Diff:
    """Return *diff* of one process without error for paths whose samples are the same on both sides.

    They are assumed to be the same blocks. In two processes equal numbers are coincidence.
    """
    if diff.variance is None:
        return diff
    pairs = zip(diff.own_before, diff.own_after, diff.variance)
    return replace(diff, variance=[0.0 if before == after else variance for before, after, variance in pairs])


def samples_off(sampling: int) -> str:
    """Return the phrase for a sampling error of *sampling* bytes."""
    return f"samples may be {format_size(sampling)} off ({STANDARD_ERRORS} standard errors)"
