"""Chunks that malloc mapped individually. They are in no list, so they are recognised by their header."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.allocators.glibc.layout import CHUNK_HEADER, IS_MMAPPED, MIN_CHUNK, NON_MAIN_ARENA, PREV_INUSE
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, word_at, words_at

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


_PAGE = 4096


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
