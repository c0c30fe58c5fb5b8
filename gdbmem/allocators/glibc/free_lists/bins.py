"""Following malloc's lists of free chunks: their contents, and inconsistencies.

Source: glibc malloc/malloc.c, struct malloc_state, bin_index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.allocators.glibc.places.layout import ALIGNMENT, MIN_CHUNK, PREV_INUSE
from gdbmem.allocators.glibc.walking.link_sums import LARGE as LARGE_BYTES
from gdbmem.model.ledger.chunks import (
    FASTBIN,
    LARGE,
    SMALL,
    TCACHE,
    UNSORTED,
    ArenaLists,
    FreeList,
    FreeLists,
    ThreadLists,
)
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, words_at
from gdbmem.records import dataclass

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
    from gdbmem.allocators.glibc.places.locate import Found

BINS = 127
_FIRST_LARGE = 64
_MOST_HOPS = 1_000_000


@dataclass(frozen=True)
class HeapBin:
    """One bin, followed from its head."""

    number: int  # from 1, as in malloc
    low: int
    high: int
    count: int
    bytes: int
    fault_at: int = 0  # the chunk where the list is inconsistent
    fault: str = ""

    @property
    def kind(self) -> str:
        return UNSORTED if self.number == 1 else SMALL if self.number < _FIRST_LARGE else LARGE


def bins_at(found: Found, arena: int) -> int:
    """Return the address of the first bin head of the arena at *arena*."""
    return arena + found.layout.state["bins"]


def follow_bins(
    windows: WindowedMemory, arena: ArenaReading, first: int, heads: Sequence[int]
) -> Iterator[HeapBin]:
    """Yield each bin of *arena*, whose *heads* begin at *first*, up to an inconsistency."""
    left = sum(tally.chunks[1] for tally in arena.tallies) + BINS
    for at in range(BINS):
        head = first + 16 * at - 16
        before, chunk = head, heads[2 * at]
        low = high = count = total = 0
        fault, fault_at = "", 0
        while chunk != head:
            fault, fault_at = _link_fault(windows, arena, chunk, before)
            if count >= left:
                fault, fault_at = "leads in a circle", chunk
            if fault:
                break
            size = windows.word(chunk + 8) & ~7
            low, high = min(low or size, size), max(high, size)
            count, total = count + 1, total + size
            before, chunk = chunk, windows.word(chunk + 16)
        left -= count
        if not fault and heads[2 * at + 1] != before:
            fault, fault_at = f"ends at 0x{before:x}, and malloc has 0x{heads[2 * at + 1]:x}", before
        text = f"the list of {_bin_name(at)} {fault}" if fault else ""
        yield HeapBin(at + 1, low, high, count, total, fault_at, text)


def _link_fault(windows: WindowedMemory, arena: ArenaReading, chunk: int, before: int) -> tuple[str, int]:
    """Return the inconsistency of the link from *before* to *chunk*, and at which of them; "" if there is none."""
    tallies = arena.tallies
    if chunk % 16 or not any(tally.start <= chunk < tally.end for tally in tallies):
        return f"leads from 0x{before:x} to 0x{chunk:x}, where this arena has no block", before
    try:
        head, backward = windows.word(chunk + 8), windows.word(chunk + 24)
        size = head & ~7
        in_use = windows.word(chunk + size + 8) & PREV_INUSE
        following = windows.word(chunk + 32) if size >= LARGE_BYTES else 0
        returns = chunk
        if following:
            returns = windows.word(following + 40) if following % 8 == 0 else 0
    except MemoryUnreadable:
        return f"leads from 0x{before:x} to 0x{chunk:x}, whose links are invalid", chunk
    if backward != before:
        return f"leads from 0x{before:x} to 0x{chunk:x}, which points back to 0x{backward:x}", chunk
    if in_use:
        return f"holds the block at 0x{chunk:x}, which is in use by its neighbour's flag", chunk
    if returns != chunk:
        return f"holds the block at 0x{chunk:x}, whose link to the next size isn't returned", chunk
    return "", 0


def _bin_name(at: int) -> str:
    if at == 0:
        return "free blocks not sorted yet"
    if at < 63:
        return f"free blocks of {16 * (at + 1) - 8:,} bytes"
    return f"free blocks in large bin {at + 1}"


def bin_of(windows: WindowedMemory, first: int, chunk: int) -> Optional[int]:
    """Return the number of the bin of the free *chunk*; None if its links lead to no head.

    The heads of its arena begin at *first*. The cost is the shorter way around the ring.
    """
    ways = {16: chunk, 24: chunk}  # by the offset of the link
    for _ in range(_MOST_HOPS):
        for link in list(ways):
            at, rest = divmod(_followed(windows, ways[link] + link) - (first - 16), 16)
            if 0 <= at < BINS and not rest:
                return at + 1
            ways[link] = first - 16 + 16 * at
            if rest or ways[link] in (0, chunk):
                del ways[link]  # overwritten: the other way may lead there
        if not ways:
            break
    return None


def _followed(windows: WindowedMemory, address: int) -> int:
    try:
        return windows.word(address)
    except MemoryUnreadable:
        return 0


def bin_text(number: int) -> str:
    """Return bin *number* as text."""
    if number == 1:
        return "the unsorted bin"
    if number < _FIRST_LARGE:
        return f"the small bin of {16 * number - 8:,} bytes"
    return f"large bin {number}"


def read_free_lists(memory: Memory, heap: HeapReading) -> FreeLists:
    """Return all non-empty lists of *heap*, each with its number of chunks."""
    return FreeLists(
        [ThreadLists(tid, lists) for tid, lists in _tcaches(memory, heap)],
        [_arena_lists(memory, heap, arena) for arena in heap.arenas if not arena.state.is_unused],
    )


def _tcaches(memory: Memory, heap: HeapReading) -> Iterator[tuple[int, list[FreeList]]]:
    by_thread: dict[int, list[FreeList]] = {}
    windows = WindowedMemory(memory)
    caches = heap.caches
    for tid, number in sorted(set(caches.tcache_lists) | set(caches.tcache_faults)):
        sizes = [windows.word(chunk + 8) & ~7 for chunk in caches.tcache_lists.get((tid, number), ())]
        fault = caches.tcache_faults.get((tid, number), "")
        one = FreeList(
            TCACHE, number, min(sizes, default=0), max(sizes, default=0), len(sizes), sum(sizes), fault
        )
        by_thread.setdefault(tid, []).append(one)
    yield from by_thread.items()


def _arena_lists(memory: Memory, heap: HeapReading, arena: ArenaReading) -> ArenaLists:
    state = arena.state
    lists = list(_fastbins(heap, arena))
    first = bins_at(heap.found, state.address)
    shown = {*heap.caches.tcache_faults.values(), *heap.caches.fastbin_faults.values()}
    try:
        heads = words_at(memory, first, 2 * BINS)
        for one in follow_bins(WindowedMemory(memory), arena, first, heads):
            if one.count or one.fault:
                lists.append(
                    FreeList(one.kind, one.number, one.low, one.high, one.count, one.bytes, one.fault)
                )
    except MemoryUnreadable:
        pass  # it is among the damages
    shown.update(one.fault for one in lists)
    others = [d.what for d in heap.damages if d.arena == state.number and d.what not in shown]
    faults = list(dict.fromkeys(others))
    return ArenaLists(state.number, state.address, state.top, state.top_bytes, lists, faults)


def _fastbins(heap: HeapReading, arena: ArenaReading) -> Iterator[FreeList]:
    for number, head in enumerate(arena.state.fastbins):
        size = MIN_CHUNK + ALIGNMENT * number
        count = heap.caches.fastbin_counts.get((arena.state.number, number), 0)
        fault = heap.caches.fastbin_faults.get((arena.state.number, number), "")
        if head or fault:
            bound = size if count else 0
            yield FreeList(FASTBIN, number, bound, bound, count, count * size, fault)
