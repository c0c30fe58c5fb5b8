"""Memory that was not accessed for some time: text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

from gdbmem.model.ledger.idle import IdleBlocks, IdleEntry, IdleMemory, TreeHolder
from gdbmem.records import asdict
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.drawing import Table, new_table
from gdbmem.report.ledger.block_types import type_in_words
from gdbmem.report.ledger.ledger_text import what_grew
from gdbmem.text import printable
from gdbmem.units import format_duration, format_size

_LEAST_SHARE = 0.001
_MOST_TYPES, _MOST_SIZES, _MOST_HOLDERS = 10, 6, 3
_LIMITS = (
    "the kernel counts touched pages by mapping: entries that share one have bounds. A page counts as touched when any"
    " byte of it is, a huge one as a whole; some MiB that are in use all the time may not show"
)


def print_idle(idle: IdleMemory, name: str, console: Console, names: Mapping[str, str]) -> None:
    """Print the idle bytes, and the entries of the ledger and live blocks that may contain them.

    *names* are the demangled ones of mangled_names().
    """
    sizes = f"{format_size(idle.idle_bytes)} of {format_size(idle.rss_bytes)}"
    print_sentence(
        console, f"{sizes} resident in {name} were not touched for {format_duration(idle.seconds)}", "bold"
    )
    console.print()
    table = Table(header_style="bold")
    table.add_numbers("not touched", "resident")
    table.add_column("where")
    for one in idle.entries:
        if one.most_idle_bytes > _LEAST_SHARE * idle.rss_bytes:
            words = printable(what_grew(one.category, one.label))
            table.add_row(_bounds(one), format_size(one.resident_bytes), words)
    console.print(table)
    _print_blocks("live blocks of malloc by type", idle.types[:_MOST_TYPES], idle, names, console)
    _print_blocks("by size", idle.sizes[:_MOST_SIZES], idle, names, console)
    if idle.tree_holders:
        holders = [f"{_holder(one, names)} ({one.share:.0%})" for one in idle.tree_holders[:_MOST_HOLDERS]]
        more = ", …" if len(idle.tree_holders) > _MOST_HOLDERS else ""
        print_sentence(
            console, f"the nodes of trees belong to {', '.join(holders)}{more}, by a sample of the blocks"
        )
    afterwards = format_size(sum(one.resident_bytes for one in idle.entries))
    if afterwards != format_size(idle.rss_bytes):
        print_sentence(console, f"the contents of the pages were read later, when {afterwards} were resident")
    print_sentence(console, _LIMITS)


def mangled_names(idle: IdleMemory) -> list[str]:
    """Return the names of the classes and variables that print_idle() and idle_json() need demangled."""
    variables = [_type_info(one.name) for one in idle.tree_holders if one.name.startswith("_Z")]
    return [one.name for one in idle.types if one.name] + variables


def _type_info(variable: str) -> str:
    # _ZN3app5tasksE, _ZL5tasks: mangled in the same way as the name of a class.
    return variable[2:].lstrip("L")


def _holder(one: TreeHolder, names: Mapping[str, str]) -> str:
    return printable(names.get(_type_info(one.name), one.name) if one.name.startswith("_Z") else one.name)


def _print_blocks(
    title: str, rows: Sequence[IdleBlocks], idle: IdleMemory, names: Mapping[str, str], console: Console
) -> None:
    rows = [one for one in rows if one.most_idle_bytes > _LEAST_SHARE * idle.rss_bytes]
    if not rows:
        return
    table = new_table("not touched", "live", "blocks", last=title)
    for one in rows:
        what = type_in_words(one.kind, one.name, names) if one.kind else f"of {one.size_bytes:,} bytes"
        table.add_row(_bounds(one), format_size(one.bytes), f"{one.blocks:,}", what)
    console.print()
    console.print(table)


def _bounds(one: Union[IdleEntry, IdleBlocks]) -> str:
    least, most = format_size(one.least_idle_bytes), format_size(one.most_idle_bytes)
    return most if least == most else f"{least} to {most}"


def idle_json(idle: IdleMemory, pid: int, names: Mapping[str, str]) -> str:
    """Return it as text; *names* as for print_idle()."""
    document: Document = {
        **head("idle", ()),
        "pid": pid,
        "seconds": idle.seconds,
        "rss_bytes": idle.rss_bytes,
        "idle_bytes": idle.idle_bytes,
        "entries": [asdict(one) for one in idle.entries],
        "types": [
            {"kind": one.kind, "name": names.get(one.name, one.name) or None, **_figures(one)}
            for one in idle.types
        ],
        "sizes": [{"size_bytes": one.size_bytes, **_figures(one)} for one in idle.sizes],
        "tree_holders": [{"name": _holder(one, names), "share": one.share} for one in idle.tree_holders],
    }
    return to_json(document)


def _figures(one: IdleBlocks) -> Document:
    return {
        "blocks": one.blocks,
        "bytes": one.bytes,
        "least_idle_bytes": one.least_idle_bytes,
        "most_idle_bytes": one.most_idle_bytes,
    }
