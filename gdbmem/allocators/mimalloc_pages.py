"""mimalloc's pages of blocks of one size, and lists of blocks that other threads freed; the page map of release 3.

A *page* is mimalloc's: one or more slices of 64 KiB. Blocks freed by another thread than the owner are in use until
the owner collects them from the page's list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import (
    DataWords,
    TouchedMemory,
    are_in,
    are_within,
    data_words,
    entries_of,
    pointers,
)
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.allocators.live_blocks import Blocks, Slabs, blocks_of, lists_in_slabs
from gdbmem.allocators.malloc_heap import (
    CHANGING,
    FREE,
    LARGE,
    METADATA,
    RETURNED,
    SLAB,
    MallocHeap,
    SearchedMemory,
    Spans,
)
from gdbmem.arrays import distinct, import_numpy
from gdbmem.linux.elf.objects import Image
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


def field(table: Any, offset: int, size: int) -> Any:
    """Return the unsigned field of *size* bytes at *offset* of all records in *table*, a last axis of bytes."""
    np = import_numpy()
    pieces = np.ascontiguousarray(table[..., offset : offset + size])
    return pieces.view(f"<u{size}")[..., 0].astype(np.int64)


def tolerated(pages: int) -> int:
    """Return how many of so many pages may be between two states: each thread changes its own."""
    return max(2, pages // 50)


class FreedByOthers(NamedTuple):
    """Blocks on the lists that wait for their page's owner."""

    counts: Mapping[int, int]  # by size
    blocks: Sequence[int]
    is_complete: bool  # False: a list leads elsewhere. It was read during a change, or is encoded
    lists: int


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
    return FreedByOthers(+found, blocks, is_complete, len(filled) + len(heads))


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


def heap_of_pages(
    image: Image, layout: str, spans: Spans, memory: Memory, pages: Pages, freed: FreedByOthers
) -> MallocHeap:
    """Return the heap of the mimalloc that is linked into *image*."""
    return MallocHeap(
        allocator="mimalloc",
        layout=layout,
        file=image.name,
        spans=spans,
        cached=freed.counts,
        caches=freed.lists,
        is_complete=freed.is_complete,
        unread_caches="a list of blocks that other threads freed leads elsewhere, or is encoded",
        odd_descriptors=int(pages.are_odd.sum()),
        read_blocks=partial(blocks_of_pages, memory, pages, freed),
    )


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


# The heap of mimalloc 3: a page map in two levels leads from each slice to the descriptor of its page.
#
# The data of the object has a pointer to the map, which has a pointer to a part for each 512 MiB of address space. A
# descriptor proves its layout: *in use ≤ capacity ≤ reserved*, the blocks begin in a slice that leads to it, and they
# end in the page. Entries of former pages may be left: those whose descriptor isn't where the map leads to, if
# descriptors are in their pages, are not judged. Arenas are found by what they begin with: address space that they
# name, of so many slices.
#
# Source: mimalloc 3.0.1 to 3.4, include/mimalloc/types.h, src/page-map.c.


_SLICE_BITS, _PART_BITS = 16, 13
_ROOT_WORDS = 16  # most words before the parts: counters and a lock
_FEWEST_TRIED, _MOST_TRIED = 4, 10000  # parts that maps are looked for by; the same times possible maps
_LINE = 64  # bytes that are in one page
_OS_PAGE = 4096
_DESCRIPTOR = 80  # bytes of one that are read
_ARENA_WORDS = 10
_MOST_SLICES = 1 << 24  # of an arena


class _Fields(NamedTuple):
    """Offsets in a descriptor."""

    in_use: int  # of 2 bytes, as the next two
    capacity: int
    reserved: int
    size: int
    freed: int
    blocks: int  # where they begin:
    unit: int  # 0: an address; else bytes that the distance from the descriptor is counted in
    blocks_bytes: int


_FIELDS = (
    _Fields(16, 18, 20, 40, 32, 48, 0, 8),  # 3.0
    _Fields(16, 18, 20, 40, 32, 48, 8, 4),  # 3.1 and later
    _Fields(16, 48, 50, 32, 56, 40, 1, 8),
    _Fields(24, 56, 58, 40, 64, 48, 1, 8),
    _Fields(40, 56, 58, 32, 64, 48, 1, 8),  # 3.6
)


class _Runs(NamedTuple):
    """Slices in a row that lead to the same descriptor, in order of address, as columns."""

    starts: Any
    ends: Any
    descriptors: Any


def read_page_map(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the mimalloc 3 that is linked into *image*; None if none is proved."""
    words = data_words(view, image.writable)
    memory = TouchedMemory(view)
    for parts in _maps(words, view, memory):
        runs = _runs(view, parts)
        rows, readable = gather(memory, runs.descriptors, _DESCRIPTOR)
        for fields in _FIELDS:
            pages = _pages(runs, rows, readable, fields)
            if pages is not None:
                return _heap(view, image, memory, words, parts, pages, fields)
    return None


def _heap(
    view: SearchedMemory,
    image: Image,
    memory: TouchedMemory,
    words: DataWords,
    parts: Sequence[tuple[int, int]],
    pages: Pages,
    fields: _Fields,
) -> MallocHeap:
    freed = freed_by_others(memory, pages)
    arenas = _arenas(words, view, memory)
    part_bytes = 8 << _PART_BITS
    metadata = [
        *((part, part + part_bytes) for _, part in parts),
        *((start, info) for start, info, _ in arenas),
    ]
    spans = spans_of(view, pages, metadata, [(start, end) for start, _, end in arenas])
    return heap_of_pages(image, f"3, page map, sizes at {fields.size}", spans, memory, pages, freed)


def _maps(
    words: DataWords, view: SearchedMemory, memory: TouchedMemory
) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the parts (number, address) of what may be the page map, most parts first."""
    np = import_numpy()
    candidates = distinct(pointers(words, view.anonymous).values)
    candidates = candidates[candidates % _OS_PAGE == 0]
    shift = _SLICE_BITS + _PART_BITS
    touched: Counter[int] = Counter()
    for start, end in (piece for area in view.anonymous.items for piece in view.touched.overlaps(*area)):
        for number in range(start >> shift, -(-end >> shift)):
            touched[number] += min(end, number + 1 << shift) - max(start, number << shift)
    if not len(candidates):
        return iter(())
    # Few candidates have a pointer where a map has one for much used memory; only these are looked at further.
    found: dict[tuple[int, int], dict[int, int]] = {}
    tried = max(_FEWEST_TRIED, _MOST_TRIED // len(candidates))
    for place, (number, _) in enumerate(touched.most_common()):
        if place == tried:
            candidates = distinct(np.array([root for root, _ in found], np.int64))
        for key, part in _parts(view, memory, candidates, number):
            if place < tried or key in found:
                found.setdefault(key, {})[number] = part
    return iter(sorted((sorted(parts.items()) for parts in found.values()), key=len, reverse=True))


def _parts(
    view: SearchedMemory, memory: TouchedMemory, roots: Any, number: int
) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield what may be part *number* of maps: ((root, words before its first part), address)."""
    np = import_numpy()
    for line in range(8 * number & -_LINE, 8 * (number + _ROOT_WORDS), _LINE):
        read = roots[are_in(view.touched, roots + line)]
        rows, _ = gather(memory, read + line, _LINE)
        values = rows.view(np.int64).reshape(-1, _LINE // 8)
        good = (values % _OS_PAGE == 0) & are_in(view.anonymous, values)
        for row, column in np.argwhere(good).tolist():
            before = line // 8 + column - number
            if 0 <= before < _ROOT_WORDS:
                yield (int(read[row]), before), int(values[row, column])


def _runs(view: SearchedMemory, parts: Sequence[tuple[int, int]]) -> _Runs:
    np = import_numpy()
    slice_, entry = entries_of(view, parts, _PART_BITS)
    if not len(slice_):
        return _Runs(slice_, slice_, entry)
    first = np.flatnonzero(np.concatenate(([True], (np.diff(slice_) != 1) | (np.diff(entry) != 0))))
    last = np.concatenate((first[1:], [len(slice_)])) - 1
    return _Runs(slice_[first] << _SLICE_BITS, slice_[last] + 1 << _SLICE_BITS, entry[first])


def _pages(runs: _Runs, rows: Any, readable: Any, fields: _Fields) -> Optional[Pages]:
    """Return the pages that *runs* lead to; None unless their descriptors, *rows*, prove the layout *fields*."""
    np = import_numpy()
    sizes, in_use, capacity, reserved = (
        field(rows, fields.size, 8),
        *(field(rows, at, 2) for at in (fields.in_use, fields.capacity, fields.reserved)),
    )
    blocks = field(rows, fields.blocks, fields.blocks_bytes)
    if fields.unit:
        blocks = runs.descriptors + blocks * fields.unit
    is_inside = (runs.starts <= blocks) & (blocks < runs.ends)
    # Of a former page whose descriptor was at its beginning, slices may still lead there.
    is_former = (runs.descriptors % SLICE == 0) & (runs.descriptors != runs.starts) & ~is_inside
    is_page = readable & (sizes > 0) & ~is_former
    fits = fit(in_use, capacity, reserved, sizes) & (sizes < 1 << 47)
    room = blocks + np.where(fits, sizes * reserved, 0)
    # The last slice of a large page need not lead to it, nor any but the first ones of a single block.
    fits &= is_inside & ((reserved == 1) | (room <= runs.ends + SLICE))
    # Where there is room for a further block, slices lead to it since they were a former page's.
    needed = room + SLICE - 1 & -SLICE
    ends = np.where(
        fits & (runs.ends - room >= sizes), needed, np.maximum(runs.ends, np.where(fits, needed, 0))
    )
    kept = np.flatnonzero(is_page)
    if not len(kept):
        return None
    # Of two pages that overlap, one without blocks is a former one.
    overlap = room[kept][:-1] > runs.starts[kept][1:]
    is_empty = in_use[kept] == 0
    former = np.append(False, overlap & is_empty[1:]) | np.append(
        overlap & ~is_empty[1:] & is_empty[:-1], False
    )
    kept = kept[~former]
    starts, ends, room, fits = runs.starts[kept], ends[kept], room[kept], fits[kept]
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    fits &= room <= ends
    if not fits.any() or int((~fits).sum()) > tolerated(len(kept)):
        return None
    freed = np.where(fits, field(rows, fields.freed, 8)[kept] & -2, 0)
    sizes, in_use, reserved, capacity = (
        np.where(fits, column[kept], 0) for column in (sizes, in_use, reserved, capacity)
    )
    words = np.ascontiguousarray(rows[kept]).view(np.int64)
    return Pages(starts, ends, sizes, in_use, reserved, freed, ~fits, capacity, blocks[kept], words)


def _arenas(words: DataWords, view: SearchedMemory, memory: TouchedMemory) -> list[tuple[int, int, int]]:
    """Return start, end of the description, and end of the arenas that the object's data leads to."""
    starts = distinct(pointers(words, view.touched).values)
    starts = starts[starts % SLICE == 0]
    columns, readable = gather_words(memory, starts, range(_ARENA_WORDS))
    found = []
    for place, base, size, *fields in zip(*(column[readable].tolist() for column in (starts, *columns))):
        for before, slices, info in zip(fields, fields[1:], fields[2:]):
            # An arena begins with its description, or the description names its start.
            start = before if base <= before <= place and not before % SLICE else place
            end = start + slices * SLICE
            is_possible = 0 < info < slices < _MOST_SLICES and base <= start and end <= base + size
            if is_possible and view.anonymous.within(start, end) == end - start:
                found.append((start, max(start, place) + info * SLICE, end))
                break
    return found
