"""The parts that mimalloc's releases share: pages of blocks of one size, and lists of blocks that other threads freed.

A *page* is mimalloc's: one or more slices of 64 KiB. Blocks freed by another thread than the owner are in use until
the owner collects them from the page's list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import are_within
from gdbmem.allocators.live_blocks import Blocks, Slabs, blocks_of, lists_in_slabs
from gdbmem.allocators.malloc_heap import (
    CHANGING,
    FREE,
    LARGE,
    METADATA,
    RETURNED,
    SLAB,
    SearchedMemory,
    Spans,
)
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
    capacity: Any  # blocks that have been in use or on a list
    firsts: Any  # the first block; 0: unknown
    words: Any  # of a descriptor, a row each: some lead to a page's free blocks


def fit(in_use: Any, capacity: Any, reserved: Any, sizes: Any) -> Any:
    """Return which pages have possible numbers of blocks of a possible size."""
    return (in_use <= capacity) & (capacity <= reserved) & (sizes >= 8) & (sizes & 7 == 0)


def tolerated(pages: int) -> int:
    """Return how many of so many pages may be between two states: each thread changes its own."""
    return max(2, pages // 50)


class FreedByOthers(NamedTuple):
    """Blocks on the lists that wait for their page's owner."""

    counts: Mapping[int, int]  # by size
    blocks: Sequence[int]
    is_complete: bool  # False: a list leads elsewhere. It was read during a change, or is encoded


def freed_by_others(memory: Memory, pages: Pages, heads: Sequence[int] = ()) -> FreedByOthers:
    """Return the blocks on the lists of *pages*, and on those that begin at *heads* and go through several pages."""
    np = import_numpy()
    found: Counter[int] = Counter()
    blocks: list[int] = []
    windowed = WindowedMemory(memory)
    is_complete = True
    filled = np.flatnonzero(pages.freed)
    columns = (pages.starts, pages.ends, pages.sizes, pages.in_use, pages.freed)
    for start, end, size, most, head in zip(*(column[filled].tolist() for column in columns)):
        listed = _list_in_page(windowed, head, start, end, min(most, _MOST_FOLLOWED - len(blocks)))
        is_complete &= listed is not None
        found[size] += len(listed or ())
        blocks += listed or ()
    for head in heads:
        listed = _list_through(windowed, head, pages, _MOST_FOLLOWED - len(blocks))
        is_complete &= listed is not None
        if listed:
            found.update(pages.sizes[np.searchsorted(pages.starts, listed, "right") - 1].tolist())
        blocks += listed or ()
    return FreedByOthers(+found, blocks, is_complete)


def _list_in_page(windowed: WindowedMemory, at: int, start: int, end: int, most: int) -> Optional[list[int]]:
    """Return the list that begins at *at* and stays in one page; None: it doesn't, or is longer than *most*."""
    blocks: list[int] = []
    try:
        while at:
            if not start <= at < end or at & 7 or len(blocks) == most:
                return None
            blocks.append(at)
            at = windowed.word(at)
    except MemoryUnreadable:
        return None
    return blocks


def _list_through(windowed: WindowedMemory, at: int, pages: Pages, most: int) -> Optional[list[int]]:
    """Return the list that begins at *at*, through several pages; None: it leads elsewhere."""
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
    return blocks


def blocks_of_pages(memory: Memory, pages: Pages, freed: FreedByOthers) -> Blocks:
    """Return the blocks in use: those on no list of free blocks.

    Which words of a descriptor lead to such lists depends on the release: those that lead into their own page in all
    descriptors, but for the list of other threads and the first block. The lengths prove it.
    """
    np = import_numpy()
    used = np.flatnonzero((pages.sizes > 0) & ~pages.are_odd & (pages.in_use > 0))
    starts, ends, sizes, counts = (
        column[used] for column in (pages.starts, pages.ends, pages.sizes, pages.capacity)
    )
    free, lengths = [np.zeros(0, np.int64)], np.zeros(len(used), np.int64)
    for heads in pages.words[used].T:
        is_inside = (heads >= starts) & (heads < ends) & (heads & 7 == 0)
        is_list = ((heads == 0) | is_inside).all() and is_inside.any()
        if not is_list or (heads == pages.firsts[used]).all() or (heads == pages.freed[used]).all():
            continue
        blocks, length = lists_in_slabs(memory, starts, ends, heads, counts)
        free.append(blocks)
        lengths = np.where((lengths < 0) | (length < 0), -1, lengths + length)
    blocks = np.concatenate(free)
    firsts = np.where(pages.firsts[used] > 0, pages.firsts[used], starts + _offsets(starts, sizes, blocks))
    of_block = np.searchsorted(starts, blocks, "right") - 1
    number, apart = np.divmod(blocks - firsts[of_block], sizes[of_block])
    is_possible = (apart == 0) & (number >= 0) & (number < counts[of_block])
    known = lengths == counts - pages.in_use[used]
    known[of_block[~is_possible]] = False
    waiting = np.array(freed.blocks, np.int64)
    place = np.searchsorted(starts, waiting, "right") - 1
    unlisted = int(pages.in_use[used][~known].sum()) - int((~known)[place].sum())
    slabs = Slabs(firsts[known], sizes[known], counts[known])
    return blocks_of(slabs, np.concatenate((blocks, waiting)), (waiting[:0], waiting[:0]), unlisted)


def _offsets(starts: Any, sizes: Any, free: Any) -> Any:
    """Return how far from its start each page's first block is, by the release whose rule fits the *free* blocks."""
    np = import_numpy()
    of_block = np.searchsorted(starts, free, "right") - 1
    rules = (
        np.where(sizes <= 1024, 384, 0),  # 2.0.9
        np.where(sizes <= 1024, 128, 0),
        np.where(sizes <= 64, 3 * sizes, np.where(sizes <= 512, sizes, 0)),  # 2.1
    )
    within, size = free - starts[of_block], sizes[of_block]
    fitting = [
        int(((within >= rule[of_block]) & ((within - rule[of_block]) % size == 0)).sum()) for rule in rules
    ]
    return rules[fitting.index(max(fitting))]


def spans_of(
    view: SearchedMemory, pages: Pages, metadata: Sequence[tuple[int, int]], free: Sequence[tuple[int, int]]
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
    sizes, in_use = (np.where(has_blocks, column, 0) for column in (pages.sizes, pages.in_use))
    spans = Spans.of((pages.starts, pages.ends, kinds, sizes, in_use), beside)
    spans.kinds[(spans.kinds == FREE) & ~are_within(view.anonymous, spans.starts, spans.ends)] = RETURNED
    return spans
