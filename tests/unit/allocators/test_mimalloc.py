"""mimalloc's heap in made-up memory: what its own figures contradict is refused, without an exception."""

from __future__ import annotations

import struct
from typing import Optional

import pytest

from gdbmem.allocators import mimalloc
from gdbmem.allocators.malloc_heap import CHANGING, FREE, LARGE, METADATA, SLAB, MallocHeap, SearchedMemory
from gdbmem.allocators.mimalloc import read_heap
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import BytesMemory
from tests.unit.heaps import check_spans

SLICE = 1 << 16
DATA = 0x7F1000000000
THREAD = 0x7F1000100740


class Process:
    """Pieces of memory: of an object's data, and anonymous ones."""

    def __init__(self, anonymous: dict[int, int], areas: list[tuple[int, int]]) -> None:
        self.pieces = {DATA: bytearray(0x4000)} | {
            start: bytearray(size) for start, size in anonymous.items()
        }
        self.areas = areas

    def put(self, address: int, layout: str, *values: int) -> None:
        start = max(start for start in self.pieces if start <= address)
        struct.pack_into("<" + layout, self.pieces[start], address - start, *values)

    def read(self, without: int = 0) -> Optional[MallocHeap]:
        touched = Ranges((start, start + len(data)) for start, data in self.pieces.items())
        pieces = [(start, bytes(data)) for start, data in self.pieces.items() if start != without]
        view = SearchedMemory(BytesMemory(pieces), Ranges(self.areas), touched)
        return read_heap(view, Image("program", 0, DATA, [(DATA, DATA + 0x4000)], "", False))


SEGMENT, HEAP = 0x4000000000, DATA + 0x1000
ARRAY, STRIDE = 264, 80
PAGE = SEGMENT + SLICE  # the first one, of 1 slice
# Slices, capacity, reserved, in use, block size.
ENTRIES = [(1, 300, 409, 200, 160), (2, 20, 25, 20, 5120), (17, 1, 1, 1, 1 << 20), (491, 0, 0, 0, 0)]


def segments(*, layout: int = 0) -> Process:
    """Return one segment, with three blocks on the list of its first page, and one on its heap's list."""
    process = Process({SEGMENT: 4 * SLICE}, [(SEGMENT, SEGMENT + (1 << 25))])
    process.put(SEGMENT + ARRAY - 8, "QII", THREAD, 1, 0)
    number = 1
    for entry in ENTRIES:
        put_entry(process, number, *entry, layout=layout)
        number += entry[0]
    put_list(
        process, [PAGE + 160 * k for k in (7, 5, 9)], SEGMENT + ARRAY + STRIDE + (40 if not layout else 56)
    )
    put_list(process, [SEGMENT + 2 * SLICE + 5120], HEAP + 8 * 3)
    process.put(HEAP + 8 * 4, "Q", THREAD)
    return process


def put_entry(
    process: Process,
    number: int,
    count: int,
    capacity: int,
    reserved: int,
    in_use: int,
    size: int,
    *,
    layout: int = 0,
) -> None:
    at = SEGMENT + ARRAY + STRIDE * number
    process.put(at, "IIHHH", count, 0, 0, capacity, reserved)
    if layout:
        process.put(at + 32, "HHIQ", in_use, 0, 0, size)
    else:
        process.put(at + 24, "II", in_use, size)
    process.put(at + (64 if layout else 48), "Q", HEAP if size > 1 else 0)


def put_list(process: Process, blocks: list[int], head: int) -> None:
    for block, following in zip(blocks, [*blocks[1:], 0]):
        process.put(block, "Q", following)
    process.put(head, "Q", blocks[0])


@pytest.mark.parametrize("layout", [0, 1])
def test_pages_of_segments_are_told_apart_and_blocks_that_wait_are_counted(layout: int) -> None:
    heap = segments(layout=layout).read()
    assert heap is not None
    assert heap.spans.kinds.tolist() == [METADATA, SLAB, SLAB, LARGE, FREE]
    assert heap.spans.live_blocks.tolist() == [0, 200, 20, 1, 0]
    assert heap.spans.block_bytes.tolist() == [0, 160, 5120, 1 << 20, 0]
    assert heap.cached == {160: 3, 5120: 1}
    assert heap.is_complete


def test_free_blocks_of_an_arena_beside_its_segments_are_free() -> None:
    process = segments()
    process.areas = [(SEGMENT, SEGMENT + 3 * (1 << 25))]
    process.put(DATA + 0x800, "Q", DATA + 0x900)
    process.put(DATA + 0x900, "QQQQQQQ", 1, 0, 0, 0, SEGMENT, 3, 1)
    heap = process.read()
    assert heap is not None
    assert (heap.spans.kinds[-1], heap.spans.ends[-1]) == (FREE, SEGMENT + 3 * (1 << 25))


def test_a_segment_with_a_broken_entry_is_not_left_out_silently() -> None:
    process = segments()
    process.areas = [(SEGMENT, SEGMENT + 2 * (1 << 25))]
    process.pieces[SEGMENT + (1 << 25)] = bytearray(process.pieces[SEGMENT])
    whole = process.read()
    assert whole is not None and whole.odd_descriptors == 0 and len(whole.spans.starts) == 10
    process.put(SEGMENT + (1 << 25) + ARRAY + STRIDE * 4, "I", 0)  # slices of the third page
    heap = process.read()
    assert heap is not None and heap.odd_descriptors == 1 and len(heap.spans.starts) == 5


def test_a_list_that_leads_elsewhere_leaves_the_heap_incomplete() -> None:
    process = segments()
    process.put(PAGE + 160 * 9, "Q", PAGE + 160 * 7)  # round and round
    heap = process.read()
    assert heap is not None
    assert not heap.is_complete


def test_segments_of_a_heap_that_does_not_belong_to_the_object_are_not_its() -> None:
    process = segments()
    for number in (1, 2, 4):
        process.put(SEGMENT + ARRAY + STRIDE * number + 48, "Q", SEGMENT + SLICE)
    assert process.read() is None


@pytest.mark.parametrize(
    "entry", [(1, 10, 409, 200, 160), (1, 300, 500, 200, 160), (490, 1, 1, 1, 64), (0, 1, 1, 1, 64)]
)
def test_entries_that_contradict_themselves_prove_nothing(entry: tuple[int, int, int, int, int]) -> None:
    process = segments()
    put_entry(process, 1, *entry)
    assert process.read() is None


def test_a_segment_that_cannot_be_read_proves_nothing() -> None:
    assert segments().read(without=SEGMENT) is None


ARENA, ROOT, PART = 0x20000000000, 0x7F2000000000, 0x7F2000300000
# Slices, capacity, reserved, in use, block size.
PAGES = [
    (1, 300, 400, 200, 160),
    (8, 20, 100, 20, 5120),
    (17, 1, 1, 1, 1 << 20),
    *[(1, 10, 20, 10, 3200)] * 4,
]


def page_map(*, before: int = 0, sizes_at: int = 40) -> Process:
    """Return an arena whose pages a map leads to, as 3.0 has it, or 3.6."""
    parts = {ROOT: 2 << 20, PART: 1 << 16, ARENA: 64 * SLICE}
    process = Process(parts, [(ROOT, ROOT + (4 << 20)), (ARENA, ARENA + 256 * SLICE)])
    process.put(DATA + 0x800, "QQ", ROOT, ARENA)
    process.put(ROOT + 8 * (before + (ARENA >> 29)), "Q", PART)
    process.put(ARENA, "QQQQQQQ", ARENA, 256 * SLICE, 0, DATA, 256, 1, 0)
    start = ARENA + SLICE
    for row in PAGES:
        put_page(process, start, *row, sizes_at=sizes_at)
        start += row[0] * SLICE
    return process


def put_page(
    process: Process,
    start: int,
    slices: int,
    capacity: int,
    reserved: int,
    in_use: int,
    size: int,
    *,
    sizes_at: int = 40,
) -> None:
    for number in range(slices):
        process.put(PART + 8 * ((start - ARENA >> 16) + number), "Q", start)
    if sizes_at == 40:
        process.put(start, "QQHHHHQQQQ", THREAD, 0, in_use, capacity, reserved, 0, 0, 1, size, start + 160)
    else:
        process.put(
            start, "QQQQQHHIQHHIQ", start, THREAD, 0, 0, size, in_use, 0, 0, 160, capacity, reserved, 0, 1
        )


@pytest.mark.parametrize(("before", "sizes_at"), [(0, 40), (10, 32)])
def test_pages_that_a_map_leads_to_are_told_apart(before: int, sizes_at: int) -> None:
    heap = page_map(before=before, sizes_at=sizes_at).read()
    assert heap is not None
    of_arena = heap.spans.starts < ROOT
    assert heap.spans.kinds[of_arena].tolist() == [METADATA, SLAB, SLAB, LARGE, *[SLAB] * 4, FREE]
    assert heap.spans.live_blocks[of_arena].tolist() == [0, 200, 20, 1, *[10] * 4, 0]
    assert heap.spans.ends[of_arena][-1] == ARENA + 256 * SLICE
    assert heap.is_complete


def test_entries_of_former_pages_are_not_judged() -> None:
    process = page_map()
    overwritten, shorter = (
        ARENA + 5 * SLICE,
        ARENA + 30 * SLICE,
    )  # by another page's blocks; than a page was there
    process.put(PART + 8 * 50, "QQ", overwritten, overwritten)
    process.put(PART + 8 * 31, "QQ", shorter, shorter)
    heap = process.read()
    assert heap is not None
    of_arena = heap.spans.starts < ROOT
    assert heap.spans.kinds[of_arena].tolist() == [METADATA, SLAB, SLAB, LARGE, *[SLAB] * 4, FREE]
    assert heap.spans.starts[of_arena].tolist()[-1] == shorter + SLICE


def test_a_large_block_whose_descriptor_is_apart_at_the_beginning_of_a_slice_is_live() -> None:
    process = page_map(sizes_at=32)
    start, apart = ARENA + 40 * SLICE, ARENA + 36 * SLICE
    put_page(process, apart, 1, 1, 1, 1, 1 << 20, sizes_at=32)
    process.put(apart + 48, "Q", start + 0xF00 - apart)
    process.put(PART + 8 * 36, "Q", 0)
    process.put(PART + 8 * 40, "Q" * 16, *[apart] * 16)
    heap = process.read()
    assert heap is not None
    assert heap.spans.live_blocks[heap.spans.starts == start].tolist() == [1]
    blocks = heap.live_blocks()
    assert blocks is not None
    assert start + 0xF00 in blocks.starts


def test_a_former_page_inside_the_last_slice_of_a_block_is_not_judged() -> None:
    process = page_map()
    put_page(process, ARENA + 40 * SLICE, 1, 1, 1, 1, SLICE)  # the block's end is in the next slice
    put_page(process, ARENA + 41 * SLICE, 1, 10, 20, 0, 3200)
    heap = process.read()
    assert heap is not None
    assert not (heap.spans.kinds == CHANGING).any()
    assert heap.spans.live_blocks[heap.spans.block_bytes == SLICE].tolist() == [1]


@pytest.mark.parametrize(
    "row", [(1, 10, 20, 30, 3200), (1, 30, 20, 10, 3200), (1, 10, 50, 10, 3200), (1, 10, 20, 10, 3201)]
)
def test_pages_that_contradict_themselves_prove_nothing(row: tuple[int, int, int, int, int]) -> None:
    process = page_map()
    for number in (27, 28, 29):
        put_page(process, ARENA + number * SLICE, *row)
    assert process.read() is None


@pytest.mark.parametrize("without", [ROOT, PART, ARENA, DATA])
def test_a_map_that_cannot_be_read_proves_nothing(without: int) -> None:
    assert page_map().read(without=without) is None


@pytest.mark.parametrize("value", [2**64 - 1, 1 << 62, PART + 4096])
def test_no_change_of_one_word_raises_or_disorders_spans(value: int) -> None:
    for address in (ROOT + 8 * (ARENA >> 29), PART + 8, PART + 16, *range(ARENA, ARENA + 56, 8)):
        process = page_map()
        process.put(address, "Q", value)
        check_spans(process.read())
    for address in range(ARENA + SLICE, ARENA + SLICE + 56, 8):
        process = page_map()
        process.put(address, "Q", value)
        check_spans(process.read())
    for address in range(SEGMENT + ARRAY - 8, SEGMENT + ARRAY + 2 * STRIDE, 8):
        process = segments()
        process.put(address, "Q", value)
        check_spans(process.read())


def test_memory_that_looks_like_segments_is_searched_once_for_all_objects_of_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[object] = []
    real = mimalloc._may_be
    monkeypatch.setattr(mimalloc, "_may_be", lambda *words: tried.__iadd__([words]) and real(*words))
    data = struct.pack("<Q", 1) * (4 * SLICE // 8)  # each word could be the first of an entry
    memory = BytesMemory([(SEGMENT, data), (DATA, bytes(0x4000))])
    areas = Ranges([(SEGMENT, SEGMENT + (1 << 25))])
    view = SearchedMemory(memory, areas, Ranges([(SEGMENT, SEGMENT + 4 * SLICE), (DATA, DATA + 0x4000)]), {})
    counts = []
    for name in ("program", "library"):
        assert read_heap(view, Image(name, 0, DATA, [(DATA, DATA + 0x4000)], "", False)) is None
        counts.append(len(tried))
    assert counts[0] == counts[1] > 100


def test_address_space_that_was_never_touched_is_not_walked() -> None:
    areas = Ranges([(SEGMENT, SEGMENT + (1 << 56))])  # an address sanitizer reserves terabytes
    touched = Ranges([(SEGMENT, SEGMENT + SLICE), (SEGMENT + (1 << 50), SEGMENT + (1 << 50) + 1)])
    view = SearchedMemory(BytesMemory([]), areas, touched)
    assert list(mimalloc._segments(view)) == [SEGMENT, SEGMENT + (1 << 50)]
