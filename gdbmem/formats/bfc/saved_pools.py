"""Pools in the JSON documents that `gdbmem bfc` wrote, ``kind=bfc``."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.formats.documents import notices_in, read_document
from gdbmem.json_values import from_fields, from_json
from gdbmem.model.bfc import FREE, IN_USE, PENDING, TAGS, UNKNOWN, Allocator, Chunks, Region
from gdbmem.records import replace
from gdbmem.text import printable

_MOST = (1 << 64) - 1


def is_saved_pools(data: bytes) -> bool:
    """Return whether *data* is the beginning of a JSON file of `gdbmem bfc`."""
    return data[:1] == b"{" and b'"kind": "bfc"' in data


def read_saved_pools(text: str, name: str) -> list[Allocator]:
    """Return the pools in the document *text*, a ``kind=bfc``; raises InputError."""
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
