"""Idle memory of the entries of a ledger, by the accessed bits of its mappings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar, Union

from gdbmem.json_values import as_json
from gdbmem.ledger.blocks import type_in_words
from gdbmem.ledger.text import what_grew
from gdbmem.linux.memory.maps import Accessed
from gdbmem.model.ledger import BlockGroup, BlockSum, IdleBlocks, IdleEntry, IdleMemory, Ledger, TreeHolder
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.terminal.drawing import Table, new_table
from gdbmem.text import format_duration, format_size, printable


def idle_memory(ledger: Ledger, accessed: Sequence[Accessed], seconds: float) -> IdleMemory:
    """Return the idle memory of *ledger*; *accessed* was read just before it, after *seconds*."""
    sums: dict[tuple[str, str], list[int]] = {}
    ordered = sorted(accessed)
    starts = [one.start for one in ordered]
    for share in ledger.shares:
        idle = min(_idle_bytes(ordered, starts, share.start), share.rss_bytes)
        for key, size in share.parts.items():
            row = sums.setdefault(key, [0, 0, 0])
            row[0] += size
            row[1] += max(size - (share.rss_bytes - idle), 0)
            row[2] += min(size, idle)
    entries = sorted(
        (IdleEntry(*key, *row) for key, row in sums.items()), key=lambda one: -one.most_idle_bytes
    )
    rss = sum(one.rss_bytes for one in accessed)
    touched = sum(min(one.touched_bytes, one.rss_bytes) for one in accessed)
    return IdleMemory(seconds, rss, rss - touched, entries)


def _idle_bytes(ordered: Sequence[Accessed], starts: Sequence[int], address: int) -> int:
    """Return the idle bytes of the mapping at *address*; new mappings count as accessed."""
    number = bisect_right(starts, address) - 1
    known = ordered[number] if number >= 0 and address < ordered[number].end else None
    return max(known.rss_bytes - known.touched_bytes, 0) if known is not None else 0


def idle_types(groups: Sequence[BlockGroup], accessed: Sequence[Accessed]) -> list[IdleBlocks]:
    """Return the live blocks by type, sorted by the upper bound of idle bytes."""
    rows = _bounds([(group, group.types) for group in groups], accessed)
    return _sorted(IdleBlocks(*label, 0, *row) for label, row in rows.items())


def idle_sizes(groups: Sequence[BlockGroup], accessed: Sequence[Accessed]) -> list[IdleBlocks]:
    """Return the live blocks by size, sorted by the upper bound of idle bytes."""
    rows = _bounds([(group, group.sizes) for group in groups], accessed)
    return _sorted(IdleBlocks("", "", size, *row) for size, row in rows.items())


_Label = TypeVar("_Label", bound=Hashable)
_Row = tuple[int, int, int, int]  # blocks, bytes, at least and at most idle


def _bounds(
    tables: Sequence[tuple[BlockGroup, Mapping[_Label, BlockSum]]], accessed: Sequence[Accessed]
) -> dict[_Label, _Row]:
    ordered = sorted(accessed)
    starts = [one.start for one in ordered]
    in_mapping: dict[int, dict[_Label, BlockSum]] = {}
    lengths: dict[int, int] = {}
    for group, table in tables:
        sums = in_mapping.setdefault(group.start, {})
        lengths[group.start] = group.mapping_bytes
        for label, one in table.items():
            before = sums.get(label, BlockSum(0, 0))
            sums[label] = BlockSum(before.blocks + one.blocks, before.bytes + one.bytes)
    found: dict[_Label, _Row] = {}
    for start, sums in in_mapping.items():
        idle = _idle_bytes(ordered, starts, start)
        other = lengths[start] - idle  # accessed, or not resident
        for label, one in sums.items():
            blocks, size, least, most = found.get(label, (0, 0, 0, 0))
            found[label] = (
                blocks + one.blocks, size + one.bytes, least + max(one.bytes - other, 0), most + min(one.bytes, idle),
            )  # fmt: skip
    return found


def _sorted(rows: Iterable[IdleBlocks]) -> list[IdleBlocks]:
    return sorted(
        rows, key=lambda one: (-one.most_idle_bytes, -one.bytes, one.kind, one.name, one.size_bytes)
    )


# Memory that was not accessed for some time: text and JSON.


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
            table.add_row(_idle_bounds(one), format_size(one.resident_bytes), words)
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
        table.add_row(_idle_bounds(one), format_size(one.bytes), f"{one.blocks:,}", what)
    console.print()
    console.print(table)


def _idle_bounds(one: Union[IdleEntry, IdleBlocks]) -> str:
    least, most = format_size(one.least_idle_bytes), format_size(one.most_idle_bytes)
    return most if least == most else f"{least} to {most}"


def idle_json(idle: IdleMemory, pid: int, names: Mapping[str, str]) -> str:
    """Return it as text; *names* as for print_idle()."""
    document: Document = {
        **head("idle", ()),
        "pid": pid,
        **as_json(idle, "seconds", "rss_bytes", "idle_bytes", "entries"),
        "types": [
            {"kind": one.kind, "name": names.get(one.name, one.name) or None, **_figures(one)}
            for one in idle.types
        ],
        "sizes": [{**as_json(one, "size_bytes"), **_figures(one)} for one in idle.sizes],
        "tree_holders": [{"name": _holder(one, names), "share": one.share} for one in idle.tree_holders],
    }
    return to_json(document)


def _figures(one: IdleBlocks) -> Document:
    return as_json(one, "blocks", "bytes", "least_idle_bytes", "most_idle_bytes")
