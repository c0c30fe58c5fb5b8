"""The verdict on the history of a file's totals, up to its peak and to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.analysis.profiles.timeline import columns_of
from gdbmem.analysis.profiles.trend import AT_ONCE, SETTLED, STEADY, UNEVEN, judge
from gdbmem.model.profiles.snapshot import Totals

GREW, JUMPED, LEVELLED, ROSE, SPIKE, FLAT = "grew", "at-once", "settled", "rose", "spike", "flat"

_COLUMNS = 60  # number of intervals of equal time into which a history is divided
_FEWEST = 5  # snapshots: fewer are not judged
_STILL = 0.05  # of the peak: a smaller change is flat
_NARROW = 0.2  # of the time: larger than half of the peak for less time is a spike
_NEARLY = 0.9  # of the peak
_GONE = 0.5  # of the peak: an end below this has released it
_OVERHEAD = 0.5  # of the heap: allocator overhead that is worth reporting

_KINDS = {STEADY: GREW, AT_ONCE: JUMPED, SETTLED: LEVELLED, UNEVEN: ROSE}


class ProfileCourse(NamedTuple):
    """The verdict on the totals of a file."""

    to_peak: str  # GREW (steadily), JUMPED, LEVELLED, ROSE (unevenly), SPIKE or FLAT
    kept: float  # fraction of the peak that is held at the end
    overhead: float  # the allocator's overhead at the peak as a fraction of the heap

    @property
    def has_overhead(self) -> bool:
        return self.overhead >= _OVERHEAD


def course_of(snapshots: Sequence[Totals]) -> Optional[ProfileCourse]:
    """Return the verdict on *snapshots*; None if they are too few, or empty."""
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
    # Nothing is allocated before a program begins: if it starts with memory that it keeps, that is its level.
    if top - min(columns[: at + 1] or [0]) < _STILL * top:
        return FLAT
    high = [number for number, size in enumerate(columns) if size > _GONE * top]
    if kept < _GONE and high[-1] - high[0] < _NARROW * len(columns) and high[-1] < len(columns) - 2:
        return SPIKE
    to_peak = columns[: at + 1]
    if len(to_peak) < 3:
        return JUMPED
    last = max(number for number, size in enumerate(columns) if size >= _NEARLY * top)
    held = columns[: last + 1]  # up to the release
    return _KINDS.get(judge(held).kind, _KINDS.get(judge(to_peak).kind, ROSE))
