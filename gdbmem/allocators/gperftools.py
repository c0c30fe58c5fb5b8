"""The heap of gperftools' tcmalloc, read without symbols, also where it is linked statically into a stripped program.

Its roots are in the data of the object that it is linked into, and are found by their contents:

- the table of size classes: sizes that rise from 0 and 8, behind it the pages of a span of each class, before it how
  many blocks a transfer moves;
- the page map, an array of pointers to leaves with a pointer to a span for each page: only entries for address space
  that exists are not zero;
- the central lists, at equal distances: the list of class N has the number N, and counts its spans;
- thread caches: rows of lists with the sizes of all classes, which lead to one another.

A span proves itself: the map's entries for its first and last page lead to it, it overlaps no other, its size is that
of its class, and no more blocks are in use than it has. At most `_TOLERATED` spans may contradict this, as while a
thread is inside malloc; they are CHANGING. Entries for pages inside a free or large span may be out of date, and are
not judged.

Source: gperftools 2.8 to 2.18, src/span.h, pagemap.h, common.h, central_freelist.h, thread_cache.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import (
    DataWords,
    TouchedMemory,
    are_in,
    data_words,
    entries_of,
    pages_around,
    pointers,
)
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.allocators.live_blocks import Blocks, Slabs, blocks_of, list_through, lists_in_slabs
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
from gdbmem.model.memory import WindowedMemory

_TOLERATED = 2  # spans that contradict each other: one lock guards all changes, of at most two spans
_ADDRESS_BITS = 48
_PAGE_SHIFTS = (13, 12, 15, 16, 18)  # 8 KiB is the default; others are chosen at the build
_MOST_CLASSES = 128  # entries of each table
_FEWEST_CLASSES = 16
_MOST_PAGES, _MOST_MOVED = 256, 1 << 16  # of a span of small blocks; blocks moved at once
_FREE = 4  # the word of a span that leads to its free blocks
_FLAG_WORDS = (5, 6, 7)  # of a span, behind room for an iterator of std::set
_SPAN_BYTES = 64
_METADATA_APART = 1 << 17  # spans and caches are allocated this many bytes at a time
_LIST_WORDS = 4  # of a list in a thread cache: head, length, its largest length, size
_LENGTH, _SIZE = 1, 3  # words of such a list, their lower halves
_TAIL_WORDS = 32  # behind the lists: totals, sampling, the next and the previous cache
_CENTRAL_WORDS = range(40, 400)  # distance of two central lists
_COUNTS_WITHIN = range(2, 40)  # words from a central list's number to the number of its spans
_IN_USE, _NORMAL, _RETURNED = range(3)  # a span's location
_LOW = 0xFFFFFFFF


class _Classes(NamedTuple):
    """Columns by number of the size class; class 0 has no blocks."""

    sizes: Any  # bytes
    pages: Any  # of a span
    moved: Any  # blocks of a transfer


class _PageMap(NamedTuple):
    shift: int  # of a page
    leaf_bits: int
    leaves: Sequence[tuple[int, int]]  # number, address


class _Found(NamedTuple):
    """Spans in order of address, as columns, and the addresses of all their descriptors, those of former spans too."""

    starts: Any
    ends: Any
    classes: Any
    in_use: Any  # blocks of a small span
    locations: Any
    are_odd: Any
    free: Any  # the first free block of a small span; 0: none
    descriptors: Any


class _Lists(NamedTuple):
    """Lists of blocks that caches keep: of all thread caches, or of all central lists."""

    heads: Any
    lengths: Any


def read_heap(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the tcmalloc that is linked into *image*; None if none is proved."""
    words = data_words(view, image.writable)
    memory = TouchedMemory(view)
    for classes in _size_classes(words):
        for page_map in _page_maps(words, view, image):
            found = _read_spans(view, memory, page_map, classes)
            if found is not None:
                return _heap(image, words, view, memory, page_map, classes, found)
    return None


def _heap(
    image: Image,
    words: DataWords,
    view: SearchedMemory,
    memory: TouchedMemory,
    page_map: _PageMap,
    classes: _Classes,
    found: _Found,
) -> MallocHeap:
    np = import_numpy()
    rows, addresses = _thread_caches(words, view, memory, classes, found)
    heads, lengths = (rows[:, first::_LIST_WORDS][:, : len(classes.sizes)] for first in (0, _LENGTH))
    lengths = lengths & _LOW
    lists = [_Lists(heads.reshape(-1), lengths.reshape(-1))]
    cached = lengths.sum(0)
    in_transfer = _in_transfer(words, classes, found)
    if in_transfer is not None:
        cached = cached + in_transfer.counts
        lists.append(in_transfer.lists)
    leaf_bytes = 8 << page_map.leaf_bits
    metadata = [
        *((leaf, leaf + leaf_bytes) for _, leaf in page_map.leaves),
        *pages_around(found.descriptors, _SPAN_BYTES, _METADATA_APART),
        *pages_around(addresses, 8 * rows.shape[1], _METADATA_APART),
    ]
    return MallocHeap(
        allocator="tcmalloc",
        layout=f"gperftools, pages of {(1 << page_map.shift) >> 10} KiB, {len(classes.sizes) - 1} size classes",
        file=image.name,
        spans=_spans(found, classes, metadata),
        cached={int(size): int(count) for size, count in zip(classes.sizes[1:], cached[1:]) if count},
        caches=len(rows),
        is_complete=in_transfer is not None and bool(np.size(rows)),
        unread_caches=f"{'its central lists' if len(rows) else 'those of its threads'} were not found",
        odd_descriptors=int(found.are_odd.sum()),
        read_blocks=partial(_blocks, memory, classes, found, lists),
    )


def _blocks(memory: TouchedMemory, classes: _Classes, found: _Found, lists: Sequence[_Lists]) -> Blocks:
    """Return the blocks in use: those that are on no list of free blocks."""
    np = import_numpy()
    small = np.flatnonzero((found.classes > 0) & ~found.are_odd)
    starts, ends, sizes = found.starts[small], found.ends[small], classes.sizes[found.classes[small]]
    counts = (ends - starts) // sizes
    free, lengths = lists_in_slabs(memory, starts, ends, found.free[small], counts)
    known = lengths == counts - found.in_use[small]
    windowed = WindowedMemory(memory)
    kept = [
        block
        for some in lists
        for head, length in zip(some.heads.tolist(), some.lengths.tolist())
        for block in list_through(windowed, head, length)
    ]
    large = (found.classes == 0) & (found.locations == _IN_USE) & ~found.are_odd
    return blocks_of(
        Slabs(starts[known], sizes[known], counts[known]),
        np.concatenate((free, np.array(kept, np.int64))),
        (found.starts[large], (found.ends - found.starts)[large]),
        unlisted=int(found.in_use[small][~known].sum()),
    )


def _size_classes(words: DataWords) -> Iterator[_Classes]:
    """Yield what may be the tables of size classes."""
    np = import_numpy()
    # The table consists of 4-byte words, and may begin in the middle of a word.
    beginnings = (words.addresses[words.values == 8 | 16 << 32] - 4, words.addresses[words.values == 8 << 32])
    for start in np.concatenate(beginnings).tolist():
        first = start - 4 * _MOST_CLASSES
        halves = words.row(first & -8, 2 * _MOST_CLASSES + 1).view(np.int32)[(first & 7) // 4 :]
        moved, sizes = halves[:_MOST_CLASSES], halves[_MOST_CLASSES : 2 * _MOST_CLASSES]
        behind = start + 4 * _MOST_CLASSES
        pages = words.row(behind + 7 & -8, _MOST_CLASSES)
        falls = np.flatnonzero(np.diff(sizes) <= 0)
        count = int(falls[0]) + 1 if len(falls) else _MOST_CLASSES
        if count < _FEWEST_CLASSES or (sizes[:count] & 7).any():
            continue
        used = slice(1, count)
        if not (
            ((pages[used] >= 1) & (pages[used] <= _MOST_PAGES)).all()
            and ((moved[used] >= 1) & (moved[used] <= _MOST_MOVED)).all()
        ):
            continue
        yield _Classes(*(column[:count].astype(np.int64) for column in (sizes, pages, moved)))


def _page_maps(words: DataWords, view: SearchedMemory, image: Image) -> Iterator[_PageMap]:
    """Yield what may be the page map, for each size of a page.

    The root has an entry for each leaf; a leaf is for as much address space as one entry of the root. Entries for
    address space that isn't mapped are zero.
    """
    np = import_numpy()
    leaves = pointers(words, view.anonymous)
    for shift in _PAGE_SHIFTS:
        leaf_bits = (_ADDRESS_BITS - shift + 1) // 2
        entries = 1 << _ADDRESS_BITS - shift - leaf_bits
        mapped = _windows(view.anonymous, shift + leaf_bits)
        near = distinct(np.concatenate((mapped - 1, mapped, mapped + 1)))
        near = near[(near >= 0) & (near < entries)]
        for root in _roots(words, leaves, image, mapped, entries):
            filled = near[words.at(root + 8 * near) != 0]
            if len(filled) == int(words.count_between(root, root + 8 * entries)):
                pairs = zip(filled.tolist(), words.at(root + 8 * filled).tolist())
                yield _PageMap(shift, leaf_bits, list(pairs))


def _roots(words: DataWords, leaves: DataWords, image: Image, mapped: Any, entries: int) -> Any:
    """Return where an array of *entries* may begin, few of them filled, and one of *leaves* at a *mapped* place."""
    np = import_numpy()
    found = []
    for number in mapped.tolist():
        roots = leaves.addresses - 8 * number
        fits = np.zeros(len(roots), bool)
        for start, end in image.writable:
            fits |= (roots >= start) & (roots + 8 * entries <= end)
        roots = roots[fits]
        found.append(roots[words.count_between(roots, roots + 8 * entries) <= 3 * len(mapped)])
    return distinct(np.concatenate(found)).tolist() if found else []


def _windows(ranges: Ranges, shift: int) -> Any:
    """Return the numbers of the pieces of ``1 << shift`` bytes that overlap *ranges*."""
    np = import_numpy()
    most = 1 << max(_ADDRESS_BITS - shift, 0)
    numbers = {
        number for start, end in ranges.items for number in range(start >> shift, min(-(-end >> shift), most))
    }
    return np.array(sorted(numbers), np.int64)


def _read_spans(
    view: SearchedMemory, memory: TouchedMemory, page_map: _PageMap, classes: _Classes
) -> Optional[_Found]:
    """Return the spans that *page_map* leads to; None unless they prove it."""
    np = import_numpy()
    pages, entries = entries_of(view, page_map.leaves, page_map.leaf_bits)
    descriptors = distinct(entries)
    places = np.searchsorted(descriptors, entries)
    (starts, lengths, free, *flags), readable = gather_words(memory, descriptors, [0, 1, _FREE, *_FLAG_WORDS])
    lengths = np.clip(lengths, 0, 1 << _ADDRESS_BITS - page_map.shift)
    of_entry = starts[places], lengths[places]
    contains = readable[places] & (of_entry[0] <= pages) & (pages < of_entry[0] + of_entry[1])
    spans = distinct(places[contains])
    spans = spans[np.argsort(starts[spans])]
    if not len(spans):
        return None
    entry = DataWords(pages, entries)
    firsts, lasts = starts[spans], starts[spans] + lengths[spans]
    are_odd = (entry.at(firsts) != descriptors[spans]) | (entry.at(lasts - 1) != descriptors[spans])
    overlapping = np.flatnonzero(lasts[:-1] > firsts[1:])
    lasts[overlapping] = firsts[overlapping + 1]
    are_odd[overlapping] = True
    for column in flags:
        bits = column[spans] & _LOW
        in_use, numbers, locations = bits & 0xFFFF, bits >> 16 & 0xFF, bits >> 24 & 3
        known = np.minimum(numbers, len(classes.sizes) - 1)
        blocks = (classes.pages[known] << page_map.shift) // np.maximum(classes.sizes[known], 1)
        fits = np.where(
            numbers > 0,
            (known == numbers)
            & (locations == _IN_USE)
            & (in_use <= blocks)
            & (classes.pages[known] == lengths[spans]),
            locations <= _RETURNED,
        )
        are_odd_now = are_odd | ~fits | (bits >> 28 > 0)
        if int(are_odd_now.sum()) <= _TOLERATED and (numbers[~are_odd_now] > 0).any():
            byte = page_map.shift
            return _Found(
                firsts << byte,
                lasts << byte,
                numbers,
                in_use,
                locations,
                are_odd_now,
                free[spans],
                descriptors[readable],
            )
    return None


def _thread_caches(
    words: DataWords, view: SearchedMemory, memory: TouchedMemory, classes: _Classes, found: _Found
) -> tuple[Any, Any]:
    """Return the words of all thread caches, a row each, and their addresses."""
    np = import_numpy()
    length = _LIST_WORDS * _MOST_CLASSES + _TAIL_WORDS
    rows, addresses = [np.zeros((0, length), np.int64)], [np.zeros(0, np.int64)]
    seen = candidates = distinct(pointers(words, view.touched).values)
    while len(candidates):
        candidates = candidates[~_are_in_spans(found, candidates)]  # caches are in no span
        data, readable = gather(memory, candidates, 8 * length)
        table = data.view(np.int64).reshape(-1, length)
        sizes = table[:, _SIZE::_LIST_WORDS][:, 1 : len(classes.sizes)] & _LOW
        proved = readable & (sizes == classes.sizes[1:]).all(1)
        rows.append(table[proved])
        addresses.append(candidates[proved])
        onward = table[proved][:, -_TAIL_WORDS:].reshape(-1)
        onward = onward[(onward & 7 == 0) & are_in(view.touched, onward)]
        candidates = np.setdiff1d(onward, seen)
        seen = np.union1d(seen, candidates)
    return np.concatenate(rows), np.concatenate(addresses)


def _are_in_spans(found: _Found, addresses: Any) -> Any:
    np = import_numpy()
    places = np.searchsorted(found.starts, addresses, "right") - 1
    return (places >= 0) & (addresses < found.ends[np.maximum(places, 0)])


class _InTransfer(NamedTuple):
    """Blocks that wait for a thread cache."""

    counts: Any  # by size class
    lists: _Lists


def _in_transfer(words: DataWords, classes: _Classes, found: _Found) -> Optional[_InTransfer]:
    """Return the blocks that wait for a thread cache; None: the central lists weren't found."""
    np = import_numpy()
    count = len(classes.sizes)
    numbers = np.arange(1, count)
    spans = np.bincount(found.classes, minlength=count)[1:count]
    ones = words.addresses[words.values == 1]
    for distance in (8 * step for step in _CENTRAL_WORDS):
        starts = ones[(words.at(ones + distance) == 2) & (words.at(ones + 2 * distance) == 3)]
        for start in starts.tolist():
            if not (words.at(start + distance * (numbers - 1)) == numbers).all():
                continue
            table = words.at(start + distance * (numbers - 1)[:, None] + 8 * np.arange(distance // 8))
            slots = _used_slots(table, spans)
            if slots is not None:
                row, slot = np.nonzero(np.arange(table.shape[1]) < slots.used[:, None])
                lists = _Lists(table[row, slots.first + 2 * slot], classes.moved[1:][row])
                return _InTransfer(np.concatenate(([0], slots.used * classes.moved[1:])), lists)
    return None


class _Slots(NamedTuple):
    used: Any  # slots of each central list
    first: int  # the word of a list where its slots begin


def _used_slots(table: Any, spans: Any) -> Optional[_Slots]:
    """Return the slots of the central lists; None unless these, a row of words each, count the same *spans*.

    Behind the number of spans and of free blocks are the slots, of two words, and how many are used, may be used, and
    may be used at most: halves of words.
    """
    within = [at for at in _COUNTS_WITHIN if at + 2 < table.shape[1]]
    for at in sorted(within, key=lambda at: int((table[:, at] != spans).sum())):
        # Threads that are adding spans have not counted them yet: each list has a lock of its own.
        missing, used_lists = spans - table[:, at], int((spans > 0).sum())
        if (missing < 0).sum() > _TOLERATED or (missing != 0).sum() > max(used_lists // 2, _TOLERATED):
            break
        for behind in range(at + 4, table.shape[1] - 1, 2):
            used, allowed, most = table[:, behind] & _LOW, table[:, behind] >> 32, table[:, behind + 1] & _LOW
            room = (behind - at - 2) // 2
            if ((used <= allowed) & (allowed <= most) & (most > 0) & (most <= room)).all():
                return _Slots(used, at + 2)
    return None


def _spans(found: _Found, classes: _Classes, metadata: Sequence[tuple[int, int]]) -> Spans:
    np = import_numpy()
    is_small = (found.classes > 0) & ~found.are_odd
    kinds = np.where(is_small, SLAB, LARGE)
    kinds[found.locations == _NORMAL] = FREE
    kinds[found.locations == _RETURNED] = RETURNED
    kinds[found.are_odd] = CHANGING
    sizes = classes.sizes[np.where(is_small, found.classes, 0)]
    is_large = kinds == LARGE
    block_bytes = np.where(is_large, found.ends - found.starts, sizes)
    in_use = np.where(is_small, found.in_use, is_large)
    beside = [
        (*piece, METADATA) for start, end in Ranges(metadata).items for piece in _outside(found, start, end)
    ]
    return Spans.of((found.starts, found.ends, kinds, block_bytes, in_use), beside)


def _outside(found: _Found, start: int, end: int) -> list[tuple[int, int]]:
    """Return the pieces of *start* to *end* that are in no span."""
    np = import_numpy()
    first = max(int(np.searchsorted(found.starts, start, "right")) - 1, 0)
    last = int(np.searchsorted(found.starts, end))
    inside = zip(found.starts[first:last].tolist(), found.ends[first:last].tolist())
    return list(Ranges(inside).gaps(start, end))
