"""Live blocks by type, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping

from gdbmem.analysis.profiles.sites import plain_strings
from gdbmem.model.ledger.block_types import CLASS, LIST, TREE, UNKNOWN, VECTOR, BlockTypes
from gdbmem.report import drawing
from gdbmem.report.console import Console
from gdbmem.report.document import Document
from gdbmem.text import plural, printable
from gdbmem.units import format_size

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
    return [
        {
            "kind": one.kind,
            "name": names.get(one.name, one.name) or None,
            "blocks": one.blocks,
            "bytes": one.bytes,
            "pinned_bytes": one.pinned_bytes,
        }
        for one in found.types
    ]


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
