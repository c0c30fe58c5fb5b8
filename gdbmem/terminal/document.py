"""The common part of all JSON reports. Sizes are bytes; an unknown value is null, never 0."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional, TextIO

from gdbmem.errors import Notice
from gdbmem.files import open_regular
from gdbmem.json_values import FORMAT_VERSION, as_json
from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET, Judgement

Document = dict[str, object]


def to_json(document: Document) -> str:
    """Return *document* as text, ASCII only: bytes that are not UTF-8 are escaped lone surrogates."""
    return json.dumps(document, indent=1) + "\n"


def head(kind: str, notices: Iterable[Notice]) -> Document:
    """Return the keys that every document begins with."""
    warnings = [as_json(notice) for notice in notices]
    return {"format_version": FORMAT_VERSION, "kind": kind, "warnings": warnings}


def whole(kind: str, record: Any, answer: Optional[str] = None) -> Document:
    """Return *record* as a document of *kind*: its notices in the head, then *answer*, then its other fields."""
    fields = as_json(record)
    notices = fields.pop("notices", ())
    answered = {} if answer is None else {"answer": answer}
    return {"format_version": FORMAT_VERSION, "kind": kind, "warnings": notices, **answered, **fields}


# Trace events, the JSON that Perfetto and chrome://tracing read: times are microseconds, a counter keeps its value.


_PROCESS = 1 << 22  # above all pids: of what is no process, or has no pid of its own


def write_trace(stream: TextIO, facts: Document, events: Iterable[Document]) -> None:
    """Write *events*, one at a time; *facts* are on the whole."""
    stream.write(f'{{"displayTimeUnit": "ms",\n "otherData": {json.dumps(facts)},\n "traceEvents": [')
    separator = "\n  "
    for event in events:
        stream.write(separator + json.dumps(event))
        separator = ",\n  "
    stream.write("\n ]\n}\n")


def trace_pid(number: int) -> int:
    """Return an id of a process that no process has."""
    return _PROCESS + number


def trace_process(pid: int, name: str, position: int) -> Iterator[Document]:
    """Yield the name of the process *pid*, and its position among the others."""
    for what, value in (("name", {"name": name}), ("sort_index", {"sort_index": position})):
        yield {"ph": "M", "name": f"process_{what}", "pid": pid, "tid": 0, "ts": 0, "args": value}


def trace_counter(pid: int, name: str, seconds: float, value: float) -> Document:
    """Return the *value* that the counter *name* of *pid* has from *seconds* on."""
    return {
        "ph": "C",
        "cat": "memory",
        "name": name,
        "pid": pid,
        "ts": round(seconds * 1e6),
        "args": {"value": value},
    }


def trace_instant(pid: int, name: str, seconds: float) -> Document:
    """Return a mark on all tracks."""
    return {
        "ph": "i",
        "s": "g",
        "cat": "memory",
        "name": name,
        "pid": pid,
        "tid": 0,
        "ts": round(seconds * 1e6),
    }


# The judgements of gates as text and as JSON, the same in every gate.


_WORDS = {MET: "ok", NOT_MET: "NOT MET", NOT_JUDGED: "NOT JUDGED"}


def judgement_line(judgement: Judgement) -> str:
    """Return ``ok``, ``NOT MET`` or ``NOT JUDGED``, then what was seen and the reasons why it isn't judged."""
    return f"{_WORDS[judgement.judged]:<10} {judgement.sentence}"


def judgement_object(judgement: Judgement) -> dict[str, object]:
    """Return the JSON object of *judgement*: its fields, `judged` first; numbers that are unknown are null."""
    return {**as_json(judgement, "judged"), **as_json(judgement)}


# The kind of a file that is not a profile: a document that --json wrote, or a core.


CORE = "core"
_HEAD_BYTES = 1 << 16
_KIND = re.compile(rb'"kind"\s*:\s*"([a-z-]{1,40})"')


def kind_of_file(path: Path) -> str:
    """Return the ``kind`` of the document in *path*, as --json wrote it, or CORE; "" for anything else."""
    try:
        with open_regular(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return ""
    if head.startswith(b"\x7fELF"):
        return CORE if head[16:18] in (b"\x04\x00", b"\x00\x04") else ""
    if not head.lstrip().startswith(b"{") or b'"format_version"' not in head:
        return ""
    found = _KIND.search(head)
    return found[1].decode("ascii") if found is not None else ""
