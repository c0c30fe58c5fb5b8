"""A recording of page faults as JSON: ``kind=profile``, with the account beside it."""

from __future__ import annotations

from typing import Optional

from gdbmem.analysis.profiles.query import Query
from gdbmem.model.faults import FaultTotals
from gdbmem.model.profiles.snapshot import Profile, Snapshot
from gdbmem.records import asdict
from gdbmem.report.document import Document, to_json
from gdbmem.report.profiles.profile_json import profile_document


def grow_json(
    profile: Profile,
    snapshot: Snapshot,
    totals: FaultTotals,
    stacks: list[dict[str, object]],
    query: Query,
    held: Optional[list[Document]],
) -> str:
    """Return the recording as text; *held*: the contents of the memory of the lines that grew most."""
    known = [one.delta_bytes for one in totals.accounts if one.delta_bytes is not None]
    document: Document = {
        **profile_document(profile, query, snapshot=snapshot),
        "delta_rss_bytes": sum(known) if len(known) == len(totals.accounts) else None,
        "seen_bytes": round(sum(one.seen_bytes for one in totals.accounts)),
        "grown_bytes": round(sum(one.grown_bytes for one in totals.accounts)),
        "unseen_bytes": sum(part.bytes for one in totals.accounts for part in one.unseen),
        "totals": asdict(totals),
        "paths": stacks,
        **({} if held is None else {"held": held}),
    }
    return to_json(document)
