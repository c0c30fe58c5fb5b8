"""Python's objects by type, as text: what there is, and what came and went since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbmem.analysis.python_objects import Change, changes
from gdbmem.model.python import PythonObjects, TypeUse
from gdbmem.report import drawing
from gdbmem.report.console import print_sentence, print_table
from gdbmem.report.notices import print_notices
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_duration, format_size

if TYPE_CHECKING:
    from rich.console import Console


def print_objects(objects: PythonObjects, console: Console, *, top: int) -> None:
    """Print the *top* largest types of *objects* and what is allocated beside them."""
    print_sentence(console, _answer(objects), "bold")
    console.print()
    print_table(console, _types(objects, top))
    console.print()
    print_sentence(
        console,
        f"Beside them: {_blocks(objects.others)} of tables and buffers that are no objects (of dicts, lists, …),"
        f" {_blocks(objects.unused)} of dead objects that Python keeps for reuse.",
    )
    if objects.pause_seconds is not None:
        console.print(f"The process was held still for {format_duration(objects.pause_seconds)}.")
    print_notices(objects.notices, console)


def _answer(objects: PythonObjects) -> str:
    if not objects.types:
        return "no live Python objects were found"
    largest = objects.types[0]
    return (
        f"{objects.count:,} Python objects hold {format_size(objects.bytes)}, without what else they refer to;"
        f" {format_size(largest.bytes)} of it are {largest.count:,} of type {printable(largest.type)}"
    )


def _blocks(use: TypeUse) -> str:
    return f"{format_size(use.bytes)} in {plural(use.count, 'block')}"


def _types(objects: PythonObjects, top: int) -> drawing.Table:
    table = new_table("objects", "bytes", "share", "mean", "type")
    for one in objects.types[:top]:
        share = 100 * one.bytes / objects.bytes
        mean = format_size(round(one.bytes / one.count))
        table.add_row(f"{one.count:,}", format_size(one.bytes), f"{share:.1f} %", mean, printable(one.type))
    rest = objects.types[top:]
    if rest:
        size = sum(one.bytes for one in rest)
        count = sum(one.count for one in rest)
        table.add_row(
            f"{count:,}",
            format_size(size),
            f"{100 * size / objects.bytes:.1f} %",
            "",
            f"{plural(len(rest), 'further type')}",
        )
    return table


def new_table(*columns: str) -> drawing.Table:
    """Return a table of *columns*, numbers to the right and types to the left."""
    table = drawing.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        left = name == "type"
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    return table


def print_growth(
    before: PythonObjects, after: PythonObjects, console: Console, *, top: int, name: str
) -> None:
    """Print which types have grown and shrunk from *before*, which came from *name*, to *after*."""
    rows = changes(before, after)
    delta, objects = after.bytes - before.bytes, after.count - before.count
    change = f"{format_delta(delta)}, {objects:+,} objects" if delta or objects else "unchanged"
    sentence = f"Python's objects since {printable(name)}: {change}"
    if rows:
        sentence += f"; most in {printable(rows[0].type)}: {_change(rows[0])}"
    print_sentence(console, sentence, "bold")
    if rows:
        console.print()
        print_table(console, _growth(rows, top))
    print_notices([*before.notices, *after.notices], console)


def _change(row: Change) -> str:
    return f"{format_delta(row.delta_bytes)} in {row.delta_count:+,} objects"


def _growth(rows: Sequence[Change], top: int) -> drawing.Table:
    table = new_table("change", "objects", "before", "after", "type")
    for row in rows[:top]:
        style = "red" if row.delta_bytes > 0 else "green"
        table.add_row(
            drawing.Text(format_delta(row.delta_bytes), style),
            f"{row.delta_count:+,}",
            format_size(row.before.bytes),
            format_size(row.after.bytes),
            printable(row.type),
        )
    rest = rows[top:]
    if rest:
        size, count = sum(r.delta_bytes for r in rest), sum(r.delta_count for r in rest)
        table.add_row(format_delta(size), f"{count:+,}", "", "", plural(len(rest), "further type"))
    return table
