"""The snapshots of a run as JSON, ``kind=list``."""

from __future__ import annotations

from collections.abc import Iterable

from gdbmem.errors import Notice
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.run_text import Record

_FIELDS = ("name", "file", "engine", "place", "thread", "hit", "seconds", "heap_bytes")


def list_json(records: Iterable[Record], notices: Iterable[Notice] = ()) -> str:
    """Return the text of list_document()."""
    return to_json(list_document(records, notices))


def list_document(records: Iterable[Record], notices: Iterable[Notice] = ()) -> Document:
    """Return *records* as ``kind=list``."""
    return {**head("list", notices), "snapshots": [record_object(record) for record in records]}


def record_object(record: Record) -> Document:
    """Return one of the objects in ``snapshots``."""
    return {field: getattr(record, field) for field in _FIELDS}
