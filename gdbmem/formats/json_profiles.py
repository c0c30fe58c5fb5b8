"""Profiles that are one JSON document: damaged ones are refused in one sentence."""

from __future__ import annotations

from typing import Callable

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.formats.spooling import Data
from gdbmem.formats.stacks import StackProfile
from gdbmem.json_values import MISFITS
from gdbmem.text import printable


def read_json_profile(
    data: Data, source: str, profile: Callable[[JsonObject], StackProfile], *, wanted: str, if_cut: str
) -> StackProfile:
    """Return what *profile* makes of the document in *data*.

    Raises InputError if it is not complete JSON, with the hint *if_cut*, or is not *wanted*, a noun.
    """
    import json  # 1 ms

    try:
        found = json.loads(bytes(data))
    except (ValueError, RecursionError, OverflowError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it nests without end"
        raise InputError(
            f"{printable(source)} is not complete JSON: {printable(reason)}", slug="json-damaged", hint=if_cut
        ) from None
    try:
        return profile(found)
    except MISFITS as error:
        raise InputError(
            f"{printable(source)} is not {wanted}: {type(error).__name__} at {printable(str(error))}",
            slug="json-damaged",
            hint="was the file edited?",
        ) from None
