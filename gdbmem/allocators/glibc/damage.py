"""Inconsistencies in a heap: the first invalid chunk, and its neighbour."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Optional

from gdbmem.allocators.glibc.bins import BINS, bins_at, follow_bins
from gdbmem.allocators.glibc.layout import ALIGNMENT, MIN_CHUNK, PREV_INUSE
from gdbmem.allocators.glibc.tallies import FASTBIN, link_difference
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, word_at, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.caches import Caches
    from gdbmem.allocators.glibc.heap import ArenaReading
    from gdbmem.allocators.glibc.locate import Found

_MASK = (1 << 64) - 1
_HOPS = 32
_SEARCHED = 1 << 20  # bytes after a broken size in which intact chunks are searched for


class Damage(NamedTuple):
    """One inconsistency."""

    address: int
    arena: int
    what: str


def check_lists(memory: Memory, found: Found, arena: ArenaReading) -> list[Damage]:
    """Return the inconsistencies between the bins of *arena* and its free chunks, all of which were walked."""
    state = arena.state
    if state.is_unused:
        return []
    first = bins_at(found, state.address)
    try:
        heads = words_at(memory, first, 2 * BINS)
    except MemoryUnreadable:
        return [Damage(first, state.number, f"the bins of arena {state.number} can't be read")]
    total = sum(tally.link_sum for tally in arena.tallies)
    for number in range(BINS):
        forward, backward = heads[2 * number : 2 * number + 2]
        total += link_difference(first + 16 * number - 16, forward, backward)
    if total & _MASK == 0:
        return []
    followed = follow_bins(WindowedMemory(memory), arena, first, heads)
    broken = [Damage(one.fault_at, state.number, one.fault) for one in followed if one.fault]
    what = f"free blocks of arena {state.number} and its lists of free blocks are inconsistent"
    return broken or [Damage(state.address, state.number, what)]


def check_fastbins(memory: Memory, arena: ArenaReading, caches: Caches) -> list[Damage]:
    """Return the fastbins of *arena* that contain blocks of wrong sizes; all its chunks were walked.

    Long lists are followed without checking the sizes.
    """
    number = arena.state.number
    if any(of == number for of, _ in caches.fastbin_faults):
        return []
    difference: Counter[int] = Counter()  # size → blocks missing in its list
    for tally in arena.tallies:
        difference.update({size: states[FASTBIN] for size, states in tally.sizes.items() if states[FASTBIN]})
    lists = {
        MIN_CHUNK + ALIGNMENT * n: count for (of, n), count in caches.fastbin_counts.items() if of == number
    }
    difference.subtract(lists)
    odd = [size for size, lacking in difference.items() if lacking]
    if not odd:
        return []
    for tally in arena.tallies:
        trail = caches.cached.trails.get(tally.start)
        mine = caches.cached.between(tally.start, tally.end).fastbins
        sizes = [size for size, count in lists.items() if count]
        chunk = trail.first_of_other_size(memory, mine, sizes) if trail else None
        if chunk is not None:
            where = f"the block at 0x{chunk:x}, with the size word 0x{word_at(memory, chunk + 8):x},"
            return [Damage(chunk, number, f"{where} is in a fastbin for blocks of another size")]
    what = f"a fastbin of arena {number} holds blocks of another size than its {min(odd) - 8:,} bytes"
    return [Damage(arena.state.address, number, what)]


def is_fencepost(memory: Memory, address: int, end: int, *, in_further_arena: bool) -> bool:
    """Return whether the 16 bytes at *address* are malloc's fencepost, and not a size written by something else.

    Source: glibc malloc/malloc.c, sysmalloc.
    """
    if in_further_arena:
        return end - 48 <= address < end
    try:
        following = word_at(memory, address + 24)
    except MemoryUnreadable:
        return address + 16 == end
    # Two of them end at the former break, followed by a third one if there was room.
    return following in (16, 17) and any((address + size) % 4096 == 0 for size in (32, 48))


class Break(NamedTuple):
    """A size that leads to no chunk."""

    address: int  # of the chunk whose size word was overwritten
    sound: Optional[int]  # where intact chunks begin again


def find_break(memory: Memory, before: int, stopped_at: int, limit: int) -> Break:
    """Return the wrong size word: that of the chunk at *stopped_at*, or of the one *before* that led there.

    If intact chunks begin inside the one before, its size is too large.
    """
    address = before + MIN_CHUNK
    stop = min(stopped_at + _SEARCHED, limit)
    windows = WindowedMemory(memory)
    while address < stop:
        if address != stopped_at and _leads_on(windows, address, limit):
            return Break(before if address < stopped_at else stopped_at, address)
        address += 16
    return Break(stopped_at, None)


def find_end(memory: Memory, before: int, at: int, limit: int, end: int) -> Optional[int]:
    """Return the end of a block at *at* whose header a thread in malloc has not written yet; None if it is not found.

    *before* is the block in front of it, of which it may have been split off. *limit* is the top chunk, or *end*.
    """
    windows = WindowedMemory(memory)
    if limit < end and at + (windows.word(at + 8) & ~7) == end:
        return limit  # malloc has moved the top, and splits the former one
    chained = None
    step = _SEARCHED
    for base in range(at + 2 * ALIGNMENT, limit, step):
        size = min(step, limit - base)
        try:
            words = memoryview(memory.read(base, size)).cast("Q")
        except MemoryUnreadable:
            break
        for index in range(0, len(words) - 1, 2):
            head, chunk = words[index + 1], base + 8 * index
            if head & 10 or not MIN_CHUNK <= head & ~7 <= limit - chunk:
                continue
            if not head & PREV_INUSE:
                # The free block that was split ended here, as its former size in the word before says.
                if words[index] in (chunk - before, chunk - at) and _chain(windows, chunk, limit):
                    return chunk
            elif chained is None and _leads_on(windows, chunk, limit):
                chained = chunk
    return chained


def _leads_on(windows: WindowedMemory, address: int, limit: int) -> bool:
    """Return whether chunks follow each other from *address* on, the first of them behind one in use."""
    return bool(windows.word(address + 8) & PREV_INUSE) and _chain(windows, address, limit)


def _chain(windows: WindowedMemory, address: int, limit: int) -> bool:
    for _ in range(_HOPS):
        if address == limit:
            return True
        try:
            word = windows.word(address + 8)
        except MemoryUnreadable:
            return False
        size = word & ~7
        if size < MIN_CHUNK or word & 10 or address + size > limit:
            return False
        address += size
    return True
