"""Live blocks of glibc's malloc that may contain Python objects: those that are too large for pymalloc."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gdbmem.allocators.cpython.blocks import Blocks
from gdbmem.allocators.gather import gather_words
from gdbmem.allocators.glibc.blocks.chunks import HEADER, ChunkTable, chunk_tables
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.walking.trails import UNIT
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory

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
        yield from _read(memory, starts[chosen], sizes[chosen])
    mapped = [(chunk.memory, chunk.end - chunk.memory) for chunk in heap.mmapped]
    columns = np.array(mapped, np.int64).reshape(-1, 2)
    yield from _read(memory, columns[:, 0], columns[:, 1])


def _user_blocks(table: ChunkTable) -> tuple[Any, Any]:
    """Return the user addresses and sizes of the live blocks of *table*."""
    np = import_numpy()
    units = np.asarray(table.units, np.int64)
    live = np.asarray(table.live, bool)
    ends = np.append(units[1:], (table.end - table.start) // UNIT)
    return table.start + units[live] * UNIT + HEADER, (ends - units)[live] * UNIT - 8


def _read(memory: Memory, starts: Any, sizes: Any) -> Iterator[Blocks]:
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
