"""Judging what was sampled against a limit: how far an estimate may be off, and when that is too far to tell."""

from __future__ import annotations

import math
from typing import Optional

from gdbmem.model.profiles.diff import Diff
from gdbmem.records import replace
from gdbmem.units import format_size

STANDARD_ERRORS = 3  # so far from the estimate of samples the truth is once in 370 times


def sampling_error(variance: float) -> int:
    """Return how many bytes an estimate of that *variance* (bytes²) may be off."""
    return round(STANDARD_ERRORS * math.sqrt(variance))


def is_met(excess: int, *, hidden: int, sampling: int) -> Optional[bool]:
    """Tell whether a limit is kept that was measured to be exceeded by *excess* (negative: there is room).

    *hidden* bytes that may come on top count against it. Where the truth may lie on either side, since samples
    may be *sampling* off, nobody can tell: None.
    """
    worst = excess + hidden
    if worst + sampling <= 0:
        return True
    return None if worst - sampling <= 0 else False


def of_one_process(diff: Diff) -> Diff:
    """Return *diff*, whose sides are one process's, with no error where a path's samples are the same on both.

    They are the same blocks there, by all that can be seen. In two processes equal numbers are chance.
    """
    if diff.variance is None:
        return diff
    pairs = zip(diff.own_before, diff.own_after, diff.variance)
    return replace(diff, variance=[0.0 if before == after else variance for before, after, variance in pairs])


def samples_off(sampling: int) -> str:
    """Return the words for samples that may be *sampling* bytes off."""
    return f"samples may be {format_size(sampling)} off ({STANDARD_ERRORS} standard errors)"
