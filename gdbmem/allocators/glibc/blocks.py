"""The types of live blocks by their first words: an object's class, or a node of a tree or list.

An object of a class with virtual functions begins with a pointer to its vtable. A block is a node of a std::map or
std::set if its parent points back to it, and a node of a std::list if its neighbours do; other structures with the
same links count as these, too. In numpy if available, else in plain Python, with the same result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gdbmem.allocators.gather import gather_words
from gdbmem.allocators.glibc import lockstep
from gdbmem.allocators.glibc.layout import TCACHE_CHUNKS
from gdbmem.allocators.glibc.lockstep import chunks_of
from gdbmem.allocators.glibc.tallies import (
    CORRUPT,
    ENDED,
    FASTBIN,
    FREE,
    LIVE,
    PAGE,
    STATES,
    Cached,
    HeapTally,
    LinkSums,
    why_stopped,
)
from gdbmem.allocators.glibc.trails import UNIT
from gdbmem.arrays import has_numpy, import_numpy, places_of
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_blocks import LARGEST_NODE, LIST, TREE, UNKNOWN, VECTOR
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gdbmem.allocators.glibc.arenas import MmappedChunk
    from gdbmem.allocators.glibc.heap import HeapReading

# The chunks of a heap, each with its start and whether it is live, for queries about single blocks.
#
# `heap.read_heap` has walked the same regions and found how far they are intact. A chunk takes 5 bytes here, so that
# 10^8 of them fit into half a gigabyte. In numpy if available, else in plain Python, with the same result.


HEADER = 16  # from a chunk's address to the program's memory
_PIECE_BYTES = 1 << 24
_PIECE = 1 << 18  # chunks and addresses at a time


class ChunkTable:
    """The chunks of one region, in order: *units* are their offsets from *start* in units of 16 bytes."""

    def __init__(self, start: int, end: int, units: Sequence[int], live: Sequence[int]) -> None:
        self.start, self.end = start, end  # of the last chunk
        self.units = units  # array('I'), or numpy's uint32
        self.live = live  # 1 for each live one: bytearray, or numpy's bool

    def __len__(self) -> int:
        return len(self.units)

    def find(self, address: int) -> int:
        """Return the number of the chunk that contains *address*; -1 outside the region."""
        if not self.start <= address < self.end:
            return -1
        return bisect_right(self.units, (address - self.start) // UNIT) - 1

    def bounds(self, number: int) -> tuple[int, int]:
        """Return start (of the header) and end of chunk *number*."""
        begin = self.start + UNIT * int(self.units[number])
        if number + 1 == len(self.units):
            return begin, self.end
        return begin, self.start + UNIT * int(self.units[number + 1])


def chunk_tables(memory: Memory, heap: HeapReading, *, pure: bool = False) -> list[ChunkTable]:
    """Return a table for each region of *heap* with chunks, in order of address."""
    tables = []
    for tally in heap.tallies:
        if tally.stopped_at > tally.start:
            cached = heap.caches.cached.between(tally.start, tally.stopped_at)
            tables.append(chunk_table(memory, tally.start, tally.stopped_at, cached, pure=pure))
    return sorted(tables, key=lambda table: table.start)


def chunk_table(memory: Memory, start: int, end: int, cached: Cached, *, pure: bool) -> ChunkTable:
    """Return the chunks between *start* and *end*, which are starts of chunks; *cached* ones are not live."""
    if pure or not has_numpy():
        return _plain_chunks(memory, start, end, cached)
    return _quick_chunks(memory, start, end, cached)


def _plain_chunks(memory: Memory, start: int, end: int, cached: Cached) -> ChunkTable:
    units, heads = array("I"), bytearray()
    address = start
    while address < end:
        base = address
        words = memoryview(memory.read(base, min(_PIECE_BYTES, end + UNIT - base))).cast("Q")
        count = len(words) // 2
        at = 0
        while at < count and address < end:
            head = words[2 * at + 1]
            units.append((address - start) // UNIT)
            heads.append(head & 1)
            at += head >> 4
            address = base + UNIT * at
    last = memory.read(end + 8, 1)[0] & 1
    live = heads[1:] + bytes([last]) if heads else heads  # a chunk's in-use flag is in the next one
    for addresses in (cached.tcache, cached.fastbins):
        for chunk in addresses:
            at = bisect_left(units, (chunk - start) // UNIT)
            if at < len(units) and units[at] == (chunk - start) // UNIT:
                live[at] = 0
    return ChunkTable(start, end, units, live)


def _quick_chunks(memory: Memory, start: int, end: int, cached: Cached) -> ChunkTable:
    import numpy as np  # slow to import

    units, in_use = [], []
    for chunks in lockstep.follow_chunks(memory, start, end):
        units.append((chunks.at + (chunks.base - start) // UNIT).astype(np.uint32))
        in_use.append((chunks.flags & 1).astype(bool))
    last = memory.read(end + 8, 1)[0] & 1
    every: Any = np.concatenate(units)
    live: Any = np.append(np.concatenate(in_use)[1:], bool(last))
    for addresses in (cached.tcache, cached.fastbins):
        for begin in range(0, len(addresses), _PIECE):
            some = np.asarray(addresses[begin : begin + _PIECE], dtype=np.uint64)
            # The same type as the searched array: otherwise numpy would copy all of it to convert it.
            wanted = ((some - np.uint64(start)) // np.uint64(UNIT)).astype(every.dtype)
            number = np.minimum(np.searchsorted(every, wanted), len(every) - 1)
            live[number[every[number] == wanted]] = False
    return ChunkTable(start, end, every, live)


_BLOCK = 1 << 24
_TREE_CHUNK = 48
_HIGHEST = 1 << 47

Key = tuple[str, int]  # kind; the vtable's address for an object ("class"), else 0


class TypeSums:
    """Blocks, bytes and pinned bytes by key."""

    def __init__(self) -> None:
        self.blocks: dict[Key, int] = {}
        self.bytes: dict[Key, int] = {}
        self.pinned: dict[Key, float] = {}

    def add(self, key: Key, blocks: int, size: int, pinned: float) -> None:
        self.blocks[key] = self.blocks.get(key, 0) + blocks
        self.bytes[key] = self.bytes.get(key, 0) + size
        self.pinned[key] = self.pinned.get(key, 0.0) + pinned


def sort_blocks(
    memory: Memory,
    tables: Sequence[tuple[ChunkTable, HeapTally]],
    mmapped: Sequence[MmappedChunk],
    vectors: Sequence[int],
    files: Ranges,
    *,
    pure: bool = False,
) -> TypeSums:
    """Return the live blocks by type.

    *vectors* are the addresses of vectors' elements, *files* the mapped files, which contain vtables.
    """
    sums = TypeSums()
    known = sorted(vectors)
    for table, tally in tables:
        if pure or not has_numpy():
            _plain(memory, table, tally, frozenset(known), files, sums)
        else:
            _quick(memory, table, tally, known, files, sums)
    windows = WindowedMemory(memory)
    for chunk in mmapped:
        if chunk.memory in vectors:
            key: Key = (VECTOR, 0)
        else:
            word = _word(windows, chunk.memory)
            key = ("class", word) if word in files else (UNKNOWN, 0)
        sums.add(key, 1, chunk.end - chunk.memory, 0.0)
    return sums


def _word(windows: WindowedMemory, address: int) -> int:
    if address % 8 or not 0 < address < _HIGHEST:
        return 0
    try:
        return windows.word(address)
    except MemoryUnreadable:
        return 0


def _plain(
    memory: Memory,
    table: ChunkTable,
    tally: HeapTally,
    vectors: frozenset[int],
    files: Ranges,
    sums: TypeSums,
) -> None:
    windows = WindowedMemory(memory)
    for number in range(len(table)):
        if not table.live[number]:
            continue
        start, end = table.bounds(number)
        user = start + HEADER
        word = _word(windows, user)
        if word in files:
            key: Key = ("class", word)
        elif user in vectors:
            key = (VECTOR, 0)
        elif _TREE_CHUNK <= end - start <= LARGEST_NODE and is_tree_node(windows, user):
            key = (TREE, 0)
        elif end - start <= LARGEST_NODE and _is_list_node(windows, user):
            key = (LIST, 0)
        else:
            key = (UNKNOWN, 0)
        pages = {(start - tally.base) // PAGE, (end - 1 - tally.base) // PAGE}
        share = sum(tally.shared_free(page) for page in pages)
        sums.add(key, 1, end - start - 8, share)


def is_tree_node(windows: WindowedMemory, user: int) -> bool:
    """Return whether the block at *user* is linked as a node of a std::map or std::set."""
    first, second, third, fourth = (_word(windows, user + 8 * n) for n in range(4))
    if first & 0xFFFFFFFF <= 1 and second:  # libstdc++: colour, parent, left, right
        return user in (_word(windows, second + 16), _word(windows, second + 24), _word(windows, second + 8))
    if third and fourth & 0xFF <= 1:  # libc++: left, right, parent, colour
        return user in (_word(windows, third), _word(windows, third + 8))
    return False


def _is_list_node(windows: WindowedMemory, user: int) -> bool:
    following, before = _word(windows, user), _word(windows, user + 8)
    return bool(following and before) and (
        _word(windows, following + 8) == user and _word(windows, before) == user
    )


def _quick(
    memory: Memory, table: ChunkTable, tally: HeapTally, vectors: Sequence[int], files: Ranges, sums: TypeSums
) -> None:
    import numpy as np  # slow to import

    free = np.frombuffer(tally.pages, dtype=np.uint16)[FREE::STATES]
    sharing = np.frombuffer(tally.headers, dtype=np.uint16) + np.frombuffer(tally.reached, dtype=np.uint8)
    each = free / np.maximum(sharing, 1)
    known = np.array(vectors, dtype=np.int64)
    for start, size, words in _pieces(np, memory, table):
        first, last = (start - tally.base) // PAGE, (start + size - 1 - tally.base) // PAGE
        share = each[first] + np.where(last > first, each[last], 0)
        sort_columns(memory, (start + HEADER, size - 8, share), words, known, files, sums)


def sort_columns(
    memory: Memory, blocks: tuple[Any, Any, Any], words: Any, vectors: Any, files: Ranges, sums: TypeSums
) -> None:
    """Add *blocks*, columns of addresses, usable bytes and pinned bytes, to *sums*.

    *words* are the first four words of each as rows, *vectors* the addresses of vectors' elements.
    """
    import numpy as np  # slow to import

    user, size, share = blocks
    low = np.array([start for start, _ in files.items], dtype=np.int64)
    high = np.array([end for _, end in files.items], dtype=np.int64)
    kind = np.zeros(len(user), dtype=np.int8)
    if len(low):
        at = np.searchsorted(low, words[0], side="right") - 1
        kind[(at >= 0) & (words[0] < high[np.maximum(at, 0)])] = 1
    kind[(kind == 0) & np.isin(user, vectors)] = 2
    rest = np.flatnonzero((kind == 0) & (size < LARGEST_NODE))
    tree = rest[_tree_nodes(np, memory, user[rest], size[rest], words[:, rest])]
    kind[tree] = 3
    rest = rest[kind[rest] == 0]
    kind[rest[_list_nodes(np, memory, user[rest], words[:, rest])]] = 4
    for number, name in ((0, UNKNOWN), (2, VECTOR), (3, TREE), (4, LIST)):
        mine = kind == number
        if mine.any():
            sums.add((name, 0), int(mine.sum()), int(size[mine].sum()), float(share[mine].sum()))
    mine = np.flatnonzero(kind == 1)
    values, group = np.unique(words[0][mine], return_inverse=True)
    blocks_of = np.bincount(group)
    held = np.bincount(group, weights=size[mine])
    pinned = np.bincount(group, weights=share[mine])
    for value, *figures in zip(values.tolist(), blocks_of.tolist(), held.tolist(), pinned.tolist()):
        sums.add(("class", value), int(figures[0]), int(figures[1]), float(figures[2]))


def _pieces(np: Any, memory: Memory, table: ChunkTable) -> Iterator[tuple[Any, Any, Any]]:
    """Yield addresses and sizes of live chunks, and the first four words of each as rows."""
    units = np.asarray(table.units)
    ends = np.append(units[1:], np.uint32((table.end - table.start) // UNIT))
    live = np.flatnonzero(np.asarray(table.live))
    begins = units[live]
    at = 0
    while at < len(live):
        base = table.start + UNIT * int(begins[at])
        last = int(np.searchsorted(begins, units.dtype.type((base - table.start + _BLOCK) // UNIT)))
        mine = live[at:last]
        start = table.start + UNIT * units[mine].astype(np.int64)
        size = UNIT * (ends[mine].astype(np.int64) - units[mine])
        # A header follows the last chunk, so that four words of each can be read.
        words = np.frombuffer(memory.read(base, int(start[-1]) + 48 - base), dtype=np.int64)
        number = (start + HEADER - base) // 8
        yield start, size, np.stack([words[number + n] for n in range(4)])
        at = last


def _tree_nodes(np: Any, memory: Memory, user: Any, size: Any, words: Any) -> Any:
    large = size >= _TREE_CHUNK - 8
    result = np.zeros(len(user), dtype=bool)
    ours = np.flatnonzero(large & (words[0] & 0xFFFFFFFF <= 1) & _pointers(words[1]))
    parent, self = words[1][ours], user[ours]
    back = np.zeros(len(ours), dtype=bool)
    for offset in (8, 16, 24):
        back |= _words(memory, parent + offset) == self
    result[ours] = back
    tried = np.zeros(len(user), dtype=bool)
    tried[np.flatnonzero((words[0] & 0xFFFFFFFF <= 1) & (words[1] != 0))] = True
    others = np.flatnonzero(large & ~tried & _pointers(words[2]) & (words[3] & 0xFF <= 1))
    parent, self = words[2][others], user[others]
    result[others] = (_words(memory, parent) == self) | (_words(memory, parent + 8) == self)
    return result


def _list_nodes(np: Any, memory: Memory, user: Any, words: Any) -> Any:
    result = np.zeros(len(user), dtype=bool)
    linked = np.flatnonzero(_pointers(words[0]) & _pointers(words[1]))
    linked = linked[_words(memory, words[0][linked] + 8) == user[linked]]
    result[linked] = _words(memory, words[1][linked]) == user[linked]
    return result


def _pointers(words: Any) -> Any:
    return (words > 0) & (words < _HIGHEST) & (words & 7 == 0)


def _words(memory: Memory, addresses: Any) -> Any:
    """Return the word at each of *addresses*, multiples of 8; 0 if it can't be read."""
    return gather_words(memory, addresses, (0,))[0][0]


# The same columns, kept while `read_heap` walks the regions and checks them, for a graph of all blocks.


_LARGE = 1 << 8  # units: larger chunks are not told apart


class ColumnWalker:
    """A walker for `read_heap` that keeps a ChunkTable of each region, and makes no sums of pages.

    The tally has what `read_heap` checks: links of free chunks, sizes of those in fastbins, and of live ones that a
    tcache may have.
    """

    def __init__(self) -> None:
        self._tables: dict[int, ChunkTable] = {}  # by the start of the region

    def tables_of(self, heap: HeapReading) -> list[ChunkTable]:
        """Return the tables of the regions of *heap*, which this walker has read; a heap may be read several times."""
        starts = [tally.start for arena in heap.arenas for tally in arena.tallies]
        return [self._tables[start] for start in starts if start in self._tables]

    def __call__(self, memory: Memory, tally: HeapTally, limit: int, cached: Cached) -> None:
        np = import_numpy()
        self._tables.pop(tally.start, None)
        limit = min(limit, tally.end - UNIT)
        address, head = tally.start, 0
        links = LinkSums(np, tally, memory)
        units, in_use = [], []
        for chunks in chunks_of(memory, address, limit, cached):
            address, head = chunks.base + UNIT * chunks.end, chunks.next_head
            if not len(chunks.at):
                continue
            tally.last = chunks.base + UNIT * int(chunks.at[-1])
            used = np.append(chunks.flags[1:] & 1, np.uint8(head & 1)).astype(
                bool
            )  # the flag is in the next one
            links.add(chunks, np.flatnonzero(~used))
            units.append((chunks.at + (chunks.base - tally.start) // UNIT).astype(np.uint32))
            in_use.append(used)
        tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT
        if address < limit:
            tally.stopped_why = why_stopped(head)
        if units:
            units.append(np.array([(address - tally.start) // UNIT], np.uint32))
            self._keep(tally, np.concatenate(units), np.concatenate(in_use), cached)
        else:
            tally.strays += len(cached)

    def _keep(self, tally: HeapTally, bounds: Any, live: Any, cached: Cached) -> None:
        """Keep the chunks between *bounds*, which are one more than *live*."""
        np = import_numpy()
        for addresses, state in ((cached.tcache, -1), (cached.fastbins, FASTBIN)):
            _mark_free(tally, addresses, state, (bounds, live))
        counts = np.zeros(_LARGE + 1, np.int64)
        for begin in range(0, len(live), _PIECE):
            sizes = np.diff(bounds[begin : begin + _PIECE + 1]) * live[begin : begin + _PIECE]
            counts += np.bincount(np.minimum(sizes, _LARGE), minlength=len(counts))
        for size in TCACHE_CHUNKS:
            if counts[size // UNIT]:
                tally.sizes.setdefault(size, [0] * STATES)[LIVE] = int(counts[size // UNIT])
        self._tables[tally.start] = ChunkTable(tally.start, tally.stopped_at, bounds[:-1], live)


def _mark_free(tally: HeapTally, addresses: Sequence[int], state: int, columns: tuple[Any, Any]) -> None:
    """Mark the chunks at *addresses* as not live; those of fastbins are counted by size, others are strays."""
    np = import_numpy()
    bounds, live = columns
    for begin in range(0, len(addresses), _PIECE):
        some = np.asarray(addresses[begin : begin + _PIECE], dtype=np.uint64)
        wanted = ((some - np.uint64(tally.start)) // np.uint64(UNIT)).astype(np.uint32)
        number = np.minimum(np.searchsorted(bounds[:-1], wanted), len(live) - 1)
        number = number[(bounds[number] == wanted) & live[number]]
        live[number] = False
        tally.strays += len(some) - len(number)
        if state == FASTBIN:
            found, which = places_of(bounds[number + 1] - bounds[number])
            for size, count in zip(found.tolist(), np.bincount(which).tolist()):
                tally.sizes.setdefault(size * UNIT, [0] * STATES)[FASTBIN] += count
