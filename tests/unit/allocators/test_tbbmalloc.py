"""tbbmalloc's heap in made-up memory: what its own figures contradict is refused, without an exception."""

from __future__ import annotations

import struct
from typing import Optional

import pytest

from gdbmem.allocators.malloc_heap import (
    CACHED,
    CHANGING,
    FREE,
    LARGE,
    METADATA,
    SLAB,
    MallocHeap,
    SearchedMemory,
)
from gdbmem.allocators.tbbmalloc import read_heap
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import BytesMemory
from tests.unit.heaps import check_spans

DATA, MAIN, PART, HEAP = 0x560000000000, 0x7F0000000000, 0x7F0000040000, 0x7F0000100000
PAGE, PIECE = 4096, 1 << 14
POOL, OWNER = DATA + 0x200, DATA + 0x210
SLABS = [HEAP + PIECE * number for number in (1, 2, 3, 4)]
LARGES = [HEAP + PIECE * 6 + 64, HEAP + PIECE * 8 + 64]
# Blocks in use, and bytes of one: the second slab has two blocks that other threads freed, the third was taken in
# reserve, and the fourth is from before the allocator was ready.
COUNTS = [(3, 64), (10, 1024), (0, 0), (7, 0xFFFF)]


class Process:
    """Data of an object, the table's main part, one other part, and a region with slabs and large blocks."""

    def __init__(self) -> None:
        self.pieces = {
            DATA: bytearray(PAGE),
            MAIN: bytearray(PAGE),
            PART: bytearray(PIECE),
            HEAP: bytearray(16 * PIECE),
        }
        self.put(DATA + 0x100, "Q", MAIN)
        self.put(OWNER + 16, "Q", HEAP)
        self.put(MAIN, "QQQQQQQ", OWNER, PART, 0, 0, 0, 0, PART)
        self.put(PART + 48, "II", 6, 0)
        self.put(HEAP, "QQQQQ", 0, 0, 16 * PIECE, 15 * PIECE, 0)
        for number, (slab, (used, size)) in enumerate(zip(SLABS, COUNTS)):
            self.put(PART + 64 + 8 * number, "Q", slab)
            self.put(slab + 8 * 4, "Q", POOL)
            self.put(slab + 8 * 14, "IHHHH", 0, number << 1, 0, used, size)
            if 0 < size < 0xFFFF:
                self.put(slab + 8 * 10, "Q", slab + PIECE - size * (used + 1))
        first = SLABS[1] + PIECE - 1024
        self.put(SLABS[1] + 8 * 2, "Q", first)
        self.put(first, "Q", first - 2048)
        for number, large in enumerate(LARGES, len(SLABS)):
            self.put(PART + 64 + 8 * number, "Q", large + 240)
            self.put(large + 8 * 8, "QQIH", 20_000, 2 * PIECE - 64, 0, number << 1 | 1)
            self.put(large + 240, "QIH", large, 0 if number == 4 else 0xFFFFFFFF, number << 1 | 1)
        self.put(PART + 64 + 8 * 9, "QQ", PART + 64 + 8 * 10, 0)  # free entries

    def put(self, address: int, layout: str, *values: int) -> None:
        start = max(start for start in self.pieces if start <= address)
        struct.pack_into("<" + layout, self.pieces[start], address - start, *values)

    def read(self, without: int = 0) -> Optional[MallocHeap]:
        touched = Ranges((start, start + len(data)) for start, data in self.pieces.items())
        pieces = [(start, bytes(data)) for start, data in self.pieces.items() if start != without]
        anonymous = Ranges((start, start + len(data)) for start, data in self.pieces.items() if start != DATA)
        view = SearchedMemory(BytesMemory(pieces), anonymous, touched)
        return read_heap(view, Image("libtbbmalloc.so.2", 0, DATA, [(DATA, DATA + PAGE)], "", False))


def test_slabs_large_blocks_and_free_memory_of_regions_are_told_apart() -> None:
    heap = Process().read()
    assert heap is not None and heap.is_complete and heap.odd_descriptors == 0
    rows = [row for row in zip(*(column.tolist() for column in heap.spans)) if row[0] >= HEAP]
    assert rows == [
        (HEAP, SLABS[0], FREE, 0, 0),  # with the region's header
        (SLABS[0], SLABS[1], SLAB, 64, 3),
        (SLABS[1], SLABS[2], SLAB, 1024, 10),
        (SLABS[2], SLABS[3], FREE, 0, 0),
        (SLABS[3], SLABS[3] + PIECE, METADATA, 0, 0),
        (SLABS[3] + PIECE, LARGES[0], FREE, 0, 0),
        (LARGES[0], LARGES[1] - 64, LARGE, 20_000, 1),
        (LARGES[1] - 64, LARGES[1], FREE, 0, 0),
        (LARGES[1], HEAP + PIECE * 10, CACHED, 0, 0),
        (HEAP + PIECE * 10, HEAP + PIECE * 16, FREE, 0, 0),
    ]
    assert heap.cached == {1024: 2}


def test_blocks_in_use_are_those_that_were_used_and_are_on_no_list() -> None:
    process = Process()
    process.put(SLABS[0] + 8 * 14 + 8, "H", 2)  # of three
    process.put(SLABS[0] + 8 * 11, "Q", SLABS[0] + PIECE - 128)
    heap = process.read()
    assert heap is not None
    blocks = heap.live_blocks()
    assert blocks is not None and (blocks.unlisted, blocks.doubtful) == (0, 0)
    of_slab = [SLABS[0] + PIECE - 64 * number for number in (3, 1)]
    of_next = sorted(SLABS[1] + PIECE - 1024 * number for number in range(1, 11) if number not in (1, 3))
    assert blocks.starts.tolist() == [*of_slab, *of_next, LARGES[0] + 256]


def test_a_slab_that_contradicts_itself_is_changing_and_an_entry_that_leads_elsewhere_is_said() -> None:
    process = Process()
    process.put(SLABS[0] + 8 * 14 + 8, "H", 1000)
    process.put(PART + 64 + 8 * 1, "Q", SLABS[0])
    heap = process.read()
    assert heap is not None and heap.odd_descriptors == 2
    assert (heap.spans.kinds == CHANGING).sum() == 1


def test_a_list_of_freed_blocks_that_leads_elsewhere_leaves_the_heap_incomplete() -> None:
    process = Process()
    process.put(SLABS[1] + PIECE - 1024, "Q", SLABS[1] + PIECE - 1024)  # round and round
    heap = process.read()
    assert heap is not None and not heap.is_complete


@pytest.mark.parametrize("address", [MAIN, MAIN + 8 * 4, MAIN + 8 * 6, PART + 52])
def test_a_table_that_contradicts_itself_proves_nothing(address: int) -> None:
    process = Process()
    process.put(address, "I", 5)
    assert process.read() is None


@pytest.mark.parametrize("without", [DATA, MAIN, PART, HEAP])
def test_memory_that_cannot_be_read_proves_nothing(without: int) -> None:
    assert Process().read(without) is None


@pytest.mark.parametrize("value", [0, 1, HEAP, PART, MAIN, (1 << 64) - 1, 1 << 63])
def test_no_change_of_one_word_raises_or_disorders_spans(value: int) -> None:
    places = [*range(DATA + 0x100, DATA + 0x260, 8), *range(MAIN, MAIN + 64, 8), *range(PART, PART + 160, 8)]
    places += [at + 8 * word for at in (HEAP, *SLABS, *LARGES) for word in range(16)]
    places += [at + 240 + 8 * word for at in LARGES for word in range(2)]
    for place in places:
        process = Process()
        process.put(place, "Q", value)
        heap = process.read()
        if heap is not None:
            check_spans(heap)
            heap.live_blocks()
