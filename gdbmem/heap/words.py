"""The words of a heap, and of the memory around it, that lead to blocks: the edges of the graph.

Every aligned word whose value lies in a live block's memory is an edge, interior pointers included. Some are kept
apart: a word behind a text that may be the text's end written over an older pointer, and all in the buffers of strings,
which are known by the length and the capacity that follow the pointer to them. Words that a program seldom writes are
weak: the last ones of a block, if few blocks of that size have a pointer there (malloc gives 8 bytes more than it is
asked for, or 24 where the rest is too small for a chunk), the part of a std::string that only short ones use, and
what lies outside of the part that a std::vector or a std::deque uses.

Where the heap lies below 4 GiB, as in programs that are linked for fixed addresses, integers of 32 bits look like
pointers: those that don't lead to the beginning of a block are kept apart, too, but where pointers are usual.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.gather import gather, gather_words
from gdbmem.arrays import distinct, import_numpy, index_type, joined, places_of, release_freed_memory, runs_of
from gdbmem.heap.blocks import HEADER, Blocks, fits, sizes_of
from gdbmem.heap.unused import LONGEST, Containers
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable

_PIECE = 1 << 20
_PAGE = 4096
_SPARE = 2  # words before the last one that may be beyond what was asked for
_TEXT = 24  # bytes of a text that are looked at: each block has them
_UNUSED = 3  # words from the pointer of a long std::string to what only short ones use
_LOW = 1 << 32
_KINDS = 1 << 12  # sizes in units; larger ones are one kind
_LEAST = 8
# Blocks of a size for each of their words at one place that may be a hash; most such places that are looked at.
_RARE, _MOST_HASHES = 16, 16
_SAMPLES, _SAMPLE = 16, 1 << 11  # parts of the heap that are looked at first, and the blocks of each
_ROWS = 1 << 16  # blocks whose edges are looked at together
FAR = 255  # the offset of words beyond that many
_SPARE_WORD, _STRING_WORD, _LINK_WORD = 1, 2, 3  # why an edge is weak


class Words(NamedTuple):
    """Words that lead to blocks: columns of one length."""

    blocks: Any  # number of the block that each leads to, int32
    addresses: Any  # where it stands, int64


@dataclass
class Edges:
    """The edges from block to block, sorted by holder: those of block n are ``first[n]`` to ``first[n + 1]``."""

    first: Any  # int32, or int64 if there are 2^31 edges
    to: Any  # int32
    offsets: Any  # uint8: number of the word in its block, at most FAR
    weak: Any  # bool: the word may be in the unused part of its block; None: not asked for
    text_ends: tuple[Any, Any]  # holders and blocks of edges that are in texts, or may be their ends, int32
    objects: tuple[Any, Any]  # blocks (int32) that begin with an address in a file, and that address (uint64)
    unread_bytes: int = 0
    far: Any = None  # uint32: of each edge whose offset is FAR the number of its word
    of_strings: Any = ()  # edges in what long strings don't use of themselves

    def word_numbers(self, edges: Any) -> Any:
        """Return the number of the word in its block of each of *edges*, int64."""
        np = import_numpy()
        offsets = self.offsets[edges].astype(np.int64)
        is_far = np.flatnonzero(offsets == FAR)
        if len(is_far):
            rank = np.searchsorted(np.flatnonzero(self.offsets == FAR), edges[is_far])
            offsets[is_far] = self.far[rank]
        return offsets

    def with_words(self, holders: Any, blocks: Any) -> Edges:
        """Return the same with an edge more from each of *holders* to each of *blocks*, by words at unknown offsets."""
        np = import_numpy()
        at = self.first[holders + 1]
        first = self.first + np.concatenate(
            ([0], np.cumsum(np.bincount(holders, minlength=len(self.first) - 1)))
        )
        return replace(
            self,
            first=first.astype(self.first.dtype),
            to=np.insert(self.to, at, blocks),
            offsets=np.insert(self.offsets, at, FAR),
            weak=np.insert(self.weak, at, False) if self.weak is not None else None,
        )

    def weaken_unused(self, found: Sequence[Containers], memory: Memory) -> None:
        """Make the words weak that no container of their block uses, and those that one uses not weak.

        *memory* is that of the blocks. In programs of Rust the words of blocks by which a container is known may be out
        of use themselves: by those that are not, it is done again.
        """
        if self.weak is None:
            return
        of_rust = [one.of_rust for one in found if one.of_rust is not None]
        for one in of_rust:
            at = self._edges_at(*one.unused_words())
            self.weak[at[at >= 0]] = True
        before = self.weak.copy() if of_rust else None
        self._weaken_by(found, memory)
        if before is not None:
            weak, self.weak = self.weak, before

            def counts(blocks: Any, offsets: Any) -> Any:
                at = self._edges_at(blocks, offsets)
                return (at < 0) | ~weak.take(at, mode="clip")

            self._weaken_by(found, memory, counts)
        self.weak[self.of_strings] = True

    def weaken_block(self, block: int) -> None:
        """Make all words of *block* weak."""
        if self.weak is not None:
            self.weak[int(self.first[block]) : int(self.first[block + 1])] = True

    def _weaken_by(
        self, found: Sequence[Containers], memory: Memory, counts: Optional[Callable[[Any, Any], Any]] = None
    ) -> None:
        for one in found:
            for blocks, is_used in one.uses(memory, counts):
                self._weaken(blocks, is_used)

    def _weaken(self, blocks: Any, is_used: Callable[[Any, Any], Any]) -> None:
        np = import_numpy()
        first = self.first[blocks]
        count = self.first[blocks + 1] - first
        edges = runs_of(first, count)
        offsets = self.word_numbers(edges)
        is_one = is_used(np.repeat(np.arange(len(blocks)), count), offsets)
        self.weak[edges] = True
        self.weak[edges[is_one]] = False

    def _edges_at(self, blocks: Any, offsets: Any) -> Any:
        """Return the edge of each of *blocks* at these *offsets* (words), -1 where there is none."""
        np = import_numpy()
        some, which = places_of(blocks)
        first = self.first[some]
        edges = runs_of(first, self.first[some + 1] - first)
        own = np.repeat(np.arange(len(some)), self.first[some + 1] - first)
        most = max(int(offsets.max(initial=0)) + 1, FAR + 1)
        keys = own * most + np.minimum(self.word_numbers(edges), most - 1)
        wanted = which * most + offsets
        at = np.searchsorted(keys, wanted)
        found = keys.take(at, mode="clip") == wanted if len(keys) else np.zeros(len(wanted), bool)
        return np.where(found, edges.take(at, mode="clip"), -1) if len(keys) else np.full(len(wanted), -1)


@dataclass
class Reader:
    """Reads words piece by piece, and keeps the pieces of pages that can't be read."""

    memory: Memory
    unread: list[tuple[int, int]] = field(default_factory=list)

    @property
    def unread_bytes(self) -> int:
        return sum(end - start for start, end in self.unread)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, Any]]:
        """Yield address and words (uint64) of each piece of ``[start, end)``, multiples of 8."""
        np = import_numpy()
        for at in range(start, end - 7, _PIECE):
            size = min(_PIECE, end - at) & ~7
            try:
                yield at, np.frombuffer(self.memory.read(at, size), np.uint64)
            except MemoryUnreadable:
                yield from self._by_pages(at, at + size)

    def _by_pages(self, start: int, end: int) -> Iterator[tuple[int, Any]]:
        np = import_numpy()
        while start < end:
            stop = min((start | (_PAGE - 1)) + 1, end)
            try:
                yield start, np.frombuffer(self.memory.read(start, stop - start), np.uint64)
            except MemoryUnreadable:
                self.unread.append((start, stop))
            start = stop


def find_edges(
    memory: Memory, blocks: Blocks, files: Ranges, mapped: Ranges, containers: Optional[Containers]
) -> Edges:
    """Return the edges between live *blocks*; the memory of blocks that aren't live is no part of the graph.

    *files* are the constant parts of mapped files, where vtables are; *mapped* is all that is mapped. Without
    *containers*, which gets those that are there, no edge is weak.
    """
    np = import_numpy()
    reader = Reader(memory)
    objects = _Objects(blocks, files)
    strings = _Strings(blocks)
    doubts = _Doubts(blocks)
    count, (to, offsets, doubtful, weak, far), short = _read_edges(
        blocks, reader, objects, strings, doubts, containers
    )
    release_freed_memory()
    doubts.settle(count, offsets, doubtful, weak, strings)
    doubtful[short] = True
    of_strings = np.flatnonzero(weak == _STRING_WORD)
    weak = np.minimum(weak, 1, out=weak).view(bool)
    first_edges = np.zeros(blocks.count + 1, index_type(len(to)))
    np.cumsum(count, out=first_edges[1:])
    for holders, offset in doubts.hashes(memory, mapped):
        some = runs_of(first_edges[holders], count[holders])
        doubtful[some[offsets[some] == offset]] = True
    texts = strings.texts(memory, count)
    doubtful[runs_of(first_edges[texts], count[texts])] = True
    holders, text_ends = np.zeros(0, np.int32), np.zeros(0, np.int32)
    if doubtful.any():
        apart = np.flatnonzero(doubtful).astype(first_edges.dtype)  # others would be copied for searchsorted
        holders = (np.searchsorted(first_edges, apart, "right") - 1).astype(np.int32)
        text_ends = to[apart]
        np.subtract.at(count, holders, 1)
        np.cumsum(count, out=first_edges[1:])
        sure = np.logical_not(doubtful, out=doubtful)
        of_strings = (np.cumsum(sure) - 1)[of_strings[sure[of_strings]]]
        far = far[sure[offsets == FAR]]
        to, offsets, weak = to[sure], offsets[sure], weak[sure]
    ends = holders, text_ends
    edges = Edges(
        first_edges,
        to,
        offsets,
        weak if containers else None,
        ends,
        objects.found(),
        reader.unread_bytes,
        far,
        of_strings,
    )
    if containers and containers.of_rust is None:  # which the words outside tell of, too
        edges.weaken_unused([containers], memory)
    return edges


def _read_edges(
    blocks: Blocks,
    reader: Reader,
    objects: _Objects,
    strings: _Strings,
    doubts: _Doubts,
    containers: Optional[Containers],
) -> tuple[Any, list[Any], Any]:
    """Return how many edges each of *blocks* has, columns of _edges_in(), and the numbers of those in short strings."""
    np = import_numpy()
    count = np.zeros(blocks.count, np.int32)
    columns: list[list[Any]] = [
        [np.zeros(0, kind)] for kind in (np.int32, np.uint8, bool, np.uint8, np.uint32)
    ]
    short, number = [np.zeros(0, np.int64)], 0  # of edges
    for at_word, words in _words_of(blocks, reader):
        objects.look(words, at_word)
        found = _edges_in(words, blocks, at_word, strings, containers)
        if found is not None:
            own, _, offsets, doubtful, weak, _, in_short, unaligned = found
            short.append(in_short + number)
            number += len(own)
            doubts.add(own, offsets, doubtful, weak)
            doubts.add_unaligned(own[unaligned], offsets[unaligned])
            counts = np.bincount(own - own[0])
            count[own[0] : int(own[0]) + len(counts)] += counts
            for column, values in zip(columns, found[1:-2]):
                column.append(values)
    return count, [joined(column) for column in columns], joined(short)


def _words_of(blocks: Blocks, reader: Reader) -> Iterator[tuple[int, Any]]:
    """Yield some words of the blocks after others, and the number of the first of them, counted in all units.

    Small regions come together, with zeros between them: an allocator may have very many slabs.
    """
    np = import_numpy()
    firsts, lo, hi = (column.tolist() for column in (blocks.first, blocks.lo, blocks.hi))

    def region(number: int) -> Iterator[tuple[int, Any]]:
        begin = lo[number] + HEADER
        for base, words in reader.pieces(begin, hi[number] + 8):
            yield (base - begin) // 8 + 2 * firsts[number], words

    begin = 0
    while begin < len(lo):
        end = bisect_right(firsts, firsts[begin] + _PIECE // 16) - 1
        if end <= begin + 1:
            yield from region(begin)
            end = begin + 1
        else:
            start = 2 * firsts[begin]
            together = np.zeros(2 * firsts[end] - start, np.uint64)
            for number in range(begin, end):
                for at, words in region(number):
                    together[at - start : at - start + len(words)] = words
            yield start, together
        begin = end


class _Doubts:
    """Edges that are doubtful or weak, of which those in places where a pointer is usual are neither.

    If most blocks of a size have one, it is no remainder of a text, and if a fifth have one, no integer; if a fifth
    have one in the last word, or a fiftieth in one before it, the word is in use; blocks of that size without other
    pointers may be left out. So it is if most of what looks like a string there has one in the part that strings don't
    use.
    """

    def __init__(self, blocks: Blocks) -> None:
        np = import_numpy()
        self._blocks = blocks
        self._ends, self._own = (
            [0],
            list[Any](),
        )  # numbers of edges; of those in doubt between them the blocks
        self._most = 0  # of the numbers of their places
        self._of_size = np.zeros(_KINDS, np.int64)  # live blocks of each size, once settled
        self._unaligned = [np.zeros(0, np.int32)]  # places of words that lead to no multiple of 8

    def add(self, own: Any, offsets: Any, doubtful: Any, weak: Any) -> None:
        """Add those among the next edges, which are of the blocks *own*."""
        np = import_numpy()
        some = np.flatnonzero(doubtful | (weak > 0))
        self._ends.append(self._ends[-1] + len(own))
        self._own.append(own[some])
        places = _places(self._blocks.unit, own[some], offsets[some])
        self._most = max(self._most, int(places.max(initial=0)))

    def settle(self, count: Any, offsets: Any, doubtful: Any, weak: Any, strings: _Strings) -> None:
        """Clear *doubtful* and *weak* of such edges; each block has *count* in all."""
        np = import_numpy()
        blocks, one = (
            self._blocks,
            np.int32(1),
        )  # a plain 1 has another type: add.at() takes forty times as long
        sure = count.copy()
        for own in self._own:
            np.subtract.at(sure, own, one)
        is_node = sure > 0
        del sure
        counts = np.zeros((3, self._most + 1), np.int32)
        for some, own, place in self._placed(offsets, doubtful, weak):
            is_of_string = weak[some] == _STRING_WORD
            is_other = doubtful[some] | (weak[some] == _SPARE_WORD)
            for column, marked in zip(counts, (is_other, is_other & is_node[own], is_of_string)):
                np.add.at(column, place[np.flatnonzero(marked)], one)
        states = np.zeros(
            (3, _KINDS), np.int64
        )  # blocks that aren't live, live ones, and those that are nodes
        for begin in range(0, blocks.count, _ROWS):
            here = slice(begin, begin + _ROWS)
            key = np.minimum(np.diff(blocks.unit[begin : begin + _ROWS + 1]), _KINDS - 1)
            key += (blocks.live[here].view(np.uint8) + is_node[here]).astype(key.dtype) * key.dtype.type(
                _KINDS
            )
            states += np.bincount(key, minlength=states.size).reshape(states.shape)
        of_size, nodes = states[1] + states[2], states[2]
        self._of_size = of_size
        places = np.flatnonzero(counts.any(axis=0))
        number, of_nodes, of_strings = counts[:, places]
        unit, offset = np.divmod(places, FAR + 1)
        usual = of_size[unit]
        often = np.where(offset == 2 * unit - 2, 5 if blocks.header_bytes else 50, 50)
        is_pointer, is_used, is_field = np.zeros((3, counts.shape[1]), bool)
        is_pointer[places] = ((5 if blocks.low < _LOW else 2) * number > usual) & (number >= _LEAST)
        is_used[places] = (often * number > usual) | ((often * of_nodes > nodes[unit]) & (of_nodes >= _LEAST))
        is_field[places] = 2 * of_strings > strings.unused_at(places)
        for column in (is_pointer, is_used, is_field):
            column[FAR :: FAR + 1] = False
        for some, _, place in self._placed(offsets, doubtful, weak):
            doubtful[some[np.flatnonzero(is_pointer[place])]] = False
            is_in_use = np.where(weak[some] == _STRING_WORD, is_field[place], is_used[place])
            weak[some[np.flatnonzero(is_in_use & (weak[some] != _LINK_WORD))]] = 0

    def add_unaligned(self, own: Any, offsets: Any) -> None:
        """Add edges of the blocks *own* whose words are no multiples of 8."""
        self._unaligned.append(_places(self._blocks.unit, own, offsets))

    def hashes(self, memory: Memory, mapped: Ranges) -> Iterator[tuple[Any, int]]:
        """Yield blocks and an offset at which they have no pointer but an integer beside the remainder of one.

        An integer of 32 bits, and the upper half of an older pointer, which nobody wrote over. Few such words lead into
        a block, most of these to no multiple of 8; more lead near what is *mapped* than into it.
        """
        np = import_numpy()
        blocks = self._blocks
        places, which = places_of(joined(self._unaligned))
        number = np.bincount(which, minlength=len(places))
        unit, offset = np.divmod(places, FAR + 1)
        some = np.flatnonzero((offset < FAR) & (unit < _KINDS - 1))
        some = some[number[some] * _RARE <= self._of_size[unit[some]]]
        some = some[np.argsort(-self._of_size[unit[some]], kind="stable")][:_MOST_HASHES]
        steps = range(0, blocks.count, max(blocks.count // _SAMPLES, _SAMPLE))
        numbers = np.concatenate([np.arange(n, min(n + _SAMPLE, blocks.count)) for n in steps or (0,)])
        units = blocks.unit[numbers + 1] - blocks.unit[numbers]
        for size, at in zip(unit[some].tolist(), offset[some].tolist()):
            holders = numbers[np.flatnonzero(units == size)]
            if self._may_be_hashes(memory, holders, at, mapped):
                holders = np.flatnonzero((np.diff(blocks.unit) == size) & blocks.live)
                to, words = self._led_to(memory, holders, at)
                # What leads to the beginning of a block may be a pointer in another block of that size.
                some_to = np.flatnonzero(to >= 0)
                is_inside = blocks.addresses(to[some_to]) != words[some_to].view(np.int64)
                yield holders[some_to[is_inside]], at

    def _may_be_hashes(self, memory: Memory, holders: Any, at: int, mapped: Ranges) -> bool:
        """Return whether most of the words of blocks at an offset that lead near what is mapped lead beside it."""
        np = import_numpy()
        _, words = self._led_to(memory, holders[self._blocks.live[holders]], at)
        words = words[
            np.isin(words >> np.uint64(32), distinct(mapped.bounds.view(np.uint64) >> np.uint64(32)))
        ]
        is_mapped = np.searchsorted(mapped.bounds, words.view(np.int64), "right") & 1
        return len(words) >= _LEAST and 2 * int(np.count_nonzero(is_mapped)) < len(words)

    def _led_to(self, memory: Memory, holders: Any, at: int) -> tuple[Any, Any]:
        """Return the blocks that the words of *holders* at an offset lead to, -1 for none, and the words."""
        np = import_numpy()
        blocks = self._blocks
        words = gather_words(memory, blocks.addresses(holders) + 8 * at, range(1))[0][0].view(np.uint64)
        low, size = blocks.span
        to = np.full(len(words), -1, np.int32)
        some = np.flatnonzero(words - np.uint64(low) < np.uint64(size))
        to[some] = blocks.find(words[some])
        return to, words

    def _placed(self, offsets: Any, doubtful: Any, weak: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Yield some of the edges in doubt after others, their blocks, and the sizes of these with the offsets."""
        np = import_numpy()
        for begin, end, own in zip(self._ends, self._ends[1:], self._own):
            here = slice(begin, end)
            some = np.flatnonzero(doubtful[here] | (weak[here] > 0)) + begin
            yield some, own, _places(self._blocks.unit, own, offsets[some])


def _places(unit: Any, own: Any, offsets: Any) -> Any:
    """Return for edges of the blocks *own* one number of the block's size and the edge's offset, int32."""
    np = import_numpy()
    units = np.minimum(unit[own + 1] - unit[own], _KINDS - 1).astype(np.int32)
    return units * (FAR + 1) + offsets


class _Strings:
    """The strings in blocks: their buffers, and how many have their unused word at each offset in blocks of a size."""

    def __init__(self, blocks: Blocks) -> None:
        np = import_numpy()
        self._blocks, self._unit = blocks, blocks.unit
        self._buffers = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]  # with the lengths of their texts
        self._places = [np.zeros(0, np.int32)]

    def add(self, owners: Any, offsets: Any, buffers: Any, lengths: Any) -> None:
        """Add strings at these *offsets* (in words) in the blocks *owners*."""
        np = import_numpy()
        self._buffers.append((buffers, lengths))
        places = _places(self._unit, owners, np.minimum(offsets + _UNUSED, FAR))
        self._places.append(places.astype(np.int32))

    def texts(self, memory: Memory, edges: Any) -> Any:
        """Return the buffers, of those with *edges* (how many each has), whose texts have no zero before the end."""
        np = import_numpy()
        buffers, lengths = (joined(list(column)) for column in zip(*self._buffers))
        some = np.flatnonzero(edges[buffers])
        buffers, lengths = buffers[some], lengths[some]
        rows, _ = gather(memory, self._blocks.addresses(buffers), _TEXT)
        ends = np.where((rows == 0).any(1), (rows == 0).argmax(1), _TEXT)
        return distinct(buffers[(ends == lengths) | (ends == _TEXT) & (lengths >= _TEXT)])

    def unused_at(self, places: Any) -> Any:
        """Return how many have their unused word at each of *places*, which are in order."""
        np = import_numpy()
        return np.bincount(joined(self._places), minlength=int(places.max(initial=0)) + 1)[places]


class _Objects:
    """Collects the first words of live blocks that are addresses in files."""

    def __init__(self, blocks: Blocks, files: Ranges) -> None:
        np = import_numpy()
        self._blocks = blocks
        self._starts, self._ends = (np.array(column, np.uint64) for column in zip(*files.items or [(0, 0)]))
        self._heap = _span_without(self._starts, blocks)
        self._numbers, self._words = [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]

    def look(self, words: Any, at_word: int) -> None:
        """Add those among *words*, the first of which is number *at_word* of all units."""
        np = import_numpy()
        blocks = self._blocks
        # The same type as the searched array: otherwise numpy would copy all of it to convert it.
        ends = np.array([(at_word + 1) // 2, (at_word + len(words) + 1) // 2]).astype(blocks.unit.dtype)
        begin, end = np.searchsorted(blocks.unit[: blocks.count], ends)
        first = words[2 * blocks.unit[begin:end].astype(np.int64) - at_word]
        some = np.flatnonzero(
            (first - self._starts[0] < self._ends[-1] - self._starts[0]) & blocks.live[begin:end]
        )
        low, size = self._heap  # of which most are: that is faster than a search
        some = some[first[some] - low >= size]
        range_at = np.searchsorted(self._starts, first[some], "right") - 1
        some = some[first[some] < self._ends[range_at]]
        if len(some):
            self._numbers.append((some + begin).astype(np.int32))
            self._words.append(first[some])

    def found(self) -> tuple[Any, Any]:
        np = import_numpy()
        return np.concatenate(self._numbers), np.concatenate(self._words)


def _span_without(starts: Any, blocks: Blocks) -> tuple[Any, Any]:
    """Return where the largest part of the heap that has none of the addresses *starts* in it begins, and its size."""
    np = import_numpy()
    if not blocks.count:
        return np.uint64(0), np.uint64(0)
    part = np.searchsorted(starts, blocks.lo)
    begin, end = np.searchsorted(
        part, np.bincount(part, weights=np.diff(blocks.first)).argmax() + np.arange(2)
    )
    return blocks.lo[begin], blocks.hi[end - 1] - blocks.lo[begin]


def _edges_in(
    words: Any, blocks: Blocks, at_word: int, strings: _Strings, containers: Optional[Containers]
) -> Any:
    """Return holders, blocks, offsets, doubt, weakness, and offsets that are FAR, of edges in *words*; None: no edges.

    The last columns are which of them are in short strings, and which words are no multiples of 8. *at_word* is the
    number of the first word, counted from the beginning of all units. *strings* and *containers*, if asked for, get
    what is there.
    """
    np = import_numpy()
    low, size = blocks.span
    at = np.flatnonzero(words - np.uint64(low) < np.uint64(size))
    if not len(at):
        return None
    led = words[at]
    to = blocks.find(led)
    odd = at[np.flatnonzero(led.view(np.uint8)[::8] & 7)]
    own = blocks.number_at((at + at_word) >> 1)
    local = _in_short_strings(words, at[(own == to) & (to >= 0)], at_word, blocks)
    keep = blocks.live.take(own)
    keep &= blocks.live.take(to, mode="clip")
    keep &= own != to
    keep &= to >= 0
    keep = np.flatnonzero(keep)
    if not len(keep):
        return None
    own, to, at = own[keep], to[keep], at[keep]
    if containers is not None:
        containers.find(words, at, to, blocks, (own, at_word))
    own, to, at = _first_of_each(own, to, at)
    place = at + at_word
    behind = 2 * blocks.unit[own + 1].astype(np.int64) - place - 1  # words behind it in its block
    behind -= blocks.header_bytes // 8
    weak = (behind <= blocks.spare_words(own, _SPARE)).view(np.uint8)  # _SPARE_WORD
    doubtful = _behind_texts(words, at, behind == 0)
    if low < _LOW:
        doubtful |= _may_be_integers(words[at], to, blocks)
    offset = place - 2 * blocks.unit[own].astype(np.int64)
    first = np.flatnonzero((weak > 0) & (offset == 0))  # what was asked for has at least a part of it
    weak[first] = blocks.addresses(to[first]).view(np.uint64) != words[at[first]]
    some = np.flatnonzero(weak)
    weak[some[_lead_to_chunks(words[at[some]], to[some], blocks)]] = _LINK_WORD
    some = _lead_to_strings(words, at, to, blocks)
    some = some[behind[some] >= _UNUSED - 1]  # all of it is in the block
    strings.add(own[some], offset[some], to[some], words[at[some] + 1].view(np.int64))
    is_unused = np.zeros(len(words) + _UNUSED, bool)
    is_unused[at[some] + _UNUSED] = True
    weak[np.flatnonzero(is_unused[at])] = _STRING_WORD
    far = offset[offset >= FAR].astype(np.uint32)
    in_short = np.flatnonzero(np.isin(at, local)) if len(local) else local
    unaligned = np.searchsorted(at, odd)
    unaligned = unaligned[at.take(unaligned, mode="clip") == odd]
    return own, to, np.minimum(offset, FAR).astype(np.uint8), doubtful, weak, far, in_short, unaligned


def _lead_to_chunks(words: Any, to: Any, blocks: Blocks) -> Any:
    """Return whether each of *words*, which lead to the blocks *to*, is the address of a chunk, as malloc links them.

    A chunk begins with the last word of the block before.
    """
    if not blocks.header_bytes:
        return slice(0)
    return blocks.addresses(to) + sizes_of(blocks, to) - HEADER == words.view(import_numpy().int64)


def _first_of_each(own: Any, to: Any, at: Any) -> tuple[Any, Any, Any]:
    """Return the columns without the rows whose *own* and *to* are those of the row before."""
    np = import_numpy()
    new = np.empty(len(own), bool)
    new[0] = True
    np.not_equal(own[1:], own[:-1], out=new[1:])
    new[1:] |= to[1:] != to[:-1]
    if new.all():
        return own, to, at
    new = np.flatnonzero(new)
    return own[new], to[new], at[new]


def _in_short_strings(words: Any, at: Any, at_word: int, blocks: Blocks) -> Any:
    """Return which words are the texts of short strings, of which *at* may be the pointers.

    The pointer leads to the second word behind it; the length, and within these two words a zero behind the text,
    follow. Source: std::basic_string of libstdc++.
    """
    np = import_numpy()
    at = at[: np.searchsorted(at, len(words) - 3)]
    at = at[words[at + 1] < np.uint64(2 * 8)]
    unit = (at + at_word) >> 1
    own = blocks.number_at(unit)
    address = blocks.addresses(own) + 8 * (at + at_word - 2 * blocks.unit[own].astype(np.int64))
    at = at[words[at].view(np.int64) == address + 16]
    length = words[at + 1].view(np.int64)
    ends = words[at + 2 + (length >> 3)] >> (8 * (length & 7)).astype(np.uint64) & np.uint64(255) == 0
    return np.concatenate((at[ends] + 2, at[ends] + 3))


def _lead_to_strings(words: Any, at: Any, to: Any, blocks: Blocks) -> Any:
    """Return which of the words *at* these places are pointers of strings to the blocks *to*.

    It leads to the block's beginning; a length and a capacity follow, of which the latter and a zero are what the block
    was made for. Source: std::basic_string of libstdc++.
    """
    np = import_numpy()
    some = np.flatnonzero(words.take(at + 2, mode="clip") - np.uint64(16) < np.uint64(LONGEST - 16))
    length, capacity = (words.take(at[some] + n, mode="clip") for n in (1, 2))
    is_string = np.flatnonzero(length <= capacity)
    some, capacity = some[is_string], capacity[is_string]
    block = to[some]
    is_one = fits(sizes_of(blocks, block), capacity.view(np.int64) + 1, blocks)
    some, block = some[is_one], block[is_one]
    return some[blocks.addresses(block).view(np.uint64) == words[at[some]]]


def _may_be_integers(words: Any, to: Any, blocks: Blocks) -> Any:
    """Return whether each of *words*, which lead to the blocks *to*, is a small number that leads into one's inside."""
    np = import_numpy()
    some = np.flatnonzero(words < np.uint64(_LOW))
    result = np.zeros(len(words), bool)
    result[some] = blocks.addresses(to[some]).view(np.uint64) != words[some]
    return result


def _behind_texts(words: Any, at: Any, is_last: Any) -> Any:
    """Return for the words *at* these places whether each may be an older pointer that a text left there.

    Either the text's end is written over it (the word before is text, and this one begins with no more than three
    printable bytes and a zero), or the text ends in the word before, and this one is the last of its block.
    """
    np = import_numpy()
    found = np.zeros(len(at), bool)
    some = np.flatnonzero(_has_zero(words[at]) & (at > 0))
    some = some[_ends_text(words[at[some]], 4)]
    found[some] = _is_text(words[at[some] - 1])
    last = np.flatnonzero(is_last & (at > 1))
    last = last[_is_text(words[at[last] - 2])]
    found[last] |= _ends_text(words[at[last] - 1], 8)
    return found


def _is_text(words: Any) -> Any:
    """Return whether all bytes of each word are printable."""
    np = import_numpy()
    high = np.uint64(0x8080808080808080)
    return ((words & high) == 0) & (((words - np.uint64(0x2020202020202020)) & high) == 0)


def _has_zero(words: Any) -> Any:
    """Return whether one of the first four bytes of each word is zero."""
    np = import_numpy()
    words = words.astype(np.uint32)
    return ((words - np.uint32(0x01010101)) & ~words & np.uint32(0x80808080)) != 0


def _ends_text(words: Any, most: int) -> Any:
    """Return whether each word begins with printable bytes and a zero, *most* bytes in all."""
    np = import_numpy()
    bytes_of = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)[:, :most]
    is_other = bytes_of - np.uint8(32) >= 95
    return bytes_of[np.arange(len(words)), is_other.argmax(axis=1)] == 0


def find_words(
    memory: Memory, blocks: Blocks, areas: Iterable[tuple[int, int]], containers: Optional[Containers]
) -> tuple[Words, Sequence[tuple[int, int]]]:
    """Return the words in *areas* that lead to live blocks, and the pieces of pages that could not be read.

    *containers*, if asked for, gets those that are there.
    """
    np = import_numpy()
    reader = Reader(memory)
    low, size = blocks.span
    found, places = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start, end in areas:
        for base, words in reader.pieces((start + 7) & -8, end):
            at = np.flatnonzero(words - np.uint64(low) < np.uint64(size))
            if len(at):
                to = blocks.find(words[at])
                live = blocks.live.take(to, mode="clip") & (to >= 0)
                at, to = at[live], to[live]
                if containers is not None:
                    containers.find(words, at, to, blocks)
                found.append(to)
                places.append(base + 8 * at)
    return Words(np.concatenate(found), np.concatenate(places)), reader.unread


def find_single_words(memory: Memory, blocks: Blocks, addresses: Any) -> Words:
    """Return the words at *addresses* that lead to live blocks; what can't be read has none."""
    np = import_numpy()
    words = gather_words(memory, addresses, range(1))[0][0].view(np.uint64)
    low, size = blocks.span
    at = np.flatnonzero(words - np.uint64(low) < np.uint64(size))
    to = blocks.find(words[at])
    live = blocks.live.take(to, mode="clip") & (to >= 0)
    return Words(to[live], addresses[at[live]])
