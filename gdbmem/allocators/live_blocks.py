"""The blocks in use of an allocator that replaces malloc, one by one: all blocks of its slabs without the free ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gdbmem.arrays import distinct, import_numpy, runs_of
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory

_RUN = 1 << 24  # bytes of slabs that are read at once
_PAGE = 4096


class Blocks(NamedTuple):
    """Blocks in use in order of address, without those that caches keep; columns of numpy, 16 bytes for each block."""

    starts: Any  # int64: the addresses that the program has of them
    sizes: Any  # int64: usable bytes
    unlisted: int = 0  # blocks in use of slabs whose free blocks could not be told: these slabs are left out
    doubtful: int = 0  # so many of the listed ones are in a cache: it could not be told which
    own: Sequence[int] = ()  # addresses in those that the allocator itself uses, as for its caches


class Slabs(NamedTuple):
    """Slabs in order of address, as columns: where the first block begins, bytes from one to the next, blocks."""

    firsts: Any
    strides: Any
    counts: Any


def blocks_of(slabs: Slabs, free: Any, others: tuple[Any, Any], unlisted: int = 0) -> Blocks:
    """Return the blocks of *slabs* and *others* (starts, sizes), but for those that begin at *free*."""
    np = import_numpy()
    counts = slabs.counts.astype(np.int64)
    row = np.repeat(np.arange(len(counts)), counts)
    sizes = slabs.strides[row]
    starts = slabs.firsts[row] + runs_of(0, counts) * sizes
    starts, sizes = np.concatenate((starts, others[0])), np.concatenate((sizes, others[1]))
    order = np.argsort(starts, kind="stable")
    starts, sizes = starts[order], sizes[order]
    free = np.append(distinct(free), np.iinfo(np.int64).max)
    is_live = free[np.searchsorted(free, starts)] != starts
    return Blocks(starts[is_live], sizes[is_live], unlisted)


def lists_in_slabs(memory: Memory, starts: Any, ends: Any, heads: Any, most: Any) -> tuple[Any, Any]:
    """Follow the lists that begin at *heads* (0: empty), each inside its own slab from one of *starts* to *ends*.

    Returns the addresses of all blocks on the lists, and of each list the number of blocks; -1 if it leaves its slab or
    has more than *most* of them.
    """
    np = import_numpy()
    found, lengths = [np.zeros(0, np.int64)], np.zeros(len(heads), np.int64)
    for some in _batches(starts, ends, np.flatnonzero(heads)):
        data, offsets = _read(memory, starts[some], ends[some])
        at = heads[some]
        while len(some):
            inside = (
                (at >= starts[some]) & (at < ends[some] - 7) & (at & 7 == 0) & (lengths[some] < most[some])
            )
            lengths[some[~inside]] = -1
            some, offsets, at = some[inside], offsets[inside], at[inside]
            found.append(at)
            lengths[some] += 1
            at = data[(at - starts[some] >> 3) + offsets]
            some, offsets, at = some[at != 0], offsets[at != 0], at[at != 0]
    return np.concatenate(found), lengths


def list_through(windowed: WindowedMemory, at: int, most: int) -> list[int]:
    """Return the blocks of the list that begins at *at*, no more than *most*, up to where it leads elsewhere."""
    blocks: list[int] = []
    try:
        while at and not at & 7 and len(blocks) < most:
            following = windowed.word(at)
            blocks.append(at)
            at = following
    except MemoryUnreadable:
        pass
    return blocks


def _batches(starts: Any, ends: Any, numbers: Any) -> Iterable[Any]:
    np = import_numpy()
    done = np.cumsum(ends[numbers] - starts[numbers])
    return np.split(numbers, np.flatnonzero(np.diff(done // _RUN)) + 1) if len(numbers) else ()


def _read(memory: Memory, starts: Any, ends: Any) -> tuple[Any, Any]:
    """Return the words of these slabs one after the other, and where each one's begin."""
    np = import_numpy()
    pieces = [_whole(memory, start, end) for start, end in zip(starts.tolist(), ends.tolist())]
    lengths = ends - starts >> 3
    return np.frombuffer(b"".join(pieces), np.int64), np.cumsum(lengths) - lengths


def _whole(memory: Memory, start: int, end: int) -> bytes:
    """Return the bytes from *start* to *end*: zeros for pages that can't be read, as those that were never touched."""
    try:
        return memory.read(start, end - start)
    except MemoryUnreadable:
        if end - start <= _PAGE:
            return bytes(end - start)
    return b"".join(_whole(memory, at, min(at + _PAGE, end)) for at in range(start, end, _PAGE))
