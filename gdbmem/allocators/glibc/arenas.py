"""The arenas of a process and the regions of memory that contain their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from gdbmem.allocators.glibc.layout import MIN_CHUNK, PREV_INUSE
from gdbmem.allocators.glibc.locate import HEAP_MAX, Found, Parameters
from gdbmem.allocators.glibc.mmapped import area_of, find_pieces
from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at, words_at

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


@dataclass
class ArenaState:
    """One arena according to its malloc_state."""

    number: int  # 0 is the main arena
    address: int
    top: int
    top_bytes: int  # 0: the arena is unused
    system_bytes: int
    locked: bool
    fastbins: Sequence[int]
    regions: list[HeapRegion] = field(default_factory=list)
    top_word: int = 0  # its size word
    unfound_bytes: int = 0  # in pieces that malloc counts and that were not found

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
