"""Pools as JSON, ``kind=bfc``."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import JsonObject
from gdbmem.json_values import as_json, from_fields, from_json
from gdbmem.model.bfc import (
    FREE,
    IN_USE,
    PENDING,
    UNKNOWN,
    Allocator,
    Chunks,
    Decision,
    Region,
)
from gdbmem.pools.explanation import decision_sentence, headline
from gdbmem.records import replace
from gdbmem.terminal.document import Document, head, notices_in, read_document, to_json
from gdbmem.text import printable

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
        **as_json(allocator, "name", "class_name", "kind", "address", "source", "layout", "limit_bytes"),
        "pool_bytes": allocator.pool_bytes if whole else counted.pool_bytes,
        "in_use_bytes": allocator.in_use_bytes if whole else counted.in_use_bytes,
        "requested_bytes": allocator.requested_bytes if whole else None,
        "reserved_bytes": counted.reserved_bytes,
        "pending_bytes": allocator.pending_bytes if whole else None,
        "free_bytes": allocator.free_bytes if whole else None,
        "free_chunks": allocator.free_count if whole else None,
        "in_use_chunks": allocator.in_use_count if whole else None,
        "largest_free_bytes": allocator.largest_free_bytes if whole else None,
        "available_bytes": allocator.available_bytes,
        "fragmentation": allocator.fragmentation if whole else None,
        **as_json(allocator, "options", "counters", "is_locked", "is_complete", "regions_known"),
        **as_json(allocator, "bar", "asked_bytes", "asked_by"),
        "regions": [_region(allocator, region) for region in allocator.regions],
        "bins": [as_json(one) for one in allocator.bins()],
        **as_json(allocator, "violations"),
        "request": None if decision is None else decision_document(allocator, decision),
    }


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


# Pools read from the JSON that `gdbmem bfc --json` wrote.


_MOST = (1 << 64) - 1


def is_saved_pools(data: bytes) -> bool:
    """Return whether *data* is the beginning of a JSON file of `gdbmem bfc`."""
    return data[:1] == b"{" and b'"kind": "bfc"' in data


def read_saved_pools(text: str, name: str) -> list[Allocator]:
    """Return the pools that pools_json() wrote; raises InputError if *text* is not such a document."""
    refusal = InputError(
        f"{printable(name)} holds no pools that this gdbmem can read",
        slug="bad-pools",
        hint="write them with 'gdbmem bfc PID --json -o FILE'",
    )
    return read_document(text, "bfc", _allocators, refusal)


def _allocators(document: JsonObject) -> list[Allocator]:
    notices = tuple(notices_in(document))
    found = [replace(_saved_allocator(one), notices=notices) for one in document["allocators"]]
    for one in found:
        one.check()
    return found


def _saved_allocator(values: Mapping[str, Any]) -> Allocator:
    regions: list[Region] = []
    rows: list[Mapping[str, Any]] = []
    for region in values["regions"]:
        address, size = _number(region["address"]), _number(region["size_bytes"], 1)
        chunks = region["chunks"]
        regions.append(Region(address, size, len(rows), len(chunks), from_json(str, region.get("label", ""))))
        rows += chunks
    found = from_fields(Allocator, values, regions=regions, chunks=_chunks(rows))
    for record in (found, found.options, found.counters):
        if any(isinstance(value, int) and value < 0 for value in vars(record).values()):
            raise ValueError
    return found


def _chunks(rows: Sequence[Mapping[str, Any]]) -> Chunks:
    owners = list(dict.fromkeys(["", *(from_json(str, row.get("owner", "")) for row in rows)]))
    number = {owner: index for index, owner in enumerate(owners)}

    def known(name: str) -> bool:
        return any(name in row for row in rows)

    asked = [row["requested_bytes"] for row in rows]
    return Chunks(
        address=array("Q", [row["address"] for row in rows]),
        size=array("Q", [_number(row["size_bytes"], 1) for row in rows]),
        state=bytes(_state(row) for row in rows),
        requested=array("q", [UNKNOWN if size is None else _number(size) for size in asked])
        if any(size is not None for size in asked) or not rows
        else None,
        allocation_id=array("q", [row.get("id", UNKNOWN) for row in rows]) if known("id") else None,
        bin=array("i", [row.get("bin", -1) for row in rows]) if known("bin") else None,
        freed_at=array("Q", [row.get("freed_at", 0) for row in rows]) if known("freed_at") else None,
        tag=bytes(TAGS.index(row["tag"]) for row in rows) if known("tag") else None,
        stream=array("Q", [row.get("stream", 0) for row in rows]) if known("stream") else None,
        owner=array("I", [number[row.get("owner", "")] for row in rows]) if known("owner") else None,
        owners=owners,
    )


def _state(row: Mapping[str, Any]) -> int:
    if row.get("state") == "pending":
        return PENDING
    return IN_USE if row["in_use"] else FREE


def _number(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError
    return value
