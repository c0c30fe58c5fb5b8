"""Simulating malloc's settings on the walk over a heap: the memory that each would have returned by now.

A setting changes what malloc does with freed memory. It would return the freed, retained and resident memory of
today, less the part retained in any case; if the walk leaves more than half of that open, nothing is predicted.
Sources: glibc malloc/malloc.c (_int_free, systrim, malloc_trim), malloc/arena.c (heap_trim).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.walking.heap_tally import FASTBIN, FREE, LIVE, PAGE, STATES, TCACHE, HeapTally
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.model.ledger.remedies import TRIM, Remedy, in_order
from gdbmem.records import dataclass

THRESHOLD = 128 << 10  # glibc's initial trim and mmap threshold; an explicitly set one does not change
TOP_PAD = 128 << 10
_ANOTHER_RUN = 0.1  # settings that make malloc lay out the same blocks differently
_STEP = 4096  # pages

_COSTS = {
    TRIM: "once only; pages used again are faulted in again",
    "tcache_count=0": "each malloc and free takes its arena's lock",
    "trim_threshold=131072": "system calls and page faults whenever the heap shrinks and grows",
    "top_pad=0": "a system call for each page by which the heap grows",
    "arena_max=2": "threads wait for each other in malloc",
    "mmap_threshold=131072": "a system call and zeroed pages for each block of 128 KiB and more",
}


@dataclass
class _Room:
    """The free memory of one arena; bytes of resident pages, except end_bytes and top_bytes.

    The free end is counted as if there were no tcaches, if malloc would not create them.
    """

    threads: int
    top_bytes: int
    top: int = 0
    end_bytes: int = 0  # from the last live block on, to the end of the arena
    end: int = 0
    end_cached: int = 0  # of that in tcaches
    end_fast: int = 0  # of that in fastbins
    cached: int = 0  # in tcaches elsewhere
    whole: int = 0  # of that on pages without a live block


def simulate_remedies(heap: HeapReading, resident: Ranges, ledger: Ledger) -> tuple[Remedy, ...]:
    """Return the predicted effect of each remedy in the process of *heap*, in their order."""
    freed = ledger.total("heap.free", "arena.free")
    parameters = heap.parameters
    pad = parameters.top_pad if parameters is not None else TOP_PAD
    trim = parameters.trim_threshold if parameters is not None else THRESHOLD
    raised = parameters is None or parameters.mmap_threshold > THRESHOLD
    rooms = [_room(arena, heap, resident) for arena in heap.arenas]
    large = sum(_large_free(arena) for arena in heap.arenas) if raised else 0
    # Each of the three settings below keeps the thresholds at their initial values.
    tops = [room.top for room in rooms if room.top_bytes > THRESHOLD] if trim > THRESHOLD else []
    pads = sum(min(room.top, pad) for room in rooms)
    found = [
        _remedy("tcache_count=0", *_without_tcaches(rooms, pad, trim), freed),
        _remedy("trim_threshold=131072", sum(max(t - pad - PAGE, 0) for t in tops), sum(tops) + large, freed),
        _remedy("top_pad=0", sum(max(t - PAGE, 0) for t in tops), sum(tops) + pads + large, freed),
        _remedy("arena_max=2", 0, ledger.total("arena.free") if len(rooms) > 2 else 0, freed),
        _remedy("mmap_threshold=131072", 0, freed if raised else 0, freed),
    ]
    trimmed = ledger.releasable_bytes or 0
    found.append(Remedy(TRIM, trimmed, trimmed, trimmed, _COSTS[TRIM]))
    if heap.has_gaps or heap.is_corrupt:  # nothing can be predicted
        found = [Remedy(one.setting, None, 0, max(one.high_bytes, freed), one.cost) for one in found]
    return in_order(found)


def _remedy(name: str, low: int, high: int, freed: int) -> Remedy:
    """Return the remedy with its prediction; without one if the interval is wider than half of it."""
    setting, cost = f"glibc.malloc.{name}", _COSTS[name]
    if high <= 0:
        return Remedy(setting, 0, 0, 0, cost)
    least, most = round(low * (1 - _ANOTHER_RUN)), min(round(high * (1 + _ANOTHER_RUN)), freed)
    middle = min((low + high) // 2, most)
    if 2 * (most - least) > middle:
        return Remedy(setting, None, 0, most, cost)
    return Remedy(setting, middle, least, most, cost)


def _without_tcaches(rooms: Sequence[_Room], pad: int, trim: int) -> tuple[int, int]:
    """Return the reduction of the resident set if freed blocks had been returned to their arena at once.

    At an arena's end they join the free memory there, which is trimmed. Elsewhere they form free pages, which other
    threads of the arena use before it grows: together they keep no more of these than a single thread.
    """
    low = high = 0
    for room in rooms:
        cached, whole, kept = room.cached, room.whole, pad
        if room.end_cached and room.end_bytes >= trim:
            # Blocks in fastbins are merged only when a large one is freed, which has not happened since.
            low += max(room.end - pad - PAGE, 0) if room.end_fast <= PAGE else 0
            high += room.end
            kept = 0
        else:
            cached, whole = cached + room.end_cached, whole + room.end_cached
        if room.threads > 1:
            of_one = whole // room.threads
            low += max(whole - (kept if of_one >= trim else max(of_one, kept)), 0)
        high += cached
    return low, high


def _large_free(arena: ArenaReading) -> int:
    return sum(
        size * counts[FREE]
        for tally in arena.tallies
        for size, counts in tally.sizes.items()
        if size >= THRESHOLD and size != arena.state.top_bytes
    )


def _room(arena: ArenaReading, heap: HeapReading, resident: Ranges) -> _Room:
    state = arena.state
    threads = sum(address == state.address for address in heap.caches.arena_of.values())
    room = _Room(threads, state.top_bytes, resident.within(state.top, state.top + state.top_bytes))
    at_end = True
    for tally in reversed(arena.tallies):
        end_page = _pages_to_last_live(tally, heap.caches.late_tcaches) if at_end else tally.page_count
        start = max(tally.base + PAGE * end_page, tally.start)
        if at_end:
            room.end_bytes += tally.end - start
            room.end += resident.within(start, tally.end)
            room.end_fast += sum(tally.pages[STATES * end_page + FASTBIN :: STATES])
        for page, size in _cached_pages(tally, resident):
            if page >= end_page:
                room.end_cached += size
                continue
            room.cached += size
            room.whole += 0 if tally.pages[STATES * page + LIVE] else size
        # Other arenas return empty heaps as a whole; the main one never returns memory before its last piece.
        at_end = at_end and end_page == 0 and not state.is_main
    return room


def _pages_to_last_live(tally: HeapTally, ignored: Sequence[tuple[int, int]]) -> int:
    """Return the number of pages up to the last one with a live block; *ignored*: addresses and sizes of blocks."""
    live = tally.pages[LIVE::STATES]
    for start, size in ignored:
        if tally.start <= start and start + size <= tally.end:
            for page in range((start - tally.base) // PAGE, (start + size - 1 - tally.base) // PAGE + 1):
                first = tally.base + PAGE * page
                live[page] = max(live[page] - min(start + size, first + PAGE) + max(start, first), 0)
    count = len(live)
    while count and not any(live[max(count - _STEP, 0) : count]):
        count = max(count - _STEP, 0)
    while count and not live[count - 1]:
        count -= 1
    return count


def _cached_pages(tally: HeapTally, resident: Ranges) -> Iterator[tuple[int, int]]:
    """Yield each resident page with blocks in tcaches, and their bytes on it."""
    if not tally.bytes[TCACHE]:
        return
    for page, size in enumerate(tally.pages[TCACHE::STATES]):
        address = tally.base + PAGE * page
        if size and resident.within(address, address + PAGE):
            yield page, size
