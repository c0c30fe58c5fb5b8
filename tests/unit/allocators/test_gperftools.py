"""tcmalloc's heap in made-up memory: what its own figures contradict is refused, without an exception."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Optional

import pytest

from gdbmem.allocators.gperftools import read_heap
from gdbmem.allocators.malloc_heap import (
    CHANGING,
    FREE,
    LARGE,
    METADATA,
    RETURNED,
    SLAB,
    MallocHeap,
    SearchedMemory,
)
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import BytesMemory
from tests.unit.heaps import check_spans

PAGE = 8192
DATA, META, HEAP = 0x560000000000, 0x7F0000000000, 0x7F0040000000
LEAF, SPANS, CACHES = META, META + (2 << 20), META + (3 << 20)
SIZES = [0, 8, *range(16, 321, 16)]
CLASSES = len(SIZES)
TABLE, ROOT, LISTS = 0x1004, 0x10000, 0x120000  # offsets in the data
LIST_BYTES = 150 * 8
SMALL = SIZES.index(208)
# Pages, blocks in use, size class, location.
ROWS = [
    (1, 30, SMALL, 0),
    (1, 39, SMALL, 0),
    (3, 0, 0, 0),
    (5, 0, 0, 1),
    (7, 0, 0, 2),
    (1, 1, SIZES.index(16), 0),
]
IN_CACHE, IN_TRANSFER, MOVED = 4, 2, 32
AT = {"refcount": 0, "class": 1, "location": 2}


class Process:
    """Data of an object, and anonymous memory with the page map's leaf, spans and thread caches."""

    def __init__(self, rows: Iterable[tuple[int, int, int, int]] = ROWS) -> None:
        self.data, self.meta = bytearray(0x160000), bytearray(4 << 20)
        first = HEAP // PAGE
        self.spans: list[tuple[int, int]] = []
        for number, (pages, in_use, size_class, location) in enumerate(rows):
            address = SPANS + 48 * number
            self.span(number, first, pages, in_use | size_class << 16 | location << 24)
            for page in {first, first + pages - 1}:
                self.entry(page, address)
            self.spans.append((first, pages))
            first += pages
        self.end = first * PAGE
        self.word(ROOT + 8 * (HEAP // PAGE >> 18), LEAF)
        struct.pack_into(f"<{CLASSES}i", self.data, TABLE, *SIZES)
        struct.pack_into(f"<{CLASSES}i", self.data, TABLE - 512, 0, *[MOVED] * (CLASSES - 1))
        struct.pack_into(f"<{CLASSES}q", self.data, TABLE + 516, 0, *[1] * (CLASSES - 1))
        for number in range(CLASSES):
            start = LISTS + LIST_BYTES * number
            self.word(start, number)
            self.word(start + 8 * 13, sum(row[2] == number for row in rows) if number else 0)
            used = IN_TRANSFER if number == SMALL else 0
            struct.pack_into("<iii", self.data, start + 8 * (15 + 128), used, 16, 64)
        self.word(0x800, CACHES)
        self.cache(0, IN_CACHE, CACHES + 8192)
        self.cache(8192, 1, CACHES)

    def word(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self.data, offset, value)

    def span(self, number: int, first: int, pages: int, bits: int) -> None:
        struct.pack_into("<QQQQQQ", self.meta, SPANS - META + 48 * number, first, pages, 0, 0, 0, bits)

    def entry(self, page: int, address: int) -> None:
        struct.pack_into("<Q", self.meta, 8 * (page & 0x3FFFF), address)

    def cache(self, offset: int, cached: int, following: int) -> None:
        at = CACHES - META + offset
        for number, size in enumerate(SIZES):
            struct.pack_into(
                "<QIIIIi", self.meta, at + 32 * number, 0, cached * (number == SMALL), 0, 1, 0, size
            )
        struct.pack_into("<Q", self.meta, at + 32 * 128 + 64, following)

    def read(self, *, without: Optional[int] = None) -> Optional[MallocHeap]:
        pieces = [(DATA, bytes(self.data)), (META, bytes(self.meta))]
        touched = [(start, start + len(data)) for start, data in pieces]
        view = SearchedMemory(
            BytesMemory([piece for piece in pieces if piece[0] != without]),
            Ranges([(META, META + len(self.meta)), (HEAP, HEAP + (64 << 20))]),
            Ranges([*touched, (HEAP, HEAP + (1 << 20))]),
        )
        return read_heap(view, Image("program", 0, DATA, [(DATA, DATA + len(self.data))], "", False))


def test_spans_blocks_and_caches_are_told_apart() -> None:
    heap = Process().read()
    assert heap is not None
    spans = heap.spans
    of_heap = spans.starts >= HEAP
    assert spans.kinds[of_heap].tolist() == [SLAB, SLAB, LARGE, FREE, RETURNED, SLAB]
    assert spans.live_blocks[of_heap].tolist() == [30, 39, 1, 0, 0, 1]
    assert spans.block_bytes[of_heap].tolist() == [208, 208, 3 * PAGE, 0, 0, 16]
    assert (spans.kinds[~of_heap] == METADATA).all()
    assert heap.cached == {208: IN_CACHE + 1 + IN_TRANSFER * MOVED}
    assert (heap.caches, heap.is_complete) == (2, True)


def test_a_span_that_is_being_split_is_changing() -> None:
    process = Process()
    first, _ = process.spans[3]
    process.span(3, first, 8, 1 << 24)  # its length is still the one before the split
    heap = process.read()
    assert heap is not None
    assert heap.spans.kinds[heap.spans.starts >= HEAP].tolist() == [
        SLAB,
        SLAB,
        LARGE,
        CHANGING,
        RETURNED,
        SLAB,
    ]
    assert (heap.spans.starts[1:] >= heap.spans.ends[:-1]).all()


def test_entries_of_former_spans_inside_a_free_span_are_not_judged() -> None:
    process = Process()
    first, _ = process.spans[3]
    process.entry(first + 2, SPANS + 48 * 40)  # a descriptor that is not in use
    process.entry(first + 3, SPANS)  # one that is in use again
    heap = process.read()
    assert heap is not None
    assert not (heap.spans.kinds == CHANGING).any()


@pytest.mark.parametrize(
    "bits", [41 | SMALL << 16, 1 | (CLASSES + 1) << 16, 3 << 24, 1 << 30, 30 | SMALL << 16 | 1 << 24]
)
def test_spans_that_contradict_themselves_prove_nothing(bits: int) -> None:
    process = Process()
    for number, (first, pages) in enumerate(process.spans[:3]):
        process.span(number, first, pages, bits)
    assert process.read() is None


def test_a_page_map_that_leads_elsewhere_proves_nothing() -> None:
    process = Process()
    for first, _ in process.spans:
        process.entry(first, SPANS + 48 * 5)
    assert process.read() is None


def test_a_page_map_with_entries_for_address_space_that_does_not_exist_proves_nothing() -> None:
    process = Process()
    process.word(ROOT + 8 * 77, LEAF)
    assert process.read() is None


def test_threads_that_add_spans_of_many_sizes_hide_no_free_block() -> None:
    process = Process([*ROWS, *((1, 0, number, 0) for number in range(3, 11))])
    for number in (3, 4, 5):  # added, but not counted yet
        process.word(LISTS + LIST_BYTES * number + 8 * 13, 0)
    heap = process.read()
    assert heap is not None
    assert heap.cached == {208: IN_CACHE + 1 + IN_TRANSFER * MOVED}
    assert heap.is_complete


def test_without_its_central_lists_too_many_blocks_are_live_and_it_says_so() -> None:
    process = Process()
    process.word(LISTS + LIST_BYTES * 3, 77)
    heap = process.read()
    assert heap is not None
    assert not heap.is_complete


@pytest.mark.parametrize("without", [DATA, META])
def test_memory_that_cannot_be_read_proves_nothing(without: int) -> None:
    assert Process().read(without=without) is None


@pytest.mark.parametrize("offset", [TABLE, TABLE - 508, TABLE + 524, ROOT + 8 * (HEAP // PAGE >> 18)])
def test_a_damaged_root_proves_nothing(offset: int) -> None:
    process = Process()
    struct.pack_into("<q", process.data, offset, -1)
    assert process.read() is None


@pytest.mark.parametrize("value", [-1, 1 << 62, LEAF + 4])
def test_no_change_of_one_word_raises_or_disorders_spans(value: int) -> None:
    for offset in [*range(TABLE - 12, TABLE + 20, 8), *range(LISTS, LISTS + 128, 16)]:
        process = Process()
        struct.pack_into("<q", process.data, offset & -8, value)
        check_spans(process.read())
    for word in range(6):
        process = Process()
        struct.pack_into("<q", process.meta, SPANS - META + 8 * word, value)
        check_spans(process.read())
