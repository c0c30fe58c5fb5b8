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
from gdbmem.arrays import import_numpy, places_of
from gdbmem.model.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gdbmem.allocators.glibc.heap import HeapReading

_LARGE = 1 << 8  # units: larger chunks are not told apart


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
            units.append(np.array([(address - tally.start) // UNIT], np.uint32))
            self._keep(tally, np.concatenate(units), np.concatenate(in_use), cached)
        else:
            tally.strays += len(cached)

    def _keep(self, tally: HeapTally, bounds: Any, live: Any, cached: Cached) -> None:
        """Keep the chunks between *bounds*, which are one more than *live*."""
        np = import_numpy()
        for addresses, state in ((cached.tcache, -1), (cached.fastbins, FASTBIN)):
            _mark_free(tally, addresses, state, (bounds, live))
        counts = np.zeros(_LARGE + 1, np.int64)
        for begin in range(0, len(live), _PIECE):
            sizes = np.diff(bounds[begin : begin + _PIECE + 1]) * live[begin : begin + _PIECE]
            counts += np.bincount(np.minimum(sizes, _LARGE), minlength=len(counts))
        for size in TCACHE_CHUNKS:
            if counts[size // UNIT]:
                tally.sizes.setdefault(size, [0] * STATES)[LIVE] = int(counts[size // UNIT])
        self._tables[tally.start] = ChunkTable(tally.start, tally.stopped_at, bounds[:-1], live)


def _mark_free(tally: HeapTally, addresses: Sequence[int], state: int, columns: tuple[Any, Any]) -> None:
    """Mark the chunks at *addresses* as not live; those of fastbins are counted by size, others are strays."""
    np = import_numpy()
    bounds, live = columns
    for begin in range(0, len(addresses), _PIECE):
        some = np.asarray(addresses[begin : begin + _PIECE], dtype=np.uint64)
        wanted = ((some - np.uint64(tally.start)) // np.uint64(UNIT)).astype(np.uint32)
        number = np.minimum(np.searchsorted(bounds[:-1], wanted), len(live) - 1)
        number = number[(bounds[number] == wanted) & live[number]]
        live[number] = False
        tally.strays += len(some) - len(number)
        if state == FASTBIN:
            found, which = places_of(bounds[number + 1] - bounds[number])
            for size, count in zip(found.tolist(), np.bincount(which).tolist()):
                tally.sizes.setdefault(size * UNIT, [0] * STATES)[FASTBIN] += count
