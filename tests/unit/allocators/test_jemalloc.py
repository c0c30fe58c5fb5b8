"""jemalloc's radix tree in memory made for it: what it leads to, and contradictions that refuse it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Optional

import pytest

from gdbmem.allocators.data_words import data_words
from gdbmem.allocators.jemalloc import _RELEASES, _caches_of_threads, _Form, _leaves, _read_leaves, read_heap
from gdbmem.allocators.malloc_heap import (
    CACHED,
    CHANGING,
    FREE,
    IN_HUGE,
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

PAGE, MIB = 4096, 1 << 20
DATA, OWN, HEAP = 0x5600_0000_0000, 0x7F00_0000_0000, 0x7F00_0080_0000
ROOT = DATA + 64  # of 2^18 words
LEAF, DESCRIPTORS = OWN + PAGE, OWN + 3 * MIB
DIRTY, RETAINED = 1 << 17, 3 << 17
OF_SLAB, OF_HUGE_PAGE, SIZED = 1 << 12, 1 << 14, 20

# start and end in pages, first word: a slab of 128 blocks of 32 bytes with 100 free ones, 16 KiB, and free pages.
EXTENTS = [
    (0, 1, OF_SLAB | 2 << SIZED | 100 << 28),
    (1, 5, 36 << SIZED),
    (5, 9, DIRTY),
    (9, 40, RETAINED),
]


class _Process:
    def __init__(
        self, extents: Sequence[tuple[int, int, int]] = EXTENTS, page_bits: int = 12, apart: int = 128
    ) -> None:
        """*extents* in pages of ``1 << page_bits`` bytes; their descriptors are *apart* bytes from each other."""
        self.data = bytearray(4 * MIB)
        self.own = bytearray(4 * MIB)
        self.page_bits, self.apart = page_bits, apart
        self.level = (48 - page_bits) // 2
        self._put(self.data, DATA, ROOT + 8 * (HEAP >> page_bits + self.level), LEAF)
        self._put(self.own, OWN, OWN, 4 * MIB)  # the block's size, and no next one
        for number, (first, behind, word) in enumerate(extents):
            self.describe(number, first, behind, word)
            for page in range(first, behind):
                self.lead(page, number)

    @staticmethod
    def _put(data: bytearray, start: int, address: int, word: int) -> None:
        struct.pack_into("<Q", data, address - start, word)

    def describe(self, number: int, first: int, behind: int, word: int) -> None:
        at, bits = DESCRIPTORS + self.apart * number - OWN, self.page_bits
        struct.pack_into(
            "<QQQ", self.own, at, word, HEAP + (first << bits), (behind - first) << bits | number
        )

    def lead(self, page: int, number: int) -> None:
        index = (HEAP >> self.page_bits) + page & (1 << self.level) - 1
        self._put(self.own, OWN, LEAF + 8 * index, DESCRIPTORS + self.apart * number | 1)

    def read(self) -> Optional[MallocHeap]:
        memory = BytesMemory([(DATA, bytes(self.data)), (OWN, bytes(self.own))])
        anonymous = Ranges([(OWN, OWN + 4 * MIB), (HEAP, HEAP + (40 << self.page_bits))])
        touched = Ranges([(DATA, DATA + 4 * MIB), (OWN, OWN + 4 * MIB)])
        image = Image("/usr/lib/liballocates.so", 0, DATA, [(DATA, DATA + 4 * MIB)], "", False)
        return read_heap(SearchedMemory(memory, anonymous, touched), image)


def test_every_page_is_counted_by_what_its_descriptor_says() -> None:
    heap = _Process().read()
    assert heap is not None
    assert (heap.allocator, heap.layout) == ("jemalloc", "5.3, 48 address bits, pages of 4,096 bytes")
    rows = list(zip(*(column.tolist() for column in heap.spans)))
    assert rows == [
        (OWN, OWN + 4 * MIB, METADATA, 0, 0),
        (HEAP, HEAP + PAGE, SLAB, 32, 28),
        (HEAP + PAGE, HEAP + 5 * PAGE, LARGE, 16384, 1),
        (HEAP + 5 * PAGE, HEAP + 9 * PAGE, FREE, 0, 0),
        (HEAP + 9 * PAGE, HEAP + 40 * PAGE, RETURNED, 0, 0),
    ]


def test_what_has_no_size_at_this_moment_is_not_counted_as_a_block() -> None:
    process = _Process()
    process.describe(1, 1, 5, 232 << SIZED)
    heap = process.read()
    assert heap is not None
    rows = list(zip(*(column.tolist() for column in heap.spans)))
    assert rows[2] == (HEAP + PAGE, HEAP + 5 * PAGE, CHANGING, 0, 0)


def _third_span(word: int, pages: int) -> tuple[int, int, int]:
    """Return kind, size of blocks and number of blocks of the third span, which has *word* and *pages*."""
    process = _Process()
    process.describe(2, 5, 5 + pages, word)
    process.describe(3, 5 + pages, 40, RETAINED)
    for page in range(5, 40):
        process.lead(page, 2 if page < 5 + pages else 3)
    heap = process.read()
    assert heap is not None
    return heap.spans.kinds[3], heap.spans.block_bytes[3], heap.spans.live_blocks[3]


def test_a_large_block_that_is_smaller_than_its_class_is_counted_by_its_pages() -> None:
    # Class 45 has 20 pages; 5.3.1 no longer rounds sizes up to it.
    assert _third_span(45 << SIZED, 17) == (LARGE, 17 * PAGE, 1)


@pytest.mark.parametrize("pages", [4, 5], ids=["as it is", "cache oblivious"])
def test_blocks_that_its_own_profiler_samples_do_not_make_the_heap_of_jemalloc_unreadable(pages: int) -> None:
    extents = [
        (0, 1, EXTENTS[0][2]),
        *((at, at + pages, 11 << SIZED) for at in range(1, 1 + 6 * pages, pages)),
    ]
    heap = _Process(extents).read()
    assert heap is not None and heap.odd_descriptors == 0
    is_large = heap.spans.kinds == LARGE
    assert heap.spans.block_bytes[is_large].tolist() == [4 * PAGE] * 6  # as jemalloc itself counts them
    assert heap.spans.live_blocks.sum() == 28 + 6


def test_freed_pages_of_a_huge_page_are_in_a_cache() -> None:
    assert _third_span(232 << SIZED | OF_SLAB | OF_HUGE_PAGE | 1 << 28, 2) == (CACHED, 0, 0)


def test_nodes_of_addresses_where_nothing_is_mapped_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process()
    process._put(process.data, DATA, ROOT + 8 * (HEAP >> 30) + 8, LEAF)  # a GiB further
    read: list[int] = []
    whole = BytesMemory.read

    def noted(memory: BytesMemory, address: int, size: int) -> bytes:
        read.append(address)
        return whole(memory, address, size)

    monkeypatch.setattr(BytesMemory, "read", noted)
    assert process.read() is not None
    # Few leaves are read whole at once, not first for a sample.
    assert read.count(LEAF + (1 << 17)) == 1


def test_a_stale_entry_of_the_tree_leaves_out_no_descriptor() -> None:
    process = _Process()
    process.describe(3, 9, 300, RETAINED)
    for page in range(40, 300):
        process.lead(page, 3)
    process.lead(320, 2)
    heap = process.read()
    assert heap is not None and heap.odd_descriptors == 0 and len(heap.spans.starts) == 5


@pytest.mark.parametrize("elsewhere", [DESCRIPTORS + 128 * 3, DESCRIPTORS + 128 * 2 + 64, OWN + 2 * MIB])
def test_a_slab_whose_only_entry_was_overwritten_is_not_left_out_silently(elsewhere: int) -> None:
    process = _Process()
    process.describe(3, 9, 300, RETAINED)
    for page in range(9, 300):
        process.lead(page, 3)
    process._put(process.own, OWN, LEAF + 8 * ((HEAP >> 12) & (1 << 18) - 1), elsewhere | 1)
    heap = process.read()
    assert heap is not None and heap.odd_descriptors == 1
    assert heap.spans.live_blocks.sum() == 1  # of the large block: nothing is made up for the slab


def test_caches_that_were_not_found_are_not_stated_to_be_empty() -> None:
    heap = _Process().read()
    assert heap is not None and not heap.is_complete and not heap.cached


def test_a_jemalloc_built_without_statistics_is_told_from_one_whose_caches_are_off() -> None:
    heap = _Process().read()
    assert heap is not None and "built without statistics" in heap.unread_caches
    process = _Process()
    for number, word in enumerate(
        (3 * PAGE, 4 * PAGE, 4 * MIB)
    ):  # allocated, resident and mapped of its own blocks
        process._put(process.own, OWN, OWN + 256 + 8 * number, word)
    heap = process.read()
    assert heap is not None and heap.is_complete and not heap.cached


def test_slabs_of_a_jemalloc_with_pages_of_64_kib_have_more_blocks_of_more_sizes() -> None:
    """As Debian builds it for arm64: a page has up to 8,192 blocks, and slabs have blocks of up to 224 KiB."""
    free, sizes = [3000, 1, 0], [1, 40, 51]  # classes of 16 bytes, 32 and 224 KiB
    words = [OF_SLAB | one << SIZED | count << 28 for one, count in zip(sizes, free)]
    extents = [(0, 1, words[0]), (1, 2, words[1]), (2, 9, words[2]), (9, 14, 52 << SIZED), (14, 40, RETAINED)]
    process = _Process(extents, page_bits=16, apart=2048)
    for number, count in enumerate(free):
        at = DESCRIPTORS + 2048 * number + 64 - OWN
        process.own[at : at + 512] = ((1 << count) - 1).to_bytes(512, "little")
    heap = process.read()
    assert heap is not None and heap.layout == "5.3, 48 address bits, pages of 65,536 bytes"
    assert heap.odd_descriptors == 0
    by_kind = zip(heap.spans.kinds.tolist(), heap.spans.block_bytes.tolist(), heap.spans.live_blocks.tolist())
    assert [row for row in by_kind if row[2]] == [
        (SLAB, 16, 1096),
        (SLAB, 32 << 10, 1),
        (SLAB, 224 << 10, 2),
        (LARGE, 256 << 10, 1),
    ]
    blocks = heap.live_blocks()
    assert blocks is not None and blocks.unlisted == 0
    assert len(blocks.starts) == 1096 + 1 + 2 + 1 and int(blocks.starts.min()) == HEAP + 16 * 3000


ARENA, THREAD, SMALL = OWN + 2240, OWN + 2 * MIB, OWN + 2 * MIB - 4096
LINKS = 9  # words between the bins for small blocks and the address of the arena, as in Debian 11's 5.2.1


@pytest.mark.parametrize("is_torn", [False, True])
def test_caches_of_a_5_2_without_statistics_are_found_in_the_threads_data(is_torn: bool) -> None:
    own, stacks = bytearray(4 * MIB), OWN + 3 * MIB
    arena_at = SMALL + 36 * 24 + 8 * LINKS
    struct.pack_into("<Q", own, arena_at - OWN, ARENA)
    for number in range(
        41
    ):  # 36 small bins, and the first large ones; each keeps as many blocks as its number
        at = SMALL + 24 * number if number < 36 else arena_at + 48 + 24 * (number - 36)
        end = stacks + 400 * (number + 1)
        struct.pack_into("<IIQQ", own, at - OWN, 0, number, 0, stacks if is_torn and number == 20 else end)
    memory = BytesMemory([(DATA, struct.pack("<Q", ARENA)), (OWN, bytes(own))])
    view = SearchedMemory(
        memory, Ranges([(OWN, OWN + 4 * MIB)]), Ranges([(DATA, DATA + 8), (OWN, OWN + 4 * MIB)]), {}, [THREAD]
    )
    data = data_words(view, [(DATA, DATA + 8)])
    found = _caches_of_threads(view, data, [(OWN, OWN + 2 * MIB)], _RELEASES[1], PAGE)
    if is_torn:
        assert (found.caches, found.cached) == (0, {})
    else:
        assert found.caches == 1 and sum(found.cached.values()) == sum(range(41))
        assert found.cached[16] == 1 and found.cached[14336] == 35 and found.cached[16384] == 36
        assert found.stacks[35] == (stacks + 400 * 36 - 8 * 35, 35)


def test_free_pages_of_a_huge_page_that_jemalloc_divides_are_not_memory_of_unknown_use() -> None:
    process = _Process()
    process.describe(1, 1, 5, 36 << SIZED | OF_HUGE_PAGE)
    heap = process.read()
    assert heap is not None
    rows = [row[:3] for row in zip(*(column.tolist() for column in heap.spans))]
    assert rows[-1] == (HEAP + 40 * PAGE, HEAP + 2 * MIB, IN_HUGE)


def test_the_blocks_in_use_are_those_whose_bit_is_not_set_and_a_contradiction_leaves_a_slab_out() -> None:
    process = _Process()
    at = DESCRIPTORS - OWN + 64
    bits = 0x0F_FFFF_0000_FFFF_FFFF_FFF5
    process.own[at : at + 16] = bits.to_bytes(16, "little")
    process.describe(0, 0, 1, OF_SLAB | 2 << SIZED | bin(bits).count("1") << 28)
    heap = process.read()
    assert heap is not None
    blocks = heap.live_blocks()
    assert blocks is not None
    live = [HEAP + 32 * number for number in range(128) if not bits >> number & 1]
    assert blocks.starts.tolist() == [*live, HEAP + PAGE]
    assert (blocks.unlisted, blocks.doubtful) == (0, 0)
    process.own[at] = 0
    heap = process.read()
    assert heap is not None
    blocks = heap.live_blocks()
    assert blocks is not None and (len(blocks.starts), blocks.unlisted) == (1, len(live))


def _leads_elsewhere(process: _Process) -> None:
    for page in range(5, 9):
        process.lead(page, 0)


def _overlaps(process: _Process) -> None:
    process.describe(2, 0, 9, DIRTY)
    process.describe(3, 2, 40, RETAINED)


def _has_too_many_free(process: _Process) -> None:
    for number, (first, behind, _) in enumerate(EXTENTS):
        process.describe(number, first, behind, OF_SLAB | 2 << SIZED | 1000 << 28)


def _is_torn_down(process: _Process) -> None:
    process.own[3 * MIB :] = bytes(MIB)


def _has_no_node(process: _Process) -> None:
    process.data[:] = bytes(len(process.data))


@pytest.mark.parametrize(
    "change", [_leads_elsewhere, _overlaps, _has_too_many_free, _is_torn_down, _has_no_node]
)
def test_a_tree_that_contradicts_itself_is_not_used(change: Callable[[_Process], None]) -> None:
    process = _Process()
    change(process)
    assert process.read() is None


def test_a_tree_of_three_levels_whose_memory_is_gone_has_no_leaves() -> None:
    root, size = 0x10000, 8 << 15
    memory = BytesMemory([(root, bytes(size))])
    area = Ranges([(root, root + size)])
    assert _leaves(SearchedMemory(memory, area, area), root, _Form(12, 57)) == []


@pytest.mark.parametrize(("form", "words"), [(_Form(12, 48), 1), (_Form(12, 57), 2)])
def test_pages_of_one_descriptor_are_one_run_across_the_pieces_that_are_read(form: _Form, words: int) -> None:
    leaf, pages, per_piece = 0x7F00_0000_0040, 1 << 15, (1 << 17) // 8 // words
    entries = [0] * pages
    first, last = per_piece - 1000, per_piece + 1000  # across the end of the first piece
    entries[first:last] = [DESCRIPTORS | 1] * (last - first)
    entries[last + 5] = entries[last + 9] = DESCRIPTORS + 128  # a large block: its first and its last page
    data = b"".join(struct.pack("<Q", entry) + bytes(8 * (words - 1)) for entry in entries)
    area = Ranges([(leaf, leaf + len(data))])
    tree = _read_leaves(SearchedMemory(BytesMemory([(leaf, data)]), area, area), [(leaf, 7 << 15)], form)
    assert [column.tolist() for column in tree[1:]] == [
        [(7 << 15) + first << 12, (7 << 15) + last + 5 << 12],
        [(7 << 15) + last - 1 << 12, (7 << 15) + last + 9 << 12],
        [last - first, 2],
        [DESCRIPTORS, DESCRIPTORS + 128],
    ]
