"""Reading steps that `memwatch save` and `memwatch report --json` wrote."""

from __future__ import annotations

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.json_values import from_json
from gdbmem.model.steps.step import Step
from gdbmem.report.document import read_document
from gdbmem.text import printable


def read_steps(text: str, name: str) -> list[Step]:
    """Return the steps in the document *text*; raises InputError if it has none that can be read."""
    return read_document(text, "steps", _steps, bad_steps(name))


def bad_steps(name: str) -> InputError:
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
