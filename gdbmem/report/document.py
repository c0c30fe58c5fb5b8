"""The common part of all JSON reports. Sizes are bytes; an unknown value is null, never 0."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Callable, TypeVar

from gdbmem.errors import Notice
from gdbmem.json_values import MISFITS, from_json

if TYPE_CHECKING:
    from gdbmem.errors import InputError
    from gdbmem.files import JsonObject

# 1: first version.
FORMAT_VERSION = 1

Document = dict[str, object]

Result = TypeVar("Result")


def to_json(document: Document) -> str:
    """Return *document* as text, ASCII only: bytes that are not UTF-8 are escaped lone surrogates."""
    return json.dumps(document, indent=1) + "\n"


def head(kind: str, notices: Iterable[Notice]) -> Document:
    """Return the keys that every document begins with."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "warnings": [{"slug": notice.slug, "message": notice.message} for notice in notices],
    }


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
    """Return the notices that head() wrote into *document*."""
    return from_json(list[Notice], document["warnings"])
