"""The map of a heap, with as many pages per cell as necessary for a small picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.walking.heap_tally import FASTBIN, FREE, LIVE, PAGE, TCACHE, HeapTally
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.ledger.heap_map import HeapMap, MapRegion
from gdbmem.text import plural

MOST_CELLS = 20_000


def map_heap(heap: HeapReading, resident: Ranges, *, most_cells: int = MOST_CELLS) -> HeapMap:
    """Return the map of *heap*; *resident* are the pages that are in memory. The cost is linear in pages."""
    pieces = [(arena, tally) for arena in heap.arenas for tally in arena.tallies]
    size = heap.mmapped_bytes + sum(tally.end - tally.start for _, tally in pieces)
    cell = PAGE
    while size // cell > most_cells:
        cell *= 2
    regions = [_region(arena, tally, resident, cell) for arena, tally in pieces]
    if heap.mmapped:
        chunks = sorted((chunk.start, chunk.end) for chunk in heap.mmapped)
        cells = list(_mapped_cells(chunks, resident, cell))
        name = f"{plural(len(chunks), 'block')} that malloc mapped, one after the other"
        regions.append(MapRegion(name, chunks[0][0], chunks[-1][1], cells))
    return HeapMap(cell, sorted(regions, key=lambda region: region.start))


def _region(arena: ArenaReading, tally: HeapTally, resident: Ranges, cell: int) -> MapRegion:
    number = arena.state.number
    releasable = Ranges(arena.releasable)
    # The memory after an invalid chunk is unknown.
    end = tally.end if tally.stopped_why == "ended" else tally.stopped_at
    cells = [
        _cell(tally, resident, releasable, max(low, tally.start), min(low + cell, end))
        for low in range(tally.start & -PAGE, end, cell)
    ]
    return MapRegion(f"arena {number}" if number else "main heap", tally.start, end, cells)


def _cell(tally: HeapTally, resident: Ranges, releasable: Ranges, low: int, high: int) -> list[int]:
    pieces = list(resident.overlaps(low, high))
    sums, _ = tally.sums(pieces)
    whole = sum(sums)
    freed = sum(releasable.within(start, end) for start, end in pieces)
    in_fastbins = 0
    if freed and sums[FASTBIN]:
        within = [piece for start, end in pieces for piece in releasable.overlaps(start, end)]
        in_fastbins = tally.sums(within)[0][FASTBIN]
    cached = sums[TCACHE] + sums[FASTBIN] - in_fastbins
    pinned = sums[FREE] - (freed - in_fastbins)
    return [sums[LIVE], cached, max(pinned, 0), freed, max(high - low - whole, 0)]


def _mapped_cells(chunks: Sequence[tuple[int, int]], resident: Ranges, cell: int) -> Iterator[list[int]]:
    live = absent = 0
    for start, end in chunks:
        while start < end:
            stop = min(end, start + cell - live - absent)
            held = resident.within(start, stop)
            live, absent = live + held, absent + stop - start - held
            start = stop
            if live + absent == cell:
                yield [live, 0, 0, 0, absent]
                live = absent = 0
    if live or absent:
        yield [live, 0, 0, 0, absent]
