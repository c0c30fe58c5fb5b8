"""Pages that forked workers have copied of a Python process's memory, as text."""

from __future__ import annotations

from gdbmem.model.python import PythonCopies
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.drawing import Table, new_table
from gdbmem.report.notices import print_notices, print_pause
from gdbmem.text import plural, printable
from gdbmem.units import format_size

_NAMED, _MOST_NAMED = 0.1, 3  # fraction of the copied bytes from which a type is named in the answer
_PLACES = {
    "arenas": "Python's small objects",
    "malloc": "malloc's main heap: large objects, buffers",
    "data": "variables of the program and its libraries",
    "other": "other anonymous memory: mapped blocks, stacks",
}


def print_copies(copies: PythonCopies, console: Console, *, top: int) -> None:
    """Print the bytes that the workers have copied, their location, and the *top* types on the copied pages."""
    print_sentence(console, copies_answer(copies), "bold")
    console.print()
    console.print(_places(copies))
    if copies.types:
        console.print()
        console.print(_types(copies, top))
    console.print()
    console.print(_workers(copies, top))
    print_pause(copies.pause_seconds, console)
    print_notices(copies.notices, console)


def copies_answer(copies: PythonCopies) -> str:
    """Return the bytes that the workers have copied, each and in all, and the types of the objects."""
    count = len(copies.workers)
    text = (
        f"{plural(count, 'forked process', 'forked processes')} of process {copies.pid} have copied"
        f" {format_size(copies.copied_bytes)} of its memory in all, {format_size(copies.copied_bytes // count)} each"
        " on average"
    )
    if count == 1:
        text = (
            f"the forked process {copies.workers[0].pid} of process {copies.pid} has copied"
            f" {format_size(copies.copied_bytes)} of its memory"
        )
    most = [one for one in copies.types if one.copied_bytes >= _NAMED * copies.copied_bytes > 0][:_MOST_NAMED]
    if not most:
        return text
    names = " and ".join(f"'{printable(one.type)}'" for one in most)
    share = sum(one.copied_bytes for one in most)
    return (
        f"{text}; {format_size(share)} of that are objects of type {names}"
        " (using an object changes its reference count, which copies its page)"
    )


def _places(copies: PythonCopies) -> Table:
    table = new_table("copied", "share", last="where")
    for name, size in sorted(copies.places.items(), key=lambda item: -item[1]):
        share = 100 * size / copies.copied_bytes if copies.copied_bytes else 0.0
        table.add_row(format_size(size), f"{share:.1f} %", _PLACES[name])
    table.add_row(format_size(copies.copied_bytes), "100.0 %" if copies.copied_bytes else "", "total")
    return table


def _types(copies: PythonCopies, top: int) -> Table:
    table = new_table("copied", "pages", last="type")
    for one in copies.types[:top]:
        table.add_row(format_size(one.copied_bytes), f"{one.pages:,}", printable(one.type))
    rest = copies.types[top:]
    if rest:
        size = sum(one.copied_bytes for one in rest)
        table.add_row(format_size(size), "", plural(len(rest), "further type"))
    what = "on the same pages: tables of dicts, items of lists, free blocks, headers"
    table.add_row(format_size(copies.others_bytes), "", what)
    return table


def _workers(copies: PythonCopies, top: int) -> Table:
    table = new_table("copied", "still shared", last="process")
    for one in sorted(copies.workers, key=lambda one: -one.copied_bytes)[:top]:
        table.add_row(format_size(one.copied_bytes), format_size(one.shared_bytes), str(one.pid))
    if len(copies.workers) > top:
        rest = sorted(copies.workers, key=lambda one: -one.copied_bytes)[top:]
        size, shared = sum(one.copied_bytes for one in rest), sum(one.shared_bytes for one in rest)
        table.add_row(
            format_size(size), format_size(shared), plural(len(rest), "further process", "further processes")
        )
    return table
