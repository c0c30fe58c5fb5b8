"""The containers that hold the growth between two snapshots, from container scans at the same moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.profiles.holding import find_holdings
from gdbmem.errors import InputError
from gdbmem.report.containers.containers import read_survey
from gdbmem.runs.saved_results import CONTAINERS, Kept, kept_records, kept_text

if TYPE_CHECKING:
    from gdbmem.analysis.profiles.query import Query
    from gdbmem.model.holding import Holding
    from gdbmem.model.profiles.diff import Diff
    from gdbmem.runs.run import Run, SnapshotRecord

_MOST_SURVEYS = 50


def holdings(run: Run, chosen: Sequence[SnapshotRecord], diff: Diff, query: Query) -> Sequence[Holding]:
    """Return the containers that hold the growth in *diff*, of the snapshots *chosen* of *run*.

    None are returned if the run has no container scans with the names and locations of the first and the last.
    """
    kept = kept_records(run, CONTAINERS)
    ends = [_of_moment(kept, record) for record in (chosen[0], chosen[-1])]
    if not kept or None in ends or chosen[0].process != chosen[-1].process:
        return []
    first, last = (kept.index(one) for one in ends if one is not None)
    if first >= last:
        return []
    between = [one for one in kept[first : last + 1] if one.place == kept[last].place]
    if len(between) > _MOST_SURVEYS:
        between = [between[0], between[-1]]
    try:
        surveys = [read_survey(kept_text(run, one), one.file) for one in between]
    except InputError:
        return []  # one is damaged: the diff goes without
    return find_holdings(diff, query, surveys)


def _of_moment(kept: Sequence[Kept], record: SnapshotRecord) -> Optional[Kept]:
    same = [one for one in kept if (one.base_name, one.ordinal) == (record.base_name, record.ordinal)]
    return next((one for one in same if (one.place, one.hit) == (record.place, record.hit)), None)
