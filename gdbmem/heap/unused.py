"""The containers that can be told by their words, and which words of their blocks they use.

What a container has moved, erased or not yet filled keeps its older words, which lead to what others hold by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.allocators.gather import gather
from gdbmem.arrays import distinct, import_numpy, joined
from gdbmem.heap import qt
from gdbmem.heap.blocks import Blocks, fits, sizes_of
from gdbmem.heap.rust import Either, Holders, RustWords, Uses, holders_of
from gdbmem.model.memory import Memory

LONGEST = 1 << 40  # most bytes, or elements, of a container
# Of Rust's vectors that grew, and of hash tables; fewer may be two numbers beside any pointer.
_LEAST_SLOTS = 4
_LEAST_EMPTY = 64  # bytes of a buffer that is empty
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

    def __init__(self, *, of_rust: Optional[RustWords] = None, of_qt: Optional[Blocks] = None) -> None:
        """Collect also what only programs of Rust have, if there is *of_rust*, and those of Qt among *of_qt*."""
        np = import_numpy()
        self.of_rust, self._of_qt = of_rust, of_qt
        none = np.zeros(0, np.int64)
        self._rings = [_rings(none.astype(np.int32), none, none, none)]
        # With the words that lead to each of them, where these may be out of use themselves.
        self._vectors = list[tuple[Rings, Optional[Holders]]]()
        self._tables: list[tuple[Tables, Optional[Holders]]] = [
            (Tables(none.astype(np.int32), none, none, none), None)
        ]
        self._either: list[tuple[Either, Optional[Holders]]] = [
            (Either(none.astype(np.int32), none, none, none, none), None)
        ]

    def find(
        self, words: Any, at: Any, to: Any, blocks: Blocks, inside: Optional[tuple[Any, int]] = None
    ) -> None:
        """Add those among *words*; the ones *at* these places lead to the blocks *to*.

        *inside*: the blocks that have the latter, and the number of the first word, counted from the beginning of all
        units.
        """
        self._rings += (_vectors(words, at, to, blocks), *_deques(words, at, to, blocks))
        vectors, either, tables = _of_rust(words, at, to, blocks, inside, only_full=self.of_rust is None)

        def holders(places: Any) -> Optional[Holders]:
            return holders_of(places, blocks, inside[1]) if inside is not None and self.of_rust else None

        self._vectors.append((vectors[0], holders(vectors[1])))
        self._either.append((either[0], holders(either[1])))
        self._tables.append((tables[0], holders(tables[1])))
        if self.of_rust is not None:
            self.of_rust.find(words, at, to, blocks, inside)

    def uses(self, memory: Memory, counts: Optional[Callable[[Any, Any], Any]] = None) -> Iterator[Uses]:
        """Yield the blocks of some containers, and what tells which of their words are used.

        It is called with indexes of these blocks, and the offsets (in words) of words in them. *memory* has the blocks.
        *counts* tells which words of blocks, at offsets, count: what others lead to is none of Rust's containers.
        """
        either = Either(*_columns(self._either, counts))
        rings = _rings_of(either, self.of_rust.readings(memory, either) if self.of_rust is not None else None)
        vectors = Rings(*_columns(self._vectors, counts)) if self._vectors else rings[0]
        yield _uses_of_rings(
            Rings(*(joined(list(column)) for column in zip(*self._rings, vectors, *rings))), memory
        )
        tables = Tables(*_columns(self._tables, counts))
        for buckets in distinct(tables.buckets).tolist():
            some = import_numpy().flatnonzero(tables.buckets == buckets)
            for begin in range(0, len(some), max(_AT_ONCE // buckets, 1)):
                yield _uses_of(tables, some[begin : begin + max(_AT_ONCE // buckets, 1)], buckets, memory)
        if self.of_rust is not None:
            yield from self.of_rust.uses(memory, counts)
        if self._of_qt is not None:
            yield from qt.uses(self._of_qt, memory)


def _columns(
    pieces: Sequence[tuple[Any, Optional[Holders]]], counts: Optional[Callable[[Any, Any], Any]]
) -> Iterator[Any]:
    """Yield the columns of *pieces*, of those only whose words count."""
    kept = []
    for piece, holders in pieces:
        some = counts(*holders) if counts is not None and holders is not None else slice(None)
        kept.append([column[some] for column in piece])
    yield from (joined(list(column)) for column in zip(*kept))


def _uses_of_rings(rings: Rings, memory: Memory) -> Uses:
    np = import_numpy()
    blocks, begins, counts, room, texts, addresses = rings
    some = np.flatnonzero(texts)
    counts[some[_begin_texts(memory, addresses[some], texts[some])]] = 0
    return (
        blocks,
        lambda which, offsets: (
            (offsets < room[which]) & ((offsets - begins[which]) % room[which] < counts[which])
        ),
    )


def _rings(blocks: Any, begins: Any, counts: Any, room: Any) -> Rings:
    np = import_numpy()
    none = np.zeros(len(blocks), np.int64)
    return Rings(blocks, begins, counts, room, none, none)


def _rings_of(either: Either, readings: Optional[tuple[Any, Any]]) -> list[Rings]:
    """Return what is used by the *readings* as vectors, and as deques, that the words don't deny; None: by both."""
    np = import_numpy()
    blocks, lengths, counts, slots, elements = either
    of_vector, of_deque = readings or (slice(None), slice(None))
    room = slots * elements
    vectors = (blocks, np.zeros_like(room), lengths * elements, room)
    deques = (blocks, lengths * elements, counts * elements, room)
    return [
        _rings(*(column[some] for column in columns))
        for columns, some in ((vectors, of_vector), (deques, of_deque))
    ]


def _begin_texts(memory: Memory, addresses: Any, lengths: Any) -> Any:
    """Return whether the bytes at each of *addresses*, at most so many and 8, are printable."""
    np = import_numpy()
    rows, _ = gather(memory, addresses, 8)
    return (((rows >= 32) & (rows < 127)) | (np.arange(8) >= lengths[:, None])).all(1)


def _uses_of(tables: Tables, some: Any, buckets: int, memory: Memory) -> Uses:
    """Return the same as Containers.uses() for *some* of *tables* that have this number of *buckets*."""
    control, _ = gather(memory, tables.control[some], buckets)
    words = tables.words[some]

    def is_used(which: Any, offsets: Any) -> Any:
        bucket = buckets - 1 - offsets // words[which]
        is_one = bucket >= 0  # behind them are the control bytes
        bucket[~is_one] = 0
        return is_one & (control[which, bucket] < _FREE)

    return tables.blocks[some], is_used


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
) -> tuple[tuple[Rings, Any], tuple[Either, Any], tuple[Tables, Any]]:
    """Return what vectors, deques and hash tables of Rust use, and where the pointers to each of them are.

    Arguments as for Containers.find().

    With *only_full* these are vectors that use all of their memory, as lists of CPython may, too.

    A vector has its capacity, a pointer to the block's beginning, and a length; a deque has the index of its first
    element before the length. Whatever follows a vector may look so. Those of which nothing is used look like any
    pointer beside a zero, but for buffers of so many bytes. A hash table has a pointer to its control bytes, the number
    of its buckets (a power of 2) less one, how many may still be filled, and how many are. Source: alloc::raw_vec, vec,
    collections::vec_deque; hashbrown's raw.rs.
    """
    np = import_numpy()
    begin, end = np.searchsorted(at, (1, len(words) - 3))
    number = words[at[begin:end] + 1]
    is_one = number < np.uint64(LONGEST)
    if only_full:
        is_one &= (words[at[begin:end] - 1] == number) & (number > 0)
    some = np.flatnonzero(is_one) + begin
    place = at[some]
    before, after, further = (words[place + n].view(np.int64) for n in (-1, 1, 2))
    is_vector = (before >= after) & (before < LONGEST) & (after > 0)
    is_vector &= (before >= _LEAST_SLOTS) | ((before == after) & (before > 1))
    is_vector |= (before >= _LEAST_EMPTY) & (before < LONGEST) & (after == 0)
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
    return (
        *_rust_vectors(words, at[vectors], to[vectors], blocks),
        _rust_tables(words, at[tables], to[tables], blocks),
    )


def _rust_vectors(
    words: Any, at: Any, to: Any, blocks: Blocks
) -> tuple[tuple[Rings, Any], tuple[Either, Any]]:
    """Return what vectors use, and what may be vectors or deques, with the places of the pointers to them."""
    np = import_numpy()
    slots, length = (words[at + n].view(np.int64) for n in (-1, 1))
    sizes = sizes_of(blocks, to)
    # The largest elements, in words, for which the block fits. Smaller ones have no pointers, but may be a text.
    element = (sizes - blocks.header_bytes) // slots >> 3
    is_text, is_vector = fits(sizes, slots, blocks), fits(sizes, 8 * slots * element, blocks) & (element > 0)
    some = np.flatnonzero(
        (is_text | (is_vector & (length > 0))) & (blocks.addresses(to) == words[at].view(np.int64))
    )
    at, to, slots, length, element, is_text, is_vector = (
        column[some] for column in (at, to, slots, length, element, is_text, is_vector)
    )
    # Of what may be a text only, all words are used unless it is one.
    room = np.where(is_vector, slots * element, LONGEST)
    used = np.where(is_vector | (length == 0), length * element, LONGEST)
    texts = np.where(is_text, length, 0)
    count = words[at + 2]
    is_deque = is_vector & ~is_text & (count > 0) & (count <= slots.view(np.uint64)) & (length < slots)
    vectors = Rings(to, np.zeros_like(used), used, room, texts, words[at].view(np.int64))
    either = Either(*(column[is_deque] for column in (to, length, count.view(np.int64), slots, element)))
    return (Rings(*(column[~is_deque] for column in vectors)), at[~is_deque]), (either, at[is_deque])


def _rust_tables(words: Any, at: Any, to: Any, blocks: Blocks) -> tuple[Tables, Any]:
    np = import_numpy()
    control, mask, left, filled = (words[at + n] for n in range(4))
    control, buckets = control.view(np.int64), mask.view(np.int64) + 1
    behind = control - blocks.addresses(to)  # bytes of the buckets
    is_table = (left <= mask) & (filled <= mask) & (left + filled <= mask) & (behind % 16 == 0)
    is_table &= (behind >= 8 * buckets) & (behind % (8 * buckets) == 0)
    sizes = sizes_of(blocks, to)
    is_table &= fits(sizes, behind + buckets + 16, blocks) | fits(sizes, behind + buckets + 8, blocks)
    found = Tables(*(column[is_table] for column in (to, (behind // (8 * buckets)), buckets, control)))
    return found, at[is_table]
