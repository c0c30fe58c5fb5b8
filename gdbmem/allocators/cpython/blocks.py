"""pymalloc's blocks that are handed out, many pools at a time, in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gdbmem.allocators.cpython.arenas import POOL_HEADER_BYTES, PythonArena
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.records import dataclass, replace

_BATCH_BYTES = 1 << 26
_MARK = 0xFDFDFDFDFDFDFD  # behind the letter of an allocator (Objects/obmalloc.c, PYMEM_FORBIDDENBYTE)
_HOOK_WORDS = 3  # before and behind what Python uses


@dataclass(frozen=True)
class Blocks:
    """Blocks that are handed out, or were allocated otherwise; parallel arrays.

    *words* holds the memory of all of them, and *at* says where each begins in it, in words.
    """

    words: Any  # uint64
    at: Any  # int64
    sizes: Any  # int64, bytes
    addresses: Any  # uint64
    owners: Any  # int64: numbers of arenas; -1 where there is none

    def word(self, number: int) -> Any:
        """Return word *number* of each block; 0 where it has none."""
        np = import_numpy()
        inside = self.sizes >= (number + 1) * 8
        return np.where(inside, self.words[np.where(inside, self.at + number, 0)], 0)

    def without_hooks(self) -> Blocks:
        """Return the blocks as Python's objects lie in them: PYTHONMALLOC=debug puts a size and a mark before each."""
        hooked = self.word(1) >> 8 == _MARK
        if not hooked.any():
            return self
        return replace(self, at=self.at + 2 * hooked, sizes=self.sizes - 8 * _HOOK_WORDS * hooked)


@dataclass
class Unsure:
    """Pools whose blocks contradict their header, so that their blocks are left out."""

    pools: int = 0
    blocks: int = 0


def live_blocks(memory: Memory, arenas: Sequence[PythonArena], unsure: Unsure) -> Iterator[Blocks]:
    """Yield the blocks of *arenas* that are handed out, some tens of MiB of memory at a time."""
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
    """Return the live blocks of the pools in *columns*: those that are in no list of free ones."""
    np = import_numpy()
    place, address, size, used, live, _, owner = columns
    first = np.cumsum(used) - used
    pool_of = np.repeat(np.arange(len(place)), used)
    within = np.arange(len(pool_of)) - first[pool_of]
    offset = POOL_HEADER_BYTES + within * size[pool_of]
    held = np.ones(len(pool_of), bool)
    sound = _strike_free(words, columns, first, held)
    # A header may have been read in the midst of a change.
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
    """Take the blocks of the lists of free ones out of *held*, all lists at once; return which lists are sound."""
    np = import_numpy()
    place, address, size, used, live, free, _ = columns
    sound = np.ones(len(place), bool)
    pools = np.flatnonzero(free)
    block = free[pools]
    left = (used - live)[pools]  # so many may be in the list
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
