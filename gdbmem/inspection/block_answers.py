"""Answering queries about single blocks: vectors found by their pointers, types, a map of the heap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.allocators import malloc_heap
from gdbmem.allocators.data_words import TouchedMemory
from gdbmem.allocators.gather import gather_words
from gdbmem.allocators.glibc.bins import read_free_lists
from gdbmem.allocators.glibc.blocks import ChunkTable, TypeSums, chunk_tables, sort_blocks, sort_columns
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.one_block import view_chunk
from gdbmem.allocators.glibc.vectors import (
    PLACES,
    Area,
    FoundPointer,
    VectorColumns,
    find_pointers,
    find_vectors,
    scan_columns,
    scan_pointers,
)
from gdbmem.allocators.live_blocks import Blocks
from gdbmem.allocators.malloc_heap import LARGE, SLAB, MallocHeap, SearchedMemory
from gdbmem.arrays import import_numpy
from gdbmem.errors import TargetError
from gdbmem.inspection.block_queries import BINS, MAP, MAP_IF_ANY, TYPES, VECTORS, BlockQueries
from gdbmem.inspection.ledger_parts import note_unused, resident_bytes, variable_areas
from gdbmem.ledger.blocks import constant_files, name_types, namer, sum_vectors
from gdbmem.ledger.heap_map import map_heap, map_mallocs
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import ObjectSymbols
from gdbmem.linux.memory.maps import Ranges, mapping_at
from gdbmem.model import heap_blocks
from gdbmem.model.heap_blocks import HEAP
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at

# The blocks in use of an allocator that replaces malloc: their types, vectors, and pointers to one of them.


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


# Single blocks of allocators that replace malloc: one with its neighbours, and what a block can't be told of.


_MOST_POINTERS = 16
_SHOWN = 64  # bytes of the program's memory
_KINDS = {
    malloc_heap.LARGE: "the rest of the pages of a large block",
    malloc_heap.FREE: "free pages",
    malloc_heap.LAZY: "free pages (MADV_FREE)",
    malloc_heap.RETURNED: "address space whose pages were returned",
    malloc_heap.METADATA: "the own structures",
    malloc_heap.CHANGING: "pages that were being changed",
    malloc_heap.CACHED: "free pages that a cache keeps",
    malloc_heap.IN_HUGE: "free pages of a huge page",
}


def open_heaps(reading: ProcessImage) -> list[Question]:
    """Return the heaps of allocators that replace malloc with their blocks in use."""
    found = []
    for heap in reading.mallocs:
        blocks = heap.live_blocks()
        if blocks is not None and reading.heap_view is not None:
            found.append(Question(reading.heap_view, BlockColumns(heap, blocks)))
    return found


def view_block(
    other: Question,
    reading: ProcessImage,
    address: int,
    classed: Callable[[heap_blocks.Chunk], heap_blocks.Chunk],
    named: Callable[[FoundPointer], heap_blocks.Pointer],
) -> Optional[heap_blocks.ChunkView]:
    """Return the block in use that contains *address*, with its neighbours in its slab; None: there is none."""
    columns = other.columns
    number = columns.find(address)
    if number is None:
        return None
    spans = columns.heap.spans
    span = _span_at(columns.heap, address)
    start, end = int(spans.starts[span]), int(spans.ends[span])

    def block(at: int) -> list[heap_blocks.Chunk]:
        if not 0 <= at < len(columns.starts) or not start <= columns.starts[at] < end:
            return []
        size = int(columns.sizes[at])
        one = heap_blocks.Chunk(int(columns.starts[at]), size, 0, heap_blocks.IN_USE, header=0)
        return [classed(one)]

    (chunk,) = block(number)
    home = f"{columns.heap.allocator}, with pages of its own"
    if spans.kinds[span] == malloc_heap.SLAB:
        home = f"a slab of {columns.heap.allocator} for blocks of {int(spans.block_bytes[span]):,} bytes"
    target = (chunk.memory, chunk.memory + chunk.size)
    found = list(find_block_pointers(other, variable_areas(reading), target))
    found.sort(key=lambda one: (one.value != chunk.memory, one.place == heap_blocks.HEAP, one.address))
    return heap_blocks.ChunkView(
        asked=address,
        home=home,
        chunk=chunk,
        before=block(number - 1),
        after=block(number + 1),
        faults=(),
        data=_data(other, chunk),
        pointers=[named(one) for one in found[:_MOST_POINTERS]],
        pointer_count=len(found),
    )


def _data(other: Question, chunk: heap_blocks.Chunk) -> str:
    try:
        return other.memory.read(chunk.memory, min(chunk.size, _SHOWN)).hex()
    except MemoryUnreadable:
        return ""


def _span_at(heap: malloc_heap.MallocHeap, address: int) -> int:
    """Return the number of the span that contains *address*; -1: none does."""
    number = int(heap.spans.starts.searchsorted(address, "right")) - 1
    return number if number >= 0 and address < heap.spans.ends[number] else -1


def what_lies_at(heap: malloc_heap.MallocHeap, address: int) -> str:
    """Return what of *heap* is at *address*, which is in no block in use; "" if it is elsewhere."""
    span = _span_at(heap, address)
    if span < 0:
        return ""
    if heap.spans.kinds[span] == malloc_heap.SLAB:
        size = int(heap.spans.block_bytes[span])
        return f"a free block, or one that a cache keeps, in a slab of {heap.allocator} for blocks of {size:,} bytes"
    return f"{_KINDS[int(heap.spans.kinds[span])]} of {heap.allocator}"


# Naming the class of a chunk and the pointers to it: classes by vtables, variables by symbols, threads by stacks.


_MOST_NAMED = 16


def look_at_chunk(
    reading: ProcessImage,
    memory: Memory,
    heap: HeapReading,
    tables: Sequence[ChunkTable],
    address: int,
    *,
    pure: bool,
) -> heap_blocks.ChunkView:
    """Return the chunk that contains *address*. Raises TargetError if malloc has none there."""
    view = view_chunk(memory, heap, tables, address, pure=pure)
    if view is None:
        raise _no_block(reading, address)
    names = _Names(reading, memory)
    chunk = view.chunk
    found: list[FoundPointer] = []
    if chunk.state in (heap_blocks.IN_USE, heap_blocks.MMAPPED) or not chunk.size:
        target = (chunk.memory, chunk.address + max(chunk.size, heap_blocks.HEADER + 8))
        areas = variable_areas(reading)
        found = list(find_pointers(memory, tables, heap.mmapped, areas, target, pure=pure))
    found.sort(key=lambda one: (one.value != chunk.memory, one.place == heap_blocks.HEAP, one.address))
    return view._replace(
        before=[names.classed(one) for one in view.before],
        chunk=names.classed(chunk),
        after=[names.classed(one) for one in view.after],
        pointers=[names.pointer(one) for one in found[:_MOST_NAMED]],
        pointer_count=len(found),
    )


def _no_block(reading: ProcessImage, address: int) -> TargetError:
    return TargetError(
        f"no block of malloc lies at 0x{address:x}: {_what_lies_at(reading, address)}",
        slug="no-block-there",
        hint="'info proc mappings' in gdb shows the process's memory",
    )


def _what_lies_at(reading: ProcessImage, address: int) -> str:
    for heap in reading.mallocs:
        what = what_lies_at(heap, address)
        if what:
            return f"it is in {what}"
    mapping = mapping_at(reading.mappings, address)
    if mapping is None:
        return "the process has no memory there"
    return f"it is in {mapping.name}" if mapping.name else "it is in anonymous memory"


@dataclass
class _Names:
    reading: ProcessImage
    memory: Memory

    def __post_init__(self) -> None:
        self._class_of = namer(self.reading, self.memory)
        self._variables = ObjectSymbols(self.reading.images, self.reading.open)

    def classed(self, chunk: heap_blocks.Chunk) -> heap_blocks.Chunk:
        """Return *chunk* with its class, if it is an object of one."""
        if chunk.state not in (heap_blocks.IN_USE, heap_blocks.MMAPPED):
            return chunk
        return chunk._replace(class_name=self._class_at(chunk.memory))

    def _class_at(self, address: int) -> str:
        try:
            return self._class_of(word_at(self.memory, address)) or ""
        except MemoryUnreadable:
            return ""

    def pointer(self, found: FoundPointer) -> heap_blocks.Pointer:
        if found.place == heap_blocks.HEAP:
            place = f"the block at 0x{found.owner:x}"
            return heap_blocks.Pointer(found.address, found.value, place, self._class_at(found.owner))
        place = (
            self._variable(found.address) if found.place == heap_blocks.DATA else self._stack(found.address)
        )
        return heap_blocks.Pointer(found.address, found.value, place)

    def _variable(self, address: int) -> str:
        name, offset = self._variables.place(address)
        where = next((i for i in self.reading.images for s, e in i.writable if s <= address < e), None)
        file = Path(where.name).name if where is not None else ""
        if not name:
            return f"a variable of {file}" if file else "a variable"
        return f"{name}{f'+{offset}' if offset else ''} of {file}"

    def _stack(self, address: int) -> str:
        mapping = mapping_at(self.reading.mappings, address)
        if mapping is not None:
            for thread in self.reading.threads:
                if mapping.start <= thread.stack_pointer <= address:
                    return f"the stack of thread {thread.tid}"
        return "a stack"


def answer_queries(queries: BlockQueries, reading: ProcessImage, memory: Memory) -> None:
    """Fill *queries* with the answers to its queries. Raises TargetError if malloc's data could not be read."""
    heap = reading.heap if reading.heap is not None and reading.heap.is_used else None
    if heap is None and (not reading.mallocs or BINS in queries.wanted):
        if queries.wanted == {MAP_IF_ANY} and queries.chunk_at is None:
            return
        raise _unread(queries, reading)
    others = open_heaps(reading) if _needs_blocks(queries) else []
    if queries.wanted & {MAP, MAP_IF_ANY}:
        queries.map = map_heap(heap, reading.resident) if heap is not None else None
        if reading.mallocs:
            queries.map = map_mallocs(reading.mallocs, reading.resident, queries.map)
    if BINS in queries.wanted and heap is not None:
        queries.bins = read_free_lists(memory, heap)
    if not _needs_blocks(queries):
        return
    tables = chunk_tables(memory, heap, pure=queries.pure) if heap is not None else []
    if queries.chunk_at is not None:
        queries.chunk = _chunk_at(queries.chunk_at, reading, memory, tables, others, pure=queries.pure)
    if queries.wanted & {VECTORS, TYPES}:
        _find_types(queries, reading, memory, tables, others)


def _needs_blocks(queries: BlockQueries) -> bool:
    return bool(queries.wanted & {VECTORS, TYPES}) or queries.chunk_at is not None


def _unread(queries: BlockQueries, reading: ProcessImage) -> TargetError:
    if reading.mallocs:
        named = " and ".join(dict.fromkeys(one.allocator for one in reading.mallocs))
        return TargetError(
            f"--bins lists the free blocks of glibc's malloc by its bins, which {named} doesn't have",
            slug="heap-unread",
            hint="--sizes counts its blocks, live and free, by size",
        )
    why = next((n.message for n in reading.notices), "its malloc could not be read")
    return TargetError(
        f"single blocks can't be examined: {why}",
        slug="heap-unread",
        hint="the ledger alone shows the kernel's view",
    )


def _chunk_at(
    address: int,
    reading: ProcessImage,
    memory: Memory,
    tables: Sequence[ChunkTable],
    others: Sequence[Question],
    *,
    pure: bool,
) -> heap_blocks.ChunkView:
    """Return the block of any malloc at *address*. Raises TargetError if none has one there."""
    names = _Names(reading, memory)
    for other in others:
        view = view_block(other, reading, address, names.classed, names.pointer)
        if view is not None:
            return view
    if reading.heap is None or not reading.heap.is_used:
        raise _no_block(reading, address)
    return look_at_chunk(reading, memory, reading.heap, tables, address, pure=pure)


def _find_types(
    queries: BlockQueries,
    reading: ProcessImage,
    memory: Memory,
    tables: Sequence[ChunkTable],
    others: Sequence[Question],
) -> None:
    areas = variable_areas(reading)
    heap = reading.heap if reading.heap is not None and reading.heap.is_used else None
    mmapped = heap.mmapped if heap is not None else ()
    notices = [
        *(heap.notices if heap is not None else ()),
        *(one for other in others for one in other.columns.heap.notices_on(other.columns.blocks)),
    ]
    found = find_vectors(memory, tables, mmapped, areas, pure=queries.pure) if heap is not None else []
    for other in others:
        found += find_block_vectors(other, areas).vectors()
    pieces = ((vector.end, vector.limit) for vector in found)
    note_unused(reading, resident_bytes(reading.resident, pieces))
    if VECTORS in queries.wanted:
        queries.vectors = sum_vectors(found, notices)
    if TYPES not in queries.wanted:
        return
    sums, vectors, files = TypeSums(), [vector.begin for vector in found], constant_files(reading)
    if heap is not None:
        tallies = {tally.start: tally for tally in heap.tallies}
        pairs = [(table, tallies[table.start]) for table in tables]
        sums = sort_blocks(memory, pairs, mmapped, vectors, files, pure=queries.pure)
    for other in others:
        sort_types(other, reading.resident, vectors, files, sums)
    named = name_types(sums.blocks, sums.bytes, sums.pinned, namer(reading, memory))
    queries.types = heap_blocks.BlockTypes(named, notices)
