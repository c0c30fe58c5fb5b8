"""The chunks of a heap, each with its start and whether it is live, for queries about single blocks.

`heap.read_heap` has walked the same regions and found how far they are intact. A chunk takes 5 bytes here, so that
10^8 of them fit into half a gigabyte. In numpy if available, else in plain Python, with the same result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.walking import lockstep
from gdbmem.allocators.glibc.walking.heap_tally import Cached
from gdbmem.allocators.glibc.walking.trails import UNIT
from gdbmem.model.memory import Memory
from gdbmem.records import dataclass

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import HeapReading

HEADER = 16  # from a chunk's address to the program's memory
_BLOCK = 1 << 24
_PIECE = 1 << 18  # addresses looked up at a time


@dataclass(frozen=True)
class ChunkTable:
    """The chunks of one region, in order: *units* are their offsets from *start* in units of 16 bytes."""

    start: int
    end: int  # of the last chunk
    units: Sequence[int]  # array('I'), or numpy's uint32
    live: Sequence[int]  # 1 for each live one: bytearray, or numpy's bool

    def __len__(self) -> int:
        return len(self.units)

    def find(self, address: int) -> int:
        """Return the number of the chunk that contains *address*; -1 outside the region."""
        if not self.start <= address < self.end:
            return -1
        return bisect_right(self.units, (address - self.start) // UNIT) - 1

    def bounds(self, number: int) -> tuple[int, int]:
        """Return start (of the header) and end of chunk *number*."""
        begin = self.start + UNIT * int(self.units[number])
        if number + 1 == len(self.units):
            return begin, self.end
        return begin, self.start + UNIT * int(self.units[number + 1])


def chunk_tables(memory: Memory, heap: HeapReading, *, pure: bool = False) -> list[ChunkTable]:
    """Return a table for each region of *heap* with chunks, in order of address."""
    tables = []
    for tally in heap.tallies:
        if tally.stopped_at > tally.start:
            cached = heap.caches.cached.between(tally.start, tally.stopped_at)
            tables.append(chunk_table(memory, tally.start, tally.stopped_at, cached, pure=pure))
    return sorted(tables, key=lambda table: table.start)


def chunk_table(memory: Memory, start: int, end: int, cached: Cached, *, pure: bool) -> ChunkTable:
    """Return the chunks between *start* and *end*, which are starts of chunks; *cached* ones are not live."""
    if pure or not lockstep.available():
        return _plain(memory, start, end, cached)
    return _quick(memory, start, end, cached)


def _plain(memory: Memory, start: int, end: int, cached: Cached) -> ChunkTable:
    units, heads = array("I"), bytearray()
    address = start
    while address < end:
        base = address
        words = memoryview(memory.read(base, min(_BLOCK, end + UNIT - base))).cast("Q")
        count = len(words) // 2
        at = 0
        while at < count and address < end:
            head = words[2 * at + 1]
            units.append((address - start) // UNIT)
            heads.append(head & 1)
            at += head >> 4
            address = base + UNIT * at
    last = memory.read(end + 8, 1)[0] & 1
    live = heads[1:] + bytes([last]) if heads else heads  # a chunk's in-use flag is in the next one
    for addresses in (cached.tcache, cached.fastbins):
        for chunk in addresses:
            at = bisect_left(units, (chunk - start) // UNIT)
            if at < len(units) and units[at] == (chunk - start) // UNIT:
                live[at] = 0
    return ChunkTable(start, end, units, live)


def _quick(memory: Memory, start: int, end: int, cached: Cached) -> ChunkTable:
    import numpy as np  # 110 ms

    units, in_use = [], []
    for chunks in lockstep.follow_chunks(memory, start, end):
        units.append((chunks.at + (chunks.base - start) // UNIT).astype(np.uint32))
        in_use.append((chunks.flags & 1).astype(bool))
    last = memory.read(end + 8, 1)[0] & 1
    every: Any = np.concatenate(units)
    live: Any = np.append(np.concatenate(in_use)[1:], bool(last))
    for addresses in (cached.tcache, cached.fastbins):
        for begin in range(0, len(addresses), _PIECE):
            some = np.asarray(addresses[begin : begin + _PIECE], dtype=np.uint64)
            # The same type as the searched array: otherwise numpy would copy all of it to convert it.
            wanted = ((some - np.uint64(start)) // np.uint64(UNIT)).astype(every.dtype)
            number = np.minimum(np.searchsorted(every, wanted), len(every) - 1)
            live[number[every[number] == wanted]] = False
    return ChunkTable(start, end, every, live)
