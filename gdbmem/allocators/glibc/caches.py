"""Free chunks that look in use, all contents of tcaches and fastbins, and inconsistencies in the lists of free ones."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.allocators.glibc.arenas import ArenaState, writable_areas
from gdbmem.allocators.glibc.bins import BINS, bins_at, follow_bins
from gdbmem.allocators.glibc.fast_lists import read_fast_lists
from gdbmem.allocators.glibc.layout import (
    ALIGNMENT,
    CHUNK_HEADER,
    MIN_CHUNK,
    PREV_INUSE,
    TCACHE_CHUNKS,
    Found,
    ThreadVariables,
)
from gdbmem.allocators.glibc.tallies import FASTBIN, Cached, link_difference
from gdbmem.arrays import has_numpy
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers, WindowedMemory, word_at, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import ArenaReading


# Inconsistencies in a heap: the first invalid chunk, and its neighbour.


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
    broken = [Damage(at, state.number, one.fault) for one, at in followed if one.fault]
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
                if words[index] in (chunk - before, chunk - at) and _follow_bin(windows, chunk, limit):
                    return chunk
            elif chained is None and _leads_on(windows, chunk, limit):
                chained = chunk
    return chained


def _leads_on(windows: WindowedMemory, address: int, limit: int) -> bool:
    """Return whether chunks follow each other from *address* on, the first of them behind one in use."""
    return bool(windows.word(address + 8) & PREV_INUSE) and _follow_bin(windows, address, limit)


def _follow_bin(windows: WindowedMemory, address: int, limit: int) -> bool:
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


_LONG = 1_000  # length of a list from which on the numpy algorithm is faster


class Caches:
    """The contents of the caches, and their unreadable parts."""

    def __init__(self) -> None:
        self.cached = Cached()
        self.unread_threads: list[int] = []
        self.broken: list[Damage] = []  # chains that are circular or lead to invalid memory
        self.arena_of: dict[int, int] = {}  # tid → address of its arena
        # Address and size of each chunk that contains a tcache, if malloc creates tcaches on first use.
        self.late_tcaches: list[tuple[int, int]] = []
        self.tcache_lists: dict[tuple[int, int], list[int]] = {}  # tid, bin → chunks
        self.tcache_faults: dict[tuple[int, int], str] = {}
        self.fastbin_counts: dict[tuple[int, int], int] = {}  # arena, bin → chunks
        self.fastbin_faults: dict[tuple[int, int], str] = {}  # arena, bin → the inconsistency


def read_caches(
    memory: Memory,
    arenas: Sequence[ArenaState],
    threads: Sequence[ThreadPointers],
    mappings: Sequence[Mapping],
    tls_bytes: int,
) -> Caches:
    """Return every chunk in a tcache or a fastbin; threads whose cache wasn't found are named.

    *tls_bytes* is the size of libc's thread-local variables, 0 if unknown.
    """
    result = Caches()
    known = writable_areas(mappings)
    windows = WindowedMemory(memory)
    pointers = {t.tid: t.thread_pointer for t in threads if t.thread_pointer}
    variables = ThreadVariables.read(memory, pointers, tls_bytes)
    tcaches = _tcaches(windows, known, variables)
    result.arena_of = _arenas_of(variables, {a.address for a in arenas})
    protected = _is_protected(windows, known, tcaches.values(), arenas)
    _follow_tcaches(windows, tcaches, protected, result)
    tcached = [chunk for chunks in result.tcache_lists.values() for chunk in chunks]
    fast = _all_fast(memory, windows, arenas, protected, result)
    _check_apart(tcached, fast, result.broken)
    result.cached = Cached(array("Q", sorted(set(tcached))), fast, result.cached.trails)
    if any(not arena.is_unused for arena in arenas):
        seen = set(tcaches)
        result.unread_threads = [
            t.tid for t in threads if t.tid not in variables.blocks and t.tid not in seen
        ]
        if variables.blocks and not tcaches:
            result.unread_threads = [t.tid for t in threads]
    return result


def _follow_tcaches(
    windows: WindowedMemory, tcaches: dict[int, _Tcache], protected: bool, result: Caches
) -> None:
    for tid, tcache in tcaches.items():
        if not tcache.counts:
            result.late_tcaches.append((tcache.address - CHUNK_HEADER, tcache.size))
        where = f"tcache of thread {tid}"
        for number, entry in enumerate(tcache.entries):
            if not entry:
                continue
            faults: list[Damage] = []
            size = tcache.chunk_bytes(number)
            chunks = _list(windows, entry - 16, protected, size, faults, where)
            result.tcache_lists[tid, number] = chunks
            counted = tcache.counts[number] if tcache.counts else len(chunks)
            if counted != len(chunks) and not faults:
                what = f"the {where} counts {counted} blocks of {size - 8:,} bytes and holds {len(chunks)}"
                faults.append(Damage(tcache.address - 16, 0, what))
            if faults:
                result.tcache_faults[tid, number] = faults[0].what
            result.broken += faults
        for number in tcache.odd:
            what = (
                f"the tcache of thread {tid} at 0x{tcache.address:x} is damaged: its list {number} is invalid"
            )
            result.tcache_faults[tid, number] = what
            result.broken.append(Damage(tcache.address - 16, 0, what))


class _Tcache(NamedTuple):
    address: int
    size: int  # bytes, with the header
    entries: Sequence[int]  # the first entry of each bin: addresses of user memory, or 0
    odd: Sequence[int] = ()  # bins whose first entry, or count, is impossible
    counts: Sequence[int] = ()  # of each bin; empty if malloc has none

    def chunk_bytes(self, number: int) -> int:
        """Return the size of the chunks in bin *number*; 0 for the bins of large ones, which have several sizes."""
        return MIN_CHUNK + ALIGNMENT * number if number < 64 else 0


def _tcaches(windows: WindowedMemory, known: Ranges, variables: ThreadVariables) -> dict[int, _Tcache]:
    """Return tid → tcache: the one thread-local variable that points to a tcache in every thread where it is set."""
    best: dict[int, _Tcache] = {}
    most = (0, 0)
    for column in variables.columns():
        found: dict[int, _Tcache] = {}
        for tid, value in column.items():
            if value == 0 or value % 16 or value not in known:
                continue  # a thread that never allocated has none
            tcache = _read_tcache(windows, known, value)
            if tcache is not None:
                found[tid] = tcache
        rank = (sum(not tcache.odd for tcache in found.values()), len(found))
        if rank > most:
            best, most = found, rank
    return best


def _read_tcache(windows: WindowedMemory, known: Ranges, address: int) -> Optional[_Tcache]:
    """Return the tcache at *address*; None if the block there does not have the size of a tcache."""
    try:
        head = windows.word(address - 8)
        bins = TCACHE_CHUNKS.get(head & ~7)
        if bins is None or (not head & 1 and head & 2):
            return None
        raw = [windows.word(address + 8 * n) for n in range(bins * 10 // 8)]
    except MemoryUnreadable:
        return None
    counts = b"".join(word.to_bytes(8, "little") for word in raw[: bins // 4])
    slots = memoryview(counts).cast("H")
    entries = raw[bins // 4 :]
    odd = [n for n, entry in enumerate(entries) if entry and (entry % 16 or entry not in known)]
    if bins == 64:  # the counters count the entries; in later versions the free slots
        odd += [n for n in range(bins) if n not in odd and bool(slots[n]) != bool(entries[n])]
    begins = [0 if n in odd else entry for n, entry in enumerate(entries)]
    return _Tcache(address, head & ~7, begins, odd, list(slots) if bins == 64 else ())


def _arenas_of(variables: ThreadVariables, addresses: set[int]) -> dict[int, int]:
    """Return tid → arena: the thread-local variable that is an arena's address in most threads."""
    best: dict[int, int] = {}
    for column in variables.columns():
        found = {tid: value for tid, value in column.items() if value in addresses}
        if len(found) > len(best) and all(not value or value in addresses for value in column.values()):
            best = found
    return best


def _is_protected(
    windows: WindowedMemory, known: Ranges, tcaches: Iterable[_Tcache], arenas: Sequence[ArenaState]
) -> bool:
    """Return whether list pointers are xored with their address (safe-linking), determined from the lists."""
    plain = safe = 0
    links = [entry for tcache in tcaches for entry in tcache.entries if entry]
    links += [head + 16 for arena in arenas for head in arena.fastbins if head]
    for link in links[:4096]:
        try:
            value = windows.word(link)
        except MemoryUnreadable:
            continue
        decoded = value ^ (link >> 12)
        plain += value == 0 or (value % 16 == 0 and value in known)
        safe += decoded == 0 or (decoded % 16 == 0 and decoded in known)
    return safe >= plain


def _list(
    windows: WindowedMemory,
    chunk: int,
    protected: bool,
    size: int,
    broken: list[Damage],
    where: str,
    most: Optional[int] = None,
) -> list[int]:
    """Return the chunks of a list from *chunk* on, up to the first that isn't of *size* (0: any)."""
    faults: list[Damage] = []
    chunks = _chain(windows, chunk, protected, faults, where, most)
    good = _odd_size(windows, chunks, size) if size else len(chunks)
    if good < len(chunks):
        odd = chunks[good]
        led = f", to which the block at 0x{chunks[good - 1]:x} leads," if good else ""
        what = (
            f"the block at 0x{odd:x}{led} has the size word 0x{windows.word(odd + 8):x} in the {where}"
            f" for blocks of {size - 8:,} bytes"
        )
        faults = [Damage(odd, 0, what)]
    broken += faults
    return chunks[:good]


class _LongError(Exception):
    """A list is too long to be followed one by one."""


def _all_fast(
    memory: Memory, windows: WindowedMemory, arenas: Sequence[ArenaState], protected: bool, result: Caches
) -> Sequence[int]:
    """Return the chunks in fastbins, sorted: long lists with numpy if available, else one by one."""
    few: set[int] = set()
    many = []
    for arena in arenas:
        quick = None
        try:
            few.update(_fast_of(windows, arena, protected, result, _LONG if has_numpy() else None))
            continue
        except _LongError:
            windows.windows.clear()  # of a list in random order they are most of the heap
            quick = read_fast_lists(memory, arena, protected)
        if quick is None:
            few.update(_fast_of(windows, arena, protected, result, None))
            continue
        many.append(quick.chunks)
        result.cached.trails.update(quick.trails)
        result.fastbin_counts.update({(arena.number, n): count for n, count in quick.counts.items()})
        for broken in quick.broken:
            size, head = MIN_CHUNK + ALIGNMENT * broken.bin, arena.fastbins[broken.bin]
            where = f"the fastbin of arena {arena.number} for blocks of {size - 8:,} bytes"
            what = f"{where} leads {broken.text(head)}"
            result.fastbin_faults[arena.number, broken.bin] = what
            result.broken.append(Damage(broken.chunk or head, arena.number, what))
    if not many:
        return array("Q", sorted(few))
    import numpy as np  # slow to import

    chunks: Any = many[0]
    if few or len(many) > 1:
        chunks = np.concatenate([np.array(sorted(few), dtype=np.uint64), *many])
        chunks.sort(kind="stable")
    return chunks  # type: ignore[no-any-return]


def _fast_of(
    windows: WindowedMemory, arena: ArenaState, protected: bool, result: Caches, most: Optional[int]
) -> list[int]:
    """Return the chunks in the fastbins of *arena*; raises _LongError if a list has more than *most*."""
    found: list[list[int]] = []
    faults: list[list[Damage]] = []
    where = f"fastbin of arena {arena.number}"
    for number, head in enumerate(arena.fastbins):
        noted: list[Damage] = []
        found.append(_list(windows, head, protected, MIN_CHUNK + ALIGNMENT * number, noted, where, most))
        faults.append(noted)
    for number, noted in enumerate(faults):
        result.fastbin_counts[arena.number, number] = len(found[number])
        result.broken += noted
        if noted:
            result.fastbin_faults[arena.number, number] = noted[0].what
    return [chunk for chunks in found for chunk in chunks]


def _chain(
    windows: WindowedMemory,
    chunk: int,
    protected: bool,
    broken: list[Damage],
    where: str,
    most: Optional[int] = None,
) -> list[int]:
    """Return the chunks of a list from *chunk* on; an inconsistent list is recorded in *broken*.

    A fastbin points to chunks, a tcache to user memory 16 bytes on, where the link is in both.
    """
    seen: dict[int, None] = {}
    to_chunk = 16 if where.startswith("tcache") else 0
    loaded = windows.windows
    before = 0
    while chunk:
        link = chunk + 16
        try:
            if chunk in seen or chunk & 15 or chunk < 0:
                raise MemoryUnreadable(chunk)
            # The hot loop for a heap with millions of small free blocks: one look-up per block.
            window = loaded.get(link >> 16)
            value = window[(link & 0xFFFF) >> 3] if window else windows.word(link)
        except MemoryUnreadable:
            how = "leads in a circle" if chunk in seen else "leads to no block"
            after = f"the block at 0x{before:x} in it, freed already, was written to, or freed twice"
            what = f"the {where} {how} at 0x{chunk & (1 << 64) - 1:x}" + (f": {after}" if before else "")
            broken.append(Damage(before or chunk, 0, what))
            break
        seen[chunk] = None
        if most is not None and len(seen) > most:
            raise _LongError
        following = value ^ (link >> 12) if protected else value
        before, chunk = chunk, following - to_chunk if following else 0
    return list(seen)


def _odd_size(windows: WindowedMemory, chunks: Sequence[int], size: int) -> int:
    """Return the index of the first of *chunks* that isn't of *size*; their count if all are."""
    for number, chunk in enumerate(chunks):
        window = windows.windows.get(chunk + 8 >> 16)
        head = window[(chunk + 8 & 0xFFFF) >> 3] if window else windows.word(chunk + 8)
        if head & ~7 != size:
            return number
    return len(chunks)


def _check_apart(tcached: list[int], fast: Sequence[int], broken: list[Damage]) -> None:
    """Record a chunk that is in two lists."""
    ordered = sorted(tcached)
    twice = [chunk for chunk, following in zip(ordered, ordered[1:]) if chunk == following]
    for chunk in dict.fromkeys(tcached):
        at = bisect_left(fast, chunk)
        if at < len(fast) and fast[at] == chunk:
            twice.append(chunk)
    if twice:
        chunk = min(twice)
        broken.append(Damage(chunk, 0, f"the block at 0x{chunk:x} was freed twice: it is in two lists"))
