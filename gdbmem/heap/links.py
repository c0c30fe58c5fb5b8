"""Edges that lead back: to a parent, to the one before in a list. They hold a block only if nothing else does.

A stale word that leads to a leaf of a std::map would otherwise hold the whole map by the pointers to parents. Such
links are recognised by structure: both blocks lead to each other. If the blocks of one offset share their targets, it
is the pointer to a parent; if they form chains in both directions, it is a list, and the later of the two pointers
leads back. A list through blocks of several sizes is a registry of objects that others hold: neither pointer counts.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from gdbmem.arrays import import_numpy, joined
from gdbmem.heap.words import Edges

_NEAR = 4  # edges of a block among which the one that leads back is searched
_LEAST = 16  # pairs of blocks that make a class of links
_MOST = 48  # classes, and sizes
_LARGE = 1 << 16  # units of 16 bytes: larger blocks are no nodes
_ROWS = 1 << 18

TREE, LIST, REGISTRY = "tree", "list", "registry"


class Mutual(NamedTuple):
    """Edges whose target leads back: columns of one length."""

    edges: Any  # number of the edge
    sources: Any
    targets: Any
    offsets: Any  # of the pointer
    others: Any  # of the pointer back
    sizes: Any  # of both blocks, as a rank among the frequent ones; 0: they differ, or are rare


class Classified(NamedTuple):
    """Which edges lead back, and the blocks that are nodes of trees and of lists."""

    back: Any  # bool, for each edge
    trees: Any  # bool, for each block
    lists: Any


def classify(edges: Edges, sizes: Any) -> Classified:
    """Return the edges of links that lead back; *sizes* are those of the blocks."""
    np = import_numpy()
    back = edges.weak.copy()
    kinds = {kind: np.zeros(len(sizes), bool) for kind in (TREE, LIST, REGISTRY)}
    mutual = _mutual(edges, sizes)
    slot = np.zeros(len(sizes), np.int32)
    parents: set[tuple[int, int]] = set()
    for size, offset in _groups(mutual):
        here = np.flatnonzero((mutual.offsets == offset) & (mutual.sizes == size))
        targets, index = mutual.targets[here], np.arange(len(here), dtype=np.int32)
        slot[targets] = index
        if np.count_nonzero(slot[targets] != index) * 5 >= len(here):
            parents.add((size, offset))
            back[mutual.edges[here]] = True
            kinds[TREE][mutual.sources[here]] = kinds[TREE][targets] = True
    for size, offset, other in _pairs(mutual, parents):
        _chain(mutual, (size, offset, other), back, kinds)
    kinds[LIST] &= ~kinds[TREE]
    return Classified(back, kinds[TREE], kinds[LIST])


def _often(key_of: Callable[[slice], Any], count: int, least: int) -> list[int]:
    """Return the values of a key that occur at least so often, the most frequent first; *key_of* some of *count*."""
    np = import_numpy()
    counts = np.zeros(0, np.int64)
    for begin in range(0, count, _ROWS):
        more = np.bincount(key_of(slice(begin, begin + _ROWS)), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    often = np.flatnonzero(counts >= least)
    return [int(n) for n in often[np.argsort(-counts[often], kind="stable")][:_MOST]]


def _groups(mutual: Mutual) -> list[tuple[int, int]]:
    """Return each frequent size with an offset of pointers."""

    def key_of(some: slice) -> Any:
        return 256 * mutual.sizes[some] + mutual.offsets[some]

    return [divmod(key, 256) for key in _often(key_of, len(mutual.sizes), _LEAST)]


def _pairs(mutual: Mutual, parents: set[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return the pairs of offsets, the smaller first, by which blocks of a size lead to each other one to one."""
    np = import_numpy()

    def key_of(some: slice) -> Any:
        one, other = mutual.offsets[some], mutual.others[some]
        return 256 * (256 * mutual.sizes[some] + np.minimum(one, other)) + np.maximum(one, other)

    found = []
    for value in _often(key_of, len(mutual.sizes), 2 * _LEAST):
        size, low, high = value >> 16, value >> 8 & 255, value & 255
        if low != high and (size, low) not in parents and (size, high) not in parents:
            found.append((size, low, high))
    return found


def _chain(mutual: Mutual, pair: tuple[int, int, int], back: Any, kinds: dict[str, Any]) -> None:
    """Mark the links of *pair* if most blocks with one of the pointers have the other too, as in a chain."""
    np = import_numpy()
    size, low, high = pair
    forward = (mutual.offsets == low) & (mutual.others == high) & (mutual.sizes == size)
    backward = (mutual.offsets == high) & (mutual.others == low) & (mutual.sizes == size)
    every = (mutual.offsets == low) & (mutual.others == high) if not size else forward
    has_both = np.zeros(len(kinds[LIST]), bool)
    has_both[mutual.sources[every]] = True
    sources = mutual.sources[backward]
    if 2 * np.count_nonzero(has_both[sources]) < len(sources):
        return
    back[mutual.edges[backward]] = True
    if not size:
        back[mutual.edges[forward]] = True
    kind = kinds[LIST if size else REGISTRY]
    kind[sources] = kind[mutual.sources[forward]] = True


def _ranks(sizes: Any, sources: Any, targets: Any) -> Any:
    """Return for each pair of blocks the rank of their common size, from 1 on; 0 if it is rare, or they have none."""
    np = import_numpy()
    units = np.minimum(sizes >> 4, _LARGE).astype(np.int32)
    size = units[sources]
    size *= size == units[targets]
    counts = np.bincount(size) if len(size) else np.zeros(1, np.int64)
    counts[0] = 0
    counts[_LARGE:] = 0
    frequent = np.flatnonzero(counts >= _LEAST)
    frequent = frequent[np.argsort(-counts[frequent], kind="stable")][:_MOST]
    rank = np.zeros(_LARGE + 1, np.int32)
    rank[frequent] = np.arange(1, len(frequent) + 1)
    rank[0] = 0
    return rank[size]


def _mutual(edges: Edges, sizes: Any) -> Mutual:
    """Return the edges whose target leads back by one of its first pointers."""
    np = import_numpy()
    first, to = edges.first, edges.to
    of_edges = np.int32 if first[-1] < 1 << 31 else np.int64
    kinds = (of_edges, np.int32, np.int32, np.uint8, np.uint8)
    found: list[list[Any]] = [[np.zeros(0, kind)] for kind in kinds]
    for begin in range(0, len(first) - 1, _ROWS):
        end = min(begin + _ROWS, len(first) - 1)
        here = slice(int(first[begin]), int(first[end]))
        source = np.repeat(np.arange(begin, end, dtype=np.int32), np.diff(first[begin : end + 1]))
        target = to[here]
        at, stop = first[target], first[target + 1]
        other = np.full(len(source), -1, np.int64)
        for _ in range(_NEAR):
            leads = np.flatnonzero((at < stop) & (other < 0))
            leads = leads[to.take(at[leads]) == source[leads]]
            other[leads] = at[leads]
            at += 1
        is_mutual = np.flatnonzero(other >= 0)
        columns = (
            (is_mutual + here.start).astype(of_edges),
            source[is_mutual],
            target[is_mutual],
            edges.offsets[here][is_mutual],
            edges.offsets[other[is_mutual]],
        )
        for column, values in zip(found, columns):
            column.append(values)
    columns = tuple(joined(column) for column in found)
    return Mutual(*columns, sizes=_ranks(sizes, columns[1], columns[2]))
