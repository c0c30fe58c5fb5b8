"""Single blocks: their table is the walk's, and vectors are found by their pointers alone, in both ways alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest

from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.allocators.glibc.arenas import MmappedChunk, distant_header, find_mmapped
from gdbmem.allocators.glibc.blocks import ChunkTable, chunk_table, sort_blocks
from gdbmem.allocators.glibc.tallies import FREE, LIVE, TCACHE, HeapTally
from gdbmem.allocators.glibc.vectors import find_vectors
from gdbmem.ledger.blocks import sum_vectors
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_blocks import CLASS, DATA, HEAP, VECTOR, FoundVector
from gdbmem.model.memory import BytesMemory
from tests.unit.heaps import MadeHeap, make_heap

DATA_START = 0x7F0000000000


def table_of(heap: MadeHeap, *, pure: bool) -> ChunkTable:
    return chunk_table(heap.memory, heap.start, heap.top, heap.cached, pure=pure)


@pytest.mark.slow
@pytest.mark.parametrize("pure", [True, False], ids=["plain", "numpy"])
@pytest.mark.parametrize("seed", range(6))
def test_the_table_holds_the_chunks_that_the_walk_counts(pure: bool, seed: int) -> None:
    heap = make_heap(4000, seed, decoys=seed % 2 == 0)
    tally = HeapTally(heap.start, heap.end)
    glibc_heap.walk(heap.memory, tally, heap.top, heap.cached)
    table = table_of(heap, pure=pure)
    assert len(table) == sum(tally.chunks)
    assert sum(bool(live) for live in table.live) == tally.chunks[LIVE]
    sizes = [end - start for start, end in map(table.bounds, range(len(table)))]
    assert sum(sizes) == heap.top - heap.start
    assert tally.chunks[FREE] and tally.chunks[TCACHE], "else nothing was tested"
    for number in (0, 17, len(table) - 1):
        start, end = table.bounds(number)
        assert table.find(start) == table.find(end - 1) == number
    assert table.find(heap.start - 1) == table.find(heap.top) == -1


def test_both_tables_are_the_same() -> None:
    heap = make_heap(4000, 9, decoys=True)
    plain, quick = table_of(heap, pure=True), table_of(heap, pure=False)
    assert list(plain.units) == list(quick.units)
    assert [bool(live) for live in plain.live] == [bool(live) for live in quick.live]


class Planted:
    """A made heap whose live blocks can be written to, and data beside it."""

    def __init__(self, seed: int) -> None:
        self.heap = make_heap(3000, seed)
        self.base = self.heap.start & -4096
        self.bytes = bytearray(self.heap.memory.read(self.base, self.heap.end - self.base))
        self.data = bytearray(4096)
        table = table_of(self.heap, pure=True)
        numbers = [n for n in range(len(table)) if table.live[n]]
        self.live = [table.bounds(n) for n in numbers if table.bounds(n)[1] - table.bounds(n)[0] >= 96]
        self.dead = [table.bounds(n) for n in range(len(table)) if not table.live[n]]
        random.Random(seed).shuffle(self.live)

    def write(self, address: int, words: Sequence[int]) -> None:
        into, at = (
            (self.data, address - DATA_START) if address >= DATA_START else (self.bytes, address - self.base)
        )
        for word in words:
            into[at : at + 8] = word.to_bytes(8, "little")
            at += 8

    def find(self, *, pure: bool) -> list[FoundVector]:
        memory = BytesMemory([(self.base, bytes(self.bytes)), (DATA_START, bytes(self.data))])
        table = chunk_table(memory, self.heap.start, self.heap.top, self.heap.cached, pure=pure)
        area = (DATA, DATA_START, DATA_START + len(self.data))
        return sorted(find_vectors(memory, [table], (), [area], pure=pure), key=lambda v: v.owner)


def test_planted_vectors_are_found_each_once_and_nothing_else_by_both() -> None:
    planted = Planted(3)
    expected = []
    for number in range(40):
        owner, buffer = planted.live[2 * number][0] + 32, planted.live[2 * number + 1]
        begin = buffer[0] + 16
        limit = buffer[1] + 8 - 8 * (number % 3)
        end = begin + (limit - begin) // 8 // 2 * 8
        planted.write(owner, [begin, end, limit])
        planted.write(DATA_START + 40 * number, [begin, begin, limit])  # a copy of it: the heap's counts
        expected.append(FoundVector(begin, end, limit, owner, HEAP))
    by_owner = sorted(expected, key=lambda v: v.owner)
    assert planted.find(pure=True) == by_owner
    assert planted.find(pure=False) == by_owner


@pytest.mark.parametrize("pure", [True, False], ids=["plain", "numpy"])
def test_what_only_looks_like_a_vector_is_left_out(pure: bool) -> None:
    planted = Planted(4)
    start, end = planted.live[0]
    begin, limit = start + 16, end + 8
    dead_start, dead_end = next(b for b in planted.dead if b[1] - b[0] >= 64)
    slot = planted.live[1][0] + 48
    planted.write(slot, [begin])
    wrong = [
        [begin + 16, begin + 16, limit],  # not at the block's start
        [begin, limit, begin + 8],  # end behind the limit
        [begin, begin, begin + 8],  # a block that is larger than this
        [begin, begin, begin],  # no capacity
        [dead_start + 16, dead_start + 16, dead_end + 8],  # freed
        [begin, begin, limit, slot],  # an iterator of a deque
        [begin, begin, begin, limit, begin],  # the pointers of a FILE
    ]
    for number, words in enumerate(wrong):
        planted.write(DATA_START + 64 * number, words)
    planted.write(dead_start + 24, [begin, begin, limit])  # whose pointers stand in freed memory
    assert planted.find(pure=pure) == []
    planted.write(DATA_START + 64 * len(wrong), [begin, begin, limit])
    assert [vector.capacity_bytes for vector in planted.find(pure=pure)] == [limit - begin]


def test_the_sums_are_those_of_the_vectors() -> None:
    vectors = [FoundVector(16, 16 + 8 * n, 80, n, HEAP) for n in range(4)]
    found = sum_vectors(vectors)
    assert (found.vectors, found.capacity_bytes, found.slack_bytes) == (4, 256, 256 - 48)
    assert (found.empty, found.empty_bytes, found.largest[0]) == (1, 64, vectors[0])


@pytest.mark.parametrize("pure", [True, False], ids=["plain", "numpy"])
@pytest.mark.parametrize("lead", [0, 48, 4080])
def test_a_block_that_malloc_mapped_begins_after_its_header_also_where_it_is_aligned(
    lead: int, pure: bool
) -> None:
    pages, size, vtable = DATA_START + (1 << 20), 1 << 18, 0x400000
    begin, limit = pages + lead + 16, pages + size - 4096 - 80 * bool(lead)
    data, block = bytearray(4096), bytearray(size)
    block[:16] = struct.pack("<QQ", 0, size | 2)  # malloc leaves it there
    block[lead : lead + 16] = struct.pack("<QQ", lead, size - lead | 2)
    block[lead + 16 : lead + 24] = struct.pack("<Q", vtable)
    data[64:88] = struct.pack("<QQQ", begin, limit, limit)
    memory = BytesMemory([(DATA_START, bytes(data)), (pages, bytes(block))])
    mapped = find_mmapped(memory, [(pages, pages + size)], 1, size)
    found = find_vectors(memory, (), mapped, [(DATA, DATA_START, DATA_START + 4096)], pure=pure)
    assert found == [FoundVector(begin, limit, limit, DATA_START + 64, DATA)]
    sums = sort_blocks(memory, (), mapped, (), Ranges([(vtable, vtable + 4096)]), pure=pure)
    assert sums.bytes == {(CLASS, vtable): pages + size - begin}
    assert set(sort_blocks(memory, (), mapped, [begin], Ranges(), pure=pure).blocks) == {(VECTOR, 0)}


@pytest.mark.parametrize("alignment", [1 << 13, 1 << 16, 1 << 17])
def test_a_block_that_is_aligned_to_many_pages_begins_at_its_own_header(alignment: int) -> None:
    start, size = 0x7F6CBAC5A000, 1 << 18
    lead = -(start + 16) % alignment
    block = bytearray(size)
    block[:16] = struct.pack("<QQ", 0, size | 2)
    block[lead : lead + 16] = struct.pack("<QQ", lead, size - lead | 2)
    memory = BytesMemory([(start, bytes(block))])
    assert distant_header(memory, MmappedChunk(start, start + size)) == lead
    block[lead : lead + 8] = struct.pack("<Q", lead + 16)
    assert distant_header(BytesMemory([(start, bytes(block))]), MmappedChunk(start, start + size)) == 0
