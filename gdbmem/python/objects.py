"""Python's objects, arenas and tracing, and pages that workers have copied: their changes, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.json_values import as_json
from gdbmem.model.python import ArenaUse, PythonCopies, PythonObjects, TracingChange, TypeUse, WorkerCopies
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_pause, print_sentence
from gdbmem.terminal.document import Document, head, to_json, whole
from gdbmem.terminal.drawing import Table, new_table
from gdbmem.text import format_delta, format_duration, format_size, plural, printable


class Change(NamedTuple):
    """The objects of one type, before and after."""

    before: TypeUse
    after: TypeUse

    @property
    def type(self) -> str:
        return self.after.type

    @property
    def delta_bytes(self) -> int:
        return self.after.bytes - self.before.bytes

    @property
    def delta_count(self) -> int:
        return self.after.count - self.before.count


def changes(before: PythonObjects, after: PythonObjects) -> list[Change]:
    """Return the types whose bytes or objects changed in *after*, the largest change first."""
    old = {one.type: one for one in before.types}
    new = {one.type: one for one in after.types}
    rows = [
        Change(old.get(name, TypeUse(name, 0, 0)), new.get(name, TypeUse(name, 0, 0)))
        for name in {**old, **new}
    ]
    changed = [row for row in rows if row.delta_bytes or row.delta_count]
    return sorted(changed, key=lambda row: (-abs(row.delta_bytes), -abs(row.delta_count), row.type))


# Python's objects by type, as text: the present ones, and the change since.


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
        most = rows[0]
        change = f"{format_delta(most.delta_bytes)} in {most.delta_count:+,} objects"
        sentence += f"; most in {printable(most.type)}: {change}"
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


# The arenas of Python's allocator, as text: live and free blocks, and the blocks that keep them.


def print_arenas(use: ArenaUse, console: Console, *, top: int) -> None:
    """Print how full the arenas are, and the *top* types that keep the emptiest."""
    print_sentence(console, arenas_answer(use), "bold")
    console.print()
    console.print(_parts(use))
    console.print()
    console.print(_fill(use))
    if use.keepers:
        console.print()
        print_sentence(
            console,
            f"Arenas of which at most {use.keeper_share:.0%} is live are kept by these blocks:".replace(
                "%", " %"
            ),
        )
        console.print(_keepers(use, top))
    print_pause(use.pause_seconds, console)
    print_notices(use.notices, console)


def arenas_answer(use: ArenaUse) -> str:
    """Return the size of the arenas, and the live part."""
    free = use.free_in_pools_bytes + use.free_pools_bytes
    text = (
        f"{plural(use.arenas, 'arena')} of {format_size(use.arena_bytes)} hold {format_size(use.live_bytes)} of live"
        f" blocks; {format_size(free)} in them are free"
    )
    sparse = [one for one in use.fill if one.most <= use.keeper_share and one.arenas]
    count = sum(one.arenas for one in sparse)
    if not count:
        return f"{text}: no arena is emptier than {use.keeper_share:.0%}".replace("%", " %")
    size, live = sum(one.bytes for one in sparse), sum(one.live_blocks for one in sparse)
    return (
        f"{text}, {format_size(size - sum(one.live_bytes for one in sparse))} of that in {plural(count, 'arena')}"
        f" that {plural(live, 'live block')} keep: an arena goes back to the system when its last block is freed"
    )


def _parts(use: ArenaUse) -> Table:
    table = new_table("bytes", "share", "resident", last="what")
    rows = (
        (use.live_bytes, "live", f"live, in {plural(use.live_blocks, 'block')}"),
        (use.free_in_pools_bytes, "free in pools", "free, in pools with live blocks"),
        (use.free_pools_bytes, "free pools", "free, in pools without any"),
        (use.header_bytes, "headers", "headers, and parts too small for a block"),
        (use.bytes, "", f"{plural(use.arenas, 'arena')}, in pools of {format_size(use.pool_bytes)}"),
    )
    for size, label, what in rows:
        resident = use.resident.get(label, 0) if label else sum(use.resident.values())
        table.add_row(format_size(size), f"{100 * size / use.bytes:.1f} %", format_size(resident), what)
    return table


def _fill(use: ArenaUse) -> Table:
    table = new_table("arenas", "bytes", "live", "blocks", last="of which is live")
    least = 0.0
    for one in use.fill:
        if one.arenas:
            label = f"{least:.0%} to {one.most:.0%}".replace("%", " %")
            table.add_row(
                f"{one.arenas:,}",
                format_size(one.bytes),
                format_size(one.live_bytes),
                f"{one.live_blocks:,}",
                label,
            )
        least = one.most
    return table


def _keepers(use: ArenaUse, top: int) -> Table:
    table = new_table("blocks", "bytes", last="type")
    for one in use.keepers[:top]:
        name = printable(one.type) if one.type else "no objects: tables of dicts, items of lists, buffers, …"
        table.add_row(f"{one.count:,}", format_size(one.bytes), name)
    rest = use.keepers[top:]
    if rest:
        count, size = sum(one.count for one in rest), sum(one.bytes for one in rest)
        table.add_row(f"{count:,}", format_size(size), plural(len(rest), "further type"))
    return table


# The state of tracemalloc after it was started or stopped in a process, as text and JSON.


_WAYS = {"remote-exec": "the interpreter's own remote debugging", "pending-call": "a pending call"}


def print_change(change: TracingChange, console: Console) -> None:
    """Print the change, how it was made, and the cost of tracing so far."""
    print_sentence(console, _answer(change), "bold")
    pause = (
        f"was stopped for {format_duration(change.pause_seconds)}"
        if change.pause_seconds
        else "was not stopped"
    )
    waited = format_duration(change.waited_seconds)
    console.print(f"Run by {_WAYS[change.way]}: the process {pause}; the result came after {waited}.")


def _answer(change: TracingChange) -> str:
    tables = f"{format_size(change.overhead_bytes)}, for {format_size(change.traced_bytes)} traced"
    depth = plural(change.frames, "frame")
    if change.was_tracing and change.is_tracing:
        return f"tracemalloc was already on in process {change.pid}, with {depth}; its tables take {tables}"
    if change.is_tracing:
        return (
            f"tracemalloc is on in process {change.pid}, with {depth} of each traceback; earlier allocations"
            f" are not traced, and 'gdbmem python traces {change.pid}' reads later ones"
        )
    if change.was_tracing:
        return f"tracemalloc is off in process {change.pid}; its tables took {tables}"
    return f"tracemalloc was not on in process {change.pid}"


def change_json(change: TracingChange) -> str:
    """Return *change* as ``kind=python-tracing``; sizes are bytes."""
    return to_json(whole("python-tracing", change, _answer(change)))


def objects_json(objects: PythonObjects) -> str:
    """Return *objects* as ``kind=python-objects``; sizes are bytes."""
    document: Document = {
        **head("python-objects", objects.notices),
        "answer": objects_answer(objects),
        **as_json(objects, "program", "pid", "pause_seconds", "count", "bytes", "types"),
        "unused": as_json(objects.unused, "count", "bytes"),
        "others": as_json(objects.others, "count", "bytes"),
        **as_json(objects, "uncounted_blocks", "large"),
    }
    return to_json(document)


def growth_json(before: PythonObjects, after: PythonObjects, name: str) -> str:
    """Return the change since *before*, read from *name*, as ``kind=python-objects-diff``.

    Sizes are bytes.
    """
    document: Document = {
        **head("python-objects-diff", [*before.notices, *after.notices]),
        "answer": growth_answer(before, after, name),
        "before": as_json(before, "count", "bytes"),
        "after": as_json(after, "count", "bytes"),
        "types": [{"type": one.type, **_change_document(one)} for one in changes(before, after)],
        "others": _change_document(Change(before.others, after.others)),
        "unused": _change_document(Change(before.unused, after.unused)),
    }
    return to_json(document)


def _change_document(change: Change) -> Document:
    sides = {
        "before": as_json(change.before, "count", "bytes"),
        "after": as_json(change.after, "count", "bytes"),
    }
    return {**as_json(change, "delta_count", "delta_bytes"), **sides}


def arenas_json(use: ArenaUse) -> str:
    """Return *use* as ``kind=python-arenas``; sizes are bytes."""
    document: Document = {
        **whole("python-arenas", use, arenas_answer(use)),
        "free_bytes": use.free_in_pools_bytes + use.free_pools_bytes,
        "bytes": use.bytes,
    }
    return to_json(document)


# Pages that forked workers have copied of a Python process's memory, as text and JSON.


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
        console.print(_copied_types(copies, top))
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


def _copied_types(copies: PythonCopies, top: int) -> Table:
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
