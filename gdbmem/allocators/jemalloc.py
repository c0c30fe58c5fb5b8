"""jemalloc, read from its own structures: 5.2 and 5.3, with or without symbols, prefixed, static, several in a process.

A radix tree leads from the pages of every extent to its descriptor (`extent_t` in 5.2, `edata_t` since 5.3; source:
include/jemalloc/internal/rtree.h, extent_structs.h, edata.h). It proves itself: each entry must name a descriptor whose
address range has the entry's page, no two ranges may overlap, and a slab has no more free blocks than blocks. The form
of the tree depends on the machine that compiled it, the bits of a descriptor on the release: all forms are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import (
    DataWords,
    TouchedMemory,
    are_in,
    data_words,
    read_words,
    touched_pieces,
)
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.allocators.live_blocks import Blocks, Slabs, blocks_of
from gdbmem.allocators.malloc_heap import (
    CACHED,
    CHANGING,
    FREE,
    IN_HUGE,
    LARGE,
    LAZY,
    METADATA,
    RETURNED,
    SLAB,
    MallocHeap,
    SearchedMemory,
    Spans,
)  # fmt: skip
from gdbmem.arrays import distinct, import_numpy
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import MemoryUnreadable, words_at

_CLASSES = 232  # of sizes; a descriptor that is between two uses has this number
_POINTER = (1 << 48) - 1  # of a word in a leaf that also has the size class
_PAGE_BITS, _ADDRESS_BITS = (12, 16, 14), (48, 57)
_ALIGNED = 64  # nodes of the tree
_BLOCK = 1 << 21  # jemalloc's own memory is in blocks that begin at a multiple of it and are multiples of it
_MOST_BLOCK = 1 << 36
_TOLERATED = 1000  # of so many entries of the tree one may be between two states
_LEAST_ENTRIES, _MANY = 2, 100
_BEHIND = 2048  # bytes of the root behind an entry; it ends with addresses that only the kernel has
_MOST_ROOTS = 1 << 24
_STRAY = 8  # entries of the root for addresses that have been unmapped since
_SAMPLE, _SAMPLED_LEAVES = 256, 4  # entries, and leaves
_ARENA_WORDS = 4096  # of an arena that are searched for its list of caches
_MOST_CACHES, _MOST_BINS = 100_000, 76
# Bytes of a cache's bin. 5.3: head (8), requests (8), low water, full, empty (2 each). 5.2: low water (4), number of
# blocks (4), requests (8), stack (8).
_BIN = 24
_STATIC, _DYNAMIC = (
    1 << 16,
    1 << 14,
)  # bytes of thread-local data: around the pointer, and of a module loaded later
_MOST_MODULES = 4096
_MOST_LINKS, _MOST_STACKS = (
    32,
    1 << 20,
)  # words between the bins and the arena in 5.2; bytes of all stacks of a cache
_LINK_WORDS, _SLOW_WORDS = 2, 64  # before the descriptor of a cache; up to the address of the cache
_BITMAP_AT = 64  # in a descriptor
_LEAST_BLOCK_BITS = 3  # a page has at most so many blocks of 8 bytes
_LEAF_PIECE = (
    1 << 17
)  # bytes of a leaf that are decoded at once: memory that is used again need not be cleared
_MASKS = 1 << 14  # unpacked at once
_NO_LIST = "a jemalloc that was built without statistics keeps no list of them, and none was found in its threads' data"
_HUGE_PAGE = 1 << 21
_ACTIVE, _DIRTY, _MUZZY, _RETAINED = range(4)
_KIND = {_DIRTY: FREE, _MUZZY: LAZY, _RETAINED: RETURNED}


class _Form(NamedTuple):
    """A form of the radix tree."""

    page_bits: int
    address_bits: int

    @property
    def levels(self) -> tuple[int, ...]:
        """Return the bits of the address that select an entry, level by level."""
        bits = self.address_bits - self.page_bits
        count = 2 if bits <= 36 else 3
        ends = [bits * level // count for level in range(count + 1)]
        return tuple(high - low for low, high in zip(ends, ends[1:]))

    @property
    def is_packed(self) -> bool:
        """True if an entry of a leaf is one word, which has the size class, too; else it is two."""
        return self.address_bits <= 48

    @property
    def root_shift(self) -> int:
        return self.page_bits + sum(self.levels[1:])


class _Bits(NamedTuple):
    """Where a descriptor's first word has what."""

    release: str
    aligned: int
    state: int
    state_bits: int
    size_class: int
    free_blocks: int
    has_two_arrays: bool  # of bins in a cache
    of_huge_page: Optional[int]  # the extent is part of a huge page that jemalloc divides
    slab: int = 12

    @property
    def owner(self) -> int:
        """Return which word of a cache's descriptor leads to its arena."""
        return 4 if self.has_two_arrays else 3


_RELEASES = (_Bits("5.3", 128, 17, 3, 20, 28, False, 14), _Bits("5.2", 64, 16, 2, 18, 26, True, None))


class _Tree(NamedTuple):
    """The entries of the leaves, as runs of entries of one descriptor: all pages of a slab have one."""

    form: _Form
    first: Any  # addresses of pages
    last: Any
    counts: Any  # of entries
    descriptors: Any  # their addresses; the lowest 6 bits are zero


class _Extents(NamedTuple):
    """Descriptors, decoded; columns in order of the extents' addresses."""

    bits: _Bits
    contradictions: int
    odd: int  # descriptors that are left out, and entries that lead to none of theirs
    descriptors: Any  # their addresses
    first_blocks: Any  # a large block may begin within its first page
    starts: Any
    ends: Any
    states: Any
    is_slab: Any
    classes: Any  # numbers of size classes
    blocks: Any  # of a slab, in use or free
    free_blocks: Any
    are_cached: Any  # freed, and kept in the cache of the allocator of huge pages
    in_huge_page: Any  # from that allocator


def read_heap(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the jemalloc whose variables are in the data of *image*; None if there is none."""
    data = data_words(view, image.writable)
    forms = [_Form(page, address) for address in _ADDRESS_BITS for page in _PAGE_BITS]
    nodes = _nodes(view, data)
    for form in forms:
        for root in _roots(view, image, nodes, form):
            leaves = _leaves(view, root, form)
            # Most trees that are none are found out by few entries.
            extents = _extents(view, _read_leaves(view, leaves[:_SAMPLED_LEAVES], form))
            if extents is not None and leaves[_SAMPLED_LEAVES:]:
                extents = _extents(view, _read_leaves(view, leaves, form))
            if extents is not None:
                return _heap(view, image, data, form, extents)
    return None


def _heap(view: SearchedMemory, image: Image, data: DataWords, form: _Form, extents: _Extents) -> MallocHeap:
    np = import_numpy()
    sizes = _size_classes()
    blocks = _metadata_blocks(view, extents, np.concatenate([extents.descriptors, data.values]))
    spans = _spans(extents, sizes, blocks, form)
    found = _caches(view, data, blocks, extents.bits, 1 << form.page_bits)
    # Built without statistics, jemalloc keeps no list of its caches; built with them, it has none with tcache:false.
    counts_itself = found.is_sound and (found.caches > 0 or _has_statistics(view, blocks))
    if found.is_sound and not counts_itself:
        found = _caches_of_threads(view, data, blocks, extents.bits, 1 << form.page_bits)
        counts_itself = found.caches > 0
    is_complete = counts_itself and _fits(found.cached, spans)
    layout = (
        f"{extents.bits.release}, {form.address_bits} address bits, pages of {1 << form.page_bits:,} bytes"
    )
    stacks = found.stacks if is_complete else ()
    return MallocHeap(
        allocator="jemalloc",
        layout=layout,
        file=image.name,
        spans=spans,
        cached=found.cached if is_complete else {},
        caches=found.caches,
        is_complete=is_complete,
        unread_caches=_NO_LIST
        if found.is_sound and not counts_itself
        else "their list could not be followed",
        odd_descriptors=extents.odd,
        read_blocks=lambda: _blocks(view, form, extents, spans, stacks),
    )


# The radix tree.


class _Nodes(NamedTuple):
    """Words in the data that may be entries of a root: pointers to nodes, of which few are near each other."""

    places: Any  # addresses of these words,
    behind: Any  # how many words that are not zero are in the `_BEHIND` bytes from each on,
    words: Any  # and the addresses of all words that are not zero


def _nodes(view: SearchedMemory, data: DataWords) -> _Nodes:
    np = import_numpy()
    addresses, words = data
    places = addresses[(words % _ALIGNED == 0) & are_in(view.anonymous, words)]
    behind = np.searchsorted(addresses, places + _BEHIND) - np.searchsorted(addresses, places)
    return _Nodes(places, behind, addresses)


def _roots(view: SearchedMemory, image: Image, nodes: _Nodes, form: _Form) -> Iterator[int]:
    """Yield where the tree's root may be: its entries lead to nodes, in the places of the addresses that are in use."""
    np = import_numpy()
    size, shift = 8 << form.levels[0], form.root_shift
    areas = [(low, high) for low, high in image.writable if high - low >= size]
    used = {
        number
        for low, high in view.anonymous.items
        for number in range(low >> shift, ((high - 1) >> shift) + 1)
    }
    used = {number for number in used if number < 1 << form.levels[0]}
    # The entries behind one are of addresses that are hardly in use.
    places = nodes.places[nodes.behind <= len(used) + _STRAY]
    if not areas or not used or len(places) * len(used) > _MOST_ROOTS:
        return
    roots, counts = np.unique((places[:, None] - 8 * np.array(sorted(used))).ravel(), return_counts=True)
    others = np.searchsorted(nodes.words, roots + size) - np.searchsorted(nodes.words, roots)
    inside = np.zeros(len(roots), bool)
    for low, high in areas:
        inside |= (roots >= low) & (roots + size <= high)
    for number in np.flatnonzero(inside & (others <= counts + _STRAY) & (counts * 2 >= others)).tolist():
        yield int(roots[number])


def _leaves(view: SearchedMemory, root: int, form: _Form) -> list[tuple[int, int]]:
    """Return the addresses of the leaves of the tree at *root*, and the numbers of the pages they begin with."""
    np = import_numpy()
    levels, shift = form.levels, form.root_shift
    nodes, prefixes = np.array([root]), np.array([0])
    for bits, below in zip(levels, levels[1:]):
        if not len(nodes):  # of a copy, for example, that was killed meanwhile
            return []
        found = [_entries(view, node, bits) for node in nodes.tolist()]
        prefixes = np.concatenate([prefix << bits | at for prefix, (at, _) in zip(prefixes.tolist(), found)])
        nodes = np.concatenate([words for _, words in found])
        is_node = are_in(view.anonymous, nodes) & (nodes % _ALIGNED == 0)
        # Nothing is allocated where nothing is mapped. What only looks like a tree would lead to millions of nodes.
        is_node &= view.anonymous.within_each(prefixes << shift, prefixes + 1 << shift) > 0
        prefixes, nodes = prefixes[is_node], nodes[is_node]
        shift -= below
    return list(zip(nodes.tolist(), (prefixes << levels[-1]).tolist()))


def _read_leaves(view: SearchedMemory, leaves: Sequence[tuple[int, int]], form: _Form) -> _Tree:
    """Return the entries of *leaves*; only pages that have been written to are read."""
    np = import_numpy()
    width = 1 if form.is_packed else 2  # words of an entry
    mask = (_POINTER if form.is_packed else -1) & -_ALIGNED
    read: list[_Tree] = []
    for node, first in leaves:
        for start, words in touched_pieces(
            view, [(node, node + (8 * width << form.levels[-1]))], _LEAF_PIECE
        ):
            at = (start - node) // 8
            begins = -at % width
            piece = _entries_of(form, words[begins::width] & mask, first + (at + begins) // width)
            if read and len(piece.first) and read[-1].descriptors[-1] == piece.descriptors[0]:
                read[-1].last[-1] = piece.last[0]
                read[-1].counts[-1] += piece.counts[0]
                piece = _Tree(form, *(column[1:] for column in piece[1:]))
            if len(piece.first):
                read.append(piece)
    read = read or [_Tree(form, *[np.zeros(0, np.int64)] * 4)]
    return _Tree(form, *(np.concatenate(column) for column in list(zip(*read))[1:]))


def _entries_of(form: _Form, pointers: Any, first: int) -> _Tree:
    """Return the runs of *pointers* of one leaf; *first* is the number of the page of the first of them."""
    np = import_numpy()
    used = np.flatnonzero(pointers)  # pages of an extent that was divided or freed keep a size class only
    pointers = pointers[used]
    begins = np.flatnonzero(np.append(True, pointers[1:] != pointers[:-1])[: len(pointers)])
    ends = np.append(begins[1:], len(pointers))[: len(begins)]
    pages = first + used << form.page_bits
    return _Tree(form, pages[begins], pages[ends - 1], ends - begins, pointers[begins])


def _entries(view: SearchedMemory, node: int, bits: int) -> tuple[Any, Any]:
    """Return the indexes and words of the entries of *node* that are not zero."""
    addresses, words = data_words(view, [(node, node + (8 << bits))])
    return (addresses - node) // 8, words


# The descriptors.


def _extents(view: SearchedMemory, tree: _Tree) -> Optional[_Extents]:
    """Return the descriptors, by the release whose bits they satisfy best; None if they satisfy none."""
    every = max(len(tree.counts) // _SAMPLE, 1)
    sample = _Tree(tree.form, *(column[::every] for column in tree[1:]))
    for bits in _RELEASES:
        if _is_proved(_decode(view, sample, bits), sample):
            extents = _decode(view, tree, bits)
            if _is_proved(extents, tree):
                return extents
    return None


def _is_proved(extents: Optional[_Extents], tree: _Tree) -> bool:
    entries = int(tree.counts.sum())
    allowed = entries // _TOLERATED + (entries >= _MANY)
    return extents is not None and extents.contradictions <= allowed


def _decode(view: SearchedMemory, tree: _Tree, bits: _Bits) -> Optional[_Extents]:
    np = import_numpy()
    where = tree.descriptors & -bits.aligned
    if len(where) < _LEAST_ENTRIES or are_in(view.touched, where).mean() < 0.99:
        return None
    (words, addresses, sizes), readable = gather_words(view.memory, where, (0, 1, 2))
    page = -1 << tree.form.page_bits
    starts, ends = addresses & page, (addresses & page) + (sizes & page)
    is_inside = readable & (starts <= tree.first) & (tree.last < ends)
    states = words >> bits.state & (1 << bits.state_bits) - 1
    is_good = readable & (starts > 0) & (ends > starts) & (states <= 5)
    starts, ends, states, words, where, addresses = _by_start(
        is_good, starts, ends, states, words, where, addresses
    )
    if not len(starts):
        return None
    is_apart = np.append(ends[:-1] <= starts[1:], True)
    classes = words >> bits.size_class & 0xFF
    is_sized = (states == _ACTIVE) & (classes < _CLASSES)
    is_slab = is_sized & (words >> bits.slab & 1 == 1)
    sizes, lengths = np.array(_size_classes()), ends - starts
    small = _small_bins(1 << tree.form.page_bits)
    # A small block that jemalloc's heap profiler samples has the pages of the smallest large one, as which jemalloc
    # counts it, but its own class (arena_prof_promote in src/arena.c).
    is_sampled = is_sized & ~is_slab & (classes < small)
    is_sampled &= (lengths == sizes[small]) | (lengths == sizes[small] - page)
    classes = np.where(is_sampled, small, classes)
    in_huge_page = np.zeros(len(words), bool)
    if bits.of_huge_page is not None:
        in_huge_page = words >> bits.of_huge_page & 1 == 1
    are_cached = (states == _ACTIVE) & ~is_sized & in_huge_page  # the bit for slabs stays
    free_blocks = words >> bits.free_blocks & (2 << tree.form.page_bits - _LEAST_BLOCK_BITS) - 1
    sizes_of = sizes[np.minimum(classes, _CLASSES - 1)]
    blocks = (lengths / sizes_of).astype(np.int64)  # exact below 2^53, and faster than numpy's //
    is_whole = ~is_slab | ((classes < small) & (blocks * sizes_of == lengths) & (free_blocks <= blocks))
    # A large block has the pages of its size class or, since 5.3.1, those of its size, which is of that class.
    is_large = is_sized & ~is_slab
    sizes_below = sizes[np.clip(classes - 1, 0, _CLASSES - 1)]
    is_whole &= ~is_large | ((sizes_below < lengths) & (lengths + page <= sizes_of))
    contradictions = int(
        tree.counts[~is_inside].sum() + (is_inside & ~is_good).sum() + (~is_apart).sum() + (~is_whole).sum()
    )
    keep = is_apart & is_whole
    columns = (
        where, addresses, starts, ends, states, is_slab, classes, blocks, free_blocks, are_cached, in_huge_page,
    )  # fmt: skip
    odd = int((~is_good).sum()) + int((~keep).sum())
    extents = _Extents(bits, contradictions, odd, *_chosen(keep, columns))
    return extents._replace(odd=odd + _lost(view, tree.first[is_good & ~is_inside], extents))


def _lost(view: SearchedMemory, pages: Any, extents: _Extents) -> int:
    """Return how many of *pages*, whose entries lead to descriptors of other pages, are in no extent either."""
    np = import_numpy()
    at = np.searchsorted(extents.starts, pages, "right") - 1
    is_lost = are_in(view.anonymous, pages)
    if len(extents.starts):
        is_lost &= (at < 0) | (extents.ends[at] <= pages)
    return int(is_lost.sum())


def _by_start(is_good: Any, starts: Any, *others: Any) -> Sequence[Any]:
    """Return the columns of what *is_good*, in order of *starts*, which are hardly ever in another one, each once."""
    np = import_numpy()
    columns = _chosen(is_good, (starts, *others))
    if (np.diff(columns[0]) <= 0).any():
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
        # More than one run of entries may have one descriptor.
        columns = _chosen(np.append(True, np.any([np.diff(column) for column in columns], axis=0)), columns)
    return columns


def _chosen(which: Any, columns: Sequence[Any]) -> Sequence[Any]:
    return columns if which.all() else [column[which] for column in columns]


@cache
def _size_classes() -> Sequence[int]:
    """Return the sizes of jemalloc's classes: 8, multiples of 16 up to 64, then four for each doubling."""
    sizes = [8, 16, 32, 48, 64]
    while len(sizes) < _CLASSES:
        step = 1 << (sizes[-1].bit_length() - 3)
        sizes += [sizes[-1] + step * count for count in (1, 2, 3, 4)]
    return [min(size, 1 << 62) for size in sizes[:_CLASSES]]


def _spans(extents: _Extents, sizes: Sequence[int], blocks: Sequence[tuple[int, int]], form: _Form) -> Spans:
    np = import_numpy()
    lengths = extents.ends - extents.starts
    is_active = extents.states == _ACTIVE
    is_sized = extents.classes < len(sizes)  # otherwise in transit
    sizes_of = np.array(sizes)[np.minimum(extents.classes, len(sizes) - 1)]
    is_large = is_active & ~extents.is_slab & is_sized
    # With "cache oblivious" a large block has a page more than its size class, for a start within the page.
    page = 1 << form.page_bits
    pad = page if (is_large & (lengths == sizes_of + page)).any() else 0
    kinds = np.full(len(lengths), CHANGING, np.uint8)
    for state, kind in _KIND.items():
        kinds[extents.states == state] = kind
    kinds[is_large], kinds[extents.is_slab], kinds[extents.are_cached] = LARGE, SLAB, CACHED
    block_bytes = np.where(
        extents.is_slab, sizes_of, np.where(is_large, np.minimum(sizes_of, lengths - pad), 0)
    )
    slab_blocks = np.where(extents.is_slab, extents.blocks - extents.free_blocks, 0)
    columns = [extents.starts, extents.ends, kinds, block_bytes, slab_blocks + is_large]
    beside = [(*block, METADATA) for block in blocks]
    beside += [(*piece, IN_HUGE) for piece in _free_in_huge_pages(extents)]
    return Spans.of(columns, beside)


def _free_in_huge_pages(extents: _Extents) -> Iterator[tuple[int, int]]:
    """Yield the free pages of the huge pages that jemalloc divides (hpa:true): no descriptor is of them."""
    divided = extents.in_huge_page
    if not divided.any():
        return
    spans = Ranges(zip(extents.starts.tolist(), extents.ends.tolist()))
    for page in distinct(extents.starts[divided] & -_HUGE_PAGE).tolist():
        yield from spans.gaps(page, page + _HUGE_PAGE)


# jemalloc's own memory (source: include/jemalloc/internal/base_structs.h): blocks that begin with their size and the
# next one.


def _metadata_blocks(view: SearchedMemory, extents: _Extents, roots: Any) -> list[tuple[int, int]]:
    """Return the blocks in whose chains one of the addresses *roots* is: several jemallocs may share a process."""
    np = import_numpy()
    places = np.array(
        [at for low, high in view.touched.items for at in range(-(-low // _BLOCK) * _BLOCK, high, _BLOCK)],
        np.int64,
    )
    places = places[are_in(view.anonymous, places)]
    at = np.searchsorted(extents.starts, places, "right") - 1
    places = places[(at < 0) | (extents.ends[np.maximum(at, 0)] <= places)]
    (sizes, following), readable = gather_words(view.memory, places, (0, 1))
    is_block = readable & (sizes > 0) & (sizes % _BLOCK == 0) & (sizes <= _MOST_BLOCK)
    blocks = {
        start: (size, after)
        for start, size, after in zip(*(column[is_block].tolist() for column in (places, sizes, following)))
    }
    roots = np.sort(roots, kind="stable")
    own = {
        start
        for start, (size, _) in blocks.items()
        if np.searchsorted(roots, start) < np.searchsorted(roots, start + size)
    }
    chains = [_chain(blocks, start) for start in blocks.keys() - {after for _, after in blocks.values()}]
    return sorted((start, start + blocks[start][0]) for chain in chains if own & chain for start in chain)


def _has_statistics(view: SearchedMemory, blocks: Sequence[tuple[int, int]]) -> bool:
    """Return whether jemalloc counts its own memory: near the start of a block, beside the bytes of a chain of them."""
    np = import_numpy()
    lengths = {end - start for start, end in blocks}
    sums = np.array(sorted(lengths | {sum(end - start for start, end in blocks)}), np.int64)
    for start, _ in blocks:
        words = data_words(view, [(start, start + 8 * _ARENA_WORDS)])
        behind = words.addresses[np.isin(words.values, sums)]
        allocated, resident = words.at(behind - 16), words.at(behind - 8)
        is_count = (allocated > 0) & (allocated <= resident) & (resident <= words.at(behind))
        if (is_count & (resident % 4096 == 0)).any():
            return True
    return False


def _chain(blocks: Mapping[int, tuple[int, int]], start: int) -> set[int]:
    """Return the blocks from *start* on; none if they lead elsewhere than to blocks."""
    chain: set[int] = set()
    while start in blocks and start not in chain:
        chain.add(start)
        start = blocks[start][1]
    return set() if start else chain


# Caches of threads (source: include/jemalloc/internal/cache_bin.h, tcache_structs.h). An arena has a ring of their
# descriptors: next, previous, the bins (in 5.2 the small and the large ones), and behind it the arena itself.


class _Caches(NamedTuple):
    cached: Counter[int]  # blocks by size
    caches: int
    is_sound: bool  # all could be read
    stacks: Sequence[tuple[int, int]]  # of the addresses of these blocks: where, and how many


def _caches(
    view: SearchedMemory, data: DataWords, blocks: Sequence[tuple[int, int]], bits: _Bits, page_bytes: int
) -> _Caches:
    """Return the blocks that the caches of all threads keep."""
    owner = bits.owner
    cached: Counter[int] = Counter()
    stacks: list[tuple[int, int]] = []
    done: set[int] = set()
    for arena in _arenas(data, blocks).tolist():
        at = _first_descriptor(view, arena, owner)
        while at and at not in done and len(done) < _MOST_CACHES:
            try:
                descriptor = words_at(view.memory, at, owner + 1)
            except MemoryUnreadable:
                return _Caches(cached, 0, False, stacks)
            if descriptor[owner] != arena:
                return _Caches(cached, 0, False, stacks)
            _add_bins(view, descriptor, bits, page_bytes, cached, stacks)
            done.add(at)
            at = descriptor[0]
    return _Caches(cached, len(done), True, stacks)


def _arenas(data: DataWords, blocks: Sequence[tuple[int, int]]) -> Any:
    """Return the addresses in *data* at which arenas may be."""
    words = distinct(data.values)
    return words[are_in(Ranges(blocks), words) & (words % _ALIGNED == 0)]


def _caches_of_threads(
    view: SearchedMemory, data: DataWords, blocks: Sequence[tuple[int, int]], bits: _Bits, page_bytes: int
) -> _Caches:
    """Return the same by the threads' own data: a cache is there and, since 5.3, leads to and from its descriptor."""
    np = import_numpy()
    cached: Counter[int] = Counter()
    stacks: list[tuple[int, int]] = []
    done: set[int] = set()
    words = data_words(view, _thread_data(view))
    for place in words.addresses[np.isin(words.values, _arenas(data, blocks))].tolist():
        if bits.has_two_arrays:
            small, large = _arrays_around(view, words, place, page_bytes)
            if small and small not in done:
                _add_bins(view, (0, 0, small, large), bits, page_bytes, cached, stacks)
                done.add(small)
            continue
        slow = place - 8 * (_LINK_WORDS + bits.owner)  # what a cache begins with the address of
        try:
            named = {
                at for at in words_at(view.memory, slow, _SLOW_WORDS) if at % 8 == 0 and at in view.touched
            }
            found = [at for at in named - done - {slow} if words_at(view.memory, at, 1) == (slow,)]
        except MemoryUnreadable:
            continue
        for at in found:
            _add_bins(view, (0, 0, at + 8), bits, page_bytes, cached, stacks)
        done.update(found)
    return _Caches(cached, len(done), True, stacks)


def _arrays_around(view: SearchedMemory, words: DataWords, arena: int, page_bytes: int) -> tuple[int, int]:
    """Return the bins for small and for large blocks of the cache of 5.2 that names its arena at *arena*; 0, 0: none.

    The small ones end before some links, the large ones begin behind a number and a byte for each of the small ones.
    Their stacks follow each other in memory, in order of size, and each bin leads to where its stack ends.
    """
    np = import_numpy()
    count = _small_bins(page_bytes)
    large = arena + 8 + (4 + count + 7 & -8)
    firsts = arena - _BIN * count - 8 * np.arange(_MOST_LINKS)
    ends = words.at(firsts[:, None] + 16 + _BIN * np.arange(count))
    behind = int(words.at(np.array([large + 16]))[0])
    is_array = (np.diff(ends, axis=1) > 0).all(axis=1) & are_in(view.anonymous, ends).all(axis=1)
    is_array &= (ends[:, -1] < behind) & (behind - ends[:, 0] < _MOST_STACKS)
    found = firsts[is_array].tolist()
    return (found[0], large) if len(found) == 1 else (0, 0)


def _small_bins(page_bytes: int) -> int:
    return sum(size < 4 * page_bytes for size in _size_classes())


def _thread_data(view: SearchedMemory) -> Sequence[tuple[int, int]]:
    """Return where thread-local data is: around each thread pointer, and what the table beside that leads to.

    Source: glibc, sysdeps/x86_64/nptl/tls.h, sysdeps/aarch64/nptl/tls.h and sysdeps/generic/dl-dtv.h: the table's
    address is the second or the first word, an entry has two words, and the number of entries is before them.
    """
    areas = [(at & -8, (at & -8) + 2 * _STATIC) for at in (max(p - _STATIC, 0) for p in view.threads)]
    for pointer in view.threads:
        for at in (pointer, pointer + 8):
            try:
                (table,) = words_at(view.memory, at, 1)
                (count, _) = words_at(view.memory, table - 16, 2)
                entries = words_at(view.memory, table + 16, 2 * count)[::2] if count < _MOST_MODULES else ()
            except MemoryUnreadable:
                continue
            areas += [
                (block, block + _DYNAMIC) for block in entries if block % 8 == 0 and block in view.touched
            ]
    return Ranges(areas).items


def _first_descriptor(view: SearchedMemory, arena: int, owner: int) -> int:
    """Return a descriptor of a cache that *arena* names, and that has the arena as word *owner*; 0: it has none."""
    _, words = data_words(view, [(arena, arena + 8 * _ARENA_WORDS)])
    words = words[(words % 8 == 0) & are_in(view.touched, words)]
    if not len(words):
        return 0
    (following, before, named), readable = gather_words(view.memory, words, (0, 1, owner))
    found = words[readable & (named == arena) & (following > 0) & (before > 0)]
    return int(found[0]) if len(found) else 0


def _add_bins(
    view: SearchedMemory,
    descriptor: Sequence[int],
    bits: _Bits,
    page_bytes: int,
    cached: Counter[int],
    stacks: list[tuple[int, int]],
) -> None:
    sizes = _size_classes()
    if bits.has_two_arrays:
        small = _small_bins(page_bytes)
        places = [descriptor[2] + _BIN * n for n in range(small)]
        places += [descriptor[3] + _BIN * n for n in range(_MOST_BINS - small)]
    else:
        places = [descriptor[2] + _BIN * n for n in range(_MOST_BINS)]
    for size, place in zip(sizes, places):
        try:
            first, _, third = words_at(view.memory, place, 3)
        except MemoryUnreadable:
            return
        head = third if bits.has_two_arrays else first
        if not head or head not in view.anonymous:
            return
        # 5.2 counts the blocks, since 5.3 they are between two positions of the stack, of which it keeps 16 bits.
        count = first >> 32 if bits.has_two_arrays else ((third >> 32 & 0xFFFF) - head & 0xFFFF) // 8
        cached[size] += count
        stacks.append((head - 8 * count if bits.has_two_arrays else head, count))


def _fits(cached: Counter[int], spans: Spans) -> bool:
    """Return whether the caches keep no more blocks of any size than are in use."""
    if not cached:
        return True
    sizes, number = spans.sizes
    used = dict(zip(sizes.tolist(), import_numpy().bincount(number, spans.live_blocks).tolist()))
    return all(count <= used.get(size, 0) for size, count in cached.items())


# Single blocks (source: include/jemalloc/internal/slab_data.h, bitmap.h): a descriptor has a bit for each block of its
# slab, set if the block is free; with larger pages than 4 KiB further bits that sum these up are behind them.


def _blocks(
    view: SearchedMemory, form: _Form, extents: _Extents, spans: Spans, stacks: Sequence[tuple[int, int]]
) -> Blocks:
    np = import_numpy()
    slab = np.flatnonzero(extents.is_slab)
    sizes = np.array(_size_classes())[extents.classes[slab]]
    firsts, counts = extents.starts[slab], extents.blocks[slab]
    memory = TouchedMemory(view)
    most = 1 << form.page_bits - _LEAST_BLOCK_BITS
    masks, readable = gather(memory, extents.descriptors[slab] + _BITMAP_AT, most // 8)
    known = readable & (counts <= most)
    free = []
    for first in range(0, len(slab), _MASKS):
        some = slice(first, first + _MASKS)
        bits = np.unpackbits(masks[some], axis=1, bitorder="little").astype(bool)
        bits &= np.arange(bits.shape[1]) < counts[some, None]
        known[some] &= bits.sum(1) == extents.free_blocks[slab[some]]
        row, number = np.nonzero(bits)
        free.append(firsts[some][row] + number * sizes[some][row])
    free += [read_words(memory, at, count) for at, count in stacks]
    used = counts - extents.free_blocks[slab]
    is_large = spans.kinds == LARGE
    at = np.searchsorted(extents.starts, spans.starts[is_large])
    found = blocks_of(
        Slabs(firsts[known], sizes[known], counts[known]),
        np.concatenate(free) if free else np.zeros(0, np.int64),
        (extents.first_blocks[at], spans.block_bytes[is_large]),
        unlisted=int(used[~known].sum()),
    )
    return found._replace(own=[at for at, _ in stacks])
