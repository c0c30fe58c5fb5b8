"""Answering queries about single blocks: vectors found by their pointers, types, a map of the heap."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.allocators.glibc.blocks.block_types import sort_blocks
from gdbmem.allocators.glibc.blocks.chunks import ChunkTable, chunk_tables
from gdbmem.allocators.glibc.blocks.vectors import find_vectors
from gdbmem.allocators.glibc.free_lists.bins import read_free_lists
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.analysis.ledger.block_types import name_types
from gdbmem.analysis.ledger.heap_map import map_heap
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.analysis.ledger.vectors import sum_vectors
from gdbmem.errors import TargetError
from gdbmem.inspection.block_owners import constant_files, look_at_chunk, namer
from gdbmem.inspection.looks import BINS, MAP, MAP_IF_ANY, TYPES, VECTORS, Looks
from gdbmem.inspection.vector_slack import note_unused, resident_bytes, variable_areas
from gdbmem.model.ledger.block_types import BlockTypes
from gdbmem.model.memory import Memory


def look(looks: Looks, reading: ProcessImage, memory: Memory) -> None:
    """Fill *looks* with the answers to its queries. Raises TargetError if malloc's data could not be read."""
    heap = reading.heap
    if heap is None or not heap.is_used:
        if looks.wanted == {MAP_IF_ANY} and looks.chunk_at is None:
            return
        why = next((n.message for n in reading.notices), "its malloc could not be read")
        raise TargetError(
            f"single blocks can't be examined: {why}",
            slug="heap-unread",
            hint="the ledger alone shows the kernel's view",
        )
    if looks.wanted & {MAP, MAP_IF_ANY}:
        looks.map = map_heap(heap, reading.resident)
    if BINS in looks.wanted:
        looks.bins = read_free_lists(memory, heap)
    if not looks.wanted & {VECTORS, TYPES} and looks.chunk_at is None:
        return
    tables = chunk_tables(memory, heap, pure=looks.pure)
    if looks.chunk_at is not None:
        looks.chunk = look_at_chunk(reading, memory, heap, tables, looks.chunk_at, pure=looks.pure)
    if looks.wanted & {VECTORS, TYPES}:
        _find_types(looks, reading, memory, heap, tables)


def _find_types(
    looks: Looks, reading: ProcessImage, memory: Memory, heap: HeapReading, tables: Sequence[ChunkTable]
) -> None:
    found = find_vectors(memory, tables, heap.mmapped, variable_areas(reading), pure=looks.pure)
    pieces = ((vector.end, vector.limit) for vector in found)
    note_unused(reading, resident_bytes(reading.resident, pieces))
    if VECTORS in looks.wanted:
        looks.vectors = sum_vectors(found, heap.notices)
    if TYPES in looks.wanted:
        looks.types = _sort(looks, reading, memory, heap, tables, [vector.begin for vector in found])


def _sort(
    looks: Looks,
    reading: ProcessImage,
    memory: Memory,
    heap: HeapReading,
    tables: Sequence[ChunkTable],
    vectors: Sequence[int],
) -> BlockTypes:
    tallies = {tally.start: tally for tally in heap.tallies}
    pairs = [(table, tallies[table.start]) for table in tables]
    sums = sort_blocks(memory, pairs, heap.mmapped, vectors, constant_files(reading), pure=looks.pure)
    named = name_types(sums.blocks, sums.bytes, sums.pinned, namer(reading, memory))
    return BlockTypes(named, heap.notices)
