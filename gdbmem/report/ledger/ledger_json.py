"""Writing the ledger as JSON, ``kind=ledger``, and reading it back for comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.model.ledger.heap_map import PARTS, HeapMap, MapRegion
from gdbmem.model.ledger.ledger import Arena, Entry, Heap, Ledger, Share, SizeClass
from gdbmem.model.ledger.remedies import Remedy
from gdbmem.records import asdict, fields
from gdbmem.report.document import FORMAT_VERSION, Document, head, to_json
from gdbmem.text import printable


def ledger_json(ledger: Ledger, **more: Any) -> str:
    """Return the text of ledger_document(), with further results *more*."""
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
    try:
        document = json.loads(text)
        if document["kind"] != "ledger" or document["format_version"] > FORMAT_VERSION:
            raise ValueError
        ledger = _ledger(document)
        ledger.check()
        return ledger
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(name) from error


def _unreadable(name: str) -> InputError:
    return InputError(
        f"{printable(name)} holds no ledger that this gdbmem can read",
        slug="bad-ledger",
        hint="write one with 'gdbmem explain PID --json -o FILE'",
    )


def read_heap_map(text: str, name: str) -> Optional[HeapMap]:
    """Return the map beside the ledger in the document *text*; None if there is none. Raises InputError."""
    try:
        found = json.loads(text).get("heap_map")
        if found is None:
            return None
        regions = [_region(region) for region in found["regions"]]
        if _is(int, found["cell_bytes"]) <= 0:
            raise ValueError
        return HeapMap(found["cell_bytes"], regions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(name) from error


def _region(values: Mapping[str, Any]) -> MapRegion:
    cells = values["cells"]
    if any(len(cell) != len(PARTS) or any(_is(int, size) < 0 for size in cell) for cell in cells):
        raise ValueError
    start, end = (_is(int, values[name]) for name in ("start", "end"))
    return MapRegion(_is(str, values["name"]), start, end, _is(list, cells))


def _ledger(document: Mapping[str, Any]) -> Ledger:
    heap = document["heap"]
    return Ledger(
        program=_is(str, document["program"]),
        pid=_is(int, document["pid"], or_none=True),
        rss_bytes=_is(int, document["rss_bytes"]),
        entries=[_entry(entry) for entry in document["entries"]],
        shares=[_share(mapping) for mapping in document["mappings"]],
        releasable_bytes=_is(int, document["releasable_bytes"], or_none=True),
        threads=document["threads"],
        heap=None if heap is None else _heap(heap),
        beside={_is(str, name): _is(int, size) for name, size in document["beside"].items()},
        pause_seconds=_is((int, float), document["pause_seconds"], or_none=True),
        notices=[_notice(notice) for notice in document["warnings"]],
        remedies=tuple(_checked(Remedy, remedy) for remedy in document.get("remedies", ())),
    )


def _is(kind: Any, value: Any, *, or_none: bool = False) -> Any:
    if isinstance(value, bool) or not (isinstance(value, kind) or (or_none and value is None)):
        raise ValueError
    if isinstance(value, (int, float)) and not abs(value) < 1 << 64:
        raise ValueError
    return value


def _notice(values: Mapping[str, Any]) -> Notice:
    notice = Notice(values["slug"], values["message"])
    _is(str, notice.slug), _is(str, notice.message)
    return notice


def _entry(values: Mapping[str, Any]) -> Entry:
    detail = dict(values["detail"])
    for name in ("blocks", "stacks", "top_bytes"):
        _is(int, detail.get(name, 0), or_none=True)
    for piece in detail.get("largest", ()):
        _is(str, piece["name"]), _is(int, piece["resident_bytes"]), _is(int, piece.get("mapped_bytes", 0))
    for pool in detail.get("pools", ()):
        _is(str, pool["name"], or_none=True)
    allocated = _is(int, values["allocated_bytes"], or_none=True)
    return Entry(
        _is(str, values["category"]), _is(str, values["label"]), _is(int, values["resident_bytes"]), allocated, detail
    )  # fmt: skip


def _share(values: Mapping[str, Any]) -> Share:
    parts = {
        (_is(str, part["category"]), _is(str, part["label"])): _is(int, part["bytes"])
        for part in values["parts"]
    }
    start, end, rss = (_is(int, values[name]) for name in ("start", "end", "rss_bytes"))
    return Share(start, end, _is(str, values["name"]), rss, parts)


_SIMPLE = {"int": int, "str": str, "float": (int, float), "Optional[int]": int, "Sequence[int]": list}


def _checked(kind: Any, values: Mapping[str, Any]) -> Any:
    """Return *values* as a *kind*, a data class; those of simple types are checked."""
    made = kind(**values)
    for field in fields(kind):
        if field.type in _SIMPLE:
            _is(_SIMPLE[str(field.type)], getattr(made, field.name), or_none="Optional" in str(field.type))
    return made


def _heap(values: Mapping[str, Any]) -> Heap:
    changed = dict(values)
    changed["arenas"] = [_checked(Arena, arena) for arena in values["arenas"]]
    changed["sizes"] = [_checked(SizeClass, size) for size in values["sizes"]]
    return _checked(Heap, changed)  # type: ignore[no-any-return]


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
