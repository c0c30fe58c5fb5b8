"""Pools as JSON, ``kind=bfc``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Optional

from gdbmem.analysis.bfc.explanation import decision_sentence, headline
from gdbmem.errors import Notice
from gdbmem.model.bfc.pools import FREE, IN_USE, Allocator, Decision, Region
from gdbmem.records import asdict
from gdbmem.report.document import Document, head, to_json

STATES = ("free", "in_use", "pending")
TAGS = ("central gap", "lower", "upper")


def pools_json(
    allocators: Sequence[Allocator],
    decisions: Sequence[Optional[Decision]] = (),
    notices: Sequence[Notice] = (),
    *,
    pause_seconds: Optional[float] = None,
) -> str:
    """Return the text of pools_document()."""
    return to_json(pools_document(allocators, decisions, notices, pause_seconds=pause_seconds))


def pools_document(
    allocators: Sequence[Allocator],
    decisions: Sequence[Optional[Decision]],
    notices: Sequence[Notice] = (),
    *,
    pause_seconds: Optional[float] = None,
) -> Document:
    """Return *allocators* as ``kind=bfc``, with the outcome of the request in each; the first's also at the top."""
    each = list(zip_longest(allocators, decisions))
    every = [*notices, *(notice for allocator in allocators for notice in allocator.notices)]
    first = next(((a, d) for a, d in each if d is not None), None)
    return {
        **head("bfc", every),
        "answer": headline(*each[0]) if each else None,
        "pause_seconds": pause_seconds,
        "allocators": [_allocator(*pair) for pair in each],
        "request": None if first is None else decision_document(*first),
    }


def _allocator(allocator: Allocator, decision: Optional[Decision]) -> Document:
    # The sums of a pool with missing chunks are unknown.
    whole, counted = allocator.is_complete, allocator.counters
    return {
        "name": allocator.name,
        "class": allocator.class_name,
        "kind": allocator.kind,
        "address": allocator.address,
        "source": allocator.source,
        "layout": allocator.layout,
        "limit_bytes": allocator.limit_bytes,
        "pool_bytes": allocator.pool_bytes if whole else counted.pool_bytes,
        "in_use_bytes": allocator.in_use_bytes if whole else counted.in_use_bytes,
        "requested_bytes": allocator.requested_bytes if whole else None,
        "reserved_bytes": allocator.counters.reserved_bytes,
        "pending_bytes": allocator.pending_bytes if whole else None,
        "free_bytes": allocator.free_bytes if whole else None,
        "free_chunks": allocator.free_count if whole else None,
        "in_use_chunks": allocator.in_use_count if whole else None,
        "largest_free_bytes": allocator.largest_free_bytes if whole else None,
        "available_bytes": allocator.available_bytes,
        "fragmentation": allocator.fragmentation if whole else None,
        "options": asdict(allocator.options),
        "counters": asdict(allocator.counters),
        "is_locked": allocator.is_locked,
        "is_complete": allocator.is_complete,
        "regions_known": allocator.regions_known,
        "bar": allocator.bar or None,
        "asked_bytes": allocator.asked_bytes,
        "asked_by": allocator.asked_by or None,
        "regions": [_region(allocator, region) for region in allocator.regions],
        "bins": [asdict(one) for one in allocator.bins()],
        "violations": [asdict(one) for one in allocator.violations],
        "request": None if decision is None else decision_document(allocator, decision),
    }


def _region(allocator: Allocator, region: Region) -> Document:
    return {
        "address": region.address,
        "size_bytes": region.size_bytes,
        **({"label": region.label} if region.label else {}),
        "chunks": [chunk_document(allocator, index) for index in region.indices],
    }


def chunk_document(allocator: Allocator, index: int) -> Document:
    """Return one chunk; values that its source doesn't have are absent or null."""
    chunks = allocator.chunks
    state = chunks.state[index]
    found: Document = {
        "address": chunks.address[index],
        "size_bytes": chunks.size[index],
        "requested_bytes": chunks.requested_of(index),
        "in_use": state == IN_USE,
    }
    if chunks.allocation_id is not None and state == IN_USE:
        found["id"] = chunks.allocation_id[index]
    if state not in (FREE, IN_USE):
        found["state"] = STATES[state]
    if chunks.owner_of(index):
        found["owner"] = chunks.owner_of(index)
    if chunks.tag is not None:
        found["tag"] = TAGS[chunks.tag[index]]
    for name in ("bin", "freed_at", "stream"):
        column = getattr(chunks, name)
        if column is not None and column[index] not in (0, -1):
            found[name] = column[index]
    return found


def decision_document(allocator: Allocator, decision: Decision) -> Document:
    """Return the outcome of a request."""
    obstacle = decision.obstacle
    return {
        "bytes": decision.request_bytes,
        "alignment": decision.alignment,
        "rounded_bytes": decision.rounded_bytes,
        "outcome": decision.outcome,
        "fits": decision.outcome == "fits",
        "chunk": None if decision.chunk is None else chunk_document(allocator, decision.chunk),
        "is_split": decision.is_split,
        "taken_bytes": decision.taken_bytes or None,
        "extends_bytes": decision.extends_bytes,
        "retries_bytes": list(decision.retries),
        "gives_back_bytes": decision.gives_back_bytes,
        "cause": decision.cause or None,
        "text": decision_sentence(allocator, decision),
        "obstacle": None
        if obstacle is None
        else {
            "in_use_bytes": obstacle.in_use_bytes,
            "hole_bytes": obstacle.hole_bytes,
            "chunks": [chunk_document(allocator, index) for index in obstacle.in_use],
        },
        "steps": list(decision.steps),
        "advice": [asdict(one) for one in decision.advice],
    }
