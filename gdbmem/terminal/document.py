"""The common part of all JSON reports. Sizes are bytes; an unknown value is null, never 0."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Optional

from gdbmem.errors import Notice
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


# The judgements of gates as text and as JSON, the same in every gate.


_WORDS = {MET: "ok", NOT_MET: "NOT MET", NOT_JUDGED: "NOT JUDGED"}


def judgement_line(judgement: Judgement) -> str:
    """Return ``ok``, ``NOT MET`` or ``NOT JUDGED``, then what was seen and the reasons why it isn't judged."""
    return f"{_WORDS[judgement.judged]:<10} {judgement.sentence}"


def judgement_object(judgement: Judgement) -> dict[str, object]:
    """Return the JSON object of *judgement*: its fields, `judged` first; numbers that are unknown are null."""
    return {**as_json(judgement, "judged"), **as_json(judgement)}
