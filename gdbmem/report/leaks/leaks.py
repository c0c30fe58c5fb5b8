"""A leak search as a table and as ``kind=leaks``; the blocks of one record, ``kind=blocks``."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.analysis.leaks import lost_bytes, ranked
from gdbmem.analysis.profiles.own_code import own_frame
from gdbmem.analysis.profiles.sites import describe_site
from gdbmem.model.leak_kinds import DEFINITELY, INDIRECTLY, KINDS, POSSIBLY
from gdbmem.model.leaks import Block, LeakRecord, LeakSearch
from gdbmem.report import drawing
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.profiles.path_text import path_text
from gdbmem.report.source import SourceLines
from gdbmem.text import plural
from gdbmem.units import format_delta, format_size

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
        for kind in KINDS
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
            "sums": {kind: search.sums[kind]._asdict() for kind in KINDS if kind in search.sums},
            "records": [_record(record) for record in ranked(search)],
        }
    )


def _record(record: LeakRecord) -> Document:
    return {**record._asdict(), "frames": [frame._asdict() for frame in record.frames]}


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
