"""Pools that a program keeps in malloc's blocks: many objects in one block, which is one node of the graph.

A block counts as a pool if words of other blocks lead to many places in it (perl, PostgreSQL), or if it begins with
two addresses in itself, of which one is its end, as pools note how far they are filled (nginx, PostgreSQL, APR).
"""

from __future__ import annotations

from typing import Any

from gdbmem.allocators.gather import gather_words
from gdbmem.arrays import distinct, import_numpy, places_of
from gdbmem.heap.blocks import Blocks
from gdbmem.heap.words import Edges
from gdbmem.model.heap_graph import Pools
from gdbmem.model.memory import Memory

_LEAST_BYTES = 1 << 10  # of a block
_LEAST_SHARE = 0.1  # of the live bytes, that large blocks have, or pools
_MOST_BLOCKS = 1 << 16  # that are looked at, the largest
_HEAD = range(12)  # words in which a pool notes how far it is filled
_BEHIND = 16  # bytes that a block may have beyond what was asked for
_LEAST_WORDS, _LEAST_PLACES = 16, 8  # that lead to a pool, and in it
_SAMPLE, _SIZES, _MOST_WORDS = 4, 32, 1 << 14  # blocks of a size that are looked at, sizes, words
_ROWS = 1 << 20


def find_pools(memory: Memory, blocks: Blocks, edges: Edges) -> Pools:
    """Return how many blocks are pools, none if these have a small part of the live bytes."""
    np = import_numpy()
    sizes = blocks.sizes()
    least = _LEAST_SHARE * int(sizes.sum(where=blocks.live, dtype=np.int64))
    large = np.flatnonzero(blocks.live & (sizes >= _LEAST_BYTES))
    if len(large) > _MOST_BLOCKS:
        large = np.sort(large[np.argsort(sizes[large])[-_MOST_BLOCKS:]])
    if not len(large) or int(sizes[large].sum(dtype=np.int64)) < least:
        return Pools(0, 0)
    is_pool = _noting_their_end(memory, blocks, large, sizes[large])
    is_pool |= _led_to_at_many_places(memory, blocks, edges, large, sizes[large])
    size = int(sizes[large[is_pool]].sum(dtype=np.int64))
    return Pools(int(np.count_nonzero(is_pool)), size) if size >= least else Pools(0, 0)


def _noting_their_end(memory: Memory, blocks: Blocks, numbers: Any, sizes: Any) -> Any:
    """Return which of the blocks *numbers* begin with their end, and with an address before it."""
    np = import_numpy()
    starts = blocks.addresses(numbers)
    ends = starts + sizes - blocks.header_bytes
    words, readable = gather_words(memory, starts, _HEAD)
    has_end, inner = np.zeros(len(numbers), bool), np.zeros(len(numbers), np.int8)
    for word in words:
        has_end |= (ends - _BEHIND <= word) & (word <= ends)
        inner += (starts + 16 <= word) & (word <= ends)
    return readable & has_end & (inner >= 2)


def _led_to_at_many_places(memory: Memory, blocks: Blocks, edges: Edges, numbers: Any, sizes: Any) -> Any:
    """Return to which of the blocks *numbers* words of others lead at many places: of each size some are looked at."""
    np = import_numpy()
    led_to = _words_to(blocks, edges, numbers) >= _LEAST_WORDS
    _, which = places_of(sizes)
    groups = [
        np.flatnonzero(led_to & (which == kind))
        for kind in np.argsort(-np.bincount(which, weights=sizes * led_to))[:_SIZES]
    ]
    samples = [mine[:: max(len(mine) // _SAMPLE, 1)] for mine in groups]
    places = np.zeros(len(numbers), np.int64)
    looked_at = distinct(np.concatenate(samples))
    places[looked_at] = _places_in(memory, blocks, edges, numbers[looked_at])
    found = np.zeros(len(numbers), bool)
    for mine, some in zip(groups, samples):
        found[mine] = 2 * np.count_nonzero(places[some] >= _LEAST_PLACES) > len(some)
    return found


def _words_to(blocks: Blocks, edges: Edges, numbers: Any) -> Any:
    """Return how many words lead to each of the blocks *numbers*, int32."""
    np = import_numpy()
    place, count = np.full(blocks.count, -1, np.int32), np.zeros(len(numbers), np.int32)
    place[numbers] = np.arange(len(numbers))
    for begin in range(0, len(edges.to), _ROWS):
        mine = place[edges.to[begin : begin + _ROWS]]
        np.add.at(
            count, mine[mine >= 0], np.int32(1)
        )  # a plain 1 would have another type: forty times as long
    return count


def _places_in(memory: Memory, blocks: Blocks, edges: Edges, numbers: Any) -> Any:
    """Return at how many places of each of the blocks *numbers*, in order, words of others lead to it."""
    np = import_numpy()
    mark = np.zeros(blocks.count, bool)
    mark[numbers] = True
    some = np.concatenate([
        begin + np.flatnonzero(mark[edges.to[begin : begin + _ROWS]])
        for begin in range(0, len(edges.to), _ROWS)
    ] or [numbers[:0]])  # fmt: skip
    some = some[:: max(len(some) // _MOST_WORDS, 1)]
    holders = np.searchsorted(edges.first, some.astype(edges.first.dtype), "right") - 1
    (values,), readable = gather_words(memory, blocks.addresses(holders) + 8 * edges.word_numbers(some), (0,))
    of = np.searchsorted(numbers, edges.to[some])
    inner = readable & (holders != numbers[of]) & (values > blocks.addresses(numbers[of]))
    ends = of[inner], values[inner]
    order = np.lexsort(ends[::-1])
    of, values = (column[order] for column in ends)
    new = np.ones(len(of), bool)
    new[1:] = (of[1:] != of[:-1]) | (values[1:] != values[:-1])
    return np.bincount(of[new], minlength=len(numbers))
