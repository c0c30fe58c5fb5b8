"""Holders of the objects of a Python type, as text."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.python import (
    ROOT_FRAME,
    ROOT_MEMORY,
    ROOT_MODULE,
    ROOT_STACK,
    ROOT_VARIABLES,
    HolderPath,
    HolderStep,
    PythonHolders,
    Referrer,
)
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.drawing import Table, new_table
from gdbmem.report.notices import print_notices, print_pause
from gdbmem.text import plural, printable
from gdbmem.units import format_size

_REFERRERS = 5
_WORTH_SAYING = 1 << 20  # bytes
_ROOTS = {
    ROOT_FRAME: "{}",
    ROOT_VARIABLES: "variables of {}",
    ROOT_STACK: "native stack of thread {}",
    ROOT_MEMORY: "memory of no known allocator",
}


def print_holders(holders: PythonHolders, console: Console, *, top: int) -> None:
    """Print the paths to the objects, the *top* largest groups of them, and their direct referrers."""
    print_sentence(console, holders_answer(holders), "bold")
    console.print()
    table = new_table("objects", "bytes", "beyond", last="path")
    for one in holders.paths[:top]:
        table.add_row(f"{one.count:,}", format_size(one.bytes), format_size(one.beyond_bytes), path_text(one))
    _add_rest(table, holders, top)
    console.print(table)
    console.print()
    print_sentence(console, f"Referred to directly by {_referrers(holders.referrers)}.")
    if any(one.beyond_bytes for one in holders.paths):
        print_sentence(
            console,
            "Beyond: blocks that are not Python objects and to which these objects alone lead (items, buffers, C's).",
        )
    if holders.shared_bytes >= _WORTH_SAYING:
        print_sentence(
            console,
            f"{format_size(holders.shared_bytes)} more in such blocks are not counted, as others lead to them, too (a"
            " pool of an allocator, for example: 'gdbmem bfc' divides those of TensorFlow).",
        )
    for text in _unreached(holders):
        print_sentence(console, text)
    print_pause(holders.pause_seconds, console)
    print_notices(holders.notices, console)


def _unreached(holders: PythonHolders) -> list[str]:
    """Return sentences on the objects without a path, with and without references."""
    bare, all_bytes = holders.unreferred, holders.unreached.bytes
    referred = holders.unreached.count - bare.count
    texts = []
    if bare.count:
        texts.append(
            f"The address of {bare.count:,} of them ({format_size(bare.bytes)}) is nowhere in the memory that was"
            " searched: C code may have kept a reference count without a reference (a missing Py_DECREF)."
        )
    if referred:
        texts.append(
            f"No path from a module, a frame or a variable was found to {referred:,} of them"
            f" ({format_size(all_bytes - bare.bytes)}): they wait for the collector, or C code alone refers to them."
        )
    return texts


def holders_answer(holders: PythonHolders) -> str:
    """Return the number of objects, and the holder of most of them."""
    names = " and ".join(f"'{printable(one)}'" for one in holders.types)
    sentence = f"{plural(holders.count, 'object')} of type {names} ({format_size(holders.bytes)})"
    if not holders.paths:
        return f"{sentence}: no path of references to them was found"
    first = max(holders.paths, key=lambda one: one.count)
    reached = f"{first.count:,} of them are reached through {path_text(first)}"
    lost, bare = holders.unreached, holders.unreferred
    if lost.count <= first.count:
        return f"{sentence}; {reached}"
    if bare.count > lost.count - bare.count:
        none = f"nothing that was found refers to {bare.count:,} of them ({format_size(bare.bytes)})"
    else:
        none = f"no path of references was found to {lost.count:,} of them ({format_size(lost.bytes)})"
    return f"{sentence}; {none}; {reached}"


def _add_rest(table: Table, holders: PythonHolders, top: int) -> None:
    rest = holders.paths[top:]
    count = sum(one.count for one in rest) + holders.other_paths.count
    if count:
        size = sum(one.bytes for one in rest) + holders.other_paths.bytes
        table.add_row(f"{count:,}", format_size(size), "", "by further paths")


def _referrers(rows: Sequence[Referrer]) -> str:
    texts = [
        f"{plural(one.holders, 'object')} of type '{printable(one.type)}' ({plural(one.references, 'reference')})"
        if one.type
        else f"memory that is not a Python object's ({plural(one.references, 'reference')})"
        for one in rows[:_REFERRERS]
    ]
    if len(rows) > _REFERRERS:
        left = sum(one.references for one in rows[_REFERRERS:])
        texts.append(
            f"objects of {plural(len(rows) - _REFERRERS, 'further type')} ({plural(left, 'reference')})"
        )
    return ", ".join(texts) or "nothing that was found"


def path_text(path: HolderPath) -> str:
    """Return *path* as one line: names as Python has them, then types."""
    steps = list(path.steps)
    if path.root == ROOT_MODULE and steps and steps[0].name == path.root_name:
        text, steps = printable(path.root_name), steps[1:]
    elif path.root == ROOT_MODULE:
        text = f"{printable(path.root_name)} …"
    else:
        text = _ROOTS[path.root].format(printable(path.root_name))
    # Names first, as far as they lead: module.Class.attribute.
    named, steps = _named(path, steps)
    text += named
    if steps:
        text += ": " + " → ".join(_types(steps))
    return text


def _named(path: HolderPath, steps: Sequence[HolderStep]) -> tuple[str, list[HolderStep]]:
    """Return the names that continue from the root, and the steps described by their types."""
    text = ""
    for number, one in enumerate(steps):
        name = _attribute(one.label)
        if number == 0 and path.root == ROOT_FRAME:
            name = f", local {printable(one.label)}" if one.label else ""
        elif path.root != ROOT_MODULE:
            name = ""
        if not name and one.name and path.root == ROOT_MODULE:
            name = f" … {printable(one.name)}"
        text += name
        if not one.name:
            return text, list(steps[number:])
    return text, []


def _attribute(label: str) -> str:
    """Return the name of a module's or a class's attribute, from the key in its dict."""
    if label.startswith("['"):
        return f".{printable(label[2:-2])}"
    return printable(label)


def _types(steps: Sequence[HolderStep]) -> list[str]:
    """Return the types of *steps*, each with how it refers to the next one."""
    texts = []
    for one, following in zip(steps, [*steps[1:], None]):
        text = printable(one.type)
        if one.name and one.type == "type":
            text = f"class {printable(one.name)}"
        if following is not None:
            text += printable(following.label)
        texts.append(text + (" (through one another)" if one.repeats else ""))
    return texts
