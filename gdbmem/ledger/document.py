"""Writing the ledger as JSON, ``kind=ledger``, and reading it back for comparison."""

from __future__ import annotations

from typing import Any, Optional

from gdbmem.json_values import as_json
from gdbmem.model.ledger import Entry, Ledger, Share
from gdbmem.terminal.document import Document, head, to_json


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
        **as_json(
            ledger, "beside", "runtime", "forked_from", "threads", "heap", "mallocs", "remedies", "tried"
        ),
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
    heaps = ("heap", "arena", *(malloc.category for malloc in before.mallocs))
    return before.total(*heaps) - after.total(*heaps)


def trim_json(before: Ledger, after: Ledger, predicted_bytes: Optional[int]) -> str:
    """Return the predicted and actual effect of memtrim, with the entries that changed, as ``kind=trim``."""
    document = growth_document(before, after)
    return to_json(
        {
            **document,
            "kind": "trim",
            "predicted_bytes": predicted_bytes,
            "returned_bytes": returned_bytes(before, after),
        }
    )
