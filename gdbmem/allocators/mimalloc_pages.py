"""The parts that mimalloc's releases share: pages of blocks of one size, and lists of blocks that other threads freed.

A *page* is mimalloc's: one or more slices of 64 KiB. Blocks freed by another thread than the owner are in use until
the owner collects them from the page's list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import are_within
from gdbmem.allocators.malloc_heap import CHANGING, FREE, LARGE, METADATA, RETURNED, SLAB, HeapView, Spans
from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory

SLICE = 1 << 16
_MOST_FOLLOWED = 1 << 21  # blocks of all lists together


class Pages(NamedTuple):
    """Pages in order of address, as columns. Those without a block size are free."""

    starts: Any
    ends: Any
    sizes: Any  # of a block
    in_use: Any  # blocks, with those that other threads freed
    reserved: Any  # blocks that there is room for
    freed: Any  # the first block that another thread freed; 0: none
    are_odd: Any


def fit(in_use: Any, capacity: Any, reserved: Any, sizes: Any) -> Any:
    """Return which pages have possible numbers of blocks of a possible size."""
    return (in_use <= capacity) & (capacity <= reserved) & (sizes >= 8) & (sizes & 7 == 0)


def tolerated(pages: int) -> int:
    """Return how many of so many pages may be between two states: each thread changes its own."""
    return max(2, pages // 50)


def freed_by_others(
    memory: Memory, pages: Pages, heads: Sequence[int] = ()
) -> tuple[Mapping[int, int], bool]:
    """Return by size the blocks on the lists of *pages* and on those that begin at *heads*; and whether all were read.

    A list longer than its page has blocks in use, or that leads elsewhere, was read during a change, or is encoded.
    """
    np = import_numpy()
    found: Counter[int] = Counter()
    windowed = WindowedMemory(memory)
    left, is_complete = _MOST_FOLLOWED, True
    filled = np.flatnonzero(pages.freed)
    columns = (pages.starts, pages.ends, pages.sizes, pages.in_use, pages.freed)
    for start, end, size, most, head in zip(*(column[filled].tolist() for column in columns)):
        length = _length(windowed, head, start, end, min(most, left))
        is_complete &= length is not None
        left -= length or 0
        found[size] += length or 0
    for head in heads:
        sizes = _sizes_along(windowed, head, pages, left)
        is_complete &= sizes is not None
        left -= sum((sizes or {}).values())
        found.update(sizes or {})
    return +found, is_complete


def _length(windowed: WindowedMemory, at: int, start: int, end: int, most: int) -> Optional[int]:
    """Return the length of the list that begins at *at* and stays in one page; None: it doesn't."""
    length = 0
    try:
        while at:
            if not start <= at < end or at & 7 or length == most:
                return None
            length += 1
            at = windowed.word(at)
    except MemoryUnreadable:
        return None
    return length


def _sizes_along(windowed: WindowedMemory, at: int, pages: Pages, most: int) -> Optional[Mapping[int, int]]:
    """Return by size the blocks of a list through several pages; None: it leads elsewhere."""
    np = import_numpy()
    blocks: list[int] = []
    try:
        while at:
            if at & 7 or len(blocks) == most:
                return None
            blocks.append(at)
            at = windowed.word(at)
    except MemoryUnreadable:
        return None
    places = np.searchsorted(pages.starts, np.array(blocks, np.int64), "right") - 1
    if len(places) and ((places < 0) | (blocks >= pages.ends[places]) | (pages.sizes[places] == 0)).any():
        return None
    return Counter(pages.sizes[places].tolist())


def spans_of(
    view: HeapView, pages: Pages, metadata: Sequence[tuple[int, int]], free: Sequence[tuple[int, int]]
) -> Spans:
    """Return *pages*, and what of *metadata* and *free* is in none of them.

    Free pages that can't be written have been returned.
    """
    np = import_numpy()
    is_page = (pages.sizes > 0) & ~pages.are_odd
    is_single = is_page & (pages.reserved == 1)
    kinds = np.where(is_page & ~is_single, SLAB, np.where(is_single & (pages.in_use > 0), LARGE, FREE))
    kinds[pages.are_odd] = CHANGING
    has_blocks = (kinds == SLAB) | (kinds == LARGE)
    gaps = pages.starts[1:] != pages.ends[:-1]
    firsts, lasts = np.concatenate(([True], gaps)), np.concatenate((gaps, [True]))
    covered = Ranges(zip(pages.starts[firsts].tolist(), pages.ends[lasts].tolist()))
    of_metadata = Ranges(piece for start, end in Ranges(metadata).items for piece in covered.gaps(start, end))
    covered = Ranges([*covered.items, *of_metadata.items])
    of_free = [piece for start, end in Ranges(free).items for piece in covered.gaps(start, end)]
    beside = [(*piece, METADATA) for piece in of_metadata.items] + [(*piece, FREE) for piece in of_free]
    rows = np.array(beside, np.int64).reshape(-1, 3)
    zeros = np.zeros(len(rows), np.int64)
    starts, ends = np.concatenate((pages.starts, rows[:, 0])), np.concatenate((pages.ends, rows[:, 1]))
    kinds = np.concatenate((kinds, rows[:, 2])).astype(np.uint8)
    kinds[(kinds == FREE) & ~are_within(view.anonymous, starts, ends)] = RETURNED
    columns = (
        starts,
        ends,
        kinds,
        np.concatenate((np.where(has_blocks, pages.sizes, 0), zeros)),
        np.concatenate((np.where(has_blocks, pages.in_use, 0), zeros)),
    )
    order = np.argsort(columns[0])
    return Spans(*(column[order] for column in columns))
