"""Two consecutive leak searches: the lost memory, and its change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.json_values import as_json
from gdbmem.model.calltree import DEFINITELY, INDIRECTLY, LEAK_KINDS, LOST, POSSIBLY, Frame
from gdbmem.model.leaks import Block, BlockHolders, Holder, LeakRecord, LeakSearch
from gdbmem.profiles.own_code import describe_site, own_frame
from gdbmem.profiles.text import path_text
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, format_size, plural, printable


def with_changes(found: LeakSearch, changed: LeakSearch, *, since: str) -> LeakSearch:
    """Return *found* with the deltas of *changed*, which lists only the changed records.

    Both are of one moment. *since* describes the base of the deltas; "": the program's start.
    """
    deltas = {(record.kind, tuple(record.frames)): record for record in changed.records}
    records = [
        _with_delta(record, deltas.get((record.kind, tuple(record.frames)))) for record in found.records
    ]
    return found._replace(records=records, since=since or "the start")


def _with_delta(record: LeakRecord, change: Optional[LeakRecord]) -> LeakRecord:
    if change is None:
        return record._replace(delta_bytes=0, delta_blocks=0)
    return record._replace(delta_bytes=change.delta_bytes, delta_blocks=change.delta_blocks)


def lost_bytes(search: LeakSearch) -> int:
    """Return the bytes that are certainly unreachable: definitely and indirectly lost."""
    definite, indirect, _ = (sum(r.bytes for r in search.records if r.kind == kind) for kind in LOST)
    return definite + indirect


def ranked(search: LeakSearch) -> list[LeakRecord]:
    """Return the records, sorted by the bytes that fixing the line would free, largest first."""
    order = {kind: rank for rank, kind in enumerate((LOST[0], LOST[2], LOST[1]))}
    return sorted(
        search.records,
        key=lambda record: (
            order.get(record.kind, 3),
            -(record.bytes + record.indirect_bytes),
            record.number,
        ),
    )


# A leak search as a table and as ``kind=leaks``; the blocks of one record, ``kind=blocks``.


_SHORT = {DEFINITELY: "lost", INDIRECTLY: "indirectly", POSSIBLY: "possibly"}


def print_leaks(search: LeakSearch, console: Console, *, top: int) -> None:
    """Print the lost memory: a sentence, the *top* records, and the sums."""
    print_sentence(console, leak_answer(search), "bold")
    records = ranked(search)
    if records:
        console.print()
        _print_records(records[:top], console)
    if len(records) > top:
        console.print(f"{plural(len(records) - top, 'record')} more; --top N lists more", style="dim")
    if search.sums:
        print_sentence(console, _sums(search))


def leak_answer(search: LeakSearch) -> str:
    """Return the unreachable bytes, their growth, and the line that lost most of them."""
    lost = lost_bytes(search)
    if not lost:
        return (
            "nothing is lost: every block can still be reached"
            if not search.records
            else ("nothing is definitely lost; possibly lost blocks only have pointers into their interior")
        )
    deltas = [record.delta_bytes for record in search.records if record.kind in (DEFINITELY, INDIRECTLY)]
    delta = sum(number for number in deltas if number is not None)
    grown = f", {format_delta(delta)} since {search.since}" if search.since and None not in deltas else ""
    first = ranked(search)[0]
    site = first.frames[own_frame(first.frames)] if first.frames else None
    where = f"; most at {describe_site(site)}" if site is not None else ""
    return f"{format_size(lost)} can't be reached by any pointer{grown}{where}"


def _print_records(records: Sequence[LeakRecord], console: Console) -> None:
    table = drawing.Table(header_style="dim")
    table.add_numbers("record", "bytes", "change", "blocks")
    table.add_column("kind", no_wrap=True)
    table.add_column("where")
    sources = SourceLines(())
    for record in records:
        size = format_size(record.bytes)
        with_it = f"\n+{format_size(record.indirect_bytes)}" if record.indirect_bytes else ""
        delta = record.delta_bytes
        table.add_row(
            str(record.number),
            drawing.Text(f"{size}{with_it}"),
            drawing.Text("" if not delta else format_delta(delta), "red" if (delta or 0) > 0 else "green"),
            f"{record.blocks:,}",
            drawing.Text(f"{_SHORT.get(record.kind, record.kind)}{chr(10) + 'with it' if with_it else ''}"),
            path_text(record.frames, sources),
        )
    console.print(table)


def _sums(search: LeakSearch) -> str:
    parts = [
        f"{kind.replace('-', ' ')} {format_size(search.sums[kind].bytes)}"
        for kind in LEAK_KINDS
        if kind in search.sums
    ]
    return f"in the whole heap: {', '.join(parts)}"


def leaks_json(search: LeakSearch) -> str:
    """Return *search* as ``kind=leaks``."""
    return to_json(
        {
            **head("leaks", search.notices),
            "since": search.since or None,
            "lost_bytes": lost_bytes(search),
            "sums": {kind: search.sums[kind]._asdict() for kind in LEAK_KINDS if kind in search.sums},
            "records": [as_json(record) for record in ranked(search)],
        }
    )


def print_blocks(number: int, blocks: Sequence[Block], console: Console, *, is_whole: bool) -> None:
    """Print the *blocks* of loss record *number*, each with the blocks that it points to below."""
    own = [block for block in blocks if not block.depth]
    size = format_size(sum(block.bytes for block in own))
    print_sentence(console, f"loss record {number}: {plural(len(own), 'block')}, {size}", "bold")
    for block in blocks:
        of = f", of record {block.record}" if block.record is not None else ""
        console.print(
            f"{'  ' * block.depth}{block.address:#x}  {format_size(block.bytes)}{of}", soft_wrap=True
        )
    if not is_whole:
        console.print("there may be more; --limit N lists more", style="dim")


def blocks_json(number: int, blocks: Sequence[Block], *, is_whole: bool) -> str:
    """Return the *blocks* of loss record *number* as ``kind=blocks``."""
    listed = [block._asdict() for block in blocks]
    return to_json({**head("blocks", ()), "record": number, "is_whole": is_whole, "blocks": listed})


# The pointers that keep a block alive, as sentences and as ``kind=holders``.


def print_holding(holding: BlockHolders, console: Console) -> None:
    """Print the block, and the pointers from it to the one that keeps it alive."""
    print_sentence(console, _block(holding.block, holding.frames), "bold")
    if not holding.holders:
        print_sentence(console, "no pointer to it was found: it is lost")
        return
    for depth, holder in enumerate(holding.chain or holding.holders[:1]):
        print_sentence(console, f"{'  ' * depth}is held by {_holder(holder)}")
    if not holding.chain:
        print_sentence(console, _no_chain(holding))
    others = [holder for holder in holding.holders if holder not in holding.chain[:1]]
    if holding.chain and others:
        print_sentence(console, f"also pointed to by {'; '.join(_holder(holder) for holder in others[:5])}")


def _no_chain(holding: BlockHolders) -> str:
    if holding.is_whole:
        return "only other lost blocks point to it: it is lost with them"
    return "the search passed through many blocks without leaving the heap, and was stopped"


def _block(block: Block, frames: Sequence[Frame]) -> str:
    return f"block {block.address:#x} of {format_size(block.bytes)}{_allocated(frames)}"


def _allocated(frames: Sequence[Frame]) -> str:
    return f", allocated at {describe_site(frames[max(own_frame(frames), 0)])}" if frames else ""


def _holder(holder: Holder) -> str:
    into = f" (a pointer to byte {holder.inside_bytes} of it)" if holder.inside_bytes else ""
    if holder.block is not None:
        assert holder.address is not None
        offset = holder.address - holder.block.address
        return f"byte {offset} of {_block(holder.block, holder.frames)}{into}"
    thread = f" of thread {holder.thread}" if holder.kind == "local" and holder.thread is not None else ""
    at = f" at {holder.address:#x}" if holder.address is not None else ""
    kind = {"global": "the global ", "local": "the local "}.get(holder.kind, "")
    return f"{kind}{printable(holder.text)}{thread}{at}{into}"


def holding_json(holding: BlockHolders) -> str:
    """Return *holding* as ``kind=holders``."""
    reached = True if holding.chain else False if holding.is_whole else None
    return to_json(
        {
            **head("holders", ()),
            "block": _block_object(holding.block, holding.frames),
            "is_reached": reached,
            "holders": [_holder_object(holder) for holder in holding.holders],
            "chain": [_holder_object(holder) for holder in holding.chain],
        }
    )


def _block_object(block: Block, frames: Sequence[Frame]) -> Document:
    return {**as_json(block, "address", "bytes"), "frames": [frame._asdict() for frame in frames]}


def _holder_object(holder: Holder) -> Document:
    held = None if holder.block is None else _block_object(holder.block, holder.frames)
    return {**as_json(holder, "kind", "address", "inside_bytes", "text", "thread"), "block": held}
