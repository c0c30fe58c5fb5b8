"""The memory that calls of allocators' own functions returned in a copy of the process: the sentence and the table."""

from __future__ import annotations

from pathlib import PurePath
from typing import Optional

from gdbmem.model import ledger as names
from gdbmem.model.ledger import Ledger, OtherMalloc, Tried
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.text import format_size, plural, printable

_GLIBC = "glibc"
_WORTH, _WORTH_BYTES = 0.1, 1 << 20  # of the resident set: less is not worth a word
# Servers that can move their live blocks together, if the jemalloc that is part of them supports that.
_DEFRAGMENT = ("redis-server", "valkey-server", "keydb-server")


def main_trial(ledger: Ledger) -> Optional[Tried]:
    """Return the complete call that was tried in the allocator that keeps most freed memory; None if there is none."""
    rows = [row for row in ledger.tried if row.returned_bytes is not None and row.returns_all]
    return max(rows, key=lambda row: max(row.returned_bytes or 0, _kept(ledger, row)), default=None)


def _kept(ledger: Ledger, row: Tried) -> int:
    if row.allocator == _GLIBC:
        return ledger.total("heap.free", "arena.free")
    return sum(
        ledger.freed_in(m) for m in ledger.mallocs if (m.allocator, m.file) == (row.allocator, row.file)
    )


def _resident(ledger: Ledger, row: Tried) -> int:
    if row.allocator == _GLIBC:
        return ledger.total("heap", "arena")
    return ledger.total(f"allocator.{row.allocator}")


def malloc_of(ledger: Ledger, row: Tried) -> Optional[OtherMalloc]:
    """Return the heap whose function *row* called, if it was read and is a notable part of the resident set."""
    if not matters(ledger, _resident(ledger, row)):
        return None
    return next((m for m in ledger.mallocs if (m.allocator, m.file) == (row.allocator, row.file)), None)


def matters(ledger: Ledger, size: int) -> bool:
    """Return whether *size* bytes are a part of the resident set that is worth a sentence."""
    return size >= _WORTH_BYTES and size >= _WORTH * ledger.rss_bytes


def trial_sentence(ledger: Ledger, row: Tried) -> str:
    """Return what *row* returned, and what it leaves: live blocks, and holes between them."""
    returned = f"{printable(row.call)} returns {_size(row)} (tried in a copy{_comparison_with_reading(row)})"
    malloc = malloc_of(ledger, row)
    if malloc is None:
        return returned
    parts = (names.LIVE, names.IN_CACHES, names.IN_SLABS)
    live, cached, holes = (ledger.total_of(malloc.category, label + malloc.suffix) for label in parts)
    where = f" in {printable(malloc.suffix[2:])}" if malloc.suffix else ""
    used = format_size(live + cached + holes)
    text = f"{malloc.allocator}{where} has {format_size(live)} of live blocks in {used} of pages in use: {returned}"
    worst = max(malloc.sizes, key=lambda size: size.free_resident_bytes, default=None)
    if worst is None or not matters(ledger, holes):
        return text
    return (
        f"{text}; {format_size(holes)} are holes in slabs, {format_size(worst.free_resident_bytes)} of them in"
        f" {plural(worst.slabs, 'slab')} that {plural(worst.live, 'live block')} of {worst.block_bytes:,} bytes"
        f" share: {_way_out(ledger, malloc)}"
    )


def _way_out(ledger: Ledger, malloc: OtherMalloc) -> str:
    if ledger.program in _DEFRAGMENT and PurePath(malloc.file).name == ledger.program:
        return "moving live blocks (CONFIG SET activedefrag yes) or a restart returns these"
    return "freeing or moving live blocks, or a restart, returns these"


def _size(row: Tried) -> str:
    returned = row.returned_bytes or 0
    return format_size(returned) if returned > 0 else "nothing"


def _comparison_with_reading(row: Tried) -> str:
    if row.is_as_read is not False:
        return ""
    return f", although by reading it is {format_size(row.read_bytes or 0)}"


def print_tried(ledger: Ledger, console: Console) -> None:
    """Print a row for each call that was tried, and for each allocator in which none can be."""
    table = drawing.Table(header_style="dim")
    table.add_numbers("returned", "by reading")
    table.add_column("allocator", no_wrap=True)
    table.add_column("call")
    for row in ledger.tried:
        returned = "not tried" if row.returned_bytes is None else format_size(row.returned_bytes)
        read = "" if row.read_bytes is None else format_size(row.read_bytes)
        where = f"{row.allocator} ({PurePath(row.file).name})" if row.file else row.allocator
        what = "; ".join(part for part in (row.call, _why_not(row)) if part)
        table.add_row(returned, read, printable(where), printable(what))
    print_sentence(
        console,
        "\nTried in a copy of the process, which the calls did not change: what the kernel counted there, beside what"
        " the allocator's data say.",
    )
    console.print(table)


def _why_not(row: Tried) -> str:
    if not row.why_not:
        return "" if row.is_as_read is not False else "the two differ"
    return f"{row.why_not} ({plural(row.copies, 'copy', 'copies')})" if row.copies else row.why_not
