"""pymalloc's arenas and pools, found by pymalloc's own table of arenas.

Neither symbols nor versions are needed: the table's entries have had the same layout since CPython 3.8
(Objects/obmalloc.c, struct arena_object), and an entry is accepted only if the pools of its arena refer to it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, read_pieces

POOL_HEADER_BYTES = 48
GRANULE = 16  # a block's size is a multiple of this
CLASSES = 32  # of sizes, up to 512 bytes
_POINTER = 8  # bytes
POOLS_OF_ARENA = (64, 63)  # 63 if the arena doesn't begin at a pool boundary
_POOL_SIZES = (1 << 14, 1 << 12)  # since CPython 3.10, and before
# address, pool_address, nfreepools, ntotalpools, freepools, next, previous
_ENTRY = struct.Struct("<QQIIQQQ")
# count, freeblock, next, previous, arenaindex, szidx, nextoffset, max
_HEADER = struct.Struct("<IxxxxQQQIIII")
_COUNTS_AT = 16  # of nfreepools and ntotalpools in an entry
_PIECE = 1 << 24
_SMALLEST_PAGE = 1 << 12


class Pool(NamedTuple):
    """A pool: blocks of one size, of which *live* are allocated; 0 if the whole pool is free."""

    address: int
    block_bytes: int
    live: int
    used_to: int  # offset of the first block that was never allocated
    free_block: int  # address of the first freed one; 0: none

    def capacity(self, pool_bytes: int) -> int:
        """Return the number of blocks in a pool of *pool_bytes*."""
        return (pool_bytes - POOL_HEADER_BYTES) // self.block_bytes


class PythonArena(NamedTuple):
    """An arena and its pools, in order of address."""

    address: int
    pool_bytes: int
    pools: Sequence[Pool]  # that were ever used
    pools_end: int  # after the last of those
    is_consistent: bool  # False: read during a change, or damaged

    @property
    def size_bytes(self) -> int:
        return self.pool_bytes * POOLS_OF_ARENA[0]

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    @property
    def live_blocks(self) -> int:
        return sum(pool.live for pool in self.pools)

    @property
    def live_bytes(self) -> int:
        return sum(pool.live * pool.block_bytes for pool in self.pools)

    def pieces(self) -> Iterator[ArenaPiece]:
        """Yield the arena in pieces, of pools with and of pools without live blocks; adjacent pools are joined."""
        start, held, sums = self.address, False, [0, 0]
        for pool in self.pools:
            if bool(pool.live) != held:
                if pool.address > start:
                    yield ArenaPiece(start, pool.address, *sums)
                start, held, sums = pool.address, bool(pool.live), [0, 0]
            if held:
                sums[0] += pool.live * pool.block_bytes
                sums[1] += self.pool_bytes - pool.capacity(self.pool_bytes) * pool.block_bytes
        if held:
            yield ArenaPiece(start, self.pools_end, *sums)
            start = self.pools_end
        if self.end > start:
            yield ArenaPiece(start, self.end)


class ArenaPiece(NamedTuple):
    """Adjacent pools of an arena, all with live blocks or all without."""

    start: int
    end: int
    live_bytes: int = 0
    header_bytes: int = 0  # headers, and remainders of pools that are too small for a block

    @property
    def is_held(self) -> bool:
        return self.header_bytes > 0


class PythonArenas(NamedTuple):
    """All arenas of a process, interpreter by interpreter."""

    arenas: Sequence[PythonArena] = ()
    interpreters: int = 0  # with separate arenas
    unread_arenas: int = 0  # in the tables, but unreadable

    @property
    def live_blocks(self) -> int:
        return sum(arena.live_blocks for arena in self.arenas)

    @property
    def live_bytes(self) -> int:
        return sum(arena.live_bytes for arena in self.arenas)

    @property
    def inconsistent(self) -> int:
        return sum(not arena.is_consistent for arena in self.arenas)


class _ArenaTable(NamedTuple):
    """Entries of one table."""

    start: int
    entries: dict[int, tuple[int, ...]]


def find_arenas(
    memory: Memory, mappings: Iterable[Mapping], touched: Optional[Ranges] = None
) -> PythonArenas:
    """Return the arenas of the process with *memory*; none if it has no pymalloc.

    Only *touched* memory is searched, if that is known: a program may have reserved terabytes.
    """
    tables: dict[int, _ArenaTable] = {}
    known: list[tuple[int, int]] = []
    for mapping in sorted(data_mappings(mappings), key=lambda m: (m.name != "[heap]", m.size_bytes)):
        # Known arenas contain no table: it is larger than their blocks.
        for start, end in Ranges(known).gaps(mapping.start, mapping.end):
            pieces = [(start, end)] if touched is None else list(touched.overlaps(start, end))
            for address in (one for piece in pieces for one in _candidates(memory, *piece)):
                found = _confirmed(memory, address)
                if found is not None:
                    table, number, entry, size = found
                    tables.setdefault(table, _ArenaTable(table, {})).entries[number] = entry
                    known.append((entry[0], entry[0] + size * POOLS_OF_ARENA[0]))
    return _read(memory, _current(tables.values()))


def data_mappings(mappings: Iterable[Mapping]) -> Iterator[Mapping]:
    """Yield the anonymous memory that may contain what Python has allocated."""
    for mapping in mappings:
        if not mapping.is_anonymous or "rw" not in mapping.permissions or mapping.name.startswith("[stack"):
            continue
        if mapping.rss_bytes or not mapping.flags:  # else nothing of it was ever touched
            yield mapping


def _candidates(memory: Memory, start: int, end: int) -> Iterator[int]:
    """Yield the addresses in ``[start, end)`` that may be an entry of a table."""
    for piece, data in read_pieces(memory, start, end, _PIECE, _ENTRY.size):
        for at in _count_places(data):
            at -= _COUNTS_AT
            if at >= 0 and at + _ENTRY.size <= len(data) and _is_plausible(_ENTRY.unpack_from(data, at)):
                yield piece + at


def _count_places(data: bytes) -> Iterable[int]:
    """Return the offsets, multiples of 8, of possible pairs of pool counts."""
    try:
        np = import_numpy()
    except ImportError:
        return _count_places_without_numpy(data)
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint32)
    total = words[1::2]
    return (np.flatnonzero((total == POOLS_OF_ARENA[0]) | (total == POOLS_OF_ARENA[1])) * 8).tolist()  # type: ignore[no-any-return]


def _count_places_without_numpy(data: bytes) -> Iterator[int]:
    for total in POOLS_OF_ARENA:
        word = total.to_bytes(4, "little")
        at = data.find(word)
        while at >= 0:
            if at % 8 == 4:
                yield at - 4
            at = data.find(word, at + 1)


def _is_plausible(entry: tuple[int, ...]) -> bool:
    address, pools_end, free, total = entry[:4]
    return (
        0 < address < pools_end <= address + (_POOL_SIZES[0] << 6)
        and address % _SMALLEST_PAGE == pools_end % _SMALLEST_PAGE == 0
        and free <= total
    )


def _confirmed(memory: Memory, address: int) -> Optional[tuple[int, int, tuple[int, ...], int]]:
    """Return table, index, entry and pool size of the entry at *address*; None if its arena doesn't confirm it."""
    try:
        entry = _ENTRY.unpack(memory.read(address, _ENTRY.size))
        for size in _POOL_SIZES:
            pool = -(-entry[0] // size) * size
            header = _HEADER.unpack(memory.read(pool, _HEADER.size))
            if pool < entry[1] and entry[1] % size == 0 and _is_pool(header, pool, size):
                number = header[4]
                return address - number * _ENTRY.size, number, entry, size
    except MemoryUnreadable:
        pass
    return None


def _is_pool(header: tuple[int, ...], pool: int, pool_bytes: int) -> bool:
    """Return whether *header* can be that of the pool at *pool* (Objects/obmalloc.c, struct pool_header)."""
    count, free, following, before, _, size_class, offset, most = header
    size = (size_class + 1) * GRANULE
    return (
        size_class < CLASSES
        and most == pool_bytes - size
        and count <= pool_bytes // size
        and POOL_HEADER_BYTES <= offset <= pool_bytes + size
        and (free == 0 or pool < free < pool + pool_bytes)
        and following % _POINTER == before % _POINTER == 0  # a list's head may be in an interpreter's state
    )


def _current(tables: Iterable[_ArenaTable]) -> list[_ArenaTable]:
    """Return the tables without stale ones left by realloc, whose arenas are also in a larger one."""
    kept: list[_ArenaTable] = []
    taken: set[int] = set()
    for table in sorted(tables, key=lambda table: -len(table.entries)):
        arenas = {entry[0] for entry in table.entries.values()}
        if not arenas & taken:
            kept.append(table)
            taken |= arenas
    return sorted(kept, key=lambda table: table.start)


def _read(memory: Memory, tables: Sequence[_ArenaTable]) -> PythonArenas:
    arenas: dict[int, PythonArena] = {}
    unread = 0
    for table in tables:
        for _, entry in sorted(table.entries.items()):
            try:
                arenas[entry[0]] = _read_arena(memory, entry)
            except MemoryUnreadable:
                unread += 1
    return PythonArenas([arenas[at] for at in sorted(arenas)], len(tables), unread)


def _read_arena(memory: Memory, entry: tuple[int, ...]) -> PythonArena:
    address, pools_end, free, total = entry[:4]
    size = _pool_size(memory, address)
    pools = []
    sound = True
    for at in range(-(-address // size) * size, pools_end, size):
        header = _HEADER.unpack(memory.read(at, _HEADER.size))
        if not _is_pool(header, at, size):
            sound = False
            continue
        pools.append(Pool(at, (header[5] + 1) * GRANULE, header[0], header[6], header[1]))
    first = -(-address // size) * size
    untouched = max(total - (pools_end - first) // size, 0)
    sound = sound and free == untouched + sum(not pool.live for pool in pools)
    return PythonArena(address, size, pools, pools_end, sound)


def _pool_size(memory: Memory, address: int) -> int:
    for size in _POOL_SIZES:
        pool = -(-address // size) * size
        if _is_pool(_HEADER.unpack(memory.read(pool, _HEADER.size)), pool, size):
            return size
    raise MemoryUnreadable(address, "it has no pool of pymalloc")
