"""Walking a heap chunk by chunk in plain Python: exact, needs nothing, slower than `lockstep`."""

from __future__ import annotations

from gdbmem.allocators.glibc.layout import IS_MMAPPED, MIN_CHUNK, NON_MAIN_ARENA
from gdbmem.allocators.glibc.tallies import (
    CORRUPT,
    ENDED,
    FASTBIN,
    FREE,
    LIVE,
    PAGE,
    STATES,
    TCACHE,
    Cached,
    HeapTally,
    check_chunk,
    check_free,
    why_stopped,
)
from gdbmem.model.memory import Memory, word_at

BLOCK = 1 << 24


def walk(memory: Memory, tally: HeapTally, limit: int, cached: Cached, *, block_bytes: int = BLOCK) -> None:
    """Walk from ``tally.start`` to *limit* (the top chunk, or the end of an older heap) and fill *tally*.

    Stops early at a fencepost or an impossible size, and records this in ``tally.stopped_at`` and ``_why``.
    """
    states = dict.fromkeys(cached.tcache, TCACHE)
    states.update(dict.fromkeys(cached.fastbins, FASTBIN))
    address = tally.start
    limit = min(limit, tally.end - 16)
    live: list[tuple[int, int]] = []  # pages, and sizes of live chunks on them
    while address < limit:
        base = address & -PAGE
        size = min(block_bytes, limit + 16 - base)
        words = memoryview(memory.read(base, size)).cast("Q")
        further = _walk_block(words, base, address, limit, tally, states, memory, live)
        live = _share_pins(tally, live, (further - tally.base) // PAGE)
        if tally.stopped_why:
            break
        address = further
    if not tally.stopped_why:
        tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT
    tally.beside_end = [size for _, size in live]
    _share_pins(tally, live, tally.page_count)
    tally.strays += len(states)


def _walk_block(
    words: memoryview,
    base: int,
    address: int,
    limit: int,
    tally: HeapTally,
    states: dict[int, int],
    memory: Memory,
    live: list[tuple[int, int]],
) -> int:
    """Walk the chunks that begin in this block; return the start of the next one."""
    count = len(words)
    word = words[(address - base >> 3) + 1]
    flags, wanted = IS_MMAPPED | NON_MAIN_ARENA, NON_MAIN_ARENA if tally.in_further_arena else 0
    while address < limit:
        size = word & ~7
        following = address + size
        if size < MIN_CHUNK or size & 8 or following > limit:
            tally.end_run(address)
            tally.stopped_at, tally.stopped_why = address, why_stopped(word)
            break
        index = (following - base >> 3) + 1
        next_word = words[index] if index < count else word_at(memory, following + 8)
        state = states.pop(address, LIVE) if next_word & 1 else FREE
        if state == FREE:
            check_free(memory, tally, address, size)
        if word & flags != wanted or state == FREE:
            check_chunk(tally, address, word, in_use=state != FREE, is_last=next_word & ~7 in (0, 16))
        _count(tally, state, address, size, live)
        word = next_word
        tally.last, address = address, following
        if index >= count:
            break
    return address


def _count(tally: HeapTally, state: int, address: int, size: int, live: list[tuple[int, int]]) -> None:
    tally.chunks[state] += 1
    tally.bytes[state] += size
    counts = tally.sizes.get(size)
    if counts is None:
        counts = tally.sizes[size] = [0] * STATES
    counts[state] += 1
    tally.add_range(state, address, address + size)
    if state == LIVE:
        first, last = (address - tally.base) // PAGE, (address + size - 1 - tally.base) // PAGE
        tally.headers[first] += 1
        live.append((first, size))
        if last > first:
            tally.reached[first + 1 : last + 1] = b"\1" * (last - first)
            live.append((last, size))
    if state in (FREE, FASTBIN):
        tally.pending = tally.pending or address
    elif tally.pending:
        tally.end_run(address)


def _share_pins(tally: HeapTally, live: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Charge the free bytes of each page before page *end* to the live chunks on it, in equal shares.

    Returns the sums of the pages beyond, where free chunks may follow.
    """
    pinned = tally.pinned
    for page, size in live:
        if page < end:
            share = tally.shared_free(page)
            if share:
                pinned[size] = pinned.get(size, 0.0) + share
    return [(page, size) for page, size in live if page >= end]
