"""Two consecutive leak searches: the lost memory, and its change."""

from __future__ import annotations

from typing import Optional

from gdbmem.model.leak_kinds import LOST
from gdbmem.model.leaks import LeakRecord, LeakSearch
from gdbmem.records import replace


def with_changes(found: LeakSearch, changed: LeakSearch, *, since: str) -> LeakSearch:
    """Return *found* with the deltas of *changed*, which lists only the changed records.

    Both are of one moment. *since* describes the base of the deltas; "": the program's start.
    """
    deltas = {(record.kind, tuple(record.frames)): record for record in changed.records}
    records = [
        _with_delta(record, deltas.get((record.kind, tuple(record.frames)))) for record in found.records
    ]
    return replace(found, records=records, since=since or "the start")


def _with_delta(record: LeakRecord, change: Optional[LeakRecord]) -> LeakRecord:
    if change is None:
        return record._replace(delta_bytes=0, delta_blocks=0)
    return record._replace(delta_bytes=change.delta_bytes, delta_blocks=change.delta_blocks)


def lost_bytes(search: LeakSearch) -> int:
    """Return the bytes that are certainly unreachable: definitely and indirectly lost."""
    definite, indirect, _ = (sum(r.bytes for r in search.records if r.kind == kind) for kind in LOST)
    return definite + indirect


def ranked(search: LeakSearch) -> list[LeakRecord]:
    """Return the records, sorted by the bytes that fixing the line would free, largest first."""
    order = {kind: rank for rank, kind in enumerate((LOST[0], LOST[2], LOST[1]))}
    return sorted(
        search.records,
        key=lambda record: (
            order.get(record.kind, 3),
            -(record.bytes + record.indirect_bytes),
            record.number,
        ),
    )
