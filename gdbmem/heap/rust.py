"""The words that programs of Rust use: nodes of B-trees, and objects of traits, whose vtables have their sizes.

A node of a B-tree has room for 11 keys and values, of which it uses the first ones, a pointer to its parent, the number
of its own place there, and its length; one with children has 12 pointers to them behind these. How the compiler has
ordered the rest is known from the tree: children lead to their parent, by the place that their numbers say, and the
lengths add up to that of the map. Source: alloc::collections::btree::node, core::ptr::DynMetadata; rustc_abi's layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.allocators.gather import gather, gather_words
from gdbmem.arrays import distinct, import_numpy, joined, places_of
from gdbmem.heap.blocks import Blocks, blocks_at, fits, sizes_of
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Memory

_KEYS, _EDGES = 11, 12
_HIGHEST = 16  # level of a root
_MOST_LENGTH = 1 << 40
_TRIED = 64  # trees of one size by which a layout is found
_SAMPLE = 1 << 12  # nodes
_COUNTS, _MOST_COUNT = 16, 1 << 32  # bytes before the value of an Rc or Arc
_LARGEST = 1 << 10  # vectors or deques whose words are looked at
_MANY = 16
_NONE = 1 << 63  # in the place of the capacity
_NODE = 1 << 8  # units of larger blocks, which are of many elements
_SMALL = 1 << 12  # what an empty vector has for a pointer, and numbers

Holders = tuple[Any, Any]  # blocks, and offsets of words there
Uses = tuple[Any, Callable[[Any, Any], Any]]


class _Roots(NamedTuple):
    """Candidates for maps: columns of a value for each."""

    blocks: Any  # of the root, int32
    heights: Any  # int64
    lengths: Any


class _Layout(NamedTuple):
    """Where the nodes of a map have what, in bytes."""

    parent: int
    place: int  # of the number of the place in the parent, 16 bits; the length follows
    size: int  # of a node without children


class _Nodes(NamedTuple):
    """Nodes of B-trees: columns of a value for each."""

    blocks: Any
    lengths: Any
    are_inner: Any


class Either(NamedTuple):
    """Candidates for vectors, or for deques that begin behind the last element: columns of a value for each."""

    blocks: Any  # int32
    lengths: Any  # of a vector, int64
    counts: Any  # elements of a deque
    slots: Any
    elements: Any  # words of each


class RustWords:
    """Collects the roots of B-trees and the pointers to objects of traits."""

    def __init__(self, files: Optional[Ranges]) -> None:
        np = import_numpy()
        self._files = files or Ranges()
        self._blocks: Optional[Blocks] = None
        none = np.zeros(0, np.int64)
        # With the words that lead to each.
        self._roots = [(none.astype(np.int32), none, none, none, none)]
        self._objects = [(none.astype(np.int32), none, none, none)]
        self._options = [(none, none, none.astype(bool))]

    def find(
        self, words: Any, at: Any, to: Any, blocks: Blocks, inside: Optional[tuple[Any, int]] = None
    ) -> None:
        """Add what is among *words*; arguments as for Containers.find()."""
        np = import_numpy()
        self._blocks = blocks
        some = np.flatnonzero(blocks.addresses(to) == words[at].view(np.int64))
        some = some[: np.searchsorted(at[some], len(words) - 2)]
        place = at[some]
        following, further = (words[place + n].view(np.int64) for n in (1, 2))
        may_be_root = (following - 1).view(np.uint64) < np.uint64(_HIGHEST)
        may_be_root &= (further > _KEYS).view(bool) & (further < _MOST_LENGTH)
        roots = np.flatnonzero(may_be_root)
        own, offsets = np.full((2, len(place)), -1)
        if inside is not None:
            own, offsets = holders_of(place, blocks, inside[1])
        columns = (to[some], following, further, own, offsets)
        self._roots.append(tuple(column[roots] for column in columns))
        bounds = self._files.bounds
        if len(bounds):
            near = np.flatnonzero((following >= bounds[0]) & (following < bounds[-1]) & (following % 8 == 0))
            near = near[np.searchsorted(bounds, following[near], "right") & 1 == 1]
            self._objects.append((to[some[near]], following[near], own[near], offsets[near]))
        if inside is not None:
            self._find_options(words, blocks, inside[1])

    def _find_options(self, words: Any, blocks: Blocks, at_word: int) -> None:
        """Add the words behind those by which the option of a vector or a string says that it has none."""
        np = import_numpy()
        at = np.flatnonzero(words[:-1] == np.uint64(_NONE)) + 1
        own, offsets = holders_of(at, blocks, at_word)
        self._options.append((own, offsets, blocks_at(blocks, words[at].view(np.int64)) >= 0))

    def unused_words(self) -> tuple[Any, Any]:
        """Return the words of options that have none: blocks and offsets.

        Other enumerations have a value there: then all such words in blocks of one size, or of a large block, are
        pointers.
        """
        np = import_numpy()
        own, offsets, are_pointers = (joined(list(column)) for column in zip(*self._options))
        if self._blocks is None or not len(own):
            return own, offsets
        units = sizes_of(self._blocks, own) >> 4
        is_node = (units < _NODE) & (offsets < 2 * _NODE)
        places, which = places_of(np.where(is_node, units * 2 * _NODE + offsets, -1 - own))
        others = np.bincount(which[~are_pointers], minlength=len(places))
        some = np.flatnonzero(others[which] > 0)
        return own[some], offsets[some]

    def uses(self, memory: Memory, counts: Optional[Callable[[Any, Any], Any]]) -> Iterator[Uses]:
        """Yield the same as Containers.uses()."""
        if self._blocks is None:
            return
        roots = _Roots(*_counting(self._roots, counts))
        sizes = sizes_of(self._blocks, roots.blocks)
        for size in distinct(sizes).tolist():
            some = sizes == size
            yield from _trees(self._blocks, memory, size, _Roots(*(column[some] for column in roots)))
        yield self._uses_of_objects(self._blocks, memory, counts)

    def readings(self, memory: Memory, either: Either) -> tuple[Any, Any]:
        """Return which of *either* may be vectors, and which may be deques.

        If all used words in each column are alike by one reading only, it is that one. If they are by both, those are
        deques of which many further elements are such, too: the number behind a vector's length is hardly ever one
        by which the words behind its end are, but a deque's first part often has older words.
        """
        np = import_numpy()
        may_be = np.ones((2, len(either.blocks)), bool)
        if self._blocks is None:
            return may_be[0], may_be[1]
        largest = np.argsort(-either.slots * either.elements, kind="stable")[:_LARGEST]
        addresses = self._blocks.addresses(either.blocks[largest]).tolist()
        for n, address in zip(largest.tolist(), addresses):
            length, count, slots, size = (int(column[n]) for column in either[1:])
            rows, _ = gather(memory, np.array([address]), 8 * slots * size)
            words, slot = rows.view(np.int64).reshape(slots, size), np.arange(slots)
            kinds = _kinds(self._blocks, words)
            parts = slot < length, (slot - length) % slots < count
            sound = [_are_alike(kinds[some]) for some in parts]
            further = kinds[parts[1] & ~parts[0]] == 2
            sound[0] &= not (sound[1] and len(further) >= _MANY and further.all(0).any())
            if any(sound):
                may_be[:, n] = sound
        return may_be[0], may_be[1]

    def _uses_of_objects(
        self, blocks: Blocks, memory: Memory, counts: Optional[Callable[[Any, Any], Any]]
    ) -> Uses:
        """Return what objects of traits use, by the sizes in their vtables."""
        np = import_numpy()
        to, vtables = _counting(self._objects, counts)
        known, which = places_of(vtables)
        (drop, size, align), readable = gather_words(memory, known, range(3))
        is_vtable = readable & (drop >= 0) & (align > 0) & (align & (align - 1) == 0) & (align <= 64)
        is_vtable &= (size >= 0) & (size < _MOST_LENGTH) & (size & (align - 1) == 0)
        size, ok, sizes = size[which], is_vtable[which], sizes_of(blocks, to)
        counted = size + np.maximum(align[which], _COUNTS)
        numbers, _ = gather_words(memory, blocks.addresses(to), range(_COUNTS // 8))
        has_counts = np.logical_and.reduce([(count > 0) & (count < _MOST_COUNT) for count in numbers])
        alone, shared = fits(sizes, size, blocks) & (size > 0), fits(sizes, counted, blocks) & has_counts
        some = np.flatnonzero(ok & (alone | shared))
        used = np.where(shared, counted, size)[some] >> 3  # whole words
        return to[some], lambda which, offsets: offsets < used[which]


def holders_of(at: Any, blocks: Blocks, at_word: int) -> Holders:
    """Return the blocks that have the words *at* these places, the first of which is number *at_word*, and offsets."""
    np = import_numpy()
    own = blocks.number_at((at + at_word) >> 1)
    return own, at + at_word - 2 * blocks.unit[own].astype(np.int64)


def _counting(pieces: list[Any], counts: Optional[Callable[[Any, Any], Any]]) -> list[Any]:
    """Return the columns of *pieces* but the last two, which are the blocks and words by which each counts or not."""
    *columns, own, offsets = (joined(list(column)) for column in zip(*pieces))
    if counts is None:
        return columns
    some = own < 0
    some[~some] = counts(own[~some], offsets[~some])
    return [column[some] for column in columns]


def _trees(blocks: Blocks, memory: Memory, size: int, roots: _Roots) -> Iterator[Uses]:
    """Yield the nodes of those of *roots*, blocks of *size* bytes, that are roots of B-trees, and what they use."""
    for spare in range(0, 32, 8):
        leaf = size - blocks.header_bytes - spare - 8 * _EDGES
        if leaf <= 0 or not len(roots.blocks):
            return
        for layout in _layouts(blocks, memory, leaf, roots):
            nodes, is_one = _walk(blocks, memory, layout, roots)
            if is_one.any():
                arrays = _arrays(blocks, memory, layout, nodes)
                yield _uses_of_nodes(layout, arrays, nodes)
                roots = _Roots(*(column[~is_one] for column in roots))


def _layouts(blocks: Blocks, memory: Memory, leaf: int, roots: _Roots) -> list[_Layout]:
    """Return the layouts by which the first two children of some of *roots* lead back to these."""
    np = import_numpy()
    found: dict[_Layout, None] = {}
    for root in roots.blocks[:_TRIED].tolist():
        address = int(blocks.addresses(np.array([root]))[0])
        rows, readable = gather(memory, np.array([address]), leaf + 16)
        children = rows[0, leaf:].copy().view(np.int64)
        numbers = blocks_at(blocks, children)
        if not readable.all() or (numbers < 0).any() or len(distinct(sizes_of(blocks, numbers))) > 1:
            continue
        below, readable = gather(memory, children, leaf)
        parents = np.flatnonzero((below.view(np.int64) == address).all(0))
        lengths = np.vstack((below, rows[:, :leaf])).view(np.uint16).astype(np.int64)
        is_length = ((lengths[:, 1:] > 0) & (lengths[:, 1:] <= _KEYS)).all(0)
        places = np.flatnonzero((lengths[0, :-1] == 0) & (lengths[1, :-1] == 1) & is_length)
        if readable.all():
            found.update(
                (_Layout(8 * p, 2 * n, leaf), None) for p in parents.tolist() for n in places.tolist()
            )
    return [layout for layout in found if not layout.parent <= layout.place < layout.parent + 8]


def _kinds(blocks: Blocks, words: Any) -> Any:
    """Return for each of *words* 0 if it is small, 2 if it leads to the beginning of a live block, else 1."""
    np = import_numpy()
    kinds = np.where((words >= 0) & (words < _SMALL), 0, 1)
    kinds[blocks_at(blocks, words.ravel()).reshape(words.shape) >= 0] = 2
    return kinds


def _are_alike(kinds: Any) -> bool:
    """Return whether no column has both pointers to blocks and what is neither such a pointer nor small."""
    return not ((kinds == 2).any(0) & (kinds == 1).any(0)).any()


def _walk(blocks: Blocks, memory: Memory, layout: _Layout, roots: _Roots) -> tuple[_Nodes, Any]:
    """Return the nodes of all trees of this *layout*, and which of *roots* are such."""
    np = import_numpy()
    is_one = np.ones(len(roots.blocks), bool)
    sums = np.zeros(len(roots.blocks), np.int64)
    tree, nodes, left = np.arange(len(roots.blocks)), roots.blocks, roots.heights
    found = []
    while len(nodes):
        rows, readable = gather(memory, blocks.addresses(nodes), layout.size)
        length = _number(rows, layout.place + 2)
        is_one[tree[~readable | (length < 1) | (length > _KEYS)]] = False
        np.add.at(sums, tree, length)
        keep = np.flatnonzero(is_one[tree] & (sums[tree] <= roots.lengths[tree]))
        found.append((tree[keep], nodes[keep], length[keep], left[keep] > 0))
        inner = keep[left[keep] > 0]
        rows, _ = gather(memory, blocks.addresses(nodes[inner]) + layout.size, 8 * _EDGES)
        edge = np.arange(_EDGES)
        used = edge <= length[inner, None]
        children, above = rows.view(np.int64)[used], np.repeat(inner, length[inner] + 1)
        numbers, of_tree = blocks_at(blocks, children), tree[above]
        rows, readable = gather(memory, children, layout.size)
        is_child = readable & (numbers >= 0) & (_number(rows, layout.place) == np.nonzero(used)[1])
        parents = rows[:, layout.parent : layout.parent + 8].copy().view(np.int64)[:, 0]
        is_child &= parents == blocks.addresses(nodes[above])
        is_one[of_tree[~is_child]] = False
        here = np.flatnonzero(is_child)
        tree, nodes, left = of_tree[here], numbers[here], left[above[here]] - 1
    is_one &= sums == roots.lengths
    tree, numbers, lengths, are_inner = (joined(list(column)) for column in zip(*found))
    some = is_one[tree]
    return _Nodes(numbers[some], lengths[some], are_inner[some]), is_one


def _number(rows: Any, at: int) -> Any:
    """Return the 16 bits *at* this byte of each of *rows*."""
    np = import_numpy()
    return rows[:, at : at + 2].copy().view(np.uint16)[:, 0].astype(np.int64)


def _arrays(blocks: Blocks, memory: Memory, layout: _Layout, nodes: _Nodes) -> list[tuple[int, int]]:
    """Return where the keys and the values of *nodes* begin, and the bytes of each of them.

    The compiler puts what has the larger power of two as a factor first, in each of both parts around the parent. If
    that can be two arrays of pointers, those count in whose columns words are most alike.
    """
    np = import_numpy()
    some = np.linspace(0, len(nodes.blocks) - 1, min(len(nodes.blocks), _SAMPLE)).astype(np.int64)
    rows, _ = gather(memory, blocks.addresses(nodes.blocks[some]), layout.size)
    kinds, lengths = _kinds(blocks, rows.view(np.int64)), nodes.lengths[some]
    parts = ((0, layout.parent), (layout.parent + 8, layout.place))
    if layout.place < layout.parent:
        parts = ((0, layout.place), (layout.place + 4, layout.parent))
    choices: list[list[tuple[int, int]]] = [[]]
    for begin, end in parts:
        each, begin = (end - (begin + 7 & -8)) // _KEYS, begin + 7 & -8
        if each <= 0:
            continue
        alone = [(begin, each)]
        pairs = [[(begin, one), (begin + _KEYS * one, each - one)] for one in range(8, each, 8)]
        choices = [before + more for before in choices for more in ([alone] if before else [alone, *pairs])]
    return min(choices, key=lambda arrays: _unlikeness(kinds, lengths, arrays))


def _unlikeness(kinds: Any, lengths: Any, arrays: list[tuple[int, int]]) -> float:
    """Return how often two words in one column of used elements are of different *kinds*."""
    np = import_numpy()
    pairs = words = 0.0
    for begin, size in arrays:
        if size % 8:
            continue
        counts = np.zeros((size // 8, 3))
        for slot in range(_KEYS):
            used = kinds[lengths > slot, (begin + slot * size) // 8 :][:, : size // 8]
            for kind in range(3):
                counts[: used.shape[1], kind] += (used == kind).sum(0)
        total = counts.sum(1)
        words += total.sum()
        pairs += (total - (counts**2).sum(1) / np.maximum(total, 1)).sum()
    return float(pairs / max(words, 1))


def _uses_of_nodes(layout: _Layout, arrays: list[tuple[int, int]], nodes: _Nodes) -> Uses:
    """Return the *nodes* and what they use: the pointers to their parents are links back."""
    np = import_numpy()
    slots = np.full(layout.size // 8 + _EDGES, _EDGES + 1)  # for each word the length that it is used from on
    for begin, size in arrays:
        at = np.arange(begin // 8, min((begin + _KEYS * size) // 8, layout.size // 8))
        slots[at] = (8 * at - begin) // size + 1
    slots[layout.size // 8 :] = np.arange(_EDGES)
    slots[layout.parent // 8] = _EDGES + 1
    leaf = layout.size // 8

    def is_used(which: Any, offsets: Any) -> Any:
        needed = slots.take(offsets, mode="clip")
        return (nodes.lengths[which] >= needed) & ((offsets < leaf) | nodes.are_inner[which])

    return nodes.blocks, is_used
