"""The numbers of malloc_info by arena, beside those of the walk over the heap, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gdbmem.errors import Notice
from gdbmem.formats.reports.glibc_malloc import MallocInfo, MallocInfoSums
from gdbmem.model.ledger import Arena, Ledger
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import format_size, plural

_COLUMNS = ("fastbins", "other free", "from system")
_FLAGS = 7  # the lowest bits of a block's size


def malloc_info_json(theirs: MallocInfo, ledger: Ledger, stream_bytes: int) -> str:
    """Return both as ``kind=malloc-info``; *stream_bytes* is the block of the FILE that malloc_info wrote to."""
    heap = ledger.heap
    arenas = heap.arenas if heap is not None else ()
    return to_json(
        {
            **head("malloc-info", ledger.notices),
            "arenas": [
                {"number": ours.number, **_both(sums, _sums_of(ours))}
                for sums, ours in zip(theirs.arenas, arenas)
            ],
            "total": _both(theirs.total, _total(ledger)),
            "mmapped": {
                "malloc_info": {"count": theirs.mmapped_count, "bytes": theirs.mmapped_bytes},
                "ledger": {
                    "count": heap.mmapped_chunks if heap else 0,
                    "bytes": heap.mmapped_bytes if heap else 0,
                },
            },
            "tcache": {"count": heap.tcache_chunks if heap else 0, "bytes": heap.tcache_bytes if heap else 0},
            "stream_bytes": stream_bytes,
        }
    )


def _both(theirs: MallocInfoSums, ours: MallocInfoSums) -> Document:
    return {"malloc_info": _figures(theirs), "ledger": _figures(ours)}


def _figures(sums: MallocInfoSums) -> Document:
    return {
        "fast": {"count": sums.fast_count, "bytes": sums.fast_bytes},
        "rest": {"count": sums.rest_count, "bytes": sums.rest_bytes},
        "system_bytes": sums.system_bytes,
    }


def _sums_of(arena: Arena) -> MallocInfoSums:
    return MallocInfoSums(
        arena.fastbin_chunks, arena.fastbin_bytes, arena.free_chunks, arena.free_bytes, arena.system_bytes
    )


def _total(ledger: Ledger) -> MallocInfoSums:
    heap = ledger.heap
    if heap is None:
        return MallocInfoSums(0, 0, 0, 0, 0)
    system = sum(arena.system_bytes for arena in heap.arenas)
    return MallocInfoSums(heap.fastbin_chunks, heap.fastbin_bytes, heap.free_chunks, heap.free_bytes, system)


def print_malloc_info(theirs: MallocInfo, ledger: Ledger, stream_bytes: int, console: Console) -> None:
    """Print both, with a line for each arena and a line that explains a difference."""
    heap = ledger.heap
    assert heap is not None
    table = drawing.Table(header_style="dim")
    table.add_column("arena", no_wrap=True)
    for name in _COLUMNS:
        table.add_numbers(name, "gdbmem")
    for sums, ours in zip(theirs.arenas, heap.arenas):
        table.add_row(str(ours.number), *_cells(sums, _sums_of(ours)))
    table.add_row("all", *_cells(theirs.total, _total(ledger)))
    console.print(table)
    console.print(
        f"Mapped individually: {plural(theirs.mmapped_count, 'block')} of {theirs.mmapped_bytes:,} bytes;"
        f" gdbmem's {heap.mmapped_chunks:,} of {heap.mmapped_bytes:,}",
        soft_wrap=True,
    )
    for text in explained(theirs, ledger, stream_bytes):
        console.print(text, soft_wrap=True)
    print_notices(ledger.notices, console)


def _cells(theirs: MallocInfoSums, ours: MallocInfoSums) -> list[str]:
    pairs = (
        (theirs.fast_bytes, ours.fast_bytes),
        (theirs.rest_bytes, ours.rest_bytes),
        (theirs.system_bytes, ours.system_bytes),
    )
    return [f"{size:,}" for pair in pairs for size in pair]


def explained(theirs: MallocInfo, ledger: Ledger, stream_bytes: int) -> Iterator[str]:
    """Yield the values that the two count differently."""
    heap = ledger.heap
    if heap is None:
        return
    if heap.tcache_bytes:
        yield (
            f"In tcaches are {plural(heap.tcache_chunks, 'free block')} of {format_size(heap.tcache_bytes)} more:"
            " malloc_info counts them as in use, gdbmem as heap.free.cached."
        )
    if len(theirs.arenas) != len(heap.arenas):
        yield f"malloc_info lists {plural(len(theirs.arenas), 'arena')}, gdbmem found {len(heap.arenas):,}."
    for sums, ours in zip(theirs.arenas, heap.arenas):
        known = _sums_of(ours)
        if sums == known:
            continue
        more = sums.rest_bytes - known.rest_bytes
        if sums == known._replace(rest_bytes=sums.rest_bytes) and 0 < more <= _FLAGS * known.rest_count:
            yield (
                f"Arena {ours.number}: malloc_info adds up free blocks' size fields with the flags in their lowest"
                f" bits, which makes {more:,} bytes too many."
            )
        elif sums.rest_bytes == known.rest_bytes - ours.top_bytes:
            yield f"Arena {ours.number}: malloc_info leaves out its end, {ours.top_bytes:,} bytes free to grow into."
        else:
            yield (
                f"Arena {ours.number} differs: malloc_info counts {sums.fast_count:,} + {sums.rest_count:,} free"
                f" blocks, gdbmem {known.fast_count:,} + {known.rest_count:,}."
            )
    yield (
        f"malloc_info needs a FILE, a block of {stream_bytes:,} bytes: both count it as in use, and it has"
        " been freed since (a tcache may keep it)."
    )


# The numbers of mallinfo2 beside those of the walk over the heap.


_MEANING = {
    "arena": "bytes from the system, without those mapped individually",
    "ordblks": "free blocks",
    "smblks": "free blocks in fastbins",
    "hblks": "blocks mapped individually",
    "hblkhd": "bytes in those",
    "fsmblks": "free bytes in fastbins",
    "uordblks": "bytes in use, those in tcaches too",
    "fordblks": "free bytes",
    "keepcost": "bytes at the end of the main heap",
}


def mallinfo_json(theirs: Mapping[str, int], ours: Mapping[str, int], notices: Sequence[Notice]) -> str:
    """Return both as ``kind=mallinfo``."""
    figures = [{"name": name, "mallinfo": theirs[name], "ledger": ours[name]} for name in _MEANING]
    return to_json({**head("mallinfo", notices), "figures": figures})


def print_mallinfo(theirs: Mapping[str, int], ours: Mapping[str, int], console: Console) -> None:
    """Print both, line by line."""
    table = drawing.Table(header_style="dim")
    table.add_column("mallinfo2", justify="right")
    table.add_column("gdbmem", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("what")
    for name, meaning in _MEANING.items():
        difference = "" if theirs[name] == ours[name] else " (they differ)"
        table.add_row(f"{theirs[name]:,}", f"{ours[name]:,}", name, meaning + difference)
    console.print(table)
