"""Non-contiguous pieces of a main arena: malloc uses mmap when the break can't grow.

Something else is mapped after the break, or a tunable (glibc.malloc.hugetlb=2) keeps malloc from using sbrk. There is
no list of the pieces. Each begins at a page, and its chunks lead to the top chunk or to the fencepost at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from gdbmem.allocators.glibc.places.layout import IS_MMAPPED, MIN_CHUNK, NON_MAIN_ARENA, PREV_INUSE
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory

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
