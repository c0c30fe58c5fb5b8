"""Python's objects and arenas as JSON, ``kind=python-objects`` and ``kind=python-arenas``, and objects back from it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable

from gdbmem.analysis.python_objects import changes
from gdbmem.errors import InputError
from gdbmem.files import read_small
from gdbmem.model.python import ArenaUse, PythonCopies, PythonObjects, TypeUse
from gdbmem.report.document import Document, head, to_json
from gdbmem.text import printable

_LARGEST = 1 << 26


def objects_json(objects: PythonObjects) -> str:
    """Return *objects* as ``kind=python-objects``; sizes are bytes."""
    document: Document = {
        **head("python-objects", objects.notices),
        "program": objects.program,
        "pid": objects.pid,
        "pause_seconds": objects.pause_seconds,
        "count": objects.count,
        "bytes": objects.bytes,
        "types": [asdict(one) for one in objects.types],
        "unused": _without_type(objects.unused),
        "others": _without_type(objects.others),
        "uncounted_blocks": objects.uncounted_blocks,
        "large_counted": objects.large,
    }
    return to_json(document)


def growth_json(before: PythonObjects, after: PythonObjects) -> str:
    """Return what came and went between two moments as ``kind=python-objects-diff``; sizes are bytes."""
    document: Document = {
        **head("python-objects-diff", [*before.notices, *after.notices]),
        "before": {"count": before.count, "bytes": before.bytes},
        "after": {"count": after.count, "bytes": after.bytes},
        "types": [
            {
                "type": one.type,
                "delta_count": one.delta_count,
                "delta_bytes": one.delta_bytes,
                "before": _without_type(one.before),
                "after": _without_type(one.after),
            }
            for one in changes(before, after)
        ],
    }
    return to_json(document)


def arenas_json(use: ArenaUse) -> str:
    """Return *use* as ``kind=python-arenas``; sizes are bytes."""
    fields = asdict(use)
    del fields["notices"]
    document: Document = {
        **head("python-arenas", use.notices),
        **fields,
        "free_bytes": use.free_in_pools_bytes + use.free_pools_bytes,
        "bytes": use.bytes,
    }
    return to_json(document)


def copies_json(copies: PythonCopies) -> str:
    """Return *copies* as ``kind=python-cow``; sizes are bytes."""
    fields = asdict(copies)
    del fields["notices"]
    document: Document = {**head("python-cow", copies.notices), **fields}
    return to_json(document)


def _without_type(use: TypeUse) -> Document:
    return {"count": use.count, "bytes": use.bytes}


def read_objects(path: Path) -> PythonObjects:
    """Return the objects in a file that objects_json() wrote. Raises InputError for any other file."""
    try:
        return _objects_of(json.loads(read_small(path, limit_bytes=_LARGEST, refuse=_refused(path))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(path)("it is no such file") from error


def _refused(path: Path) -> Callable[[str], InputError]:
    return lambda why: InputError(
        f"the objects of a Python process can't be read from {printable(str(path))}: {printable(why)}",
        slug="python-objects-unreadable",
        hint="'gdbmem python objects --json -o FILE PID' writes such a file",
    )


def _objects_of(document: Any) -> PythonObjects:
    if document["kind"] != "python-objects":
        raise ValueError
    return PythonObjects(
        _text(document["program"]),
        None if document["pid"] is None else _count(document["pid"]),
        [
            TypeUse(_text(one["type"]), _count(one["count"]), _count(one["bytes"]))
            for one in document["types"]
        ],
        TypeUse("", _count(document["unused"]["count"]), _count(document["unused"]["bytes"])),
        TypeUse("", _count(document["others"]["count"]), _count(document["others"]["bytes"])),
        uncounted_blocks=_count(document["uncounted_blocks"]),
        large=document["large_counted"] is True,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError
    return value
