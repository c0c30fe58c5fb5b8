"""musl's heap in made-up memory: what its own figures contradict is refused, without an exception."""

from __future__ import annotations

import struct
from typing import Optional

import pytest

from gdbmem.allocators.malloc_heap import CHANGING, LARGE, METADATA, SLAB, MallocHeap, SearchedMemory
from gdbmem.allocators.musl import read_heap
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import BytesMemory
from tests.unit.heaps import check_spans

DATA, AREA, HEAP = 0x560000000000, 0x560000100000, 0x7F0000000000
SECRET = 0xFEDCBA9876543210
PAGE = 4096
SLOTS = 10
# Group, free slots, slots, class, pages: of 512 bytes (class 22: 1632), inside its slot 2, and a single one.
OUTER, INNER, SINGLE = HEAP, HEAP + 16 + 2 * 1632, HEAP + 8 * PAGE
GROUPS = [(OUTER, 0b1000, SLOTS, 22, 4), (INNER, 0b110, 3, 14, 0), (SINGLE, 0, 1, 63, 8)]


class Process:
    """Data of an object, one area of descriptors, and groups."""

    def __init__(self) -> None:
        self.pieces = {DATA: bytearray(PAGE), AREA: bytearray(PAGE), HEAP: bytearray(16 * PAGE)}
        self.put(DATA + 0x100, "Q", SECRET)
        self.put(DATA + 0x100 + 8 * 7, "Q", AREA)
        self.put(AREA, "QQQ", SECRET, 0, len(GROUPS))
        for number, group in enumerate(GROUPS):
            self.group(number, *group)

    def put(self, address: int, layout: str, *values: int) -> None:
        start = max(start for start in self.pieces if start <= address)
        struct.pack_into("<" + layout, self.pieces[start], address - start, *values)

    def group(self, number: int, start: int, free: int, slots: int, size_class: int, pages: int) -> None:
        at = AREA + 24 + 40 * number
        bits = slots - 1 | 1 << 5 | size_class << 6 | pages << 12
        self.put(at, "QQQIIQ", 0, 0, start, free & 5, free & ~5, bits)
        if start in range(HEAP, HEAP + 16 * PAGE):
            self.put(start, "Q", at)

    def read(self, without: int = 0) -> Optional[MallocHeap]:
        touched = Ranges((start, start + len(data)) for start, data in self.pieces.items())
        pieces = [(start, bytes(data)) for start, data in self.pieces.items() if start != without]
        anonymous = Ranges([(AREA, AREA + PAGE), (HEAP, HEAP + 16 * PAGE)])
        view = SearchedMemory(BytesMemory(pieces), anonymous, touched)
        return read_heap(view, Image("libc.so", 0, DATA, [(DATA, DATA + PAGE)], "", False))


def test_a_group_inside_a_slot_takes_its_place() -> None:
    heap = Process().read()
    assert heap is not None
    spans = heap.spans
    of_heap = spans.starts >= HEAP
    outer = spans.block_bytes == 1632
    assert outer.sum() == SLOTS - 1
    assert spans.live_blocks[outer].sum() == SLOTS - 2
    inner = spans.starts == INNER
    assert (spans.live_blocks[inner], spans.block_bytes[inner], spans.kinds[inner]) == (1, 400, SLAB)
    assert (spans.kinds[of_heap][-1], spans.block_bytes[-1]) == (LARGE, 8 * PAGE - 20)
    assert spans.kinds[~of_heap].tolist() == [METADATA]
    assert (spans.starts[1:] >= spans.ends[:-1]).all()


def test_a_group_that_is_being_made_is_changing() -> None:
    process = Process()
    process.put(SINGLE, "Q", 0)
    heap = process.read()
    assert heap is not None
    assert heap.spans.kinds[-1] == CHANGING


@pytest.mark.parametrize(
    "group",
    [
        (INNER + 8, 0, 3, 14, 0),
        (INNER, 0, 31, 14, 0),
        (INNER, 1 << 20, 3, 14, 0),
        (INNER, 0, 3, 50, 0),
    ],
)
def test_groups_that_contradict_themselves_are_not_blocks(group: tuple[int, int, int, int, int]) -> None:
    process = Process()
    process.group(1, *group)
    heap = process.read()
    if heap is not None:
        assert not (heap.spans.starts == group[0]).any() or (heap.spans.kinds == CHANGING).any()
        assert (heap.spans.starts[1:] >= heap.spans.ends[:-1]).all()


def test_groups_that_lead_elsewhere_prove_nothing() -> None:
    process = Process()
    for start, *_ in GROUPS:
        process.put(start, "Q", AREA)
    assert process.read() is None


@pytest.mark.parametrize(
    ("address", "value"), [(AREA, 7), (AREA + 8, AREA), (AREA + 8, HEAP), (AREA + 8, 5), (DATA + 0x100, 7)]
)
def test_a_list_of_areas_that_leads_elsewhere_proves_nothing(address: int, value: int) -> None:
    process = Process()
    process.put(address, "Q", value)
    assert process.read() is None


@pytest.mark.parametrize("without", [DATA, AREA, HEAP])
def test_memory_that_cannot_be_read_proves_nothing(without: int) -> None:
    assert Process().read(without=without) is None


@pytest.mark.parametrize("value", [2**64 - 1, 1 << 62, HEAP + 4096])
def test_no_change_of_one_word_raises_or_disorders_spans(value: int) -> None:
    for address in (DATA + 0x100, DATA + 0x138, *range(AREA, AREA + 24 + 40 * len(GROUPS), 8)):
        process = Process()
        process.put(address, "Q", value)
        check_spans(process.read())
