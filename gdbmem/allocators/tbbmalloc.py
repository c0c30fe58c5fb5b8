"""oneTBB's scalable allocator (libtbbmalloc), read from its table of back references, without symbols.

Each slab and each large block has an index into this table, and the entry there leads back to it: an entry proves what
it leads to. The table is found by its main part, whose first word leads into the object's data, where the list of the
regions is that all memory is taken from.

Source: oneTBB 2021.8, src/tbbmalloc/backref.cpp, frontend.cpp, large_objects.h, backend.h; 2020.3 to 2023.2 have the
same forms.
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
    pointers,
    read_words,
)
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.allocators.live_blocks import Blocks, Slabs, blocks_of, lists_in_slabs
from gdbmem.allocators.malloc_heap import (
    CACHED,
    CHANGING,
    FREE,
    LARGE,
    METADATA,
    SLAB,
    MallocHeap,
    SearchedMemory,
    Spans,
)
from gdbmem.arrays import distinct, import_numpy, runs_of
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import MemoryUnreadable, words_at

_SLAB, _HEADER = 1 << 14, 128  # bytes; parts of the table have the size of a slab, too
_PAGE = 4096
# Words of the table's main part: the owner of the memory, the number of the last part, and the parts' addresses.
_OWNER, _LAST, _PARTS = 0, 4, 6
_MOST_PARTS = 1 << 15  # of which the main part has room for the addresses
_NUMBER = 6  # word of a part: the upper half is its number
_FIRST = 8  # word of a part from which on its entries are
_INDEX = (1 << 48) - 1  # of a word that has an index: part (32 bits), is large (1), entry (15)
# Words of a slab's header: freed by other threads, the pool, the next slab, the next unused block, the list of free
# blocks, the index, and numbers of 16 bits: blocks in use and bytes of a block.
_FREED, _POOL, _NEXT, _UNUSED, _LISTED, _SLAB_INDEX, _COUNTS = 2, 4, 8, 10, 11, 14, 15
_STARTUP = 0xFFFF  # in place of the bytes of a block: blocks of any size, from before the allocator was ready
_NO_BLOCKS = 1  # in place of the first freed block
# Words of a large block's header: bytes asked for, bytes taken, and the index. Before the block itself: the header's
# address, and the index while the block is in use.
_BYTES, _TAKEN, _LARGE_INDEX, _LARGE_HEADER = 8, 9, 10, 16
_TOLERATED = 1000  # of so many entries one may be between two states
_MOST_REGIONS = 1 << 20
_KINDS = 3  # of regions


class _Main(NamedTuple):
    """The table's main part at *address*; *owner* is in the object's data."""

    address: int
    owner: int
    parts: Any  # addresses


class _Slabs(NamedTuple):
    """Slabs in order of address, as columns."""

    starts: Any
    used: Any  # blocks
    sizes: Any  # bytes of a block
    freed: Any  # the first block that another thread has freed; 0: none
    are_odd: Any


class _Found(NamedTuple):
    slabs: _Slabs
    large: Sequence[Any]  # start, end, bytes asked for, whether it is in use, and where it begins, as columns
    odd: int


def read_heap(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the tbbmalloc whose variables are in the data of *image*; None if none is proved."""
    words, memory = data_words(view, image.writable), TouchedMemory(view)
    for main in _mains(view, memory, words, image):
        found = _find(view, memory, main)
        if found is not None:
            return _heap(view, memory, words, image, main, found)
    return None


def _heap(
    view: SearchedMemory, memory: TouchedMemory, words: DataWords, image: Image, main: _Main, found: _Found
) -> MallocHeap:
    slabs = found.slabs
    _, lengths = lists_in_slabs(memory, slabs.starts, slabs.starts + _SLAB, slabs.freed, slabs.used)
    cached: Counter[int] = Counter()
    for size, length in zip(slabs.sizes[lengths > 0].tolist(), lengths[lengths > 0].tolist()):
        cached[size] += length
    return MallocHeap(
        allocator="tbbmalloc",
        layout="slabs of 16 KiB",
        file=image.name,
        spans=_spans(view, memory, words, main, found),
        cached=cached,
        caches=int((lengths > 0).sum()),
        is_complete=bool((lengths >= 0).all()),
        unread_caches="a list of blocks that other threads freed leads elsewhere",
        odd_descriptors=found.odd,
        read_blocks=partial(_blocks, memory, found),
    )


def _mains(view: SearchedMemory, memory: TouchedMemory, words: DataWords, image: Image) -> Iterator[_Main]:
    np = import_numpy()
    places = distinct(pointers(words, view.anonymous).values)
    places = places[places % _PAGE == 0]
    (owners, last, first), readable = gather_words(memory, places, (_OWNER, _LAST, _PARTS))
    good = readable & are_in(Ranges(image.writable), owners) & (last >= 0) & (last < _MOST_PARTS)
    good &= are_in(view.anonymous, first) & (owners % 8 == 0)
    for place, owner, count in zip(*(column[good].tolist() for column in (places, owners, last + 1))):
        try:
            parts = read_words(memory, place + 8 * _PARTS, count)
        except MemoryUnreadable:
            continue
        (numbers,), readable = gather_words(memory, parts, (_NUMBER,))
        if readable.all() and (numbers >> 32 == np.arange(count)).all():
            yield _Main(place, owner, parts)


def _find(view: SearchedMemory, memory: TouchedMemory, main: _Main) -> Optional[_Found]:
    """Return what the entries of *main* lead to; None unless hardly any contradicts."""
    np = import_numpy()
    rows, readable = gather(memory, main.parts, _SLAB)
    entries = rows.view(np.int64).reshape(len(main.parts), -1)[:, _FIRST:]
    # What is free is a list inside the part.
    is_free = (entries >= main.parts[:, None]) & (entries < main.parts[:, None] + _SLAB)
    part, number = np.nonzero((entries != 0) & ~is_free & readable[:, None])
    places = entries[part, number]
    (freed, index, counts), is_read = gather_words(memory, places, (_FREED, _SLAB_INDEX, _COUNTS))
    is_slab = is_read & (places % _SLAB == 0) & (index & _INDEX == (part | number << 33))
    is_slab &= are_within(view.anonymous, places, places + _SLAB)
    large, is_large = _large(memory, places, part | (2 * number + 1) << 32)
    is_large &= are_within(view.anonymous, large[0], large[1])
    starts, ends = np.where(is_slab, places, large[0]), np.where(is_slab, places + _SLAB, large[1])
    is_apart = _are_apart(starts, ends, is_slab | is_large)
    is_slab, is_large = is_slab & is_apart, is_large & is_apart & ~is_slab
    odd = int((~is_slab & ~is_large).sum())
    used, sizes = counts & 0xFFFF, counts >> 16 & 0xFFFF
    are_odd = (sizes != _STARTUP) & (used > 0) & ((sizes == 0) | (used * sizes > _SLAB - _HEADER))
    slabs = _Slabs(places, used, sizes, np.where(freed == _NO_BLOCKS, 0, freed), are_odd)
    order = np.flatnonzero(is_slab)[np.argsort(places[is_slab], kind="stable")]
    slabs = _Slabs(*(column[order] for column in slabs))
    odd += int(slabs.are_odd.sum())
    if not is_slab.any() or odd > len(places) // _TOLERATED + 2:
        return None
    # What contradicts has no blocks to be followed.
    slabs = slabs._replace(
        freed=np.where(slabs.are_odd | (slabs.sizes == _STARTUP) | (slabs.used == 0), 0, slabs.freed)
    )
    return _Found(slabs, [column[is_large] for column in large], odd)


def _are_apart(starts: Any, ends: Any, chosen: Any) -> Any:
    """Return which of the *chosen* pieces of memory overlap none of those that begin before them."""
    np = import_numpy()
    number = np.flatnonzero(chosen)
    number = number[np.argsort(starts[number], kind="stable")]
    reached = np.maximum.accumulate(ends[number])
    result = np.zeros(len(starts), bool)
    result[number] = np.append(True, starts[number][1:] >= reached[:-1])[: len(number)]
    return result


def _large(memory: TouchedMemory, places: Any, wanted: Any) -> tuple[Sequence[Any], Any]:
    """Return the large blocks that begin behind *places*, and which of them are ones: those with the index *wanted*."""
    (headers, index), is_read = gather_words(memory, places, (0, 1))
    (size, taken, own), readable = gather_words(memory, headers, (_BYTES, _TAKEN, _LARGE_INDEX))
    is_large = is_read & readable & (own & _INDEX == wanted) & (headers < places) & (size > 0)
    is_large &= (taken >= size) & (taken < 1 << 47) & (places + _LARGE_HEADER + size <= headers + taken)
    return (headers, headers + taken, size, index & _INDEX == wanted, places + _LARGE_HEADER), is_large


def _spans(
    view: SearchedMemory, memory: TouchedMemory, words: DataWords, main: _Main, found: _Found
) -> Spans:
    np = import_numpy()
    slabs = found.slabs
    kinds = np.where(slabs.used > 0, SLAB, FREE)
    kinds[slabs.sizes == _STARTUP] = METADATA
    kinds[slabs.are_odd] = CHANGING
    has_blocks = kinds == SLAB
    starts, ends, sizes, in_use, _ = found.large
    columns = (
        np.concatenate((slabs.starts, starts)),
        np.concatenate((slabs.starts + _SLAB, ends)),
        np.concatenate((kinds, np.where(in_use, LARGE, CACHED))),
        np.concatenate((np.where(has_blocks, slabs.sizes, 0), np.where(in_use, sizes, 0))),
        np.concatenate((np.where(has_blocks, slabs.used, 0), in_use)),
    )
    taken = Ranges(zip(columns[0].tolist(), columns[1].tolist()))
    parts = [(at, at + _SLAB) for at in main.parts.tolist()]
    table = Ranges([*parts, (main.address, main.address + 8 * _MOST_PARTS)])
    own = [*table.items, *_slabs_of_its_own(memory, words, slabs.starts, main)]
    own = [piece for one in Ranges(own).items for piece in taken.gaps(*one)]
    taken = Ranges([*taken.items, *own])
    free = [piece for region in _regions(view, memory, main) for piece in taken.gaps(*region)]
    return Spans.of(columns, [*((*one, METADATA) for one in own), *((*one, FREE) for one in free)])


def _slabs_of_its_own(
    memory: TouchedMemory, words: DataWords, known: Any, main: _Main
) -> Iterator[tuple[int, int]]:
    """Yield the slabs without an entry that the object's data leads to: they have what it knows of threads."""
    np = import_numpy()
    places = distinct(words.values[words.values % _SLAB == 0])
    (pools,), readable = gather_words(memory, places, (_POOL,))
    near = readable & (abs(pools - main.owner) < _PAGE) & ~np.isin(places, known)
    done: set[int] = set()
    for place in places[near].tolist():
        while place and place not in done:
            done.add(place)
            yield place, place + _SLAB
            try:
                (place,) = words_at(memory, place + 8 * _NEXT, 1)
            except MemoryUnreadable:
                break


def _regions(view: SearchedMemory, memory: TouchedMemory, main: _Main) -> Sequence[tuple[int, int]]:
    """Return the regions on the list that one of the owner's first words begins; none if it leads elsewhere."""
    try:
        heads = words_at(memory, main.owner, _FIRST)
    except MemoryUnreadable:
        return ()
    for head in heads:
        found = _chain(view, memory, head) if head and head in view.anonymous else {}
        if found:
            return sorted(found.items())
    return ()


def _chain(view: SearchedMemory, memory: TouchedMemory, at: int) -> Mapping[int, int]:
    """Return start and end of the regions from the one at *at* on: each begins with the next and the previous one."""
    found: dict[int, int] = {}
    before = 0
    try:
        while at:
            following, previous, size, room, kind = words_at(memory, at, 5)
            good = at % _PAGE == 0 and previous == before and kind < _KINDS and 0 < room <= size < 1 << 47
            if not good or at in found or view.anonymous.within(at, at + size) != size:
                return {}
            if len(found) == _MOST_REGIONS:
                return {}
            found[at] = at + size
            before, at = at, following
    except MemoryUnreadable:
        return {}
    return found


def _blocks(memory: TouchedMemory, found: _Found) -> Blocks:
    """Return the blocks in use: those of slabs, from their ends on, that are on no list and were used before."""
    np = import_numpy()
    slabs = found.slabs
    kept = ~slabs.are_odd & (slabs.sizes != _STARTUP) & (slabs.used > 0)
    starts, used, sizes, freed = (column[kept] for column in slabs[:4])
    ends, counts = starts + _SLAB, (_SLAB - _HEADER) // sizes
    (unused, listed), _ = gather_words(memory, starts, (_UNUSED, _LISTED))
    free, lengths = lists_in_slabs(memory, starts, ends, listed, counts)
    waiting, waits = lists_in_slabs(memory, starts, ends, freed, counts)
    never = np.where(unused > 0, counts - (ends - unused) // sizes + 1, 0)
    known = (lengths >= 0) & (waits >= 0) & (used + lengths + never == counts)
    firsts = ends - counts * sizes
    row = np.repeat(np.flatnonzero(known), never[known])
    _, _, size, in_use, begins = found.large
    return blocks_of(
        Slabs(firsts[known], sizes[known], counts[known]),
        np.concatenate((free, waiting, firsts[row] + runs_of(0, never[known]) * sizes[row])),
        (begins[in_use], size[in_use]),
        unlisted=int(used[~known].sum() - np.maximum(waits[~known], 0).sum()),
    )
