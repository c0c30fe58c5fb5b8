"""JSON documents that gdbmem's own commands wrote (`--json`, `--save`), read back. They are not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TypedDict, TypeVar

from gdbmem.errors import InputError, Notice
from gdbmem.files import JsonObject, read_small
from gdbmem.json_values import FORMAT_VERSION, MISFITS, fits, from_fields, from_json
from gdbmem.model.containers import Container, Survey
from gdbmem.model.heap_blocks import PARTS, HeapMap
from gdbmem.model.heap_graph import HeapView, SavedHeap
from gdbmem.model.ledger import Entry, Ledger, Share
from gdbmem.model.python import PythonObjects, RecordedProcess, TypeUse
from gdbmem.model.series import Comparison
from gdbmem.model.steps import Step, StepSum
from gdbmem.text import printable

_LARGEST = 1 << 26

Result = TypeVar("Result")


def read_document(text: str, kind: str, parse: Callable[[JsonObject], Result], refusal: InputError) -> Result:
    """Return what *parse* makes of the document *text* of this *kind*; raises *refusal* if it is of another form."""
    try:
        document = json.loads(text)
        if document["kind"] != kind or document["format_version"] > FORMAT_VERSION:
            raise ValueError
        return parse(document)
    except MISFITS as error:
        raise refusal from error


def notices_in(document: JsonObject) -> list[Notice]:
    """Return the notices in the head of *document*."""
    return from_json(list[Notice], document["warnings"])


# Ledgers, with the map of the heap.


def read_ledger(text: str, name: str) -> Ledger:
    """Return the ledger in the document *text*, a ``kind=ledger``; raises InputError."""
    return read_document(text, "ledger", _ledger, _no_ledger(name))


def read_heap_map(text: str, name: str) -> Optional[HeapMap]:
    """Return the map beside the ledger in the document *text*; None if there is none. Raises InputError."""
    return read_document(text, "ledger", _heap_map, _no_ledger(name))


def _no_ledger(name: str) -> InputError:
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


# Heaps: their holders.


def read_heap(text: str, name: str) -> SavedHeap:
    """Return the whole heap in the document *text*, a ``kind=heap`` that --save wrote; raises InputError."""
    return read_document(text, "heap", _saved_heap, _no_heap(name))


def read_heap_view(text: str, name: str) -> HeapView:
    """Return the answer in the document *text*, a ``kind=heap``; raises InputError."""
    return read_document(text, "heap", _heap_view, _no_heap(name))


def _no_heap(name: str) -> InputError:
    return InputError(
        f"{printable(name)} holds no heap that this gdbmem can compare",
        slug="bad-heap",
        hint="'gdbmem heap PID --save FILE' writes one; --json has only the largest holders",
    )


def _heap_view(document: JsonObject) -> HeapView:
    return from_fields(HeapView, document, notices=notices_in(document))


def _saved_heap(document: JsonObject) -> SavedHeap:
    found = from_fields(SavedHeap, document["saved"], view=_heap_view(document))
    if any(min(one.bytes, one.blocks, one.block_bytes) < 0 for one in (*found.holders, *found.types)):
        raise ValueError
    return found


# Scans of containers.


def read_survey(text: str, name: str) -> Survey:
    """Return the scan in the document *text*, a ``kind=containers``; raises InputError."""
    refusal = InputError(
        f"{printable(name)} holds no scan of containers that this gdbmem can read",
        slug="bad-survey",
        hint="memcontainers --save NAME keeps one",
    )
    return read_document(text, "containers", _survey, refusal)


def _survey(document: JsonObject) -> Survey:
    # Changes since an earlier scan are left out.
    containers = [from_fields(Container, row) for row in document["containers"]]
    return from_fields(Survey, document, containers=containers, notices=notices_in(document))


# Comparisons of recordings of memory over time.


def read_comparison(text: str, name: str) -> tuple[Comparison, Sequence[tuple[str, str]]]:
    """Return the comparison in the document *text*, and each run with its verdict; raises InputError."""
    refusal = InputError(
        f"{printable(name)} holds no comparison that this gdbmem can read",
        slug="bad-comparison",
        hint="'gdbmem compare --json -o FILE' writes one",
    )
    return read_document(text, "comparison", _comparison, refusal)


def _comparison(document: JsonObject) -> tuple[Comparison, Sequence[tuple[str, str]]]:
    found = from_fields(Comparison, document)
    if not found.first or not found.second:
        raise ValueError
    judged = [(run["run"], run["verdict"]) for run in document["runs"]]
    runs = [(from_json(str, name), f"{verdict['kind']}: {verdict['evidence']}") for name, verdict in judged]
    return found, runs


# Steps that `memwatch save` and `memwatch report --json` wrote.


def read_steps(text: str, name: str) -> list[Step]:
    """Return the steps in the document *text*; raises InputError if it has none that can be read."""
    return read_document(text, "steps", _steps, _bad_steps(name))


def _bad_steps(name: str) -> InputError:
    """Return the error for a file *name* without readable steps."""
    return InputError(
        f"{printable(name)} holds no steps that this gdbmem can read",
        slug="bad-steps",
        hint="'memwatch save NAME', or 'memwatch report --json -o FILE', keeps some",
    )


def _steps(document: JsonObject) -> list[Step]:
    found = from_json(list[Step], document["steps"])
    if not found:
        raise ValueError
    return found


def read_step_sums(text: str, name: str) -> tuple[list[StepSum], str]:
    """Return the sums by line that `memwatch save` saved, and the source of their numbers; raises InputError."""
    return read_document(text, "steps", _step_sums, _bad_steps(name))


def _step_sums(document: JsonObject) -> tuple[list[StepSum], str]:
    if document["by"] != "line":
        raise ValueError
    sums, steps = from_json(list[StepSum], document["sums"]), document["steps"]
    return sums, str(steps[-1]["source"]) if steps else ""


# Objects of a Python process, and its memory by line.


def read_objects(path: Path) -> PythonObjects:
    """Return the objects in the file *path*, a ``kind=python-objects``; raises InputError."""
    try:
        return _objects_of(json.loads(read_small(path, limit_bytes=_LARGEST, refuse=_refused(path))))
    except MISFITS as error:
        raise _refused(path)("it is not such a file") from error


def _refused(path: Path) -> Callable[[str], InputError]:
    return lambda why: InputError(
        f"the objects of a Python process can't be read from {printable(str(path))}: {printable(why)}",
        slug="python-objects-unreadable",
        hint="'gdbmem python objects --json -o FILE PID' writes such a file",
    )


def _objects_of(document: Any) -> PythonObjects:
    if document["kind"] != "python-objects":
        raise ValueError
    unused, others = (from_fields(TypeUse, document[name], type="") for name in ("unused", "others"))
    found = from_fields(PythonObjects, document, unused=unused, others=others)
    if any(min(use.count, use.bytes) < 0 for use in (*found.types, found.unused, found.others)):
        raise ValueError
    return found


def read_lines(folder: Path) -> list[RecordedProcess]:
    """Return the recording of each process, in the order in which they started, from files STARTED.PID.json.

    Raises InputError for a file that the recorder did not write.
    """
    return [_read(path) for path in sorted(folder.glob("*.json"), key=_start_of)]


def _start_of(path: Path) -> list[int]:
    try:
        return [int(part) for part in path.stem.split(".")]
    except ValueError:
        return []


def _read(path: Path) -> RecordedProcess:
    def refuse(why: str) -> InputError:
        return InputError(
            f"the recording of process {printable(path.stem.rpartition('.')[2])} can't be read: {printable(why)}",
            slug="python-lines-unreadable",
            hint="did the program itself change files in its temporary folder?",
        )

    try:
        return from_json(RecordedProcess, json.loads(read_small(path, limit_bytes=_LARGEST, refuse=refuse)))
    except MISFITS:
        raise refuse("it is not such a file") from None
