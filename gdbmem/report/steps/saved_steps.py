"""Reading steps that `memwatch save` and `memwatch report --json` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gdbmem.errors import InputError
from gdbmem.model.steps.step import Step
from gdbmem.report.document import FORMAT_VERSION
from gdbmem.text import printable

_TEXTS = ("command", "source", "lock", "ended", "note")
_TEXTS_OR_NULL = ("function", "file")
_COUNTS_OR_NULL = ("line", "thread", "delta_bytes", "total_bytes", "heap_delta_bytes", "others_bytes")
_TOO_LARGE = 1 << 62
_FLAGS = ("exact", "divided_exactly")


def read_steps(text: str, name: str) -> list[Step]:
    """Return the steps in the document *text*; raises InputError if it has none that can be read."""
    try:
        document = json.loads(text)
        if document["kind"] != "steps" or document["format_version"] > FORMAT_VERSION:
            raise ValueError
        steps = [_step(row) for row in document["steps"]]
        if not steps:
            raise ValueError
        return steps
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{printable(name)} holds no steps that this gdbmem can read",
            slug="bad-steps",
            hint="'memwatch save NAME', or 'memwatch report --json -o FILE', keeps some",
        ) from error


def _step(row: Mapping[str, Any]) -> Step:
    _all(row, _TEXTS, str)
    _all(row, _TEXTS_OR_NULL, str, type(None))
    _all(row, _COUNTS_OR_NULL, int, type(None))
    _all(row, _FLAGS, bool)
    _all(row, ("seconds",), int, float)
    parts: Any = row["parts"]
    threads: Sequence[Any] = row["shared_threads"]
    if parts is not None:
        _all(parts, parts.keys(), int)
    if any(type(one) is not int for one in threads):
        raise ValueError
    return Step(**{**row, "shared_threads": tuple(threads)})


def _all(row: Mapping[str, Any], names: Any, *kinds: type) -> None:
    for name in names:
        value = row[name]
        if type(value) not in kinds or (type(value) is int and abs(value) >= _TOO_LARGE):
            raise ValueError
