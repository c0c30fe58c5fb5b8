"""Every address of a block's memory, up to its last borrowed byte, is that block's; others are nobody's."""

from __future__ import annotations

import types
from typing import Any

import pytest

from gdbmem.allocators.glibc.arenas import MmappedChunk
from gdbmem.allocators.glibc.blocks import ChunkTable, ColumnWalker
from gdbmem.allocators.glibc.tallies import HeapTally
from gdbmem.arrays import import_numpy
from gdbmem.heap.blocks import Blocks, glibc_regions, other_regions, popcount
from gdbmem.linux.memory.maps import Ranges
from tests.unit.heaps import make_heap

np = import_numpy()


def test_an_address_belongs_to_the_block_whose_memory_has_it_in_each_region() -> None:
    sizes = [32, 48, 4096, 32, 1024 * 64, 32]
    starts = np.cumsum([0, *sizes])
    units = (starts[:-1] // 16).astype(np.uint32)
    tables = [
        ChunkTable(base, base + int(starts[-1]), units, np.ones(len(sizes), bool))
        for base in (0x10000, 0x900000)
    ]
    mapped = MmappedChunk(0x7F0000000000, 0x7F0000003000)
    blocks = Blocks(glibc_regions(tables, [mapped]))
    assert blocks.count == 2 * len(sizes) + 1
    assert blocks.sizes()[: len(sizes)].tolist() == sizes
    for number in range(blocks.count):
        begin = int(blocks.addresses(np.array([number]))[0])
        usable = int(blocks.sizes()[number]) - 8 if number < 2 * len(sizes) else 0x3000 - 16
        for address in (begin, begin + 7, begin + usable - 1):
            assert blocks.find_one(address) == number, hex(address)
    for outside in (0x0, 0x10008, 0x8FFFFF, 0x7F0000003000, 0x7FFF00000000):
        assert blocks.find_one(outside) == -1, hex(outside)


def test_blocks_without_headers_have_their_memory_and_what_is_between_them_is_nobodys() -> None:
    starts, sizes = np.array([0x10010, 0x10030, 0x20000, 0x20100]), np.array([32, 64, 256, 8])
    spans = Ranges([(0x10000, 0x10100), (0x20000, 0x21000), (0x30000, 0x31000)])
    blocks = Blocks(other_regions(spans, starts, sizes), header_bytes=0)
    live = np.flatnonzero(blocks.live)
    assert blocks.addresses(live).tolist() == starts.tolist()
    assert blocks.sizes()[live].tolist() == [32, 64, 256, 16]
    for address, number in (
        (0x10010, 0),
        (0x1002F, 0),
        (0x10030, 1),
        (0x1006F, 1),
        (0x20000, 2),
        (0x20107, 3),
    ):
        assert blocks.find_one(address) == live[number], hex(address)
    for outside in (0x1000F, 0x10070, 0x100FF, 0x20110, 0x20FFF, 0x30000):
        found = blocks.find_one(outside)
        assert found < 0 or not blocks.live[found], hex(outside)
    for nowhere in (0xFFFF, 0x10100, 0x1FFFF, 0x21000):
        assert blocks.find_one(nowhere) == -1, hex(nowhere)


@pytest.mark.parametrize(
    "words", [[0], [1], [(1 << 64) - 1], [0x8000000000000001, 0x5555555555555555, 12345]]
)
def test_bits_are_counted_alike_by_an_older_numpy(words: list[int]) -> None:
    older = types.SimpleNamespace(uint64=np.uint64, uint8=np.uint8)
    found = popcount(older, np.array(words, np.uint64))
    assert found.tolist() == [bin(word).count("1") for word in words]


def test_a_heap_that_had_to_be_read_twice_has_each_block_once() -> None:
    made = make_heap(2000, 7)
    walker = ColumnWalker()
    for end in (made.top - 16_000, made.top):  # the first reading took too long
        tally = HeapTally(made.start, made.end, in_further_arena=False)
        walker(made.memory, tally, end, made.cached)
    heap: Any = types.SimpleNamespace(arenas=[types.SimpleNamespace(tallies=[tally])])
    (table,) = walker.tables_of(heap)
    assert sum(table.live) == made.live_chunks
    other: Any = types.SimpleNamespace(arenas=[types.SimpleNamespace(tallies=[])])
    assert walker.tables_of(other) == []
