"""Edges that lead back: to a parent, to the one before in a list. They hold a block only if nothing else does.

A stale word that leads to a leaf of a std::map would otherwise hold the whole map by the pointers to parents. Such
links are recognised by structure: both blocks lead to each other. If the blocks of one offset share their targets, it
is the pointer to a parent; if they form chains in both directions, it is a list, and the later of the two pointers
leads back. A list through blocks of several sizes is a registry of objects that others hold: neither pointer counts.

A block to which one other alone leads is a part of that one, as the memory of a vector is: an object and its parts may
lead to another object, and that one's parts back. Where objects share the targets of such a pointer, it leads to a
parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gdbmem.arrays import distinct, import_numpy, joined, places_of
from gdbmem.heap.words import Edges
from gdbmem.model.heap_blocks import LARGEST_NODE

_NEAR = 4  # edges of a block among which the one that leads back is searched
_LEAST = 16  # pairs of blocks that make a class of links
_MOST = 48  # classes, and sizes
_NOT_MUTUAL = 255  # instead of a rank
_NO_UNITS = (1 << 16) - 1  # of 16 bytes: blocks so large are no nodes
_MIXED = 1 << 15  # added to the smaller of two sizes that differ by one unit
_ROWS = 1 << 16  # blocks whose edges are looked at together
_PARTS = 8  # of parts, up to an object
_KINDS = 1 << 8  # sizes in units of 16 bytes; larger ones are one kind
_FAR = 255  # the offset of words beyond that many
_SPREADING = 0x9E3779B97F4A7C15
_FEW = 16  # edges of which one is looked at make a search faster than to list the blocks of all

TREE, LIST, REGISTRY = "tree", "list", "registry"


class Mutual(NamedTuple):
    """The edges whose target leads back: columns of one value for each edge."""

    edges: Edges
    others: Any  # uint8: offset of the pointer back
    # uint8: of the size of both blocks among the frequent ones; 0: they differ, or are rare; _NOT_MUTUAL.
    ranks: Any

    def pieces(self) -> Iterator[tuple[slice, slice, Any]]:
        """Yield some blocks, their edges, and which of these are mutual."""
        for blocks, edges in _pieces(self.edges):
            yield blocks, edges, self.ranks[edges] != _NOT_MUTUAL


class Classified(NamedTuple):
    """Which edges lead back, and the blocks that are nodes of trees and of lists."""

    back: Any  # bool, for each edge
    trees: Any  # bool, for each block
    lists: Any


def classify(edges: Edges, sizes: Any) -> Classified:
    """Return the edges of links that lead back; *sizes* are those of the blocks."""
    np = import_numpy()
    mutual = _mutual(edges, sizes)
    back = edges.weak.copy()
    kinds = {kind: np.zeros(len(sizes), bool) for kind in (TREE, LIST, REGISTRY)}
    parents: set[tuple[int, int]] = set()
    for group in _groups(mutual):
        if _is_of_parents(mutual, group, len(sizes)):
            parents.add(group)
            for blocks, here, marked in _of_group(mutual, group):
                back[here] |= marked
                kinds[TREE][_sources(edges, blocks, marked)] = True
                kinds[TREE][edges.to[here][marked]] = True
    for pair in _pairs(mutual, parents):
        _chain(mutual, pair, back, kinds)
    back[_to_parents_of_objects(edges, sizes)] = True
    is_node = sizes <= LARGEST_NODE
    kinds[TREE] &= is_node
    kinds[LIST] &= ~kinds[TREE] & is_node
    return Classified(back, kinds[TREE], kinds[LIST])


def _pieces(edges: Edges) -> Iterator[tuple[slice, slice]]:
    """Yield some blocks after others, with their edges."""
    first = edges.first
    for begin in range(0, len(first) - 1, _ROWS):
        end = min(begin + _ROWS, len(first) - 1)
        yield slice(begin, end), slice(int(first[begin]), int(first[end]))


def _sources(edges: Edges, blocks: slice, marked: Any) -> Any:
    """Return from which block each *marked* one of the edges of *blocks* leads."""
    np = import_numpy()
    first = edges.first[blocks.start : blocks.stop + 1]
    at = np.flatnonzero(marked)
    if _FEW * len(at) < len(marked):
        at = (at + first[0]).astype(first.dtype)
        return (np.searchsorted(first, at, "right") + (blocks.start - 1)).astype(np.int32)
    return _all_sources(edges, blocks)[at]


def _all_sources(edges: Edges, blocks: slice) -> Any:
    """Return from which block each of the edges of *blocks* leads."""
    np = import_numpy()
    counts = np.diff(edges.first[blocks.start : blocks.stop + 1])
    return np.repeat(np.arange(blocks.start, blocks.stop, dtype=np.int32), counts)


def _of_group(mutual: Mutual, group: tuple[int, int]) -> Iterator[tuple[slice, slice, Any]]:
    """Yield the same as Mutual.pieces() for the edges of blocks of one size at one offset, where there are any."""
    size, offset = group
    for blocks, here in _pieces(mutual.edges):
        marked = (mutual.ranks[here] == size) & (mutual.edges.offsets[here] == offset)
        if marked.any():
            yield blocks, here, marked


def _is_of_parents(mutual: Mutual, group: tuple[int, int], count: int) -> bool:
    """Return whether a fifth of the edges of *group* share their targets with others; *count* is that of all blocks."""
    np = import_numpy()
    seen, number = np.zeros(count, bool), 0
    for _, here, marked in _of_group(mutual, group):
        targets = mutual.edges.to[here][marked]
        seen[targets] = True
        number += len(targets)
    return bool((number - np.count_nonzero(seen)) * 5 >= number)


def _often(keys: Iterable[Any], least: int) -> list[int]:
    """Return the values that occur in *keys* at least so often, the most frequent first."""
    np = import_numpy()
    counts = np.zeros(0, np.int64)
    for some in keys:
        more = np.bincount(some, minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    often = np.flatnonzero(counts >= least)
    return [int(n) for n in often[np.argsort(-counts[often], kind="stable")][:_MOST]]


def _groups(mutual: Mutual) -> list[tuple[int, int]]:
    """Return each frequent size with an offset of pointers."""
    np = import_numpy()
    keys = (
        mutual.ranks[here][some].astype(np.int32) << 8 | mutual.edges.offsets[here][some]
        for _, here, some in mutual.pieces()
    )
    return [divmod(key, 256) for key in _often(keys, _LEAST)]


def _pairs(mutual: Mutual, parents: set[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return the pairs of offsets, the smaller first, by which blocks of a size lead to each other one to one."""
    np = import_numpy()

    def key(here: slice, some: Any) -> Any:
        one, other = mutual.edges.offsets[here][some], mutual.others[here][some]
        keys = mutual.ranks[here][some].astype(np.int32) << 16 | np.maximum(one, other)
        keys |= np.minimum(one, other).astype(np.int32) << 8
        return keys

    found = []
    for value in _often((key(here, some) for _, here, some in mutual.pieces()), 2 * _LEAST):
        size, low, high = value >> 16, value >> 8 & 255, value & 255
        if low != high and (size, low) not in parents and (size, high) not in parents:
            found.append((size, low, high))
    return found


def _chain(mutual: Mutual, pair: tuple[int, int, int], back: Any, kinds: dict[str, Any]) -> None:
    """Mark the links of *pair* if most blocks with one of the pointers have the other too, as in a chain."""
    np = import_numpy()
    size, low, high = pair
    edges, has_one = mutual.edges, np.zeros(len(kinds[LIST]), bool)
    number = total = 0  # of blocks with the later pointer those that have the earlier one, too, and all
    for blocks, here, some in mutual.pieces():
        is_one, is_other = _pair_edges(mutual, here, some, low, high)
        is_of_size = mutual.ranks[here] == size
        one = _sources(edges, blocks, is_one & is_of_size if size else is_one)
        other = _sources(edges, blocks, is_other & is_of_size)
        has_one[one] = True
        number += int(np.count_nonzero(has_one[other]))
        total += len(other)
    if 2 * number < total:
        return
    kind = kinds[LIST if size else REGISTRY]
    for blocks, here, some in mutual.pieces():
        is_one, is_other = _pair_edges(mutual, here, some, low, high)
        is_of_size = mutual.ranks[here] == size
        back[here] |= is_other & is_of_size if size else (is_one | is_other) & is_of_size
        kind[_sources(edges, blocks, (is_one | is_other) & is_of_size)] = True


def _pair_edges(mutual: Mutual, here: slice, some: Any, low: int, high: int) -> tuple[Any, Any]:
    """Return which of the edges *here* are pointers at *low* that lead to those at *high*, and the other way round."""
    offsets, others = mutual.edges.offsets[here], mutual.others[here]
    return some & (offsets == low) & (others == high), some & (offsets == high) & (others == low)


def _mutual(edges: Edges, sizes: Any) -> Mutual:
    """Return the edges whose target leads back by one of its first pointers."""
    np = import_numpy()
    first, to = edges.first, edges.to
    others, units = np.zeros(len(to), np.uint8), np.full(len(to), _NO_UNITS, np.uint16)
    for blocks, here in _pieces(edges):
        target = to[here]
        at, stop = first[target], first[target + 1]
        some = np.flatnonzero(at < stop)
        source = _all_sources(edges, blocks)[some]
        at, stop = at[some], stop[some]
        for _ in range(_NEAR):
            leads_back = to.take(at) == source
            found = np.flatnonzero(leads_back)
            place, one = some[found], source[found]
            others[here][place] = edges.offsets[at[found]]
            size, other = sizes[one] >> 4, sizes[target[place]] >> 4
            smaller = np.minimum(size, other)
            is_node = (np.maximum(size, other) - smaller <= 1) & (smaller < _MIXED)
            units[here][place] = np.where(is_node, smaller + _MIXED * (size != other), 0)
            at += 1
            rest = np.flatnonzero(~leads_back & (at < stop))
            some, source, at, stop = some[rest], source[rest], at[rest], stop[rest]
    return Mutual(edges, others, _ranks(edges, units))


def _ranks(edges: Edges, units: Any) -> Any:
    """Return for the sizes of edges' blocks, *units*, the rank of each among the frequent ones, from 1 on.

    A block may be 16 bytes larger than others of its kind, where malloc could not split the rest off: if few are, both
    are of one size.
    """
    np = import_numpy()
    counts = np.zeros(_NO_UNITS + 1, np.int64)
    for _, here in _pieces(edges):
        counts += np.bincount(units[here], minlength=len(counts))
    counts[[0, _NO_UNITS]] = 0
    alike, mixed = counts[:_MIXED], counts[_MIXED:-1]
    frequent = np.flatnonzero(alike >= _LEAST)
    frequent = frequent[np.argsort(-alike[frequent], kind="stable")][:_MOST]
    rank = np.zeros(_NO_UNITS + 1, np.uint8)
    rank[frequent] = np.arange(1, len(frequent) + 1)
    few = frequent[2 * mixed[frequent] <= alike[frequent]]
    rank[few + _MIXED] = rank[few]
    larger = few[rank[few + 1] == 0] + 1
    rank[larger] = rank[larger - 1]
    rank[_NO_UNITS] = _NOT_MUTUAL
    return rank[units]


# Pointers to parents from and to the parts of objects.


class _Objects(NamedTuple):
    """For each block the one that it is a part of, int32, and whether it is an object itself: columns."""

    holders: Any  # itself: none
    is_one: Any

    def ends(self, sources: Any, targets: Any) -> tuple[Any, Any]:
        """Return which of the edges from *sources* to *targets* lead from one object to another, and from which."""
        np = import_numpy()
        some = np.flatnonzero(self.is_one.take(targets))
        origin = sources[some]
        for _ in range(_PARTS):
            above = self.holders.take(origin)
            if (above == origin).all():
                break
            origin = above
        keep = np.flatnonzero((origin != targets[some]) & self.is_one.take(origin))
        return some[keep], origin[keep]


def _to_parents_of_objects(edges: Edges, sizes: Any) -> Any:
    """Return the positions of the edges that lead from an object, or a part of it, to the object's parent."""
    np = import_numpy()
    objects = _objects(edges, len(sizes))
    from_parts = _from_parts(edges, objects)
    none = np.zeros(0, np.int64)
    if len(from_parts) < _LEAST:
        return none
    shift = np.uint64(64 - max(16, len(from_parts).bit_length() + 3))
    table = np.zeros(
        1 << 64 - int(shift), bool
    )  # most pairs are not among them: that is seen in a small table
    table[from_parts * np.uint64(_SPREADING) >> shift] = True
    usual = np.zeros(2 * _KINDS * (_FAR + 1), np.int32)  # edges between objects, by what _kinds_of() returns
    found, pairs, kinds = [none], [from_parts[:0]], [none]
    for sure, source, target in _sure(edges):
        some, origin = objects.ends(source, target)
        kind = _kinds_of(sizes[source[some]], edges.offsets[sure[some]], origin != source[some])
        np.add.at(usual, kind, np.int32(1))  # a plain 1 takes forty times as long: its type is another one
        back = _pairs_of(target[some], origin)
        at = np.flatnonzero(table[back * np.uint64(_SPREADING) >> shift])
        where = np.searchsorted(from_parts, back[at])
        at = at[from_parts.take(where, mode="clip") == back[at]]
        found.append(sure[some[at]])
        pairs.append(_pairs_of(origin[at], target[some[at]]))
        kinds.append(kind[at])
    return joined(found)[_lead_to_parents(joined(pairs), joined(kinds), usual)]


def _kinds_of(sizes: Any, offsets: Any, of_part: Any) -> Any:
    """Return for edges one number of their block's size, their offset in it, and whether it is part of an object."""
    np = import_numpy()
    units = np.minimum(sizes >> 4, _KINDS - 1).astype(np.int64)
    return (units * (_FAR + 1) + offsets) * 2 + of_part


def _lead_to_parents(pairs: Any, kinds: Any, usual: Any) -> Any:
    """Return which edges lead to parents, by their *pairs* of objects, which lead to each other, and their kinds.

    Those of a kind do if most edges of that kind (*usual*) lead back so, and a fifth share their targets. If both
    directions are of one kind, as the first child in a vector may be, more lead to the parent.
    """
    np = import_numpy()
    names, which = places_of(kinds)
    number = np.bincount(which, minlength=len(names))
    origins, targets = pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)
    ends, of_end = places_of(which.astype(np.uint64) << np.uint64(32) | targets)
    leads = np.bincount(of_end, minlength=len(ends))
    shared = number - np.bincount((ends >> np.uint64(32)).astype(np.int64), minlength=len(names))
    is_one = (number >= _LEAST) & (2 * number >= usual[names]) & (5 * shared >= number)
    is_one &= (names // 2 % (_FAR + 1) < _FAR) & (names // 2 // (_FAR + 1) < _KINDS - 1)
    result = is_one[which]
    some = np.flatnonzero(result)
    back = _pairs_of(targets[some], origins[some])
    both = some[np.isin(back, pairs[some])]  # of any of these kinds
    at = np.searchsorted(ends, which[both].astype(np.uint64) << np.uint64(32) | origins[both])
    is_known = ends.take(at, mode="clip") == (which[both].astype(np.uint64) << np.uint64(32) | origins[both])
    result[both] = leads[of_end[both]] > np.where(is_known, leads.take(at, mode="clip"), 0)
    return result


def _sure(edges: Edges) -> Iterator[tuple[Any, Any, Any]]:
    """Yield some edges that are not weak after others, their sources and targets."""
    np = import_numpy()
    for blocks, here in _pieces(edges):
        sure = np.flatnonzero(~edges.weak[here])
        yield sure + here.start, _all_sources(edges, blocks)[sure], edges.to[here][sure]


def _objects(edges: Edges, count: int) -> _Objects:
    """Return the objects: blocks that are not part of another one."""
    np = import_numpy()
    own = np.arange(count, dtype=np.int32)
    holder, several = own.copy(), np.zeros(count, bool)
    for _, source, target in _sure(edges):
        before = holder.take(target)
        several[target[np.flatnonzero((before != target) & (before != source))]] = True
        holder[target] = source
        several[target[np.flatnonzero(holder.take(target) != source)]] = True
    np.copyto(holder, own, where=several)
    return _Objects(holder, holder == own)


def _from_parts(edges: Edges, objects: _Objects) -> Any:
    """Return the pairs of objects (uint64, sorted) of which a part of the first leads to the second."""
    np = import_numpy()
    pairs = [np.zeros(0, np.uint64)]
    for _, source, target in _sure(edges):
        some, origin = objects.ends(source, target)
        is_part = np.flatnonzero(origin != source[some])
        pairs.append(_pairs_of(origin[is_part], target[some[is_part]]))
    return distinct(joined(pairs))


def _pairs_of(first: Any, second: Any) -> Any:
    np = import_numpy()
    pairs = first.astype(np.uint64)
    pairs <<= np.uint64(32)
    pairs |= second.astype(np.uint64)
    return pairs
