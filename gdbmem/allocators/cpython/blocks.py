"""pymalloc's allocated blocks, many pools at a time, in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gdbmem.allocators.cpython.arenas import POOL_HEADER_BYTES, PythonArena
from gdbmem.allocators.gather import gather_words
from gdbmem.allocators.glibc.blocks import HEADER, ChunkTable, chunk_tables
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.trails import UNIT
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory, MemoryUnreadable

_BATCH_BYTES = 1 << 26
_MARK = 0xFDFDFDFDFDFDFD  # after the letter of an allocator (Objects/obmalloc.c, PYMEM_FORBIDDENBYTE)
_HOOK_WORDS = 3  # before and after the memory that Python uses


class Blocks(NamedTuple):
    """Allocated blocks, of pymalloc or another allocator; parallel arrays.

    *words* has the memory of all of them, and *at* the offset of each, in words.
    """

    words: Any  # uint64
    at: Any  # int64
    sizes: Any  # int64, bytes
    addresses: Any  # uint64
    owners: Any  # int64: numbers of arenas; -1: none

    def word(self, number: int) -> Any:
        """Return word *number* of each block; 0 if the block is shorter."""
        np = import_numpy()
        inside = self.sizes >= (number + 1) * 8
        return np.where(inside, self.words[np.where(inside, self.at + number, 0)], 0)

    def without_hooks(self) -> Blocks:
        """Return the blocks without the size and the mark that PYTHONMALLOC=debug puts before each."""
        hooked = self.word(1) >> 8 == _MARK
        if not hooked.any():
            return self
        return self._replace(at=self.at + 2 * hooked, sizes=self.sizes - 8 * _HOOK_WORDS * hooked)


@dataclass
class Unsure:
    """Pools whose blocks contradict their header; their blocks are omitted."""

    pools: int = 0
    blocks: int = 0


def live_blocks(memory: Memory, arenas: Sequence[PythonArena], unsure: Unsure) -> Iterator[Blocks]:
    """Yield the allocated blocks of *arenas*, some tens of MiB of memory at a time."""
    batch: list[int] = []
    size = 0
    for number, arena in enumerate(arenas):
        batch.append(number)
        size += arena.size_bytes
        if size >= _BATCH_BYTES:
            yield _read(memory, arenas, batch, unsure)
            batch, size = [], 0
    if batch:
        yield _read(memory, arenas, batch, unsure)


def _read(memory: Memory, arenas: Sequence[PythonArena], batch: Sequence[int], unsure: Unsure) -> Blocks:
    np = import_numpy()
    total = sum(arenas[number].pools_end - arenas[number].address for number in batch)
    data = bytearray(total)
    rows = []
    place = 0
    for number in batch:
        arena = arenas[number]
        length = arena.pools_end - arena.address
        held = [pool for pool in arena.pools if pool.live]
        try:
            memory.read_into(arena.address, memoryview(data)[place : place + length])
        except MemoryUnreadable:
            unsure.pools += len(held)
            unsure.blocks += sum(pool.live for pool in held)
            continue
        rows += [
            (
                place + pool.address - arena.address,
                pool.address,
                pool.block_bytes,
                (min(pool.used_to, arena.pool_bytes) - POOL_HEADER_BYTES) // pool.block_bytes,
                pool.live,
                pool.free_block,
                number,
            )
            for pool in held
        ]
        place += length
    words = np.frombuffer(data, np.uint64)
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    return _divide(words, columns, unsure)


def _divide(words: Any, columns: Any, unsure: Unsure) -> Blocks:
    """Return the live blocks of the pools in *columns*: those that are not in a free list."""
    np = import_numpy()
    place, address, size, used, live, _, owner = columns
    first = np.cumsum(used) - used
    pool_of = np.repeat(np.arange(len(place)), used)
    within = np.arange(len(pool_of)) - first[pool_of]
    offset = POOL_HEADER_BYTES + within * size[pool_of]
    held = np.ones(len(pool_of), bool)
    sound = _strike_free(words, columns, first, held)
    # A header may have been read during a change.
    counts = np.bincount(pool_of[held], minlength=len(place)) if len(place) else np.zeros(0, np.int64)
    sound &= counts == live
    unsure.pools += int((~sound).sum())
    unsure.blocks += int(live[~sound].sum())
    held &= sound[pool_of]
    pool_of, offset = pool_of[held], offset[held]
    return Blocks(
        words,
        (place[pool_of] + offset) // 8,
        size[pool_of],
        (address[pool_of] + offset).astype(np.uint64),
        owner[pool_of],
    )


def _strike_free(words: Any, columns: Any, first: Any, held: Any) -> Any:
    """Remove the blocks of the free lists from *held*, all lists at once; return which lists are valid."""
    np = import_numpy()
    place, address, size, used, live, free, _ = columns
    sound = np.ones(len(place), bool)
    pools = np.flatnonzero(free)
    block = free[pools]
    left = (used - live)[pools]  # the largest possible length of the list
    while len(pools):
        offset = block - address[pools] - POOL_HEADER_BYTES
        number = offset // size[pools]
        good = (offset >= 0) & (offset % size[pools] == 0) & (number < used[pools]) & (left > 0)
        sound[pools[~good]] = False
        pools, number, offset, left = pools[good], number[good], offset[good], left[good] - 1
        held[first[pools] + number] = False
        at = (place[pools] + POOL_HEADER_BYTES + offset) // 8
        block = words[at].astype(np.int64)
        more = block != 0
        pools, block, left = pools[more], block[more], left[more]
    return sound


# Live blocks of glibc's malloc that may contain Python objects: those that are too large for pymalloc.


_LARGEST_SMALL = 512  # bytes of an object that pymalloc serves
_FIRST_WORDS = (0, 1, 2, 3, 4, 5, 6, 7)
_PIECE = 1 << 20  # blocks processed at once


def large_blocks(memory: Memory, heap: HeapReading, *, every: bool) -> Iterator[Blocks]:
    """Yield the live blocks of *heap* by their first words; small ones only if *every*."""
    np = import_numpy()
    least = 0 if every else _LARGEST_SMALL
    for table in chunk_tables(memory, heap):
        starts, sizes = _user_blocks(table)
        chosen = sizes > least
        yield from _read_large(memory, starts[chosen], sizes[chosen])
    mapped = [(chunk.memory, chunk.end - chunk.memory) for chunk in heap.mmapped]
    columns = np.array(mapped, np.int64).reshape(-1, 2)
    yield from _read_large(memory, columns[:, 0], columns[:, 1])


def _user_blocks(table: ChunkTable) -> tuple[Any, Any]:
    """Return the user addresses and sizes of the live blocks of *table*."""
    np = import_numpy()
    units = np.asarray(table.units, np.int64)
    live = np.asarray(table.live, bool)
    ends = np.append(units[1:], (table.end - table.start) // UNIT)
    return table.start + units[live] * UNIT + HEADER, (ends - units)[live] * UNIT - 8


def _read_large(memory: Memory, starts: Any, sizes: Any) -> Iterator[Blocks]:
    np = import_numpy()
    for first in range(0, len(starts), _PIECE):
        part = slice(first, first + _PIECE)
        yield _first_words(memory, starts[part], np.asarray(sizes[part], np.int64))


def _first_words(memory: Memory, starts: Any, sizes: Any) -> Blocks:
    """Return the blocks with their first words alone: as many as the smallest of a block's words need."""
    np = import_numpy()
    count = len(_FIRST_WORDS)
    words = np.zeros((len(starts), count), np.uint64)
    for number in _FIRST_WORDS:
        inside = sizes >= (number + 1) * 8
        (column,), _ = gather_words(memory, starts[inside] + number * 8, (0,))
        words[inside, number] = column.view(np.uint64)
    return Blocks(
        words.ravel(),
        np.arange(len(starts)) * count,
        sizes,
        starts.astype(np.uint64),
        np.full(len(starts), -1),
    )
