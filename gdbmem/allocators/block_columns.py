"""Queries about the blocks in use of an allocator that replaces malloc: types, vectors, pointers to one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import TouchedMemory
from gdbmem.allocators.gather import gather_words
from gdbmem.allocators.glibc.blocks import TypeSums, sort_columns
from gdbmem.allocators.glibc.vectors import (
    PLACES,
    Area,
    FoundPointer,
    VectorColumns,
    scan_columns,
    scan_pointers,
)
from gdbmem.allocators.live_blocks import Blocks
from gdbmem.allocators.malloc_heap import LARGE, SLAB, MallocHeap, SearchedMemory
from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_blocks import HEAP

_PIECE = 1 << 18  # blocks whose words are read at once
_WORDS = 4


class BlockColumns:
    """The blocks in use of one heap, in order of address."""

    def __init__(self, heap: MallocHeap, blocks: Blocks) -> None:
        self.heap, self.blocks = heap, blocks
        self.starts, self.sizes = blocks.starts, blocks.sizes
        self.low = int(self.starts[0]) if len(self.starts) else 0
        self.high = int(self.starts[-1] + self.sizes[-1]) if len(self.starts) else 0

    def find(self, address: int) -> Optional[int]:
        """Return the number of the block that contains *address*; None: none does."""
        np = import_numpy()
        number = int(np.searchsorted(self.starts, address, "right")) - 1
        return number if number >= 0 and address < self.starts[number] + self.sizes[number] else None

    def all_fit(self, np: Any, begins: Any, limits: Any) -> Any:
        """As that of `LiveBlocks`: classes of sizes are a quarter apart at most, or 16 bytes."""
        if not len(self.starts):
            return np.zeros(len(begins), bool)
        number = np.minimum(np.searchsorted(self.starts, begins), len(self.starts) - 1)
        size = self.sizes[number]
        spare = size - (limits - begins)
        return (self.starts[number] == begins) & (spare >= 0) & (spare < np.maximum(size // 4, 16) + 8)

    def in_live(self, addresses: Any) -> Any:
        """Return whether the three words at each of *addresses* are in one block."""
        np = import_numpy()
        if not len(self.starts):
            return np.zeros(len(addresses), bool)
        number = np.searchsorted(self.starts, addresses, "right") - 1
        inside = number >= 0
        number = np.maximum(number, 0)
        return inside & (addresses + 24 <= self.starts[number] + self.sizes[number])

    def runs(self, view: SearchedMemory) -> Iterator[tuple[int, int]]:
        """Yield the touched memory of spans that have blocks."""
        spans = self.heap.spans
        kept = (spans.kinds == SLAB) | (spans.kinds == LARGE)
        for low, high in Ranges(zip(spans.starts[kept].tolist(), spans.ends[kept].tolist())).items:
            yield from view.touched.overlaps(low, high)


class Question(NamedTuple):
    """The heap that is asked, and how its memory is read."""

    view: SearchedMemory
    columns: BlockColumns

    @property
    def memory(self) -> TouchedMemory:
        return TouchedMemory(self.view)


def sort_types(question: Question, resident: Ranges, vectors: Any, files: Ranges, sums: TypeSums) -> None:
    """Add the blocks to *sums* by type. The free memory of a slab is pinned by its blocks in equal parts."""
    np = import_numpy()
    columns, memory = question.columns, question.memory
    spans = columns.heap.spans
    lengths = spans.ends - spans.starts
    free = np.where(spans.kinds == SLAB, lengths - spans.block_bytes * spans.live_blocks, 0)
    held = resident.within_each(spans.starts, spans.ends)
    each = np.where(spans.live_blocks > 0, np.minimum(free, held) / np.maximum(spans.live_blocks, 1), 0.0)
    for first in range(0, len(columns.starts), _PIECE):
        starts, sizes = (column[first : first + _PIECE] for column in (columns.starts, columns.sizes))
        # A block of fewer words is followed by another one, or by memory that can't be read.
        words = np.zeros((_WORDS, len(starts)), np.int64)
        for count in range(1, _WORDS + 1):
            some = sizes // 8 >= count if count == _WORDS else sizes // 8 == count
            words[:count, some] = gather_words(memory, starts[some], range(count))[0]
        span = np.searchsorted(spans.starts, starts, "right") - 1
        sort_columns(memory, (starts, sizes, each[span]), words, vectors, files, sums)


def find_block_vectors(question: Question, areas: Iterable[Area]) -> VectorColumns:
    """Return the vectors whose three pointers are in blocks or in *areas*, each block once."""
    np = import_numpy()
    view, columns, memory = question.view, question.columns, question.memory
    parts = [np.empty((5, 0), np.int64)]
    for start, end in columns.runs(view):
        for found in scan_columns(memory, start, end, columns.in_live, columns):
            parts.append(np.vstack([*found, np.full(len(found[0]), PLACES.index(HEAP))]))
    for place, start, end in areas:
        for found in scan_columns(view.memory, start, end, lambda at: np.ones(len(at), bool), columns):
            parts.append(np.vstack([*found, np.full(len(found[0]), PLACES.index(place))]))
    owner, begin, last, limit, places = np.concatenate(parts, axis=1)
    first = np.sort(np.unique(begin, return_index=True)[1])
    return VectorColumns(begin[first], last[first], limit[first], owner[first], places[first])


def find_block_pointers(
    question: Question, areas: Sequence[Area], target: tuple[int, int]
) -> Iterator[FoundPointer]:
    """Yield the words in *areas* and in blocks that point into *target*, except words in *target* itself."""
    view, columns, memory = question.view, question.columns, question.memory
    for place, start, end in areas:
        for address, value in scan_pointers(view.memory, start, end, *target, quick=True):
            yield FoundPointer(address, value, place, 0)
    for start, end in columns.runs(view):
        for address, value in scan_pointers(memory, start, end, *target, quick=True):
            number = columns.find(address)
            if number is not None and not target[0] <= address < target[1]:
                yield FoundPointer(address, value, HEAP, int(columns.starts[number]))
