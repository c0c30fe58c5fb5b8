"""The ledger as JSON, ``kind=ledger``, and back: what one gdbmem wrote another one can compare."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.model.ledger import Arena, Entry, Heap, Ledger, Share, SizeClass
from gdbmem.model.remedies import Remedy
from gdbmem.report.document import FORMAT_VERSION, Document, head, to_json
from gdbmem.text import printable


def ledger_json(ledger: Ledger, **more: Any) -> str:
    """Return the text of ledger_document(), with what was looked up beside it: *more*."""
    return to_json({**ledger_document(ledger), **more})


def ledger_document(ledger: Ledger) -> Document:
    """Return *ledger* as ``kind=ledger``; sizes are bytes."""
    mapped = _mapped(ledger)
    return {
        **head("ledger", ledger.notices),
        "program": ledger.program,
        "pid": ledger.pid,
        "rss_bytes": ledger.rss_bytes,
        "releasable_bytes": ledger.releasable_bytes,
        "pause_seconds": ledger.pause_seconds,
        "entries": [_entry_document(entry, mapped.get(entry.key)) for entry in ledger.entries],
        "beside": dict(ledger.beside),
        "threads": [dict(thread) for thread in ledger.threads],
        "heap": None if ledger.heap is None else asdict(ledger.heap),
        "remedies": [asdict(remedy) for remedy in ledger.remedies],
        "mappings": [_share_document(share) for share in ledger.shares],
    }


def _entry_document(entry: Entry, mapped_bytes: Optional[int]) -> Document:
    return {
        "category": entry.category,
        "label": entry.label,
        "resident_bytes": entry.resident_bytes,
        "allocated_bytes": entry.allocated_bytes,
        "mapped_bytes": mapped_bytes,
        "detail": dict(entry.detail),
    }


def _share_document(share: Share) -> Document:
    return {
        "start": share.start,
        "end": share.end,
        "name": share.name,
        "rss_bytes": share.rss_bytes,
        "parts": [
            {"category": category, "label": label, "bytes": size}
            for (category, label), size in share.parts.items()
        ],
    }


def _mapped(ledger: Ledger) -> dict[tuple[str, str], Optional[int]]:
    """Return the address space of each entry; None where it shares a mapping with others."""
    result: dict[tuple[str, str], Optional[int]] = {}
    for share in ledger.shares:
        for key in share.parts:
            so_far = result.get(key, 0)
            alone = len(share.parts) == 1 and so_far is not None
            result[key] = (so_far or 0) + share.end - share.start if alone else None
    return result


def read_ledger(text: str, name: str) -> Ledger:
    """Return the ledger that ledger_json() wrote; raises InputError where *text* is no such document."""
    try:
        document = json.loads(text)
        if document["kind"] != "ledger" or document["format_version"] > FORMAT_VERSION:
            raise ValueError
        return _ledger(document)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{printable(name)} holds no ledger that this gdbmem can read",
            slug="bad-ledger",
            hint="write one with 'gdbmem explain PID --json -o FILE'",
        ) from error


def _ledger(document: Mapping[str, Any]) -> Ledger:
    heap = document["heap"]
    return Ledger(
        program=document["program"],
        pid=document["pid"],
        rss_bytes=document["rss_bytes"],
        entries=[
            Entry(e["category"], e["label"], e["resident_bytes"], e["allocated_bytes"], e["detail"])
            for e in document["entries"]
        ],
        shares=[
            Share(
                m["start"],
                m["end"],
                m["name"],
                m["rss_bytes"],
                {(part["category"], part["label"]): part["bytes"] for part in m["parts"]},
            )
            for m in document["mappings"]
        ],
        releasable_bytes=document["releasable_bytes"],
        threads=document["threads"],
        heap=None if heap is None else _heap(heap),
        beside=document["beside"],
        pause_seconds=document["pause_seconds"],
        notices=[Notice(n["slug"], n["message"]) for n in document["warnings"]],
        remedies=tuple(Remedy(**remedy) for remedy in document.get("remedies", ())),
    )


def _heap(values: Mapping[str, Any]) -> Heap:
    changed = dict(values)
    changed["arenas"] = [Arena(**arena) for arena in values["arenas"]]
    changed["sizes"] = [SizeClass(**size) for size in values["sizes"]]
    return Heap(**changed)


def growth_json(before: Ledger, after: Ledger) -> str:
    """Return the text of growth_document()."""
    return to_json(growth_document(before, after))


def growth_document(before: Ledger, after: Ledger) -> Document:
    """Return what became of each entry between two ledgers, as ``kind=ledger-growth``."""
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
    """Return by how much the heap's part of the resident set shrank.

    Of the whole set files are a part too, of which looking at the process may have brought some in meanwhile.
    """
    return before.total("heap", "arena") - after.total("heap", "arena")


def trim_json(before: Ledger, after: Ledger) -> str:
    """Return what malloc_trim was to return and did, with the entries that changed, as ``kind=trim``."""
    document = growth_document(before, after)
    return to_json(
        {
            **document,
            "kind": "trim",
            "predicted_bytes": before.releasable_bytes,
            "returned_bytes": returned_bytes(before, after),
        }
    )
