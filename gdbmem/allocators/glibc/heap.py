"""Reading the whole of glibc's malloc in one process: every arena, every chunk, every cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from gdbmem.allocators.glibc.arenas import (
    ArenaState,
    HeapRegion,
    MmappedChunk,
    are_whole,
    find_mmapped,
    read_arenas,
    resume,
    writable_areas,
)
from gdbmem.allocators.glibc.caches import (
    Break,
    Caches,
    Damage,
    check_fastbins,
    check_lists,
    find_break,
    find_end,
    is_fencepost,
    read_caches,
)
from gdbmem.allocators.glibc.layout import (
    IS_MMAPPED,
    MIN_CHUNK,
    NON_MAIN_ARENA,
    TCACHE_CHUNKS,
    Found,
    LibcFacts,
    Parameters,
    locate,
    read_parameters,
)
from gdbmem.allocators.glibc.tallies import (
    CORRUPT,
    ENDED,
    FASTBIN,
    FENCEPOST,
    FREE,
    LIVE,
    PAGE,
    STATES,
    TCACHE,
    Cached,
    HeapTally,
    check_chunk,
    check_free,
    trim_range,
    why_stopped,
)
from gdbmem.arrays import has_numpy
from gdbmem.errors import Notice
from gdbmem.linux.memory.maps import PAGE as KERNEL_PAGE
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, ThreadPointers, word_at
from gdbmem.text import format_size, plural

# Walking a heap chunk by chunk in plain Python: exact, needs nothing, slower than `lockstep`.


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


Walker = Callable[[Memory, HeapTally, int, Cached], None]
_MOST_CHANGES = 4  # inconsistencies that one thread in malloc may cause temporarily
_BEYOND = 1 << 64  # sorted after all that have an address
_MIN_TOP = 33  # systrim keeps MINSIZE + 1 bytes of top


class ArenaReading:
    """One arena with the results of the walk over each of its regions."""

    def __init__(self, state: ArenaState) -> None:
        self.state = state
        self.tallies: list[HeapTally] = []
        self.releasable: list[tuple[int, int]] = []  # pages that malloc_trim(0) returns
        self.top: Optional[tuple[int, int]] = None  # free memory at the end that malloc_trim leaves alone
        self.overheads: list[tuple[int, int]] = []  # malloc's own structures
        self.foreign: list[tuple[int, int]] = []  # from sbrk, by the program itself
        self.changing: list[tuple[int, int]] = []  # blocks whose headers malloc was writing
        self.breaks: list[Break] = []  # sizes that lead to no chunk


class HeapReading:
    """The data of glibc's malloc."""

    def __init__(
        self, found: Found, parameters: Optional[Parameters], caches: Caches, threads_inside: int = 0
    ) -> None:
        self.found, self.parameters, self.caches = found, parameters, caches
        self.threads_inside = threads_inside  # threads that may be changing it
        self.arenas: list[ArenaReading] = []
        self.mmapped: list[MmappedChunk] = []
        self.notices: list[Notice] = []
        self.is_exact = True
        self.damages: list[Damage] = []  # inconsistencies
        self.has_gaps = False  # part of it was not read

    @property
    def is_used(self) -> bool:
        """True if the program uses it at all."""
        return any(not arena.state.is_unused for arena in self.arenas) or bool(self.mmapped)

    @property
    def is_corrupt(self) -> bool:
        """True if it has more inconsistencies than the threads inside malloc may cause."""
        return len(self.damages) > _MOST_CHANGES * self.threads_inside

    @property
    def tallies(self) -> list[HeapTally]:
        """The sums of the regions of all arenas."""
        return [tally for arena in self.arenas for tally in arena.tallies]

    @property
    def mmapped_bytes(self) -> int:
        return sum(chunk.end - chunk.start for chunk in self.mmapped)


def choose_walker() -> Walker:
    """Return the fast walker if numpy is available, else the one in plain Python."""
    if not has_numpy():
        return walk
    from gdbmem.allocators.glibc import lockstep  # where glibc's malloc is in use

    return lockstep.walk


def read_heap(
    memory: Memory,
    mappings: Sequence[Mapping],
    threads: Sequence[ThreadPointers],
    data: Sequence[tuple[int, int]],
    bias: int,
    facts: LibcFacts,
    *,
    tls_bytes: int,
    threads_inside: int,
    walker: Optional[Walker],
    touched: Optional[Ranges] = None,
) -> Optional[HeapReading]:
    """Read the malloc of the object whose writable memory is *data*, loaded at *bias*.

    *tls_bytes* is the size of its thread-local variables; *threads_inside* is the number of threads inside malloc,
    which may have made a change in part. *touched* memory may have something other than zeros; None: any.

    None if no malloc state there matches the heap. Raises HeapCorrupt if the arenas are inconsistent; an invalid
    chunk causes a notice, and the memory after it stays unexplained.
    """
    found = locate(memory, mappings, data, bias, facts)
    if found is None:
        return None
    parameters = read_parameters(memory, found)
    states = read_arenas(memory, found, parameters, mappings)
    caches = read_caches(memory, states, threads, mappings, tls_bytes)
    threads_inside = max(threads_inside, sum(state.locked for state in states))
    reading = HeapReading(found, parameters, caches, threads_inside)
    _note_locked(reading, [state.number for state in states if state.locked])
    break_end = next((m.end for m in mappings if m.name == "[heap]"), 0)
    for state in states:
        reading.arenas.append(_read(memory, state, caches, reading, walker or choose_walker(), break_end))
    for arena in reading.arenas:
        if _is_whole(arena):
            reading.damages += check_lists(memory, found, arena)
            reading.damages += check_fastbins(memory, arena, caches)
    _find_mmapped(memory, mappings, reading, touched)
    _note_caches(reading)
    _note_damages(reading)
    return reading


def _note_locked(reading: HeapReading, numbers: Sequence[int]) -> None:
    if not numbers:
        return
    reading.is_exact = False
    text = f"a thread was changing arena {numbers[0]} when it was stopped: a few blocks may be miscounted"
    if len(numbers) > 1:
        which = ", ".join(map(str, numbers))
        text = f"threads were changing arenas {which} when they were stopped: a few blocks of each may be miscounted"
    reading.notices.append(Notice("arena-locked", text))


def _is_whole(arena: ArenaReading) -> bool:
    """Return whether all of the arena's chunks were walked."""
    return not arena.state.unfound_bytes and all(t.stopped_why != CORRUPT for t in arena.tallies)


def _read(
    memory: Memory, state: ArenaState, caches: Caches, reading: HeapReading, walker: Walker, break_end: int
) -> ArenaReading:
    arena = ArenaReading(state)
    if state.top_word & ~7 != state.top_bytes:
        what = f"the top chunk at 0x{state.top:x} has the size word 0x{state.top_word:x}"
        reading.damages.append(
            Damage(state.top, state.number, f"{what}, and its size is {state.top_bytes:,} bytes")
        )
    if state.unfound_bytes:
        reading.is_exact, reading.has_gaps = False, True
        reading.notices.append(
            Notice(
                "heap-pieces-missing",
                f"malloc counts {format_size(state.unfound_bytes)} more in its main arena than were found; they"
                " are not analysed",
            )
        )
    for region in state.regions:
        _read_region(memory, arena, region, caches.cached, reading, walker, break_end)
    return arena


def _read_region(
    memory: Memory,
    arena: ArenaReading,
    region: HeapRegion,
    cached: Cached,
    reading: HeapReading,
    walker: Walker,
    break_end: int,
) -> None:
    """Walk *region*; if the program's own sbrk divides it, walk the rest as another region."""
    if region.overhead_start < region.start:
        arena.overheads.append((region.overhead_start, region.start))
    start = region.start
    while True:
        tally = HeapTally(start, region.end, in_further_arena=not arena.state.is_main)
        walker(memory, tally, region.limit, cached.between(start, region.end))
        at = tally.stopped_at
        reading.damages += [
            Damage(chunk, arena.state.number, f"the block at 0x{chunk:x} {why}")
            for chunk, why in tally.odd.items()
        ]
        if at == region.limit and region.has_top:
            _take_top(arena, tally, region, reading, break_end)
            arena.tallies.append(tally)
            return
        arena.tallies.append(tally)
        arena.releasable += [trim_range(*run) for run in tally.runs]
        if at == region.end - 16 and not region.has_top:
            tally.stopped_why = FENCEPOST  # shortened to the one word that fits into a full piece
        elif tally.stopped_why == FENCEPOST and not is_fencepost(
            memory, at, region.end, in_further_arena=tally.in_further_arena
        ):
            tally.stopped_why = CORRUPT
        if tally.stopped_why == FENCEPOST:
            tally.strays -= len(cached.between(at, region.end))  # of the following pieces
            end = _skip_fenceposts(memory, at, region.end)
            arena.overheads.append((at, end))
            if not region.has_top:
                return
            further = resume(memory, end, region.limit, region.end)
            if further is not None:
                arena.foreign.append((end, further))
                start = further
                continue
        behind = _note_corrupt(memory, reading, arena, tally, region)
        if behind is None:
            reading.has_gaps = True
            return
        arena.changing.append((at, behind))
        start = behind


def _skip_fenceposts(memory: Memory, address: int, end: int) -> int:
    """Return the end of the fencepost (a chunk of 16 bytes and its successor)."""
    while address + 16 <= end:
        size = int.from_bytes(memory.read(address + 8, 8), "little") & ~7
        address += 16
        if size != 16:
            break
    return min(address, end)


def _take_top(
    arena: ArenaReading, tally: HeapTally, region: HeapRegion, reading: HeapReading, break_end: int
) -> None:
    """Add the top chunk, and return which of its pages malloc_trim would return (glibc: systrim)."""
    begin = tally.pending or region.limit
    arena.releasable += [trim_range(*run) for run in tally.runs]
    if arena.state.is_main and region.end == break_end:
        page = max(reading.parameters.thp_page if reading.parameters else 0, KERNEL_PAGE)
        extra = max(region.end - begin - _MIN_TOP, 0) & -page
        if extra:
            arena.releasable.append((region.end - extra, region.end))
    else:
        arena.top = (begin, region.end)
    tally.runs = []
    tally.add_top(region.limit, region.end)


def _note_corrupt(
    memory: Memory, reading: HeapReading, arena: ArenaReading, tally: HeapTally, region: HeapRegion
) -> Optional[int]:
    """Add the damage at the end of *tally*, and return where the walk can go on; None: nowhere.

    A thread in malloc may be writing the header of one block. Behind it there are others, or the top chunk.
    """
    tally.stopped_why = CORRUPT
    at = tally.stopped_at
    found = find_break(memory, tally.last or at, at, region.limit)
    arena.breaks.append(found)
    head = word_at(memory, found.address + 8)
    where = f"the block at 0x{found.address:x} has the invalid size word 0x{head:x}"
    end = None
    if len(arena.changing) < _MOST_CHANGES * reading.threads_inside:
        end = find_end(memory, tally.last or at, at, region.limit, region.end)
    rest = f"{format_size((end or region.end) - at)} from 0x{at:x} on are not analysed"
    sound = f", valid blocks begin again at 0x{found.sound:x}" if found.sound and end is None else ""
    reading.damages.append(Damage(found.address, arena.state.number, f"{where}{sound}: {rest}"))
    return end


def _note_damages(reading: HeapReading) -> None:
    """Add notices on the heap's inconsistencies, lowest chunk first."""
    if not reading.damages:
        return
    reading.is_exact = False
    reading.damages.sort(key=lambda damage: (damage.arena, damage.address))
    first, count = reading.damages[0], len(reading.damages)
    if reading.is_corrupt:
        slug = "heap-corrupt"
        more = f" (the first of {count:,} inconsistencies)" if count > 1 else ""
        text = f"the heap is inconsistent: {first.what}{more}"
    else:
        slug = "heap-changing"
        inside = plural(reading.threads_inside, "thread was", "threads were")
        text = f"{inside} inside malloc, and changing the heap: a few blocks may be miscounted"
    is_there = any(tally.start <= first.address < tally.end for tally in reading.tallies)
    shown = f"; --chunk 0x{first.address:x} shows it and its neighbours" if is_there else ""
    reading.notices.append(Notice(slug, text + shown))


def _find_mmapped(
    memory: Memory, mappings: Sequence[Mapping], reading: HeapReading, touched: Optional[Ranges]
) -> None:
    count = reading.parameters.mmapped_chunks if reading.parameters else 0
    total = reading.parameters.mmapped_bytes if reading.parameters else 0
    if not count:
        return
    taken = Ranges((tally.start & -4096, (tally.end + 4095) & -4096) for tally in reading.tallies)
    anonymous = [m for m in mappings if m.is_anonymous and not m.name.startswith("[stack")]
    areas = [gap for start, end in writable_areas(anonymous).items for gap in taken.gaps(start, end)]
    reading.mmapped = find_mmapped(memory, areas, count, total, touched)
    if not are_whole(reading.mmapped, count, total):
        reading.is_exact = False
        reading.has_gaps |= abs(len(reading.mmapped) - count) > reading.threads_inside
        reading.notices.append(
            Notice(
                "mmapped-chunks-differ",
                f"malloc counts {plural(count, 'block')} that it mapped individually ({format_size(total)}),"
                f" {len(reading.mmapped):,} ({format_size(reading.mmapped_bytes)}) were recognised",
            )
        )


def _note_caches(reading: HeapReading) -> None:
    caches, tallies = reading.caches, reading.tallies
    if not any(tally.sizes.get(size, [0])[LIVE] for tally in tallies for size in TCACHE_CHUNKS):
        caches.unread_threads = []  # no thread has one: since glibc 2.43 the first free() creates it
    if caches.unread_threads:
        reading.is_exact, reading.has_gaps = False, True
        reading.notices.append(
            Notice(
                "tcache-unread",
                f"the tcache of {plural(len(caches.unread_threads), 'thread')} was not found:"
                " free blocks in it are counted as live",
            )
        )
    reading.damages += caches.broken
    strays = sum(tally.strays for tally in tallies)
    if strays:
        what = f"{plural(strays, 'block')} in malloc's free lists are at addresses where no block begins"
        reading.damages.append(Damage(_BEYOND, 0, what))
