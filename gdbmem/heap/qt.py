"""The words of their blocks that lists and hash tables of Qt 5 use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gdbmem.allocators.gather import gather_words
from gdbmem.arrays import import_numpy, joined, runs_of
from gdbmem.heap.blocks import Blocks, blocks_at, fits, sizes_of
from gdbmem.heap.rust import Uses
from gdbmem.model.memory import Memory

_MOST_REFERENCES = 1 << 24  # to a list or a table
_HEADER = 16  # bytes of a list, before its elements
_TABLE_BYTES, _LEAST_NODE, _MOST_NODE = 64, 16, 1 << 16
_LONGEST = 1 << 10  # chain of nodes
_LOW = 0xFFFFFFFF


def uses(blocks: Blocks, memory: Memory) -> Iterator[Uses]:
    """Yield the same as Containers.uses()."""
    np = import_numpy()
    numbers = np.flatnonzero(blocks.live)
    words, _ = gather_words(memory, blocks.addresses(numbers), range(2))
    yield _lists(blocks, numbers, *words)
    sizes = sizes_of(blocks, numbers)
    yield _hashes(blocks, numbers[(sizes >= _TABLE_BYTES) & (sizes <= _TABLE_BYTES + 16)], memory)


def _halves(words: Any) -> tuple[Any, Any]:
    """Return the lower and the upper 32 bits of each of *words*, int64."""
    return words & _LOW, (words >> 32) & _LOW


def _lists(blocks: Blocks, numbers: Any, first: Any, second: Any) -> Uses:
    """Return what lists use among the blocks *numbers*, which begin with the words *first* and *second*.

    These are numbers of 32 bits: references, room for elements, and where the used ones begin and end. Source:
    QListData::Data.
    """
    np = import_numpy()
    (references, room), (begin, end) = _halves(first), _halves(second)
    some = np.flatnonzero((references > 0) & (references < _MOST_REFERENCES) & (begin < end) & (end <= room))
    some = some[fits(sizes_of(blocks, numbers[some]), _HEADER + 8 * room[some], blocks)]
    begin, end = begin[some] + _HEADER // 8, end[some] + _HEADER // 8
    return numbers[some], lambda which, offsets: (offsets >= begin[which]) & (offsets < end[which])


def _hashes(blocks: Blocks, numbers: Any, memory: Memory) -> Uses:
    """Return what nodes of hash tables use, whose heads may be the blocks *numbers*.

    A head leads to an array of chains, which end at the head, and has the numbers of references, nodes, bytes of a
    node, and chains. A node begins with a pointer to the next one and a hash of 32 bits, behind which nothing is
    written. Source: QHashData.
    """
    np = import_numpy()
    heads = blocks.addresses(numbers)
    words, _ = gather_words(memory, heads, range(1, 5))
    array = blocks_at(blocks, words[0])
    (references, count), (node, _), (chains, _) = map(_halves, words[1:])
    some = (array >= 0) & (references > 0) & (references < _MOST_REFERENCES) & (count > 0) & (chains > 0)
    some = np.flatnonzero(some & (node >= _LEAST_NODE) & (node < _MOST_NODE))
    some = some[fits(sizes_of(blocks, array[some]), 8 * chains[some], blocks)]
    some = some[np.unique(array[some], return_index=True)[1]]  # an array has one head
    heads, array, count, node, chains = (column[some] for column in (heads, array, count, node, chains))
    table = np.repeat(np.arange(len(some)), chains)
    starts = blocks.addresses(array)
    places = np.repeat(starts, chains) + 8 * runs_of(np.zeros(len(some), np.int64), chains)
    found, of_table = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    left = np.count_nonzero(blocks.live)  # nodes there can be; more are in a ring
    for _ in range(_LONGEST):
        number = blocks_at(blocks, gather_words(memory, places, range(1))[0][0])
        further = (number >= 0) & (number != blocks_at(blocks, heads[table]))
        number, table = number[further], table[further]
        left -= len(number)
        if not len(number) or left < 0:
            break
        found.append(number)
        of_table.append(table)
        places = blocks.addresses(number)
    numbers, table = joined(found), joined(of_table)
    whole = np.bincount(table, minlength=len(some)) == count
    numbers, table = numbers[whole[table]], table[whole[table]]
    ends = node[table] // 8
    return numbers, lambda which, offsets: (offsets != 1) & (offsets < ends[which])
