"""The containers that can be told by their words, and which words of their blocks they use.

What a container has moved, erased or not yet filled keeps its older words, which lead to what others hold by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.allocators.gather import gather
from gdbmem.arrays import distinct, import_numpy, joined
from gdbmem.heap.blocks import Blocks
from gdbmem.model.memory import Memory

LONGEST = 1 << 40  # most bytes, or elements, of a container
# Of Rust's vectors that grew, and of hash tables; fewer may be two numbers beside any pointer.
_LEAST_SLOTS = 4
_LEAST_MAPPED, _PAGE = 1 << 17, 1 << 12  # malloc gives larger blocks mappings of their own, in whole pages
_FREE = 0x80  # hashbrown's control byte of a bucket that is empty or deleted, or more
_AT_ONCE = 1 << 22  # control bytes


class Rings(NamedTuple):
    """The parts of their blocks that vectors and deques use, in words: columns of a value for each."""

    blocks: Any  # int32
    begins: Any  # number of the first word, int64
    counts: Any
    room: Any  # words after which it goes on at the beginning
    texts: Any  # bytes of a text, if it may be one, int64; 0: it is none
    addresses: Any  # of such a block


class Tables(NamedTuple):
    """Rust's hash tables: columns of a value for each. Before the control bytes stand the buckets, last to first."""

    blocks: Any  # int32
    words: Any  # of a bucket, int64
    buckets: Any
    control: Any  # address of the control bytes


class Containers:
    """Collects the containers of a memory, of those of Rust only full vectors unless there may be any."""

    def __init__(self, *, of_rust: bool) -> None:
        np = import_numpy()
        self._of_rust = of_rust
        none = np.zeros(0, np.int64)
        self._rings = [_rings(none.astype(np.int32), none, none, none)]
        self._tables = [Tables(none.astype(np.int32), none, none, none)]

    def find(
        self, words: Any, at: Any, to: Any, blocks: Blocks, inside: Optional[tuple[Any, int]] = None
    ) -> None:
        """Add those among *words*; the ones *at* these places lead to the blocks *to*.

        *inside*: the blocks that have the latter, and the number of the first word, counted from the beginning of all
        units.
        """
        self._rings += (_vectors(words, at, to, blocks), *_deques(words, at, to, blocks))
        rings, tables = _of_rust(words, at, to, blocks, inside, only_full=not self._of_rust)
        self._rings += rings
        self._tables += tables

    def uses(self, memory: Memory) -> Iterator[tuple[Any, Callable[[Any, Any], Any]]]:
        """Yield the blocks of some containers, and what tells which of their words are used.

        It is called with indexes of these blocks, and the offsets (in words) of words in them. *memory* has the blocks.
        """
        np = import_numpy()
        blocks, begins, counts, room, texts, addresses = (
            joined(list(column)) for column in zip(*self._rings)
        )
        some = np.flatnonzero(texts)
        counts[some[_begin_texts(memory, addresses[some], texts[some])]] = 0
        yield (
            blocks,
            lambda which, offsets: (
                (offsets < room[which]) & ((offsets - begins[which]) % room[which] < counts[which])
            ),
        )
        tables = Tables(*(joined(list(column)) for column in zip(*self._tables)))
        for buckets in distinct(tables.buckets).tolist():
            some = np.flatnonzero(tables.buckets == buckets)
            for begin in range(0, len(some), max(_AT_ONCE // buckets, 1)):
                yield _uses_of(tables, some[begin : begin + max(_AT_ONCE // buckets, 1)], buckets, memory)


def _rings(blocks: Any, begins: Any, counts: Any, room: Any) -> Rings:
    np = import_numpy()
    none = np.zeros(len(blocks), np.int64)
    return Rings(blocks, begins, counts, room, none, none)


def _begin_texts(memory: Memory, addresses: Any, lengths: Any) -> Any:
    """Return whether the bytes at each of *addresses*, at most so many and 8, are printable."""
    np = import_numpy()
    rows, _ = gather(memory, addresses, 8)
    return (((rows >= 32) & (rows < 127)) | (np.arange(8) >= lengths[:, None])).all(1)


def _uses_of(
    tables: Tables, some: Any, buckets: int, memory: Memory
) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Return the same as Containers.uses() for *some* of *tables* that have this number of *buckets*."""
    control, _ = gather(memory, tables.control[some], buckets)
    words = tables.words[some]

    def is_used(which: Any, offsets: Any) -> Any:
        bucket = buckets - 1 - offsets // words[which]
        is_one = bucket >= 0  # behind them are the control bytes
        bucket[~is_one] = 0
        return is_one & (control[which, bucket] < _FREE)

    return tables.blocks[some], is_used


def fits(sizes: Any, asked: Any, blocks: Blocks) -> Any:
    """Return whether blocks of these *sizes* are what malloc makes of the bytes that were *asked* for."""
    np = import_numpy()
    least = np.maximum((asked + blocks.header_bytes + 15) & ~15, 2 * blocks.header_bytes + 16)
    if not blocks.header_bytes:
        return (sizes >= least) & (sizes <= least + least // 4 + 16)  # sizes are a quarter apart
    # A remainder of 16 bytes is no chunk: it stays with the block.
    spare = np.where((sizes >= _LEAST_MAPPED) & (sizes % _PAGE <= 16), _PAGE, 16)
    return (sizes >= least) & (sizes <= least + spare)


def sizes_of(blocks: Blocks, numbers: Any) -> Any:
    """Return the sizes of the blocks *numbers*, int64."""
    np = import_numpy()
    return (blocks.unit[numbers + 1].astype(np.int64) - blocks.unit[numbers]) << 4


def _vectors(words: Any, at: Any, to: Any, blocks: Blocks) -> Rings:
    """Return what vectors use, whose words are *at* these places and lead to the blocks *to*.

    The first of three pointers leads to the block's beginning, the second to the end of what is used, and the third to
    that of what was asked for. Source: std::vector of libstdc++ and libc++.
    """
    np = import_numpy()
    some = np.flatnonzero((to[2:] == to[:-2]) & (at[2:] - at[:-2] == 2))
    begin, end, limit = (words[at[some + n]].view(np.int64) for n in range(3))
    is_vector = (begin <= end) & (end <= limit) & fits(sizes_of(blocks, to[some]), limit - begin, blocks)
    some, used, asked = some[is_vector], (end - begin)[is_vector], (limit - begin)[is_vector]
    is_vector = blocks.addresses(to[some]) == words[at[some]].view(np.int64)
    used, asked = ((size[is_vector] + 7) >> 3 for size in (used, asked))
    return _rings(to[some[is_vector]], np.zeros_like(used), used, np.maximum(asked, 1))


def _deques(words: Any, at: Any, to: Any, blocks: Blocks) -> list[Rings]:
    """Return what deques use of their maps, and of the first and the last of their nodes; arguments as for _vectors().

    A pointer to the map's beginning and how many pointers it has are followed by two iterators: where an element is,
    where its node begins and ends, and which word of the map leads to that. Source: std::deque of libstdc++.
    """
    np = import_numpy()
    some = at[: np.searchsorted(at, len(words) - 9)]
    some = np.flatnonzero(words[some + 1] - np.uint64(8) < np.uint64(LONGEST))
    slots = words[at[some] + 1]
    is_inside = np.flatnonzero(words[at[some] + 5] - words[at[some]] < slots * np.uint64(8))
    some, slots = some[is_inside], slots[is_inside].view(np.int64)
    some = some[fits(sizes_of(blocks, to[some]), 8 * slots, blocks)]
    row = [words[at[some] + n].view(np.int64) for n in range(10)]
    begin, room, low, high = (row[n] for n in (0, 1, 5, 9))
    is_deque = (begin <= low) & (low <= high) & (high < begin + 8 * room)
    is_deque &= blocks.addresses(to[some]) == begin
    some, row = some[is_deque], [column[is_deque] for column in row]
    begin, room, low, high = (row[n] for n in (0, 1, 5, 9))
    low, high = (low - begin) >> 3, (high - begin) >> 3
    first_end, last_begin = (np.where(low == high, row[n], row[m]) for n, m in ((6, 4), (2, 7)))
    return [
        _rings(to[some], low, high + 1 - low, room),
        _nodes(blocks, row[3], row[4], row[2], first_end),
        _nodes(blocks, row[7], row[8], last_begin, row[6]),
    ]


def _nodes(blocks: Blocks, begins: Any, ends: Any, used: Any, used_ends: Any) -> Rings:
    """Return what deques use of nodes that begin and end there; all are addresses, int64."""
    np = import_numpy()
    low, size = blocks.span
    some = np.flatnonzero(
        ((begins - low).view(np.uint64) < np.uint64(size))
        & (begins <= used) & (used <= used_ends) & (used_ends <= ends)
    )  # fmt: skip
    number = blocks.find(begins[some].view(np.uint64))
    is_block = (number >= 0) & (blocks.addresses(number) == begins[some])
    is_block &= fits(sizes_of(blocks, number), (ends - begins)[some], blocks)
    some, number = some[is_block], number[is_block]
    begins, ends, used, used_ends = (column[some] for column in (begins, ends, used, used_ends))
    first, stop = (used - begins) >> 3, (used_ends - begins + 7) >> 3
    return _rings(number, first, stop - first, np.maximum((ends - begins + 7) >> 3, 1))


def _of_rust(
    words: Any, at: Any, to: Any, blocks: Blocks, inside: Optional[tuple[Any, int]], *, only_full: bool
) -> tuple[list[Rings], list[Tables]]:
    """Return what vectors, deques and hash tables of Rust use; arguments as for Containers.find().

    With *only_full* these are vectors that use all of their memory, as lists of CPython may, too.

    A vector has its capacity, a pointer to the block's beginning, and a length; a deque has the index of its first
    element before the length. Whatever follows a vector may look so: what either uses counts. Those of which nothing is
    used look like any pointer beside a zero. A hash table has a
    pointer to its control bytes, the number of its buckets (a power of 2) less one, how many may still be filled, and
    how many are. Source: alloc::raw_vec, vec, collections::vec_deque; hashbrown's raw.rs.
    """
    np = import_numpy()
    begin, end = np.searchsorted(at, (1, len(words) - 3))
    number = words[at[begin:end] + 1]
    is_one = number - np.uint64(1) < np.uint64(LONGEST - 1)
    if only_full:
        is_one &= words[at[begin:end] - 1] == number
    some = np.flatnonzero(is_one) + begin
    place = at[some]
    before, after, further = (words[place + n].view(np.int64) for n in (-1, 1, 2))
    is_vector = (before >= after) & (before < LONGEST) & (after > 0)
    is_vector &= (before >= _LEAST_SLOTS) | ((before == after) & (before > 1))
    is_table = (after >= _LEAST_SLOTS - 1) & (after & (after + 1) == 0)
    is_table &= (further >= 0) & (further <= after) & (not only_full)

    def of_one_block(some: Any, first: int, last: int) -> Any:
        """Return which of *some* have all words from number *first* to *last* on in their own block."""
        if inside is None:
            return some
        own, word = inside[0][some], at[some] + inside[1]
        ends = 2 * blocks.unit[own + 1].astype(np.int64) - blocks.header_bytes // 8
        return some[(word + first >= 2 * blocks.unit[own].astype(np.int64)) & (word + last < ends)]

    vectors, tables = of_one_block(some[is_vector], -1, 1), of_one_block(some[is_table], 0, 3)
    rings = _rust_vectors(words, at[vectors], to[vectors], blocks)
    return rings, [_rust_tables(words, at[tables], to[tables], blocks)]


def _rust_vectors(words: Any, at: Any, to: Any, blocks: Blocks) -> list[Rings]:
    np = import_numpy()
    slots, length = (words[at + n].view(np.int64) for n in (-1, 1))
    sizes = sizes_of(blocks, to)
    # The largest elements, in words, for which the block fits. Smaller ones have no pointers, but may be a text.
    element = (sizes - blocks.header_bytes) // slots >> 3
    is_text, is_vector = fits(sizes, slots, blocks), fits(sizes, 8 * slots * element, blocks) & (element > 0)
    some = np.flatnonzero((is_text | is_vector) & (blocks.addresses(to) == words[at].view(np.int64)))
    at, to, slots, length, element, is_text, is_vector = (
        column[some] for column in (at, to, slots, length, element, is_text, is_vector)
    )
    # Of what may be a text only, all words are used unless it is one.
    room = np.where(is_vector, slots * element, LONGEST)
    used = np.where(is_vector, length * element, LONGEST)
    texts = np.where(is_text, length, 0)
    vectors = Rings(to, np.zeros_like(used), used, room, texts, words[at].view(np.int64))
    count = words[at + 2]
    is_deque = is_vector & ~is_text & (count <= slots.view(np.uint64)) & (length < slots)
    begins = (length * element)[is_deque]
    counts = count[is_deque].view(np.int64) * element[is_deque]
    return [vectors, _rings(to[is_deque], begins, counts, room[is_deque])]


def _rust_tables(words: Any, at: Any, to: Any, blocks: Blocks) -> Tables:
    np = import_numpy()
    control, mask, left, filled = (words[at + n] for n in range(4))
    control, buckets = control.view(np.int64), mask.view(np.int64) + 1
    behind = control - blocks.addresses(to)  # bytes of the buckets
    is_table = (left <= mask) & (filled <= mask) & (left + filled <= mask) & (behind % 16 == 0)
    is_table &= (behind >= 8 * buckets) & (behind % (8 * buckets) == 0)
    sizes = sizes_of(blocks, to)
    is_table &= fits(sizes, behind + buckets + 16, blocks) | fits(sizes, behind + buckets + 8, blocks)
    return Tables(
        *(column[is_table] for column in (to, (behind // (8 * buckets)), buckets, control)),
    )
