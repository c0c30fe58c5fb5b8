"""The heap of mimalloc 3: a page map in two levels leads from each slice of 64 KiB to the descriptor of its page.

The data of the object has a pointer to the map, which has a pointer to a part for each 512 MiB of address space. A
descriptor proves its layout: *in use ≤ capacity ≤ reserved*, the blocks begin in a slice that leads to it, and they end
in the page. Entries of former pages may be left: those whose descriptor isn't where the map leads to, if descriptors
are in their pages, are not judged.

Arenas are found by what they begin with: address space that they name, of so many slices.

Source: mimalloc 3.0.1 to 3.4, include/mimalloc/types.h, src/page-map.c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import (
    DataWords,
    TouchedMemory,
    are_in,
    data_words,
    pointers,
    touched_pieces,
)
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.allocators.malloc_heap import MallocHeap, SearchedMemory
from gdbmem.allocators.mimalloc_pages import (
    SLICE,
    Pages,
    blocks_of_pages,
    fit,
    freed_by_others,
    spans_of,
    tolerated,
)
from gdbmem.arrays import distinct, import_numpy
from gdbmem.linux.elf.objects import Image

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
        runs = _current(_runs(view, parts))
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
    np = import_numpy()
    freed = freed_by_others(memory, pages)
    arenas = _arenas(words, view, memory)
    part_bytes = 8 << _PART_BITS
    metadata = [
        *((part, part + part_bytes) for _, part in parts),
        *((start, info) for start, info, _ in arenas),
    ]
    return MallocHeap(
        allocator="mimalloc",
        layout=f"3, page map, sizes at {fields.size}",
        file=image.name,
        spans=spans_of(view, pages, metadata, [(start, end) for start, _, end in arenas]),
        cached=freed.counts,
        caches=int(np.count_nonzero(pages.freed)),
        is_complete=freed.is_complete,
        unread_caches="a list of blocks that other threads freed leads elsewhere, or is encoded",
        odd_descriptors=int(pages.are_odd.sum()),
        read_blocks=partial(blocks_of_pages, memory, pages, freed),
    )


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
    slices, entries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, part in parts:
        for start, words in touched_pieces(view, [(part, part + (8 << _PART_BITS))]):
            filled = np.flatnonzero(words)
            slices.append((number << _PART_BITS) + (start - part) // 8 + filled)
            entries.append(words[filled])
    slice_, entry = np.concatenate(slices), np.concatenate(entries)
    if not len(slice_):
        return _Runs(slice_, slice_, entry)
    first = np.flatnonzero(np.concatenate(([True], (np.diff(slice_) != 1) | (np.diff(entry) != 0))))
    last = np.concatenate((first[1:], [len(slice_)])) - 1
    return _Runs(slice_[first] << _SLICE_BITS, slice_[last] + 1 << _SLICE_BITS, entry[first])


def _current(runs: _Runs) -> _Runs:
    """Return *runs* without those of former pages whose descriptor was at their beginning."""
    kept = (runs.descriptors % SLICE != 0) | (runs.descriptors == runs.starts)
    return _Runs(runs.starts[kept], runs.ends[kept], runs.descriptors[kept])


def _pages(runs: _Runs, rows: Any, readable: Any, fields: _Fields) -> Optional[Pages]:
    """Return the pages that *runs* lead to; None unless their descriptors, *rows*, prove the layout *fields*."""
    np = import_numpy()
    sizes, in_use, capacity, reserved = (
        _field(rows, fields.size, 8),
        *(_field(rows, at, 2) for at in (fields.in_use, fields.capacity, fields.reserved)),
    )
    blocks = _field(rows, fields.blocks, fields.blocks_bytes)
    if fields.unit:
        blocks = runs.descriptors + blocks * fields.unit
    is_page = readable & (sizes > 0)
    fits = fit(in_use, capacity, reserved, sizes) & (sizes < 1 << 47)
    room = blocks + np.where(fits, sizes * reserved, 0)
    # The last slice of a large page need not lead to it, nor any but the first ones of a single block.
    fits &= (runs.starts <= blocks) & (blocks < runs.ends) & ((reserved == 1) | (room <= runs.ends + SLICE))
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
    freed = np.where(fits, _field(rows, fields.freed, 8)[kept] & -2, 0)
    sizes, in_use, reserved, capacity = (
        np.where(fits, column[kept], 0) for column in (sizes, in_use, reserved, capacity)
    )
    words = np.ascontiguousarray(rows[kept]).view(np.int64)
    return Pages(starts, ends, sizes, in_use, reserved, freed, ~fits, capacity, blocks[kept], words)


def _field(rows: Any, offset: int, size: int) -> Any:
    """Return the unsigned field of *size* bytes at *offset* of all *rows* of bytes."""
    np = import_numpy()
    return np.ascontiguousarray(rows[:, offset : offset + size]).view(f"<u{size}")[:, 0].astype(np.int64)


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
