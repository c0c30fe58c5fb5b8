"""The change between two moments of a heap, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from gdbmem.heap.text import HolderWords, judged
from gdbmem.model.heap_graph import HeapChange, HeapGrowth, HeapSum, Holder, LostGrowth, NewlyLost, Part
from gdbmem.model.judgement import Judgement
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices
from gdbmem.terminal.document import Document, to_json, whole
from gdbmem.text import format_delta, format_size, plural, printable

_WORDS = HolderWords({})  # names are demangled


def growth_json(growth: HeapGrowth, judgements: Sequence[Judgement] = ()) -> str:
    """Return *growth* as ``kind=heap-growth``, with the *judgements* of gates."""
    return to_json(judged(growth_document(growth), judgements))


def growth_document(growth: HeapGrowth) -> Document:
    """Return *growth* as ``kind=heap-growth``."""
    return {**whole("heap-growth", growth), "delta_bytes": growth.delta_bytes}


def write_growth(
    growth: HeapGrowth,
    judgements: Sequence[Judgement],
    stream: IO[str],
    console: Console,
    *,
    top: int,
    as_json: bool,
) -> None:
    """Write *growth* to *stream*, or print it on the *console* that writes there."""
    if as_json:
        stream.write(growth_json(growth, judgements))
    else:
        print_growth(growth, console, top)


def print_growth(growth: HeapGrowth, console: Console, top: int) -> None:
    """Print the answer, what grew, and what is lost since, *top* rows each."""
    console.print(drawing.Text(growth_sentence(growth), "bold"), soft_wrap=True)
    for changes, title in ((growth.holders, "holder"), (growth.types, "all live blocks of")):
        _print_changes(changes, title, console, top)
    _print_lost(growth, console, top)
    print_notices(growth.notices, console)


def growth_sentence(growth: HeapGrowth) -> str:
    """Return how much the live blocks grew, and the holder of most of it."""
    before, after = growth.before, growth.after
    delta = format_delta(growth.delta_bytes) if growth.delta_bytes else "unchanged"
    text = (
        f"live blocks {delta} from {printable(before.name)} to {printable(after.name)}: "
        f"{plural(before.live_blocks, 'block')}, {format_size(before.live_bytes)}, then"
        f" {plural(after.live_blocks, 'block')}, {format_size(after.live_bytes)}"
    )
    grown = next((one for one in growth.holders if one.delta_bytes > 0), None)
    return f"{text}; {_of(grown)} retains {format_size(grown.delta_bytes)} more" if grown else text


def _of(one: HeapChange) -> str:
    part = Part(one.after_blocks, one.after_bytes, one.block_bytes, one.name)
    holder = Holder(one.name, one.kind, None, one.object, 0, 0, 0, [part], one.holders)
    return _WORDS.holder(holder)


def _of_type(one: HeapChange) -> str:
    return printable(one.name) if one.name else f"{one.block_bytes:,} bytes"


def _print_changes(changes: Sequence[HeapChange], title: str, console: Console, top: int) -> None:
    if not changes:
        return
    table = drawing.new_table("change", "before", "after", "blocks", last=title)
    for one in changes[:top]:
        grown = one.delta_bytes > 0
        blocks = one.after_blocks - one.before_blocks
        table.add_row(
            drawing.Text(format_delta(one.delta_bytes), "red" if grown else "green"),
            format_size(one.before_bytes),
            format_size(one.after_bytes),
            f"{blocks:+,}" if blocks else "0",
            _of_type(one) if one.kind == "type" else _of(one),
        )
    console.print()
    console.print(table)
    if len(changes) > top:
        console.print(f"and {len(changes) - top:,} more (--top)")


def _print_lost(growth: HeapGrowth, console: Console, top: int) -> None:
    console.print()
    console.print(
        drawing.Text(lost_in_words(growth.lost), "bold" if growth.lost.most_bytes > 0 else ""), soft_wrap=True
    )
    if not growth.lost.groups:
        return
    table = drawing.new_table("lost", "blocks", last="before")
    for one in growth.lost.groups[:top]:
        table.add_row(format_size(one.bytes), f"{one.blocks:,}", _before(one))
    console.print()
    console.print(table)


def _before(one: NewlyLost) -> str:
    held = f"held by {_sum(one.holder)}" if one.holder is not None else "allocated since"
    return f"{held}; the largest at 0x{one.address:x}"


def _sum(one: HeapSum) -> str:
    return _WORDS.holder(Holder(one.name, one.kind, None, one.object, 0, 0, 0, (), one.holders))


def lost_in_words(lost: LostGrowth) -> str:
    """Return how much is lost since, in a sentence."""
    least, most = lost.least_bytes, lost.most_bytes
    if lost.blocks is None:
        interval = format_delta(least) if least == most else f"{format_delta(least)} to {format_delta(most)}"
        return f"Lost blocks: {interval}."
    if not most:
        return "No block is lost that was not before."
    blocks = f"{plural(lost.blocks, 'block')}, " if lost.blocks else ""
    if least == most:
        return f"Lost since: {blocks}{format_size(most)}: no word leads to them any more."
    return f"Lost since: {format_size(least)}, to which no word leads any more, to {format_size(most)}."
