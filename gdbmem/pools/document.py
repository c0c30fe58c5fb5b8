"""Pools as JSON, ``kind=bfc``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.json_values import as_json
from gdbmem.model.bfc import FREE, IN_USE, STATES, TAGS, Allocator, Decision, Region
from gdbmem.pools.explanation import decision_sentence, headline
from gdbmem.terminal.document import Document, head, to_json


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
    return {
        **as_json(allocator, "name", "class_name", "kind", "address", "source", "layout", "limit_bytes"),
        **sums(allocator, "pool_bytes", "in_use_bytes", "requested_bytes"),
        "reserved_bytes": allocator.counters.reserved_bytes,
        **sums(allocator, "pending_bytes", "free_bytes", "free_count", "in_use_count", "largest_free_bytes"),
        **as_json(allocator, "available_bytes"),
        **sums(allocator, "fragmentation"),
        **as_json(allocator, "options", "counters", "is_locked", "is_complete", "regions_known"),
        **as_json(allocator, "bar", "asked_bytes", "asked_by"),
        "regions": [_region(allocator, region) for region in allocator.regions],
        "bins": [as_json(one) for one in allocator.bins()],
        **as_json(allocator, "violations"),
        "request": None if decision is None else decision_document(allocator, decision),
    }


def sums(allocator: Allocator, *names: str) -> Document:
    """Return *names* of *allocator*; where chunks are missing, what the allocator counts itself, or null."""
    found = as_json(allocator, *names)
    if allocator.is_complete:
        return found
    return {key: getattr(allocator.counters, key, None) for key in found}


def _region(allocator: Allocator, region: Region) -> Document:
    return {
        **as_json(region, "address", "size_bytes"),
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
        **as_json(decision, "request_bytes", "alignment", "rounded_bytes", "outcome"),
        "fits": decision.outcome == "fits",
        "chunk": None if decision.chunk is None else chunk_document(allocator, decision.chunk),
        **as_json(
            decision, "is_split", "taken_bytes", "extends_bytes", "retries", "gives_back_bytes", "cause"
        ),
        "text": decision_sentence(allocator, decision),
        "obstacle": None
        if obstacle is None
        else {
            **as_json(obstacle, "in_use_bytes", "hole_bytes"),
            "chunks": [chunk_document(allocator, index) for index in obstacle.in_use],
        },
        **as_json(decision, "steps", "advice"),
    }
