"""A heap profile as JSON, ``kind=profile``."""

from __future__ import annotations

from typing import Optional

from gdbmem.analysis.profiles.diff import as_growth
from gdbmem.analysis.profiles.profile_course import course_of
from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.model.profiles.snapshot import Profile, Snapshot, Totals
from gdbmem.records import replace
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.profiles.ranking_json import rows


def profile_json(
    profile: Profile, query: Optional[Query] = None, *, snapshot: Optional[Snapshot] = None
) -> str:
    """Return the text of profile_document()."""
    return to_json(profile_document(profile, query or Query(), snapshot=snapshot))


def profile_document(profile: Profile, query: Query, *, snapshot: Optional[Snapshot]) -> Document:
    """Return *profile* as ``kind=profile``, with the rows of *snapshot* as ``sites`` if it is given."""
    peak = profile.snapshots[profile.peak_index] if profile.snapshots else None
    course = course_of(profile.snapshots)
    return {
        **head("profile", profile.notices),
        "source": profile.source,
        "source_format": profile.source_format,
        "command": profile.command,
        "unit": profile.unit,
        "snapshots": [_totals(totals, profile.time_unit) for totals in profile.snapshots],
        "peak": None if peak is None else {"index": peak.index, "total_bytes": peak.total_bytes},
        "course": None if course is None else course._asdict(),
        "sites": None if snapshot is None else _sites(snapshot, query),
    }


def _totals(totals: Totals, time_unit: str) -> Document:
    return {
        "index": totals.index,
        "name": totals.name or None,
        "time": totals.time,
        "time_unit": time_unit,
        "heap_bytes": totals.heap_bytes,
        "extra_bytes": totals.extra_bytes,
        "stacks_bytes": totals.stacks_bytes,
        "total_bytes": totals.total_bytes,
        "has_tree": totals.has_tree,
        "beside": dict(totals.beside),
    }


def _sites(snapshot: Snapshot, query: Query) -> Document:
    growth = as_growth(snapshot)
    ranking = rank(growth, replace(query, all_frames=True) if query.by == "path" else query)
    return {
        "index": snapshot.totals.index,
        "by": query.by,
        "total_bytes": growth.after[0],
        **rows(ranking),
    }
