"""Summing up vectors found without types."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.errors import Notice
from gdbmem.model.ledger.vectors import FoundVector, FoundVectors

LISTED = 1000


def sum_vectors(vectors: Sequence[FoundVector], notices: Sequence[Notice] = ()) -> FoundVectors:
    """Return the sums over *vectors*, and those with most unused capacity."""
    empty = [vector for vector in vectors if not vector.used_bytes]
    ranked = sorted(vectors, key=lambda v: (-v.slack_bytes, -v.capacity_bytes, v.begin))
    return FoundVectors(
        count=len(vectors),
        capacity_bytes=sum(vector.capacity_bytes for vector in vectors),
        slack_bytes=sum(vector.slack_bytes for vector in vectors),
        empty=len(empty),
        empty_bytes=sum(vector.capacity_bytes for vector in empty),
        largest=ranked[:LISTED],
        notices=notices,
    )
