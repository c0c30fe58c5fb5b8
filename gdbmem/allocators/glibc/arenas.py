"""The arenas of a process, the regions of memory that contain their chunks, and chunks mapped individually."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.allocators.glibc.layout import (
    CHUNK_HEADER,
    HEAP_MAX,
    IS_MMAPPED,
    MIN_CHUNK,
    NON_MAIN_ARENA,
    PREV_INUSE,
    Found,
    Parameters,
)
from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, word_at, words_at

# Chunks that malloc mapped individually. They are in no list, so they are recognised by their header.


PAGE = 4096
# Possible offsets of the header of an aligned block on its first page.
_OFFSETS = (0, 16, 48, 112, 240, 496, 1008, 2032, 4080)


class MmappedChunk(NamedTuple):
    """One such chunk: its pages, whose size malloc counts, and the offset of its header in the first one."""

    start: int
    end: int
    header_at: int = 0
    counts_header: bool = True  # its size includes its header, as until glibc 2.42

    @property
    def memory(self) -> int:
        """The address of the program's memory."""
        return self.start + self.header_at + CHUNK_HEADER


def find_mmapped(
    memory: Memory,
    areas: Sequence[tuple[int, int]],
    count: int,
    total_bytes: int,
    touched: Optional[Ranges] = None,
) -> list[MmappedChunk]:
    """Return the mmapped chunks in *areas* (unclaimed anonymous memory), *count* of *total_bytes* by mp_.

    The search ends when the count is reached; any further match would be false. Headers are searched only in the
    *touched* memory if that is known: a program may have reserved terabytes.
    """
    found: list[MmappedChunk] = []
    held = 0
    for start, end in areas:
        address = start
        while address < end and (len(found) < count or not _adds_up(found, held, total_bytes)):
            chunk = _chunk_at(memory, address, end)
            if chunk is None:
                address = _next_candidate(memory, address + PAGE, end, touched)
                continue
            found.append(chunk)
            held += chunk.end - chunk.start
            address = chunk.end
    return found


def are_whole(chunks: Sequence[MmappedChunk], count: int, total_bytes: int) -> bool:
    """Return whether *chunks* are all those that mp_ counts."""
    return len(chunks) == count and _adds_up(chunks, sum(c.end - c.start for c in chunks), total_bytes)


def _adds_up(chunks: Sequence[MmappedChunk], held: int, total_bytes: int) -> bool:
    # Since glibc 2.43 the total drifts: each resizing of a block leaves the 16 bytes of its header in it.
    drift = total_bytes - held
    return drift == 0 or (
        drift > 0 and drift % CHUNK_HEADER == 0 and not any(c.counts_header for c in chunks)
    )


def _chunk_at(memory: Memory, page: int, end: int) -> MmappedChunk | None:
    try:
        words = memoryview(memory.read(page, PAGE)).cast("Q")
    except MemoryUnreadable:
        return None
    # Before the header of an aligned block, malloc leaves that of the whole.
    for offset in reversed(_OFFSETS):
        before, size = words[offset >> 3], words[(offset >> 3) + 1]
        if size & 7 != IS_MMAPPED or before != offset:
            continue
        # The memory before an aligned block belongs to its pages, too. Since glibc 2.43 the size excludes the
        # chunk's own header.
        for header in (0, CHUNK_HEADER):
            stop = page + before + (size & ~7) + header
            if stop % PAGE == 0 and page + offset + 32 <= stop <= end:
                return MmappedChunk(page, stop, offset, not header)
    return None


def distant_header(memory: Memory, chunk: MmappedChunk) -> int:
    """Return the offset of the header of a block that is aligned to more than a page; 0 if *chunk* holds none.

    Source: glibc malloc/malloc.c, _int_memalign.
    """
    whole = word_at(memory, chunk.start + 8)
    alignment = 2 * PAGE
    while alignment < chunk.end - chunk.start:
        offset = -(chunk.start + CHUNK_HEADER) % alignment
        with contextlib.suppress(MemoryUnreadable):  # swapped out, or behind the end
            if words_at(memory, chunk.start + offset, 2) == (offset, whole - offset):
                return offset
        alignment *= 2
    return 0


def _next_candidate(memory: Memory, address: int, end: int, touched: Optional[Ranges]) -> int:
    """Return the next page that may begin with a chunk: its second word is a size with the mmap flag."""
    for first, last in [(address, end)] if touched is None else touched.overlaps(address, end):
        page = _candidate_in(memory, first & -PAGE, last)
        if page < last:
            return page
    return end


def _candidate_in(memory: Memory, address: int, end: int) -> int:
    """Return the first page from *address* on that may begin with a chunk; *end* if there is none."""
    step = 1 << 22
    while address < end:
        size = min(step, end - address)
        try:
            words = memoryview(memory.read(address, size)).cast("Q")
        except MemoryUnreadable:
            return address
        per_page = PAGE // 8
        for page in range(len(words) // per_page):
            at = page * per_page
            if words[at + 1] & 7 == IS_MMAPPED and words[at] == 0:
                return address + page * PAGE
            if any(
                words[at + (o >> 3)] == o and words[at + (o >> 3) + 1] & 7 == IS_MMAPPED for o in _OFFSETS[1:]
            ):
                return address + page * PAGE
        address += size
    return end


# Non-contiguous pieces of a main arena: malloc uses mmap when the break can't grow.
#
# Something else is mapped after the break, or a tunable (glibc.malloc.hugetlb=2) keeps malloc from using sbrk. There
# is no list of the pieces. Each begins at a page, and its chunks lead to the top chunk or to the fencepost at its
# end.


def writable_areas(mappings: Iterable[Mapping]) -> Ranges:
    """Return the writable memory of *mappings*; adjacent mappings form one area, with any flags."""
    return Ranges((m.start, m.end) for m in mappings if "w" in m.permissions)


def area_of(mappings: Sequence[Mapping], address: int) -> Optional[tuple[int, int]]:
    """Return the contiguous writable memory that contains *address*."""
    areas = writable_areas(mappings).items
    return next((area for area in areas if area[0] <= address < area[1]), None)


def find_pieces(memory: Memory, mappings: Sequence[Mapping], top: int, top_end: int) -> list[tuple[int, int]]:
    """Return start and end of each piece outside the break, that of the *top* chunk last."""
    windows = WindowedMemory(memory)
    found: list[tuple[int, int]] = []
    for low, high in writable_areas(
        m for m in mappings if m.is_anonymous and not m.name.startswith("[")
    ).items:
        found += _pieces(windows, low, high, top, top_end)
    return sorted(found, key=lambda piece: piece[1] == top_end)


def _pieces(
    windows: WindowedMemory, low: int, high: int, top: int, top_end: int
) -> Iterator[tuple[int, int]]:
    address = low
    while address + MIN_CHUNK <= high:
        further = address + _PAGE
        try:
            before, head = windows.word(address), windows.word(address + 8)
            size = head & ~7
            if head & 15 == IS_MMAPPED and not before and size % _PAGE == 0 and size:
                further = address + size  # an individually mapped block: its contents are the program's
            elif head & 15 == PREV_INUSE and size >= MIN_CHUNK:
                end = _end_of(windows, address, high, top, top_end)
                if end is not None:
                    yield address, end
                    further = end
        except MemoryUnreadable:
            pass
        address = further


def _end_of(windows: WindowedMemory, address: int, high: int, top: int, top_end: int) -> Optional[int]:
    """Return the end of the piece whose chunks begin at *address*; None if they lead to none."""
    while address != top:
        head = windows.word(address + 8)
        size = head & ~7
        if size == 16:  # the fencepost: two chunks, and a third if there was room for it
            return next((end for end in (address + 32, address + 48) if end % _PAGE == 0), None)
        if size < MIN_CHUNK or head & (8 | IS_MMAPPED | NON_MAIN_ARENA) or address + size >= high:
            return None
        address += size
    return top_end


_MOST_ARENAS = 100_000
_PAGE = 4096
_LEAST_TOP = 16
_HOPS = 64  # a chunk followed by this many others is accepted as one


class HeapCorrupt(TargetError):  # noqa: N818  (what it says is the condition)
    """The heap is inconsistent at an address."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            slug="heap-corrupt",
            hint="the program has overwritten malloc's data, or was stopped while it changed them",
        )


class HeapRegion(NamedTuple):
    """Memory that contains one arena's chunks end to end."""

    start: int  # the first chunk
    limit: int  # the top chunk; the end of the region if it has none
    end: int
    overhead_start: int  # malloc's own structures before the first chunk begin here

    @property
    def has_top(self) -> bool:
        return self.limit < self.end


class ArenaState:
    """One arena according to its malloc_state."""

    def __init__(
        self,
        number: int,
        address: int,
        top: int,
        top_bytes: int,
        system_bytes: int,
        *,
        locked: bool,
        fastbins: Sequence[int],
        top_word: int = 0,
    ) -> None:
        self.number = number  # 0 is the main arena
        self.address = address
        self.top, self.top_word = top, top_word  # the chunk, and its size word
        self.top_bytes = top_bytes  # 0: the arena is unused
        self.system_bytes = system_bytes
        self.locked = locked
        self.fastbins = fastbins
        self.regions: list[HeapRegion] = []
        self.unfound_bytes = 0  # in pieces that malloc counts and that were not found

    @property
    def is_main(self) -> bool:
        return self.number == 0

    @property
    def is_unused(self) -> bool:
        return self.top_bytes == 0


def read_arenas(
    memory: Memory, found: Found, parameters: Optional[Parameters], mappings: Sequence[Mapping]
) -> list[ArenaState]:
    """Return every arena, the main one first; raises HeapCorrupt if their chain is broken."""
    arenas: list[ArenaState] = []
    address = found.main_arena
    while True:
        arena = _read_arena(memory, found, address, len(arenas))
        arenas.append(arena)
        if not arena.is_unused:
            if arena.is_main:
                arena.regions = _main_regions(memory, arena, parameters, mappings)
                held = sum(region.end - region.start for region in arena.regions)
                arena.unfound_bytes = max(arena.system_bytes - held, 0) if len(arena.regions) > 1 else 0
            else:
                arena.regions = _heap_regions(memory, found, arena, _heap_size(parameters))
                arena.top_bytes = arena.regions[-1].end - arena.top
        address = word_at(memory, address + found.layout.state["next"])
        if address == found.main_arena:
            return arenas
        if len(arenas) > _MOST_ARENAS or address in {a.address for a in arenas[-64:]} or not address:
            raise HeapCorrupt(f"the list of malloc's arenas is broken at 0x{address:x}")


def _read_arena(memory: Memory, found: Found, address: int, number: int) -> ArenaState:
    struct = found.layout.state
    try:
        top = word_at(memory, address + struct["top"])
        is_unused = top in (0, address + struct["bins"] - 16)
        top_word = 0 if is_unused else word_at(memory, top + 8)
        fastbins: Sequence[int] = ()
        if found.layout.fastbin_count:
            fastbins = words_at(memory, address + struct["fastbinsY"], found.layout.fastbin_count)
        return ArenaState(
            number=number,
            address=address,
            top=top,
            top_bytes=0 if is_unused else max(top_word & ~7, _LEAST_TOP),
            system_bytes=word_at(memory, address + struct["system_mem"]),
            locked=bool(int.from_bytes(memory.read(address, 4), "little")),
            fastbins=fastbins,
            top_word=top_word,
        )
    except MemoryUnreadable as error:
        raise HeapCorrupt(f"arena {number} at 0x{address:x} can't be read") from error


def _main_regions(
    memory: Memory, arena: ArenaState, parameters: Optional[Parameters], mappings: Sequence[Mapping]
) -> list[HeapRegion]:
    heap = next((m for m in mappings if m.name == "[heap]"), None)
    start = parameters.sbrk_base if parameters is not None else heap.start if heap is not None else 0
    home = area_of(mappings, arena.top)
    end = _end_of_main(arena, start, home)
    arena.top_bytes = end - arena.top
    start = (start + 15) & ~15
    if start and start <= arena.top and home is not None and home == area_of(mappings, start):
        return [HeapRegion(start, arena.top, end, start)]
    regions = [
        HeapRegion(low, high, high, low) for low, high in find_pieces(memory, mappings, arena.top, end)
    ]
    if not regions or regions[-1].end != end:
        regions.append(HeapRegion(arena.top, arena.top, end, arena.top))
    else:
        regions[-1] = regions[-1]._replace(limit=arena.top)
    if heap is not None and heap.start <= start < heap.end:
        regions.insert(0, HeapRegion(start, heap.end, heap.end, start))
    return regions


def _end_of_main(arena: ArenaState, start: int, home: Optional[tuple[int, int]]) -> int:
    """Return the end of the top chunk, from its header or, if malloc has moved the top only, from what it got.

    *start* is where the heap begins, *home* the writable memory of the top chunk.
    """
    end, area_end = arena.top + arena.top_bytes, home[1] if home is not None else 0
    if arena.top_bytes > _LEAST_TOP and (end == area_end or (end < area_end and end % _PAGE == 0)):
        return end
    got = start + arena.system_bytes
    return got if arena.top < got <= area_end else max(area_end, arena.top + _LEAST_TOP)


def _heap_size(parameters: Optional[Parameters]) -> int:
    # With huge pages (the tunable glibc.malloc.hugetlb) heaps are aligned to four of them.
    return 4 * parameters.huge_page if parameters is not None and parameters.huge_page else HEAP_MAX


def _heap_regions(memory: Memory, found: Found, arena: ArenaState, heap_size: int) -> list[HeapRegion]:
    info_size = arena.address & (heap_size - 1)
    home = arena.address - info_size
    regions: list[HeapRegion] = []
    heap = arena.top & -heap_size
    while heap:
        try:
            owner, previous, size = words_at(memory, heap, 3)
        except MemoryUnreadable:
            owner = previous = size = 0
        if owner != arena.address or not 0 < size <= heap_size or len(regions) > 1 << 20:
            raise HeapCorrupt(f"the heap at 0x{heap:x} of arena {arena.number} is not what malloc left there")
        first = arena.address + found.layout.state.size if heap == home else heap + info_size
        limit = arena.top if not regions else heap + size
        regions.append(HeapRegion((first + 15) & ~15, limit, heap + size, heap))
        heap = previous
    return regions[::-1]


def resume(memory: Memory, start: int, limit: int, end: int) -> Optional[int]:
    """Return where chunks begin again after a fencepost; None if there are none.

    The program itself called sbrk: that memory is between two pieces of the main arena.
    """
    address = (start + 15) & ~15
    step = 1 << 20
    while address < limit:
        base = address
        size = min(step, end - base) & -16
        try:
            heads = memoryview(memory.read(base, size)).cast("Q")[1::2].tolist()
        except MemoryUnreadable:
            address = (base | 0xFFF) + 1
            continue
        for number, word in enumerate(heads):
            chunk = base + 16 * number
            if (
                word & 0xF == PREV_INUSE
                and MIN_CHUNK <= word - 1 <= limit - chunk
                and _chains(memory, chunk, limit)
            ):
                return chunk
        address = base + size
    return None


def _chains(memory: Memory, address: int, limit: int) -> bool:
    for _ in range(_HOPS):
        if address == limit:
            return True
        try:
            word = word_at(memory, address + 8)
        except MemoryUnreadable:
            return False
        size = word & ~7
        if size == 16:
            return True  # the next fencepost
        if size < MIN_CHUNK or word & 14 or address + size > limit:
            return False
        address += size
    return True
