"""Single blocks beside a ledger: their classes by vtable, and vectors and types as text and JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Callable, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import as_json
from gdbmem.linux.elf.objects import VtableSymbols
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_blocks import (
    CLASS,
    LIST,
    TREE,
    UNKNOWN,
    VECTOR,
    BlockType,
    BlockTypes,
    FoundVector,
    FoundVectors,
)
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text, words_at
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices
from gdbmem.terminal.document import Document, to_json, whole
from gdbmem.text import format_size, plain_strings, plural, printable

if TYPE_CHECKING:
    from gdbmem.ledger.ledger import ProcessImage

# The possible beginnings of a class name in the Itanium C++ ABI.
_CLASS_NAME = re.compile(rb"\*?((?:\d|N|S|Z|I)[A-Za-z0-9_.$]+)")
_LONGEST = 4096


def class_of(
    memory: Memory, vtable: int, in_file: Callable[[int], bool], symbol: Callable[[int], str] = lambda _: ""
) -> Optional[str]:
    """Return the mangled name of the class whose objects begin with a pointer to *vtable*; None: not a vtable.

    A vtable is preceded by the offset to the object's start, which is 0 for the vtable of the whole object, and its
    std::type_info. If the program was compiled without it, *symbol* may know the vtable's name.
    Source: Itanium C++ ABI, 2.5.2 and 2.9.5.
    """
    if vtable % 8:
        return None
    try:
        to_start, info = words_at(memory, vtable - 16, 2)
        if to_start:
            return None
        if not info:
            return symbol(vtable) or None
        if not in_file(info) or info % 8:
            return None
        kind, name = words_at(memory, info, 2)
        if not in_file(kind) or not in_file(name):
            return None
        found = _CLASS_NAME.fullmatch(read_text(memory, name, _LONGEST) or b"")
    except MemoryUnreadable:
        return None
    return found[1].decode("ascii") if found else None


def name_types(
    blocks: dict[tuple[str, int], int],
    sizes: dict[tuple[str, int], int],
    pinned: dict[tuple[str, int], float],
    name_of: Callable[[int], Optional[str]],
) -> list[BlockType]:
    """Return the types, largest first; objects of unrecognised classes count as unknown."""
    sums: dict[tuple[str, str], list[float]] = {}
    for kind, vtable in blocks:
        name = name_of(vtable) if kind == CLASS else None
        label = (CLASS, name) if name else (UNKNOWN if kind == CLASS else kind, "")
        figures = sums.setdefault(label, [0, 0, 0.0])
        figures[0] += blocks[kind, vtable]
        figures[1] += sizes[kind, vtable]
        figures[2] += pinned[kind, vtable]
    types = [
        BlockType(kind, name, int(figures[0]), int(figures[1]), round(figures[2], 3))
        for (kind, name), figures in sums.items()
    ]
    return sorted(types, key=lambda t: (-t.bytes, t.kind, t.name))


# Live blocks by type, as text and JSON.


_MOST = 20
_NAMED = 3  # in the headline
_KINDS = {
    VECTOR: "elements of vectors",
    TREE: "nodes of trees, linked as those of std::map and std::set",
    LIST: "nodes of doubly linked lists, as those of std::list",
    UNKNOWN: "blocks of unknown type",
}


def types_document(found: BlockTypes, names: Mapping[str, str]) -> list[Document]:
    """Return *found* in the form of ``kind=ledger``, ``types``; *names* are demangled ones."""
    return [{**as_json(one), "name": names.get(one.name, one.name) or None} for one in found.types]


def print_types(found: BlockTypes, names: Mapping[str, str], console: Console) -> None:
    """Print the types that hold most."""
    if not found.types:
        console.print("\nNo live block has a type that could be recognised.")
        return
    table = drawing.new_table("live", "blocks", "pinned", last="what")
    for one in found.types[:_MOST]:
        table.add_row(
            format_size(one.bytes),
            f"{one.blocks:,}",
            format_size(one.pinned_bytes) if one.pinned_bytes >= 1 else "",
            type_in_words(one.kind, one.name, names),
        )
    headline = types_headline(found, names)
    if headline:
        console.print(drawing.Text(f"\n{headline}", "bold"), soft_wrap=True)
    console.print(
        "\nLive blocks by type, and the free memory that each pins. Objects of classes with"
        " virtual functions are known by their vtables, nodes by their links.",
        soft_wrap=True,
    )
    console.print(table)
    if len(found.types) > _MOST:
        console.print(f"and {plural(len(found.types) - _MOST, 'more type')} (--json has all)")


def types_headline(found: BlockTypes, names: Mapping[str, str]) -> str:
    """Return the classes with most objects in one sentence; "" if no object's class was recognised."""
    classes = sorted((one for one in found.types if one.kind == CLASS), key=lambda one: -one.blocks)
    named = [
        f"{one.blocks:,} of {type_in_words(one.kind, one.name, names)} ({format_size(one.bytes)})"
        for one in classes[:_NAMED]
    ]
    more = (
        f" and {plural(len(classes) - _NAMED, 'more class', 'more classes')}" if len(classes) > _NAMED else ""
    )
    return f"Most objects are {', '.join(named)}{more}." if named else ""


def type_in_words(kind: str, name: str, names: Mapping[str, str]) -> str:
    """Return the label for blocks of a *kind*, of class *name* for objects; *names* are demangled ones."""
    if kind != CLASS:
        return _KINDS[kind]
    return printable(plain_strings(names.get(name, name)))


# Summing up vectors found without types.


LISTED = 1000


def sum_vectors(vectors: Sequence[FoundVector], notices: Sequence[Notice] = ()) -> FoundVectors:
    """Return the sums over *vectors*, and those with most unused capacity."""
    empty = [vector for vector in vectors if not vector.used_bytes]
    ranked = sorted(vectors, key=lambda v: (-v.slack_bytes, -v.capacity_bytes, v.begin))
    return FoundVectors(
        vectors=len(vectors),
        capacity_bytes=sum(vector.capacity_bytes for vector in vectors),
        slack_bytes=sum(vector.slack_bytes for vector in vectors),
        empty=len(empty),
        empty_bytes=sum(vector.capacity_bytes for vector in empty),
        largest=ranked[:LISTED],
        notices=notices,
    )


# Vectors found by their pointers alone, as text and JSON.


_PLACES = {"heap": "in a block of the heap", "data": "a global or static variable", "stack": "on a stack"}


def vectors_json(found: FoundVectors, owners: Mapping[int, str]) -> str:
    """Return *found* as ``kind=vectors``; *owners* names the variables that hold some of them, by address."""
    names = ("begin", "used_bytes", "capacity_bytes", "slack_bytes", "owner", "place")
    largest = [{**as_json(one, *names), "owner": owners.get(one.owner) or None} for one in found.largest]
    return to_json({**whole("vectors", found), "largest": largest})


def print_vectors(found: FoundVectors, owners: Mapping[int, str], console: Console, top: int) -> None:
    """Print the sums, and the *top* vectors by unused capacity."""
    console.print(drawing.Text(_answer(found), "bold"), soft_wrap=True)
    if not found.vectors:
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
    if found.vectors > top:
        console.print(f"and {plural(found.vectors - top, 'more', 'more')} (--top)")
    console.print(
        "A vector is recognised by three pointers into one live block that fit its size: its type is unknown, and"
        " other buffers with such pointers count too.",
        soft_wrap=True,
    )
    print_notices(found.notices, console)


def _answer(found: FoundVectors) -> str:
    if not found.vectors:
        return "no vector was found in the heap"
    text = (
        f"{plural(found.vectors, 'vector')} hold{'s' if found.vectors == 1 else ''}"
        f" {format_size(found.capacity_bytes)};"
        f" {format_size(found.slack_bytes)} of it is unused capacity"
    )
    if found.empty:
        text += f", {format_size(found.empty_bytes)} in {found.empty:,} without an element"
    return text


def _where(vector: FoundVector, owner: str) -> str:
    place = f"{_PLACES[vector.place]}, {vector.owner:#x}"
    return f"{printable(owner)} ({place})" if owner else place


NameOf = Callable[[int], Optional[str]]


def namer(reading: ProcessImage, memory: Memory) -> NameOf:
    """Return a function from the address of a vtable to the mangled name of its class; None for other addresses."""
    files, symbols = constant_files(reading), VtableSymbols(reading.images, reading.open)
    in_file = files.__contains__
    return lambda vtable: class_of(memory, vtable, in_file, symbols.name) if vtable in files else None


def constant_files(reading: ProcessImage) -> Ranges:
    """Return the mapped parts of files that may contain vtables."""
    # Vtables are constant; lists end at variables in the same files.
    return Ranges((m.start, m.end) for m in reading.mappings if m.is_file and "w" not in m.permissions)
