"""The heap of mimalloc, read without symbols: of 3.x by its page map, of 2.x, also CPython's own, by its segments.

Segments have 32 MiB, are aligned, and describe themselves.

A segment begins with an array of entries, one for each slice. The entry of a page's first slice has its number of
slices, that of the first one describes the array itself; followed from there, the numbers add up to the segment. This,
the order *in use ≤ capacity ≤ reserved*, and the room that the blocks take prove an entry's layout.

Nothing in the data of the object leads to segments: they belong to the object that the owners of their pages, heaps,
are in or refer to.

Source: mimalloc 2.0.9 to 2.2, include/mimalloc/types.h, src/segment.c; CPython 3.13, Include/internal/mimalloc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import TouchedMemory, are_in, data_words, pointers, touched_pieces
from gdbmem.allocators.gather import gather_words
from gdbmem.allocators.malloc_heap import MallocHeap, SearchedMemory
from gdbmem.allocators.mimalloc_pages import (
    SLICE,
    Pages,
    field,
    fit,
    freed_by_others,
    heap_of_pages,
    read_page_map,
    spans_of,
    tolerated,
)
from gdbmem.arrays import distinct, import_numpy
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges

_SEGMENT = 1 << 25
_SLICES = _SEGMENT // SLICE
_COUNT, _OFFSET, _CAPACITY, _RESERVED = 0, 4, 10, 12  # in all layouts: two of 4 bytes, two of 2 bytes
_STRIDES = range(80, 136, 8)  # bytes of an entry
_ARRAYS = range(64, 1024, 8)  # offsets of the array in a segment
_MOST_OF_HEADER = 8  # slices
_TRIED = 8  # segments that a layout is looked for in
_BATCH = 256  # segments read at once
_BEGUN = 2  # entries that fit, from which on memory is a segment
_HUGE = 1 << 31  # in place of a size that is too large for its field
_OS_PAGE = 4096
_ARENA_WORDS = 12  # of an arena's description: up to its number of words
_MOST_BLOCKS = 1 << 20
_HEAP_WORDS = 480  # of a heap: up to its owner's number


class _Fields(NamedTuple):
    """Offsets in an entry, and bytes of two of its fields."""

    in_use: int
    in_use_bytes: int
    size: int
    size_bytes: int
    freed: int
    heap: int
    first: int  # the address of the first block; 0: it isn't there


_FIELDS = (_Fields(24, 4, 28, 4, 40, 48, 0), _Fields(32, 2, 40, 8, 56, 64, 48))  # up to 2.1.2, and later


class _Layout(NamedTuple):
    array: int
    stride: int
    fields: _Fields


class _Found(NamedTuple):
    """Pages, and for each the heap that owns it and the number of its segment's thread; segments' headers."""

    pages: Pages
    heaps: Any
    threads: Any
    segments: Any
    headers: Sequence[tuple[int, int]]
    broken: int = 0  # segments that are left out because their entries don't add up


def read_heap(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the mimalloc that is linked into *image*; None if none is proved."""
    return read_page_map(view, image) or _read_segments(view, image)


def _read_segments(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the mimalloc 2 that is linked into *image*; None if none is proved."""
    np = import_numpy()
    segments = np.array(list(_segments(view)), np.int64)
    known = view.layouts if view.layouts is not None else {}
    if __name__ not in known:
        known[__name__] = list(_layouts(view, segments[:_TRIED].tolist()))
    for layout in known[__name__]:
        found = _read(view, segments, layout)
        if found is None:
            continue
        memory = TouchedMemory(view)
        found, delayed = _of_image(view, memory, image, found)
        if found is None or not len(found.pages.starts):
            return None
        freed = freed_by_others(memory, found.pages, delayed)
        arenas = list(_arenas(view, memory, image, found.segments))
        spans = spans_of(view, found.pages, found.headers, arenas)
        layout_name = f"2, segments of 32 MiB, entries of {layout.stride} bytes"
        heap = heap_of_pages(image, layout_name, spans, memory, found.pages, freed)
        return heap._replace(odd_descriptors=heap.odd_descriptors + found.broken)
    return None


def _segments(view: SearchedMemory) -> Iterator[int]:
    """Yield where a segment may be."""
    for area in view.anonymous.items:
        for start, end in view.touched.overlaps(*area):  # of which there is little even in terabytes
            yield from range(start + _SEGMENT - 1 & -_SEGMENT, end, _SEGMENT)


def _layouts(view: SearchedMemory, segments: Sequence[int]) -> Iterator[_Layout]:
    """Yield the layouts that some of *segments* may have."""
    np = import_numpy()
    seen = set()
    for segment in segments:
        data = _read_header(view, segment, _ARRAYS[-1] + _STRIDES[-1] * _SLICES)
        counts, offsets = np.frombuffer(data, np.uint32).reshape(-1, 2)[: _ARRAYS[-1] // 8 + 1].T
        begins = np.flatnonzero((counts > 0) & (counts <= _MOST_OF_HEADER) & (offsets == 0))
        for array in (8 * begins[begins >= _ARRAYS[0] // 8]).tolist():
            for layout in (_Layout(array, stride, fields) for fields in _FIELDS for stride in _STRIDES):
                if layout not in seen and _may_be(data, layout):
                    seen.add(layout)
                    yield layout


def _read_header(view: SearchedMemory, segment: int, size: int) -> bytes:
    """Return the first *size* bytes of *segment*; what was never touched, or can't be read, is zeros."""
    np = import_numpy()
    words = np.zeros(size // 8, np.int64)
    for start, piece in touched_pieces(view, [(segment, segment + len(words) * 8)]):
        words[(start - segment) // 8 :][: len(piece)] = piece
    return bytes(words.tobytes())


def _may_be(data: bytes, layout: _Layout) -> bool:
    """Return whether *data* begins as a segment: the header's own entry, and entries that lead to the end."""
    number = pages = 0
    fields = layout.fields
    while number < _SLICES:
        at = layout.array + layout.stride * number
        count, offset = struct.unpack_from("<II", data, at)
        if offset or not count or (number == 0 and count > _MOST_OF_HEADER):
            return False
        size = int.from_bytes(data[at + fields.size :][: fields.size_bytes], "little")
        if number and size > 1:
            capacity, reserved = struct.unpack_from("<HH", data, at + _CAPACITY)
            in_use = int.from_bytes(data[at + fields.in_use :][: fields.in_use_bytes], "little")
            if not (in_use <= capacity <= reserved and size % 8 == 0):
                return False
            if size * reserved > count * SLICE and size != _HUGE:
                return False
            pages += 1
        number += count
    return pages > 0 and (number == _SLICES or pages == 1)


def _read(view: SearchedMemory, segments: Any, layout: _Layout) -> Optional[_Found]:
    """Return all pages of *segments*; None if too many of these contradict *layout*."""
    np = import_numpy()
    size = layout.array + layout.stride * _SLICES
    parts = []
    for first in range(0, len(segments), _BATCH):
        batch = segments[first : first + _BATCH]
        data = np.frombuffer(
            b"".join(_read_header(view, segment, size) for segment in batch.tolist()), np.uint8
        ).reshape(len(batch), size)
        parts.append(_of_batch(batch, data, layout))
    segment, number, count, entries, threads, broken = (np.concatenate(columns) for columns in zip(*parts))
    fields = layout.fields
    sizes = field(entries, fields.size, fields.size_bytes)
    in_use = field(entries, fields.in_use, fields.in_use_bytes)
    capacity, reserved = field(entries, _CAPACITY, 2), field(entries, _RESERVED, 2)
    starts, ends = segment + number * SLICE, segment + (number + count) * SLICE
    sizes = np.where(sizes == _HUGE, ends - starts, sizes)
    is_page = (number > 0) & (sizes > 1)
    # A page that is being set up has no blocks yet.
    fits = fit(in_use, capacity, reserved, sizes) & (sizes * reserved <= ends - starts)
    are_odd = is_page & ~fits
    if not is_page.any() or int(are_odd.sum()) > tolerated(int(is_page.sum())):
        return None
    headers = list(zip(starts[number == 0].tolist(), ends[number == 0].tolist()))
    kept = np.flatnonzero(number > 0)
    kept = kept[np.argsort(starts[kept])]
    has_blocks = is_page & ~are_odd
    pages = Pages(
        starts[kept],
        ends[kept],
        np.where(has_blocks, sizes, 0)[kept],
        np.where(has_blocks, in_use, 0)[kept],
        reserved[kept],
        np.where(has_blocks, field(entries, fields.freed, 8) & -4, 0)[kept],
        are_odd[kept],
        np.where(has_blocks, capacity, 0)[kept],
        (field(entries, fields.first, 8) if fields.first else np.zeros(len(starts), np.int64))[kept],
        np.ascontiguousarray(entries).view(np.int64)[kept],
    )
    heaps = np.where(is_page, field(entries, fields.heap, 8) & -4, 0)[kept]
    return _Found(
        pages, heaps, threads[kept], segment[kept], headers, int(np.isin(broken, threads[kept]).sum())
    )


def _of_batch(segments: Any, data: Any, layout: _Layout) -> tuple[Any, ...]:
    """Return the spans of *segments*, whose first bytes are rows of *data*, as columns.

    They are segment, first slice, slices, entry, and the number of the segment's thread. Segments that don't add up
    are left out; the last column has the threads' numbers of those that begin well.
    """
    np = import_numpy()
    table = data[:, layout.array :].reshape(len(data), _SLICES, layout.stride)
    counts, offsets = field(table, _COUNT, 4), field(table, _OFFSET, 4)
    place = np.zeros(len(data), np.int64)
    active = np.flatnonzero((counts[:, 0] > 0) & (counts[:, 0] <= _MOST_OF_HEADER))
    steps: list[tuple[Any, Any, Any]] = []
    failed = np.ones(len(data), bool)
    failed[active] = False
    broken = [active[:0]]
    while len(active):
        at = place[active]
        count = counts[active, at]
        good = (count > 0) & (offsets[active, at] == 0)
        # One block larger than a segment extends it.
        good &= (at + count <= _SLICES) | (at == counts[active, 0])
        failed[active[~good]] = True
        if len(steps) >= _BEGUN:
            broken.append(active[~good])
        active, at, count = active[good], at[good], count[good]
        steps.append((active, at, count))
        place[active] = at + count
        active = active[place[active] < _SLICES]
    row, number, count = (
        (np.concatenate(columns) for columns in zip(*steps)) if steps else np.zeros((3, 0), np.int64)
    )
    kept = ~failed[row]
    row, number, count = row[kept], number[kept], count[kept]
    threads = field(data, layout.array - 8, 8)
    broken_threads = threads[np.concatenate(broken)]
    return segments[row], number, count, table[row, number], threads[row], broken_threads[broken_threads != 0]


def _of_image(
    view: SearchedMemory, memory: TouchedMemory, image: Image, found: _Found
) -> tuple[Optional[_Found], Sequence[int]]:
    """Return what of *found* belongs to *image*, and the lists of blocks that other threads freed in its heaps."""
    np = import_numpy()
    heaps, first = np.unique(found.heaps, return_index=True)
    first, heaps = first[heaps > 0], heaps[heaps > 0]
    end = max((end for _, end in image.writable), default=image.start)
    owned, lists = [], []
    for heap, thread in zip(heaps.tolist(), found.threads[first].tolist()):
        words = _heap_words(view, heap)
        if not (image.start <= heap < end or ((words >= image.start) & (words < end)).any()):
            continue
        owned.append(heap)
        # The list is before the number of the thread.
        numbers = np.flatnonzero(words[1:] == thread)
        if thread and len(numbers) and words[numbers[0]]:
            lists.append(int(words[numbers[0]]))
    if not owned:
        return None, ()
    mine = distinct(found.segments[np.isin(found.heaps, owned)])
    if len(owned) == len(heaps):  # there is no other mimalloc: pages without an owner are this one's too
        return found, lists
    kept = np.isin(found.segments, mine)
    headers = [header for header in found.headers if header[0] in set(mine.tolist())]
    pages = Pages(*(column[kept] for column in found.pages))
    mine_only = found._replace(
        pages=pages,
        heaps=found.heaps[kept],
        threads=found.threads[kept],
        segments=found.segments[kept],
        headers=headers,
    )
    return mine_only, lists


def _arenas(
    view: SearchedMemory, memory: TouchedMemory, image: Image, segments: Any
) -> Iterator[tuple[int, int]]:
    """Yield the writable pieces of arenas, which segments are taken from: since 2.1.

    A description names the arena's start, its blocks, each for a segment, and how many words have a bit for each block;
    at least one segment is in it.
    """
    np = import_numpy()
    places = distinct(pointers(data_words(view, image.writable), view.touched).values)
    places = places[(places % _OS_PAGE == 0) | are_in(Ranges(image.writable), places)]
    columns, readable = gather_words(memory, places, range(_ARENA_WORDS))
    table = np.stack(columns, 1)[readable]
    starts, blocks, words = table[:, :-2], table[:, 1:-1], table[:, 2:]
    good = (starts > 0) & (starts % _SEGMENT == 0) & (blocks > 0) & (blocks < _MOST_BLOCKS)
    good &= words == blocks + 63 >> 6
    for start, count in sorted(set(zip(starts[good].tolist(), blocks[good].tolist()))):
        end = start + count * _SEGMENT
        if ((segments >= start) & (segments < end)).any():
            yield from view.anonymous.overlaps(start, end)


def _heap_words(view: SearchedMemory, heap: int) -> Any:
    np = import_numpy()
    pieces = [words for _, words in touched_pieces(view, [(heap & -8, (heap & -8) + 8 * _HEAP_WORDS)])]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
