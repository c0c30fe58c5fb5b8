"""Vectors found by their pointers alone, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping

from gdbmem.model.ledger.vectors import FoundVector, FoundVectors
from gdbmem.report import drawing
from gdbmem.report.console import Console
from gdbmem.report.document import head, to_json
from gdbmem.report.notices import print_notices
from gdbmem.text import plural, printable
from gdbmem.units import format_size

_PLACES = {"heap": "in a block of the heap", "data": "a global or static variable", "stack": "on a stack"}


def vectors_json(found: FoundVectors, owners: Mapping[int, str]) -> str:
    """Return *found* as ``kind=vectors``; *owners* names the variables that hold some of them, by address."""
    return to_json(
        {
            **head("vectors", found.notices),
            "count": found.count,
            "capacity_bytes": found.capacity_bytes,
            "slack_bytes": found.slack_bytes,
            "empty": found.empty,
            "empty_bytes": found.empty_bytes,
            "largest": [
                {
                    "address": vector.begin,
                    "used_bytes": vector.used_bytes,
                    "capacity_bytes": vector.capacity_bytes,
                    "slack_bytes": vector.slack_bytes,
                    "owner_address": vector.owner,
                    "place": vector.place,
                    "owner": owners.get(vector.owner) or None,
                }
                for vector in found.largest
            ],
        }
    )


def print_vectors(found: FoundVectors, owners: Mapping[int, str], console: Console, top: int) -> None:
    """Print the sums, and the *top* vectors by unused capacity."""
    console.print(drawing.Text(_answer(found), "bold"), soft_wrap=True)
    if not found.count:
        return
    table = drawing.new_table("unused", "used", "capacity", "at", last="its pointers stand")
    for vector in found.largest[:top]:
        table.add_row(
            format_size(vector.slack_bytes),
            format_size(vector.used_bytes),
            format_size(vector.capacity_bytes),
            f"{vector.begin:#x}",
            _where(vector, owners.get(vector.owner, "")),
        )
    console.print()
    console.print(table)
    if found.count > top:
        console.print(f"and {plural(found.count - top, 'more', 'more')} (--top)")
    console.print(
        "A vector is recognised by three pointers into one live block that fit its size: its type is unknown, and"
        " other buffers with such pointers count too.",
        soft_wrap=True,
    )
    print_notices(found.notices, console)


def _answer(found: FoundVectors) -> str:
    if not found.count:
        return "no vector was found in the heap"
    text = (
        f"{plural(found.count, 'vector')} hold{'s' if found.count == 1 else ''} {format_size(found.capacity_bytes)};"
        f" {format_size(found.slack_bytes)} of it is unused capacity"
    )
    if found.empty:
        text += f", {format_size(found.empty_bytes)} in {found.empty:,} without an element"
    return text


def _where(vector: FoundVector, owner: str) -> str:
    place = f"{_PLACES[vector.place]}, {vector.owner:#x}"
    return f"{printable(owner)} ({place})" if owner else place
