"""Python's objects by type, as text: the present ones, and the change since."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.analysis.python_objects import Change, changes
from gdbmem.model.python import PythonObjects, TypeUse
from gdbmem.report import drawing
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.notices import print_notices, print_pause
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_size


def print_objects(objects: PythonObjects, console: Console, *, top: int) -> None:
    """Print the *top* largest types of *objects* and the other allocated blocks."""
    print_sentence(console, objects_answer(objects), "bold")
    console.print()
    console.print(_types(objects, top))
    console.print()
    print_sentence(console, beside_objects(objects))
    print_pause(objects.pause_seconds, console)
    print_notices(objects.notices, console)


def beside_objects(objects: PythonObjects) -> str:
    """Return a sentence on the blocks other than live objects."""
    return (
        f"In addition: {_blocks(objects.others)} of tables and buffers that are not objects (of dicts, lists, …),"
        f" {_blocks(objects.unused)} of dead objects that Python keeps for reuse."
    )


def objects_answer(objects: PythonObjects) -> str:
    """Return the bytes of the objects, and the type of most of them."""
    if not objects.types:
        return "no live Python objects were found"
    largest = objects.types[0]
    return (
        f"{objects.count:,} Python objects hold {format_size(objects.bytes)}, excluding other memory that they refer"
        f" to; {format_size(largest.bytes)} of it are {largest.count:,} of type {printable(largest.type)}"
    )


def _blocks(use: TypeUse) -> str:
    return f"{format_size(use.bytes)} in {plural(use.count, 'block')}"


def _types(objects: PythonObjects, top: int) -> drawing.Table:
    table = drawing.new_table("objects", "bytes", "share", "mean", last="type")
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


def print_growth(
    before: PythonObjects, after: PythonObjects, console: Console, *, top: int, name: str
) -> None:
    """Print the types that have grown or shrunk from *before*, read from *name*, to *after*."""
    rows = changes(before, after)
    print_sentence(console, growth_answer(before, after, name), "bold")
    if rows:
        console.print()
        console.print(_growth(rows, top))
    console.print()
    print_sentence(console, beside_growth(before, after))
    print_notices([*before.notices, *after.notices], console)


def growth_answer(before: PythonObjects, after: PythonObjects, name: str) -> str:
    """Return the change since *before*, read from *name*, and the type with most of it."""
    rows = changes(before, after)
    delta, objects = after.bytes - before.bytes, after.count - before.count
    change = f"{format_delta(delta)}, {objects:+,} objects" if delta or objects else "unchanged"
    sentence = f"Python's objects since {printable(name)}: {change}"
    if rows:
        sentence += f"; most in {printable(rows[0].type)}: {_change(rows[0])}"
    others = Change(before.others, after.others)
    if abs(others.delta_bytes) > abs(delta):
        sentence += f"; the tables and buffers beside them: {format_delta(others.delta_bytes)}"
    return sentence


def beside_growth(before: PythonObjects, after: PythonObjects) -> str:
    """Return a sentence on the change of blocks other than live objects."""
    others, unused = Change(before.others, after.others), Change(before.unused, after.unused)
    hint = (
        " ('--holders TYPE' shows those of the objects of a type as 'beyond')"
        if others.delta_bytes > 0
        else ""
    )
    return (
        f"In addition: {_change_of_blocks(others)} of tables and buffers that are not objects (of dicts, lists,"
        f" …){hint}, {_change_of_blocks(unused)} of dead objects that Python keeps for reuse."
    )


def _change_of_blocks(change: Change) -> str:
    return f"{format_delta(change.delta_bytes)} in {change.delta_count:+,} blocks"


def _change(row: Change) -> str:
    return f"{format_delta(row.delta_bytes)} in {row.delta_count:+,} objects"


def _growth(rows: Sequence[Change], top: int) -> drawing.Table:
    table = drawing.new_table("change", "objects", "before", "after", last="type")
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
