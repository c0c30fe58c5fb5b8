"""Judging sampled or incomplete data against a limit: whether it allows a decision."""

from __future__ import annotations

import math
from typing import Optional

from gdbmem.formats.opening import ENDS_EARLY
from gdbmem.formats.valgrind.massif import DAMAGED, TRUNCATED
from gdbmem.model.profiles.diff import Diff
from gdbmem.model.profiles.snapshot import BYTES_MISSING
from gdbmem.records import replace
from gdbmem.units import format_size

_LACKING = (BYTES_MISSING, ENDS_EARLY, DAMAGED, TRUNCATED)  # notices of files that lack stacks, or a snapshot
STANDARD_ERRORS = 3  # the true value is further from the estimate in one of 370 cases


def sampling_error(variance: float) -> int:
    """Return the error bound in bytes of an estimate with *variance* (bytes²)."""
    return round(STANDARD_ERRORS * math.sqrt(variance))


def is_met(excess: int, *, hidden: int, sampling: int) -> Optional[bool]:
    """Return whether a limit is met that was measured to be exceeded by *excess* (negative: there is room).

    *hidden* bytes may add to it and count against it. None if the sampling error *sampling* makes this undecidable.
    """
    worst = excess + hidden
    if worst + sampling <= 0:
        return True
    return None if worst - sampling <= 0 else False


def of_one_process(diff: Diff) -> Diff:
    """Return *diff* of one process without error for paths whose samples are the same on both sides.

    They are assumed to be the same blocks. In two processes equal numbers are coincidence.
    """
    if diff.variance is None:
        return diff
    pairs = zip(diff.own_before, diff.own_after, diff.variance)
    return replace(diff, variance=[0.0 if before == after else variance for before, after, variance in pairs])


def missing_bytes(diff: Diff) -> str:
    """Return the message that a file of *diff* lacks an unknown number of bytes; "" if none does."""
    return next((notice.message for notice in diff.notices if notice.slug in _LACKING), "")


def samples_off(sampling: int) -> str:
    """Return the phrase for a sampling error of *sampling* bytes."""
    return f"samples may be {format_size(sampling)} off ({STANDARD_ERRORS} standard errors)"
