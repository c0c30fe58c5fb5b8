"""Contradictions in a heap: which chunk is the first that can't be as it is, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from gdbmem.allocators.glibc.bins import BINS, bins_at, follow_bins
from gdbmem.allocators.glibc.layout import MIN_CHUNK, PREV_INUSE
from gdbmem.allocators.glibc.link_sums import link_difference
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, word_at, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import ArenaReading
    from gdbmem.allocators.glibc.locate import Found

_MASK = (1 << 64) - 1
_HOPS = 32
_SEARCHED = 1 << 20  # bytes behind a broken size in which sound chunks are looked for


@dataclass(frozen=True)
class Damage:
    """One contradiction."""

    address: int
    arena: int
    what: str


def check_lists(memory: Memory, found: Found, arena: ArenaReading) -> list[Damage]:
    """Return where the bins of *arena* and its free chunks, all of which were walked, contradict each other."""
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
    what = f"free blocks of arena {state.number} and its lists of free blocks contradict each other"
    return broken or [Damage(state.address, state.number, what)]


def is_fencepost(memory: Memory, address: int, end: int, *, in_further_arena: bool) -> bool:
    """Tell whether malloc closed a piece of heap with the 16 bytes at *address*, or something wrote that size there.

    Source: glibc malloc/malloc.c, sysmalloc.
    """
    if in_further_arena:
        return end - 48 <= address < end
    try:
        following = word_at(memory, address + 24)
    except MemoryUnreadable:
        return address + 16 == end
    # Two of them end where the break did, or a third where the room was for it.
    return following in (16, 17) and any((address + size) % 4096 == 0 for size in (32, 48))


@dataclass(frozen=True)
class Break:
    """A size that leads nowhere."""

    address: int  # of the chunk whose size word was overwritten
    sound: Optional[int]  # where sound chunks begin again


def find_break(memory: Memory, before: int, stopped_at: int, limit: int) -> Break:
    """Return which size word is wrong: that of the chunk at *stopped_at*, or of the one *before* that led there.

    Where sound chunks begin inside of the one before, its size is too large.
    """
    address = before + MIN_CHUNK
    stop = min(stopped_at + _SEARCHED, limit)
    windows = WindowedMemory(memory)
    while address < stop:
        if address != stopped_at and _leads_on(windows, address, limit):
            return Break(before if address < stopped_at else stopped_at, address)
        address += 16
    return Break(stopped_at, None)


def _leads_on(windows: WindowedMemory, address: int, limit: int) -> bool:
    """Tell whether chunks follow each other from *address* on."""
    sizes: set[int] = set()
    for _ in range(_HOPS):
        if address == limit:
            return True
        try:
            word = windows.word(address + 8)
        except MemoryUnreadable:
            return False
        size = word & ~7
        if size < MIN_CHUNK or word & 10 or address + size > limit or (not word & PREV_INUSE and not sizes):
            return False
        sizes.add(size)
        address += size
    return True
