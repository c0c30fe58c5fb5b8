"""Pages that forked workers have copied of a Python process's memory, as text and JSON."""

from __future__ import annotations

from gdbmem.model.python import PythonCopies, WorkerCopies
from gdbmem.terminal.console import Console, print_notices, print_pause, print_sentence
from gdbmem.terminal.document import to_json, whole
from gdbmem.terminal.drawing import Table, new_table
from gdbmem.text import format_size, plural, printable

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
    for text in (collections_text(copies), rewritten_text(copies)):
        if text:
            print_sentence(console, text)
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
    text = _total(copies)
    most = [one for one in copies.types if one.copied_bytes >= _NAMED * copies.copied_bytes > 0][:_MOST_NAMED]
    if not most:
        return text
    names = " and ".join(f"'{printable(one.type)}'" for one in most)
    share = sum(one.copied_bytes for one in most)
    return (
        f"{text}; {format_size(share)} of that are objects of type {names}"
        " (using an object changes its reference count, which copies its page; so does a garbage collection)"
    )


def _total(copies: PythonCopies) -> str:
    count, size = len(copies.workers), format_size(copies.copied_bytes)
    if copies.full_collections or _shared_with_siblings(copies):
        others = plural(count, "forked process", "forked processes")
        return f"process {copies.pid} and {others} have copied {size} of the memory that they shared"
    if count == 1:
        return f"the forked process {copies.workers[0].pid} of process {copies.pid} has copied {size} of its memory"
    each = format_size(copies.copied_bytes // count)
    return (
        f"{count:,} forked processes of process {copies.pid} have copied {size} of its memory in all, {each} each on"
        " average"
    )


def _shared_with_siblings(copies: PythonCopies) -> int:
    """Return the bytes of copies that several workers share, because their parent wrote to its own; 0: only few."""
    shared = sum(one.with_siblings_bytes for one in copies.workers)
    return shared if shared >= _NAMED * copies.copied_bytes else 0


def collections_text(copies: PythonCopies) -> str:
    """Return the part of garbage collections in the copies, and how to avoid it; "" if they have none or little."""
    most = [copies.most_full_collections, *(one.most_full_collections for one in copies.workers)]
    is_little = copies.tracked_bytes < _NAMED * copies.copied_bytes or not copies.tracked_bytes
    if copies.has_frozen or is_little or not any(most):
        return ""
    text = (
        f"up to {format_size(copies.tracked_bytes)} of that are on pages with objects that the garbage collector"
        " tracks; a full collection writes into all of those"
    )
    runs = [one.full_collections for one in copies.workers if one.full_collections]
    places = []
    if runs:
        places.append(f"at least {sum(runs):,} in {plural(len(runs), 'forked process', 'forked processes')}")
    if copies.full_collections:
        places.append(f"at least {copies.full_collections:,} in process {copies.pid}")
    remedy = f"gc.freeze() in process {copies.pid} before the fork prevents these copies"
    if not places:
        return f"{text}: if there was one since the fork, {remedy}"
    return f"{text}, and there were {' and '.join(places)} since the fork: {remedy}"


def rewritten_text(copies: PythonCopies) -> str:
    """Return the pages that the parent itself has written to, so that its workers share the former ones; "": few."""
    shared = _shared_with_siblings(copies)
    if not shared:
        return ""
    return (
        f"{format_size(shared)} of the pages listed below as copied are shared with other forked processes: process"
        f" {copies.pid} has written to its own since, and they count once in the total"
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
    table = new_table("copied", "still shared", "its own", last="process")
    for one in sorted(copies.workers, key=lambda one: -one.copied_bytes)[:top]:
        table.add_row(*map(format_size, _shares(one)), str(one.pid))
    if len(copies.workers) > top:
        rest = sorted(copies.workers, key=lambda one: -one.copied_bytes)[top:]
        sums = [sum(column) for column in zip(*map(_shares, rest))]
        table.add_row(*map(format_size, sums), plural(len(rest), "further process", "further processes"))
    return table


def _shares(worker: WorkerCopies) -> tuple[int, int, int]:
    return worker.copied_bytes, worker.shared_bytes, worker.own_bytes


def copies_json(copies: PythonCopies) -> str:
    """Return *copies* as ``kind=python-cow``; sizes are bytes."""
    return to_json(whole("python-cow", copies, copies_answer(copies)))
