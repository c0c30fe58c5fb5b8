"""Writing the ledger as JSON, ``kind=ledger``, and reading it back for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional, Protocol, TextIO, TypedDict

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.json_values import as_json, fits, from_fields, from_json
from gdbmem.ledger.answer import DAMAGES
from gdbmem.ledger.blocks import print_types, types_document
from gdbmem.ledger.chunks import chunk_document, print_bins, print_chunk
from gdbmem.ledger.pinners import PinnerPaths, pinners_document, print_pinner_paths
from gdbmem.ledger.remedies import print_remedies, remedies_json
from gdbmem.ledger.text import LedgerOptions, print_growth, print_ledger
from gdbmem.model.heap_blocks import PARTS, BlockTypes, ChunkView, FreeLists, HeapMap
from gdbmem.model.ledger import Entry, Ledger, Share
from gdbmem.records import dataclass, field
from gdbmem.terminal.console import Console, print_notices
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


# A ledger with the requested further results: call paths of pinners, types of blocks, a map.


@dataclass(frozen=True)
class Beside:
    """The results beside the ledger; None: not requested."""

    paths: Optional[PinnerPaths] = None
    types: Optional[BlockTypes] = None
    chunk: Optional[ChunkView] = None
    bins: Optional[FreeLists] = None
    class_names: Mapping[str, str] = field(default_factory=dict)  # mangled → demangled


class BlockAnswers(Protocol):
    """The answers to queries about single blocks; None: not requested."""

    types: Optional[BlockTypes]
    chunk: Optional[ChunkView]
    bins: Optional[FreeLists]

    def class_names(self) -> Iterable[str]: ...


def beside(
    answers: Optional[BlockAnswers],
    paths: Optional[PinnerPaths],
    demangled: Callable[[Iterable[str]], Mapping[str, str]],
) -> Beside:
    """Return *answers* and *paths* as results beside a ledger, with class names as *demangled* returns them."""
    if answers is None:
        return Beside(paths)
    return Beside(paths, answers.types, answers.chunk, answers.bins, demangled(answers.class_names()))


def write_json(ledger: Ledger, beside: Beside, stream: TextIO) -> None:
    """Write *ledger* as ``kind=ledger``, with a key for each further result requested."""
    more: dict[str, object] = {}
    if beside.paths is not None:
        more["pinner_paths"] = pinners_document(beside.paths)
    if beside.types is not None:
        more["types"] = types_document(beside.types, beside.class_names)
    if beside.chunk is not None:
        more["chunk"] = chunk_document(beside.chunk, beside.class_names)
    if beside.bins is not None:
        more["bins"] = as_json(beside.bins)
    stream.write(ledger_json(ledger, **more))


def write_growth(
    before: Ledger,
    after: Ledger,
    names: tuple[str, str],
    stream: TextIO,
    console_on: Callable[[TextIO], Console],
    *,
    as_json: bool,
) -> None:
    """Write the change between two ledgers, as JSON or as text."""
    if as_json:
        stream.write(growth_json(before, after))
    else:
        print_growth(before, after, console_on(stream), names)


def write_remedies(
    ledger: Ledger, stream: TextIO, console_on: Callable[[TextIO], Console], *, as_json: bool
) -> None:
    """Write the predicted effect of malloc's settings, as JSON or as text."""
    if as_json:
        stream.write(remedies_json(ledger))
    else:
        print_remedies(ledger, console_on(stream))


def print_all(ledger: Ledger, beside: Beside, console: Console, view: LedgerOptions) -> None:
    """Print *ledger* and the further results; a chunk, or the lists of free ones, are printed alone."""
    if beside.chunk is not None or beside.bins is not None:
        if beside.chunk is not None:
            print_chunk(beside.chunk, beside.class_names, console)
        else:
            print_bins(beside.bins or FreeLists([], []), console)
        print_notices([n for n in ledger.notices if n.slug not in DAMAGES], console)
        return
    print_ledger(ledger, console, view, beside.paths)
    if beside.paths is not None:
        print_pinner_paths(beside.paths, console)
    if beside.types is not None:
        print_types(beside.types, beside.class_names, console)
