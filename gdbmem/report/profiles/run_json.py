"""The snapshots of a run as JSON: all of them (``kind=list``), or one just taken (``kind=snap``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gdbmem.errors import Notice
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.profiles.run_text import KeptRecord, Record

_FIELDS = ("name", "file", "engine", "place", "thread", "hit", "seconds", "heap_bytes", "process")


def list_json(
    records: Iterable[Record], notices: Iterable[Notice] = (), kept: Sequence[KeptRecord] = ()
) -> str:
    """Return the text of list_document()."""
    return to_json(list_document(records, notices, kept))


def list_document(
    records: Iterable[Record], notices: Iterable[Notice], kept: Sequence[KeptRecord]
) -> Document:
    """Return *records*, and the saved ledgers and container scans *kept*, as ``kind=list``."""
    listed = [record_object(record) for record in records]
    ledgers = [_kept(one, "rss_bytes", "retained_bytes") for one in kept if one.kind == "ledger"]
    surveys = [_kept(one, "held_bytes", "slack_bytes") for one in kept if one.kind == "containers"]
    return {**head("list", notices), "snapshots": listed, "ledgers": ledgers, "containers": surveys}


def _kept(record: KeptRecord, total: str, unused: str) -> Document:
    fields = {
        field: getattr(record, field) for field in ("name", "file", "place", "thread", "hit", "seconds")
    }
    return {**fields, total: record.total_bytes, unused: record.unused_bytes}


def record_object(record: Record) -> Document:
    """Return one of the objects in ``snapshots``."""
    return {field: getattr(record, field) for field in _FIELDS}


def snap_json(record: Record, run: Path, pause_seconds: float, notes: Sequence[str]) -> str:
    """Return *record* of the folder *run*, taken by `gdbmem snap`, as ``kind=snap``; *notes* are for the user."""
    return to_json(
        {
            **head("snap", [Notice("profiler-started", note) for note in notes]),
            "run": str(run),
            "pause_seconds": pause_seconds,
            "snapshot": record_object(record),
        }
    )
