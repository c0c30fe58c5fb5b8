"""Every vector of a heap by its three pointers: begin ≤ end ≤ limit, begin where a live block's memory begins.

The types are unknown, so every available condition has to hold: the three pointers are in one live piece of memory,
and the limit is the end of the block, except for malloc's rounding. A block is counted once. The results are
std::vectors of libstdc++ or libc++, or buffers with the same representation.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Protocol

from gdbmem.allocators.glibc.blocks import HEADER, ChunkTable
from gdbmem.allocators.glibc.trails import UNIT
from gdbmem.arrays import has_numpy
from gdbmem.model.heap_blocks import DATA, HEAP, STACK, FoundVector
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.arenas import MmappedChunk


# malloc(n) takes n + 8 bytes, rounded up to 16 and to no less than 32; a remainder below 32 bytes stays with it.
_ROUNDED = 8 + 16 + 24
_MAPPED_ROUNDED = 4096 + 96  # of a block with a mapping of its own; an aligned one leaves more behind it
_BLOCK = 1 << 23
_PAGE = 4096
_MOST_ADDRESS = 1 << 47
PLACES = (HEAP, DATA, STACK)

Area = tuple[str, int, int]  # place, start, end
Triple = tuple[int, int, int, int]  # its address, begin, end, limit


def find_vectors(
    memory: Memory,
    tables: Sequence[ChunkTable],
    mmapped: Sequence[MmappedChunk],
    areas: Iterable[Area],
    *,
    pure: bool = False,
) -> list[FoundVector]:
    """Return the vectors whose three pointers are in live blocks or in *areas*, each block once.

    If several point to one block, the first counts: in the heap, then in *areas* in their order.
    """
    if not pure and has_numpy():
        return find_columns(memory, tables, mmapped, areas).vectors()
    blocks = _Blocks(tables, mmapped)
    found: dict[int, FoundVector] = {}
    for place, start, end, table in _pieces(tables, mmapped, areas):
        for owner, begin, last, limit in _scan_plain(memory, start, end, blocks):
            if begin in found or not _is_in_live(table, owner):
                continue
            if not (
                _is_deque(memory, owner, begin, last, end) or _is_stream(memory, owner, begin, start, end)
            ):
                found[begin] = FoundVector(begin, last, limit, owner, place)
    return list(found.values())


class VectorColumns(NamedTuple):
    """Vectors as numpy's columns, for sums over a million of them."""

    begin: Any
    end: Any
    limit: Any
    owner: Any
    place: Any  # number in PLACES

    def vectors(self) -> list[FoundVector]:
        columns = (column.tolist() for column in (self.begin, self.end, self.limit, self.owner, self.place))
        return [FoundVector(b, e, m, o, PLACES[p]) for b, e, m, o, p in zip(*columns)]


def find_columns(
    memory: Memory, tables: Sequence[ChunkTable], mmapped: Sequence[MmappedChunk], areas: Iterable[Area]
) -> VectorColumns:
    """Return find_vectors() as columns; requires numpy."""
    import numpy as np  # slow to import

    blocks = _Blocks(tables, mmapped)
    parts = [np.empty((5, 0), dtype=np.int64)]
    for place, start, end, table in _pieces(tables, mmapped, areas):
        for found in scan_columns(memory, start, end, partial(_all_in_live, np, table), blocks):
            parts.append(np.vstack([*found, np.full(len(found[0]), PLACES.index(place))]))
    owner, begin, last, limit, places = np.concatenate(parts, axis=1)
    first = np.sort(np.unique(begin, return_index=True)[1])
    return VectorColumns(begin[first], last[first], limit[first], owner[first], places[first])


def _pieces(
    tables: Sequence[ChunkTable], mmapped: Sequence[MmappedChunk], areas: Iterable[Area]
) -> Iterator[tuple[str, int, int, Any]]:
    for table in tables:
        yield HEAP, table.start, table.end, table
    for chunk in mmapped:
        yield HEAP, chunk.memory, chunk.end, None
    for place, start, end in areas:
        yield place, start, end, None


def _is_in_live(table: Any, owner: int) -> bool:
    """Return whether the three words at *owner* are in one live block."""
    if table is None:
        return True
    number = table.find(owner)
    if number < 0 or not table.live[number]:
        return False
    start, end = table.bounds(number)
    return bool(start + HEADER <= owner and owner + 24 <= end + 8)


def _is_deque(memory: Memory, owner: int, begin: int, last: int, end: int) -> bool:
    """Return whether the words are an iterator of a deque: a fourth points to the slot that holds *begin*.

    Its first two words are its position and the start of its node: they are in order only if these are equal.
    """
    if last != begin or owner + 32 > end:
        return False
    try:
        slot = word_at(memory, owner + 24)
        return 0 < slot < _MOST_ADDRESS and slot % 8 == 0 and word_at(memory, slot) == begin
    except MemoryUnreadable:
        return False


def _is_stream(memory: Memory, owner: int, begin: int, start: int, end: int) -> bool:
    """Return whether the words are pointers of a FILE into its buffer: others to its beginning surround them."""
    if owner - 16 < start or owner + 32 > end:
        return False
    try:
        before, near = word_at(memory, owner - 16), word_at(memory, owner - 8)
        return near == begin and begin in (before, word_at(memory, owner + 24))
    except MemoryUnreadable:
        return False


class _Blocks:
    """The live blocks by their user address."""

    def __init__(self, tables: Sequence[ChunkTable], mmapped: Sequence[MmappedChunk]) -> None:
        self._tables = tables
        self._starts = [table.start for table in tables]
        self._mapped = {chunk.memory: chunk.end - chunk.memory for chunk in mmapped}
        ends = [table.end for table in tables] + [chunk.end for chunk in mmapped]
        self.low = min([*self._starts, *(chunk.start for chunk in mmapped)], default=0)
        self.high = max(ends, default=0)

    def fits(self, begin: int, limit: int) -> bool:
        """Return whether a live block begins at *begin* and has the size that malloc gives ``limit - begin`` bytes."""
        if begin in self._mapped:
            return 0 <= self._mapped[begin] - (limit - begin) < _MAPPED_ROUNDED
        return 0 <= self._usable(begin) - (limit - begin) < _ROUNDED

    def _usable(self, begin: int) -> int:
        number = bisect_right(self._starts, begin) - 1
        if number < 0:
            return 0
        table = self._tables[number]
        chunk = table.find(begin - HEADER)
        if chunk < 0 or not table.live[chunk]:
            return 0
        start, end = table.bounds(chunk)
        return end - start - 8 if start + HEADER == begin else 0

    def all_fit(self, np: Any, begins: Any, limits: Any) -> Any:
        """Return fits() for each pair of two columns."""
        result = np.zeros(len(begins), dtype=bool)
        if self._mapped:
            known = np.isin(begins, np.fromiter(self._mapped, dtype=np.int64, count=len(self._mapped)))
            for at in np.flatnonzero(known).tolist():
                result[at] = self.fits(int(begins[at]), int(limits[at]))
        owner = np.searchsorted(np.array(self._starts, dtype=np.int64), begins, side="right") - 1
        for number in np.flatnonzero(np.bincount(owner[owner >= 0])).tolist():  # np.unique imports 8 ms more
            table = self._tables[number]
            at = np.flatnonzero((owner == number) & (begins < table.end))
            units = (begins[at] - HEADER - table.start) // UNIT
            at, units = at[units >= 0], units[units >= 0]
            if not len(table) or not len(at):
                continue
            column = np.asarray(table.units)
            chunk = np.minimum(np.searchsorted(column, units.astype(column.dtype)), len(table) - 1)
            good = (column[chunk] == units) & np.asarray(table.live)[chunk]
            at, chunk, units = at[good], chunk[good], units[good]
            following = column[np.minimum(chunk + 1, len(column) - 1)].astype(np.int64)
            ends = np.where(chunk + 1 < len(column), following, (table.end - table.start) // UNIT)
            spare = (ends - units) * UNIT - 8 - (limits[at] - begins[at])
            result[at] |= (spare >= 0) & (spare < _ROUNDED)
        return result


def _windows(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of ``[start, end)`` that overlap by two words."""
    start = (start + 7) & ~7
    while start + 24 <= end:
        stop = min(start + _BLOCK, end & ~7)
        yield start, stop
        start = stop - 16 if stop < end & ~7 else end


def _scan_plain(memory: Memory, start: int, end: int, blocks: _Blocks) -> Iterator[Triple]:
    """Yield vectors, by the order of their pointers and the block that they point into."""
    low, high = blocks.low, blocks.high
    for at, stop in _windows(start, end):
        for base, data in readable_pieces(memory, at, stop):
            words = memoryview(data).cast("Q")
            for number in range(len(words) - 2):
                begin = words[number]
                if low <= begin < high and begin % 16 == 0:
                    last, limit = words[number + 1], words[number + 2]
                    if begin <= last <= limit <= high and begin < limit and blocks.fits(begin, limit):
                        yield base + 8 * number, begin, last, limit


class LiveBlocks(Protocol):
    """The live blocks of a heap by the addresses that the program has of them."""

    low: int
    high: int

    def all_fit(self, np: Any, begins: Any, limits: Any) -> Any:
        """Return which pairs of two columns are where a block begins, and where that many bytes of it may end."""


def scan_columns(
    memory: Memory, start: int, end: int, in_live: Callable[[Any], Any], blocks: LiveBlocks
) -> Iterator[Any]:
    """Yield owners, begins, ends and limits of the vectors in ``[start, end)``, as columns.

    *in_live* returns for a column of addresses whether the three words there are in one live block.
    """
    import numpy as np  # slow to import

    for at, stop in _windows(start, end):
        for base, data in readable_pieces(memory, at, stop):
            words = np.frombuffer(data, dtype=np.int64)
            begins = words[:-2]
            near = (begins >= blocks.low) & (begins < blocks.high) & (begins & 15 == 0)
            near &= words[2:] > begins
            number = np.flatnonzero(near)
            first, last, limit = words[number], words[number + 1], words[number + 2]
            good = (first <= last) & (last <= limit) & (limit <= blocks.high)
            number, first, last, limit = number[good], first[good], last[good], limit[good]
            good = blocks.all_fit(np, first, limit)
            good &= in_live(base + 8 * number)
            for one in np.flatnonzero(good & _doubtful(np, words, number, first, last)).tolist():
                owner, begin = base + 8 * int(number[one]), int(first[one])
                good[one] = not (
                    _is_deque(memory, owner, begin, int(last[one]), end)
                    or _is_stream(memory, owner, begin, start, end)
                )
            yield base + 8 * number[good], first[good], last[good], limit[good]


def _all_in_live(np: Any, table: Any, owners: Any) -> Any:
    """Return _is_in_live() for each of *owners*, which are in the region of *table*."""
    if table is None or not len(table):
        return np.full(len(owners), table is None)
    column = np.asarray(table.units)
    units = (owners - table.start) // UNIT
    chunk = np.searchsorted(column, units.astype(column.dtype), side="right") - 1
    starts = table.start + UNIT * column[chunk].astype(np.int64)
    following = column[np.minimum(chunk + 1, len(column) - 1)].astype(np.int64)
    ends = np.where(chunk + 1 < len(column), table.start + UNIT * following, table.end)
    live = np.asarray(table.live)[chunk].astype(bool)
    return live & (starts + HEADER <= owners) & (owners + 24 <= ends + 8)


def _doubtful(np: Any, words: Any, number: Any, first: Any, last: Any) -> Any:
    """Return which may be a deque's iterator or a FILE's pointers, judging by the surrounding words that were read."""
    before = np.where(number > 0, words[number - 1], first)
    return (first == last) | (before == first)


def readable_pieces(memory: Memory, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the readable parts of ``[start, end)``: as a whole, or page by page."""
    try:
        yield start, memory.read(start, end - start)
        return
    except MemoryUnreadable:
        pass
    while start + 24 <= end:
        stop = min((start & -_PAGE) + _PAGE, end)
        with contextlib.suppress(MemoryUnreadable):
            yield start, memory.read(start, stop - start)
        start = stop


# Every word that points into one chunk: in live blocks, variables and stacks.


_PIECE_BYTES = 1 << 23


class FoundPointer(NamedTuple):
    """A word that points into the chunk, and its location."""

    address: int
    value: int
    place: str  # of PLACES
    owner: int  # user address of the live block that contains it; 0 outside the heap


def find_pointers(
    memory: Memory,
    tables: Sequence[ChunkTable],
    mmapped: Sequence[MmappedChunk],
    areas: Iterable[Area],
    target: tuple[int, int],
    *,
    pure: bool,
) -> Iterator[FoundPointer]:
    """Yield the words in *areas* and in live blocks that point into *target*, except words in *target* itself."""
    quick = not pure and has_numpy()
    low, high = target
    for place, start, end in areas:
        for address, value in scan_pointers(memory, start, end, low, high, quick=quick):
            yield FoundPointer(address, value, place, 0)
    for table in tables:
        for address, value in scan_pointers(memory, table.start, table.end, low, high, quick=quick):
            number = table.find(address)
            begin, _ = table.bounds(number)
            # The first word of the next chunk's header is the last of this one's memory.
            if address == begin and number and table.live[number - 1]:
                begin, _ = table.bounds(number - 1)
            elif not table.live[number] or address < begin + HEADER:
                continue
            if not low <= address < high:
                yield FoundPointer(address, value, HEAP, begin + HEADER)
    for chunk in mmapped:
        for address, value in scan_pointers(memory, chunk.memory, chunk.end, low, high, quick=quick):
            if not low <= address < high:
                yield FoundPointer(address, value, HEAP, chunk.memory)


def scan_pointers(
    memory: Memory, start: int, end: int, low: int, high: int, *, quick: bool
) -> Iterator[tuple[int, int]]:
    """Yield place and value of each word in ``[start, end)`` that points into ``[low, high)``; *quick*: with numpy."""
    for begin in range(start, end, _PIECE_BYTES):
        for base, data in readable_pieces(memory, begin, min(begin + _PIECE_BYTES, end)):
            if quick:
                yield from _scan_data(base, data, low, high)
                continue
            words = memoryview(data[: len(data) & -8]).cast("Q")
            yield from ((base + 8 * at, word) for at, word in enumerate(words) if low <= word < high)


def _scan_data(base: int, data: bytes, low: int, high: int) -> Iterator[tuple[int, int]]:
    import numpy as np  # slow to import

    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    # Below *low* the difference wraps around, and is larger than any block.
    for at in np.flatnonzero(words - np.uint64(low) < np.uint64(high - low)).tolist():
        yield base + 8 * at, int(words[at])
