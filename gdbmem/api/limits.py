"""Verdicts on whether a difference exceeds a limit, including the uncertainty of the data."""

from __future__ import annotations

from typing import Optional

from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.analysis.profiles.samples import (
    STANDARD_ERRORS,
    is_met,
    missing_bytes,
    of_one_process,
    sampling_error,
)
from gdbmem.model.profiles.calltree import PRUNED
from gdbmem.model.profiles.diff import Diff
from gdbmem.model.profiles.snapshot import TRACING, UNTRACED
from gdbmem.records import dataclass, replace

__all__ = ["STANDARD_ERRORS", "Growth", "judge_growth"]


@dataclass(frozen=True)
class Growth:
    """Growth in bytes, judged against a limit."""

    grown_bytes: int  # outside the heap included, known paths left out
    outside_bytes: int  # the part outside the heap
    hidden_bytes: int  # the most that it may be larger, because of paths that a side does not list
    sampling_bytes: int  # sampling error: STANDARD_ERRORS standard errors
    met: Optional[bool]  # whether the growth is within the limit; None: undecidable
    # Why: a file lacks an unknown number of bytes; "": none does, so it is the sampling error.
    missing: str = ""


def judge_growth(diff: Diff, query: Query, limit_bytes: int, *, one_process: bool = False) -> Growth:
    """Judge whether *diff*, without the paths that *query* excludes or knows, grew by at most *limit_bytes*.

    *one_process*: both sides are of the same process, so that equal samples of a path are the same blocks.
    """
    if one_process:
        diff = of_one_process(diff)
    ranking = rank(diff, replace(query, by="line", top=None, min_bytes=0))
    grown, rows = ranking.delta_matched_bytes, ranking.rows
    # The total is exact; the part that remains without known or unmatched paths may be larger than it appears.
    divided = bool(query.known or query.filters)
    hidden = rows.together().hidden_bytes if divided else 0
    if divided:
        before, after = _unlisted(diff)
        # The growth of these paths is anything from -before to +after.
        grown -= (after - before) // 2
        hidden += (after + before) // 2
    sampling = sampling_error(
        sum(amount.error_bytes**2 for amount in rows.amounts()) if divided else sum(diff.variance or ())
    )
    # Untraced resident memory also changes with the program's code.
    judged = [one for one in diff.outside if one.name not in (TRACING, UNTRACED)]
    outside = 0 if query.filters else sum(one.delta_bytes for one in judged)
    grown += outside
    missing = missing_bytes(diff)
    met = None if missing else is_met(grown - limit_bytes, hidden=hidden, sampling=sampling)
    return Growth(grown, outside, hidden, sampling, met, missing)


def _unlisted(diff: Diff) -> tuple[int, int]:
    """Return the bytes that each side counts without naming their paths: all of them may be known, or none."""
    places = [number for number, frame in enumerate(diff.frame) if frame == PRUNED] if diff.is_cut else []
    return sum(diff.before[place] for place in places), sum(diff.after[place] for place in places)
