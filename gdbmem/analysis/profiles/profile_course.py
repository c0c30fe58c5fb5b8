"""The verdict on the history of a file's totals, up to its peak and to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.analysis.profiles.timeline import columns_of
from gdbmem.analysis.profiles.trend import AT_ONCE, SETTLED, STEADY, UNEVEN, judge
from gdbmem.model.profiles.snapshot import Totals

GREW, JUMPED, LEVELLED, ROSE, SPIKE, FLAT = "grew", "at-once", "settled", "rose", "spike", "flat"

_COLUMNS = 60  # of equal time, into which a course is divided
_FEWEST = 5  # snapshots: fewer have no course
_STILL = 0.05  # of the peak: what changes by less is flat
_NARROW = 0.2  # of the time: what is larger than half of the peak for less is a spike
_NEARLY = 0.9  # of the peak
_GONE = 0.5  # of the peak: what ends below has given it back
_OVERHEAD = 0.5  # of the heap: an allocator's own part that is worth a word

_KINDS = {STEADY: GREW, AT_ONCE: JUMPED, SETTLED: LEVELLED, UNEVEN: ROSE}


class ProfileCourse(NamedTuple):
    """The verdict on the totals of a file."""

    to_peak: str  # GREW (steadily), JUMPED, LEVELLED, ROSE (unevenly), SPIKE or FLAT
    kept: float  # how much of the peak is held at the end, 0 to 1
    overhead: float  # the allocator's own bytes at the peak, in parts of the heap's

    @property
    def has_overhead(self) -> bool:
        return self.overhead >= _OVERHEAD


def course_of(snapshots: Sequence[Totals]) -> Optional[ProfileCourse]:
    """Return the verdict on *snapshots*; None where they are too few, or hold nothing."""
    if len(snapshots) < _FEWEST:
        return None
    peak = max(snapshots, key=lambda totals: totals.total_bytes)
    if not peak.total_bytes:
        return None
    columns = [column.total_bytes for column in columns_of(snapshots, _COLUMNS)]
    kept = snapshots[-1].total_bytes / peak.total_bytes
    overhead = peak.extra_bytes / peak.heap_bytes if peak.heap_bytes else 0.0
    return ProfileCourse(_kind(columns, kept), kept, overhead)


def _kind(columns: Sequence[int], kept: float) -> str:
    top = max(columns)
    at = columns.index(top)
    # Nothing is allocated before a program begins: where it starts with what it keeps, that is its level.
    if top - min(columns[: at + 1] or [0]) < _STILL * top:
        return FLAT
    high = [number for number, size in enumerate(columns) if size > _GONE * top]
    if kept < _GONE and high[-1] - high[0] < _NARROW * len(columns) and high[-1] < len(columns) - 2:
        return SPIKE
    to_peak = columns[: at + 1]
    if len(to_peak) < 3:
        return JUMPED
    last = max(number for number, size in enumerate(columns) if size >= _NEARLY * top)
    held = columns[: last + 1]  # up to where it is given back
    return _KINDS.get(judge(held).kind, _KINDS.get(judge(to_peak).kind, ROSE))
