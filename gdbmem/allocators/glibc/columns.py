"""The chunks of each region as columns, kept while `read_heap` walks and checks them: for a graph of all blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.blocks import ChunkTable
from gdbmem.allocators.glibc.layout import TCACHE_CHUNKS
from gdbmem.allocators.glibc.lockstep import chunks_of
from gdbmem.allocators.glibc.tallies import (
    CORRUPT,
    ENDED,
    FASTBIN,
    LIVE,
    STATES,
    Cached,
    HeapTally,
    LinkSums,
    why_stopped,
)
from gdbmem.allocators.glibc.trails import UNIT
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gdbmem.allocators.glibc.heap import HeapReading

_PIECE = 1 << 18  # addresses looked up at a time


class ColumnWalker:
    """A walker for `read_heap` that keeps a ChunkTable of each region, and makes no sums of pages.

    The tally has what `read_heap` checks: links of free chunks, sizes of those in fastbins, and of live ones that a
    tcache may have.
    """

    def __init__(self) -> None:
        self._tables: dict[int, ChunkTable] = {}  # by the start of the region

    def tables_of(self, heap: HeapReading) -> list[ChunkTable]:
        """Return the tables of the regions of *heap*, which this walker has read; a heap may be read several times."""
        starts = [tally.start for arena in heap.arenas for tally in arena.tallies]
        return [self._tables[start] for start in starts if start in self._tables]

    def __call__(self, memory: Memory, tally: HeapTally, limit: int, cached: Cached) -> None:
        np = import_numpy()
        self._tables.pop(tally.start, None)
        limit = min(limit, tally.end - UNIT)
        address, head = tally.start, 0
        links = LinkSums(np, tally, memory)
        units, in_use = [], []
        for chunks in chunks_of(memory, address, limit, cached):
            address, head = chunks.base + UNIT * chunks.end, chunks.next_head
            if not len(chunks.at):
                continue
            tally.last = chunks.base + UNIT * int(chunks.at[-1])
            used = np.append(chunks.flags[1:] & 1, np.uint8(head & 1)).astype(
                bool
            )  # the flag is in the next one
            links.add(chunks, np.flatnonzero(~used))
            units.append((chunks.at + (chunks.base - tally.start) // UNIT).astype(np.uint32))
            in_use.append(used)
        tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT
        if address < limit:
            tally.stopped_why = why_stopped(head)
        if units:
            self._keep(tally, np.concatenate(units), np.concatenate(in_use), cached)
        else:
            tally.strays += len(cached)

    def _keep(self, tally: HeapTally, units: Any, live: Any, cached: Cached) -> None:
        np = import_numpy()
        last = np.uint32((tally.stopped_at - tally.start) // UNIT)
        sizes = np.diff(units, append=last)
        for addresses, state in ((cached.tcache, -1), (cached.fastbins, FASTBIN)):
            _mark_free(tally, addresses, state, (units, live, sizes))
        counts = np.bincount(sizes[live & (sizes < 1 << 8)])
        for size in TCACHE_CHUNKS:
            if size // UNIT < len(counts) and counts[size // UNIT]:
                tally.sizes.setdefault(size, [0] * STATES)[LIVE] = int(counts[size // UNIT])
        self._tables[tally.start] = ChunkTable(tally.start, tally.stopped_at, units, live)


def _mark_free(tally: HeapTally, addresses: Sequence[int], state: int, columns: tuple[Any, Any, Any]) -> None:
    """Mark the chunks at *addresses* as not live; those of fastbins are counted by size, others are strays."""
    np = import_numpy()
    units, live, sizes = columns
    for begin in range(0, len(addresses), _PIECE):
        some = np.asarray(addresses[begin : begin + _PIECE], dtype=np.uint64)
        wanted = ((some - np.uint64(tally.start)) // np.uint64(UNIT)).astype(np.uint32)
        number = np.minimum(np.searchsorted(units, wanted), len(units) - 1)
        number = number[(units[number] == wanted) & live[number]]
        live[number] = False
        tally.strays += len(some) - len(number)
        if state == FASTBIN:
            found, counts = np.unique(sizes[number], return_counts=True)
            for size, count in zip(found.tolist(), counts.tolist()):
                tally.sizes.setdefault(size * UNIT, [0] * STATES)[FASTBIN] += count
