"""The chunk that contains an address: its state, its list, its neighbours, and inconsistencies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from gdbmem.allocators.glibc.arenas import MmappedChunk, distant_header
from gdbmem.allocators.glibc.bins import bin_of, bin_text, bins_at
from gdbmem.allocators.glibc.blocks import ChunkTable, chunk_table
from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading, walk
from gdbmem.allocators.glibc.layout import MIN_CHUNK, PREV_INUSE
from gdbmem.allocators.glibc.tallies import Cached, HeapTally, check_chunk, check_free
from gdbmem.model.heap_blocks import (
    BROKEN,
    FREE,
    IN_FASTBIN,
    IN_TCACHE,
    IN_USE,
    MMAPPED,
    TOP,
    Chunk,
    ChunkView,
)
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, word_at

_SHOWN = 64  # bytes of the program's memory


def view_chunk(
    memory: Memory, heap: HeapReading, tables: Sequence[ChunkTable], address: int, *, pure: bool
) -> Optional[ChunkView]:
    """Return the chunk that contains *address*; None if malloc has none there.

    *tables* are those of `chunk_tables`.
    """
    for mapped in heap.mmapped:
        if mapped.start <= address < mapped.end:
            return _view(memory, heap, address, "a separate mapping", [_mapped(memory, mapped)], 0)
    for arena in heap.arenas:
        for tally in arena.tallies:
            if tally.start <= address < tally.end:
                region = _Region(memory, heap, arena, tally, tables, pure)
                chunks, number = region.around(address)
                if number >= 0:
                    name = f"arena {arena.state.number}" if arena.state.number else "the main arena"
                    return _view(memory, heap, address, name, chunks, number)
    return None


def _view(
    memory: Memory, heap: HeapReading, asked: int, home: str, chunks: Sequence[Chunk], number: int
) -> ChunkView:
    chunk = chunks[number]
    named = {one.address for one in chunks}
    faults = [damage.what for damage in heap.damages if damage.address in named]
    faults += [why for one in chunks for why in _contradictions(memory, heap, one)]
    size = min(chunk.size - 8 if chunk.size else _SHOWN, _SHOWN)
    try:
        data = memory.read(chunk.memory, size).hex()
    except MemoryUnreadable:
        data = ""
    before, after = chunks[max(number - 1, 0) : number], chunks[number + 1 : number + 2]
    return ChunkView(asked, home, chunk, before, after, list(dict.fromkeys(faults)), data)


def _contradictions(memory: Memory, heap: HeapReading, chunk: Chunk) -> list[str]:
    """Return the findings of check_chunk() and check_free() on *chunk*, because the walk keeps only a few."""
    if chunk.state in (TOP, MMAPPED, BROKEN):
        return []
    home = next(t for t in heap.tallies if t.start <= chunk.address < t.end)
    scratch = HeapTally(chunk.address, chunk.address + MIN_CHUNK, in_further_arena=home.in_further_arena)
    try:
        following = word_at(memory, chunk.address + chunk.size + 8)
        in_use = chunk.state != FREE
        is_last = following & ~7 in (0, 16)
        check_chunk(scratch, chunk.address, chunk.head, in_use=in_use, is_last=is_last)
        if chunk.state == FREE:
            check_free(memory, scratch, chunk.address, chunk.size)
    except MemoryUnreadable:
        return []
    return [f"the block at 0x{chunk.address:x} {why}" for why in scratch.odd.values()]


def _mapped(memory: Memory, mapped: MmappedChunk) -> Chunk:
    address = mapped.start + (mapped.header_at or distant_header(memory, mapped))
    return Chunk(address, mapped.end - address, word_at(memory, address + 8), MMAPPED)


@dataclass
class _Region:
    """One region of an arena, with its identifiable chunks."""

    memory: Memory
    heap: HeapReading
    arena: ArenaReading
    tally: HeapTally
    tables: Sequence[ChunkTable]
    pure: bool

    def __post_init__(self) -> None:
        self.windows = WindowedMemory(self.memory)

    def around(self, address: int) -> tuple[list[Chunk], int]:
        """Return the chunk at *address* with its neighbours, and its index among these; -1: there is none."""
        state = self.arena.state
        table = next((table for table in self.tables if table.start == self.tally.start), None)
        fault = next(
            (one for one in self.arena.breaks if self.tally.start <= one.address < self.tally.end), None
        )
        if fault is None:
            if state.top <= address < state.top + state.top_bytes:
                return self._with_last(table, self._top())
            return self._in(table, address, self._top() if self.tally.stopped_at == state.top else None)
        if fault.sound is not None and address >= fault.sound:
            if state.top <= address < state.top + state.top_bytes:
                return [self._top()], 0
            return self._in(self._sound(fault.sound), address, None, self._broken(fault.address))
        if address >= fault.address:
            chunks, number = self._with_last(table, self._broken(fault.address))
            further = self._sound(fault.sound) if fault.sound is not None else None
            return chunks + (
                [self._chunk(further, 0)] if further is not None and len(further) else []
            ), number
        return self._in(table, address, self._broken(fault.address))

    def _in(
        self,
        table: Optional[ChunkTable],
        address: int,
        following: Optional[Chunk],
        before: Optional[Chunk] = None,
    ) -> tuple[list[Chunk], int]:
        """Return the chunk of *table* at *address* with its neighbours; *before* and *following* surround the table."""
        number = table.find(address) if table is not None else -1
        if table is None or number < 0:
            return [], -1
        last = len(table)
        while following is not None and last and table.bounds(last - 1)[0] >= following.address:
            last -= 1
        chunks = [self._chunk(table, n) for n in range(max(number - 1, 0), min(number + 2, last))]
        if before is not None and number == 0:
            chunks.insert(0, before)
        if following is not None and number == last - 1:
            chunks.append(following)
        return chunks, next(
            n for n, one in enumerate(chunks) if one.address <= address < one.address + one.size
        )

    def _with_last(self, table: Optional[ChunkTable], chunk: Chunk) -> tuple[list[Chunk], int]:
        """Return *chunk* after its predecessor in *table*."""
        at = table.find(chunk.address - 1) if table is not None else -1
        if at < 0 and table is not None and len(table) and table.end == chunk.address:
            at = len(table) - 1
        return ([self._chunk(table, at), chunk], 1) if table is not None and at >= 0 else ([chunk], 0)

    def _sound(self, start: int) -> Optional[ChunkTable]:
        """Return the chunks from one break to the next one."""
        limit = next(r.limit for r in self.arena.state.regions if r.start <= start < r.end)
        tally = HeapTally(start, self.tally.end)
        walk(self.memory, tally, limit, Cached())
        if tally.stopped_at <= start:
            return None
        cached = self.heap.caches.cached.between(start, tally.stopped_at)
        return chunk_table(self.memory, start, tally.stopped_at, cached, pure=self.pure)

    def _top(self) -> Chunk:
        state = self.arena.state
        return Chunk(state.top, state.top_bytes, word_at(self.memory, state.top + 8), TOP)

    def _broken(self, address: int) -> Chunk:
        return Chunk(address, 0, word_at(self.memory, address + 8), BROKEN)

    def _chunk(self, table: ChunkTable, number: int) -> Chunk:
        start, end = table.bounds(number)
        head = word_at(self.memory, start + 8)
        state, where = self._state(start, end)
        return Chunk(start, end - start, head, state, where)

    def _state(self, start: int, end: int) -> tuple[str, str]:
        caches = self.heap.caches
        for (tid, _), chunks in caches.tcache_lists.items():
            if start in chunks:
                return IN_TCACHE, f"the tcache of thread {tid}"
        at = bisect_left(caches.cached.fastbins, start)
        if at < len(caches.cached.fastbins) and caches.cached.fastbins[at] == start:
            return IN_FASTBIN, f"the fastbin of {end - start - 8:,} bytes"
        if word_at(self.memory, end + 8) & PREV_INUSE:
            return IN_USE, ""
        number = bin_of(self.windows, bins_at(self.heap.found, self.arena.state.address), start)
        return FREE, bin_text(number) if number is not None else ""
