"""Writing the ledger as JSON, ``kind=ledger``, and reading it back for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, TypedDict

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.json_values import as_json, fits, from_fields, from_json
from gdbmem.model.heap_blocks import PARTS, HeapMap
from gdbmem.model.ledger import Entry, Ledger, Share
from gdbmem.terminal.document import Document, head, notices_in, read_document, to_json
from gdbmem.text import printable


def ledger_json(ledger: Ledger, **more: Any) -> str:
    """Return the text of ledger_document(), with further results *more*."""
    return to_json({**ledger_document(ledger), **more})


def ledger_document(ledger: Ledger) -> Document:
    """Return *ledger* as ``kind=ledger``; sizes are bytes."""
    mapped = _mapped(ledger)
    return {
        **head("ledger", ledger.notices),
        **as_json(ledger, "program", "pid", "rss_bytes", "releasable_bytes", "pause_seconds"),
        "entries": [_entry_document(entry, mapped.get(entry.key)) for entry in ledger.entries],
        **as_json(ledger, "beside", "runtime", "forked_from", "threads", "heap", "remedies"),
        "mappings": [_share_document(share) for share in ledger.shares],
    }


def _entry_document(entry: Entry, mapped_bytes: Optional[int]) -> Document:
    names = ("category", "label", "resident_bytes", "allocated_bytes")
    return {**as_json(entry, *names), "mapped_bytes": mapped_bytes, **as_json(entry, "detail")}


def _share_document(share: Share) -> Document:
    parts = [{"category": key[0], "label": key[1], "bytes": size} for key, size in share.parts.items()]
    return {**as_json(share, "start", "end", "name", "rss_bytes"), "parts": parts}


def _mapped(ledger: Ledger) -> dict[tuple[str, str], Optional[int]]:
    """Return the address space of each entry; None if it shares a mapping with others."""
    result: dict[tuple[str, str], Optional[int]] = {}
    for share in ledger.shares:
        for key in share.parts:
            so_far = result.get(key, 0)
            alone = len(share.parts) == 1 and so_far is not None
            result[key] = (so_far or 0) + share.end - share.start if alone else None
    return result


def read_ledger(text: str, name: str) -> Ledger:
    """Return the ledger that ledger_json() wrote; raises InputError if *text* is not such a document."""
    return read_document(text, "ledger", _ledger, _unreadable(name))


def read_heap_map(text: str, name: str) -> Optional[HeapMap]:
    """Return the map beside the ledger in the document *text*; None if there is none. Raises InputError."""
    return read_document(text, "ledger", _heap_map, _unreadable(name))


def _unreadable(name: str) -> InputError:
    return InputError(
        f"{printable(name)} holds no ledger that this gdbmem can read",
        slug="bad-ledger",
        hint="write one with 'gdbmem explain PID --json -o FILE'",
    )


def _heap_map(document: JsonObject) -> Optional[HeapMap]:
    if document.get("heap_map") is None:
        return None
    found = from_json(HeapMap, document["heap_map"])
    cells = [cell for region in found.regions for cell in region.cells]
    if found.cell_bytes <= 0 or any(len(cell) != len(PARTS) or min(cell) < 0 for cell in cells):
        raise ValueError
    return found


def _ledger(document: JsonObject) -> Ledger:
    entries = [from_fields(Entry, entry) for entry in document["entries"]]
    for entry in entries:
        _check_detail(entry.detail)
    shares = [_share(mapping) for mapping in document["mappings"]]
    notices = notices_in(document)
    ledger = from_fields(Ledger, document, entries=entries, shares=shares, notices=notices)
    ledger.check()
    return ledger


def _check_detail(detail: Mapping[str, Any]) -> None:
    """Raise ValueError unless the parts of *detail* that reports use are of their types."""
    known: list[tuple[Any, object]] = [
        (Optional[int], detail.get(name)) for name in ("blocks", "stacks", "top_bytes")
    ]
    known += [(Optional[str], pool["name"]) for pool in detail.get("pools", ())]
    for piece in detail.get("largest", ()):
        known += [(str, piece["name"]), (int, piece["resident_bytes"]), (int, piece.get("mapped_bytes", 0))]
    if not all(fits(kind, value) for kind, value in known):
        raise ValueError


class SharePart(TypedDict):
    """The part of a mapping that belongs to one entry."""

    category: str
    label: str
    bytes: int


def _share(values: JsonObject) -> Share:
    parts = from_json(list[SharePart], values["parts"])
    by_entry = {(part["category"], part["label"]): part["bytes"] for part in parts}
    return from_fields(Share, values, parts=by_entry)


def growth_json(before: Ledger, after: Ledger) -> str:
    """Return the text of growth_document()."""
    return to_json(growth_document(before, after))


def growth_document(before: Ledger, after: Ledger) -> Document:
    """Return the change of each entry between two ledgers, as ``kind=ledger-growth``."""
    old = {entry.key: entry.resident_bytes for entry in before.entries}
    new = {entry.key: entry.resident_bytes for entry in after.entries}
    return {
        **head("ledger-growth", [*before.notices, *after.notices]),
        "pid": after.pid,
        "before_rss_bytes": before.rss_bytes,
        "after_rss_bytes": after.rss_bytes,
        "delta_bytes": after.rss_bytes - before.rss_bytes,
        "entries": [
            {
                "category": key[0],
                "label": key[1],
                "before_bytes": old.get(key, 0),
                "after_bytes": new.get(key, 0),
                "delta_bytes": new.get(key, 0) - old.get(key, 0),
            }
            for key in {**old, **new}
        ],
    }


def returned_bytes(before: Ledger, after: Ledger) -> int:
    """Return the decrease of the heap's part of the resident set.

    The whole set includes pages of files, some of which the inspection may have made resident meanwhile.
    """
    return before.total("heap", "arena") - after.total("heap", "arena")


def trim_json(before: Ledger, after: Ledger) -> str:
    """Return the predicted and actual effect of malloc_trim, with the entries that changed, as ``kind=trim``."""
    document = growth_document(before, after)
    return to_json(
        {
            **document,
            "kind": "trim",
            "predicted_bytes": before.releasable_bytes,
            "returned_bytes": returned_bytes(before, after),
        }
    )
