"""Walking a heap: the quick way and the plain way are the same to the byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.allocators.glibc import lockstep, tallies
from gdbmem.allocators.glibc.caches import find_end
from gdbmem.allocators.glibc.heap import Walker
from gdbmem.allocators.glibc.tallies import (
    CORRUPT,
    ENDED,
    FASTBIN,
    FENCEPOST,
    FREE,
    LIVE,
    STATES,
    TCACHE,
    Cached,
    HeapTally,
    trim_range,
)
from gdbmem.allocators.glibc.trails import Trail
from gdbmem.linux.memory import maps
from gdbmem.model.memory import BytesMemory
from tests.unit.heaps import MadeHeap, make_heap

WALKERS = [pytest.param(glibc_heap.walk, id="plain"), pytest.param(lockstep.walk, id="numpy")]


def tally_of(heap: MadeHeap, walker: Walker) -> HeapTally:
    tally = HeapTally(heap.start, heap.end)
    walker(heap.memory, tally, heap.top, heap.cached)
    return tally


@pytest.mark.parametrize("walker", WALKERS)
@pytest.mark.parametrize("decoys", [False, True])
def test_live_blocks_are_counted_without_those_in_caches(walker: Walker, decoys: bool) -> None:
    heap = make_heap(5000, 1, decoys=decoys)
    tally = tally_of(heap, walker)
    assert (tally.stopped_why, tally.stopped_at, tally.strays) == (ENDED, heap.top, 0)
    assert (tally.bytes[LIVE], tally.chunks[LIVE]) == (heap.live_bytes, heap.live_chunks)
    assert tally.chunks[TCACHE] == len(heap.cached.tcache)
    assert tally.chunks[FASTBIN] == len(heap.cached.fastbins)


@pytest.mark.parametrize("walker", WALKERS)
def test_the_bytes_on_the_pages_are_the_bytes_of_the_chunks(walker: Walker) -> None:
    tally = tally_of(make_heap(5000, 2), walker)
    for state in range(STATES):
        assert sum(tally.pages[state::STATES]) == tally.bytes[state]
    assert sum(tally.headers) == tally.chunks[LIVE]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block_bytes", [1 << 13, 1 << 16, 1 << 20])
def test_both_walkers_agree_to_the_byte_whatever_the_block(seed: int, block_bytes: int) -> None:
    heap = make_heap(4000, seed, decoys=seed % 2 == 0)
    plain, quick = HeapTally(heap.start, heap.end), HeapTally(heap.start, heap.end)
    glibc_heap.walk(heap.memory, plain, heap.top, heap.cached, block_bytes=block_bytes)
    lockstep.walk(heap.memory, quick, heap.top, heap.cached, block_bytes=block_bytes)
    assert_same(plain, quick)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_bytes", [1 << 13, 1 << 20])
def test_a_heap_that_was_walked_for_its_fastbins_is_added_up_the_same(seed: int, block_bytes: int) -> None:
    np = pytest.importorskip("numpy")
    heap = make_heap(4000, seed, sizes=() if seed < 4 else (48,))
    trail = Trail(heap.start & -4096, np.zeros((heap.end - (heap.start & -4096)) // 128 + 8, dtype=np.uint8))
    for chunks in lockstep.follow_chunks(heap.memory, heap.start, heap.top, block_bytes=block_bytes):
        trail.note(np, chunks)
    plain, quick = tally_of(heap, glibc_heap.walk), HeapTally(heap.start, heap.end)
    known = Cached(heap.cached.tcache, heap.cached.fastbins, {heap.start: trail})
    lockstep.walk(heap.memory, quick, heap.top, known)
    assert_same(plain, quick)
    assert (quick.odd, quick.link_sum) == (plain.odd, plain.link_sum)


@pytest.mark.parametrize("walker", [glibc_heap.walk, lockstep.walk])
def test_blocks_read_at_once_change_no_figure(walker: Callable[..., None]) -> None:
    heap = make_heap(4000, 9)
    large, small = HeapTally(heap.start, heap.end), HeapTally(heap.start, heap.end)
    walker(heap.memory, large, heap.top, heap.cached)
    walker(heap.memory, small, heap.top, heap.cached, block_bytes=1 << 12)
    assert_same(large, small)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(32,), (4096,), (40_000,), (3_000_000,), (32, 5000), (32, 32, 48, 70_000)])
def test_blocks_of_every_size_are_found_among_words_that_look_like_sizes(sizes: tuple[int, ...]) -> None:
    heap = make_heap(60 if max(sizes) > 1 << 20 else 3000, 10, decoys=True, sizes=sizes)
    plain, quick = tally_of(heap, glibc_heap.walk), tally_of(heap, lockstep.walk)
    assert (quick.bytes[LIVE], quick.chunks[LIVE]) == (heap.live_bytes, heap.live_chunks)
    assert_same(plain, quick)


@pytest.mark.slow
@pytest.mark.parametrize("walker", WALKERS)
@pytest.mark.parametrize("block_bytes", [1 << 13, 1 << 20])
@pytest.mark.parametrize("sizes", [(), (32, 48, 2000), (3000, 5000), (16, 140_000)])
def test_what_live_blocks_keep_back_is_all_that_is_free_on_their_pages(
    walker: Callable[..., None], block_bytes: int, sizes: tuple[int, ...]
) -> None:
    heap = make_heap(2500, 6, sizes=[max(size, 32) for size in sizes])
    tally = HeapTally(heap.start, heap.end)
    walker(heap.memory, tally, heap.top, heap.cached, block_bytes=block_bytes)
    tally.add_top(heap.top, heap.end)
    pages = list(zip(tally.pages[FREE::STATES], tally.pages[LIVE::STATES]))
    assert sum(tally.pinned.values()) == pytest.approx(sum(free for free, live in pages if live))


def assert_same(plain: HeapTally, quick: HeapTally) -> None:
    columns = ("chunks", "bytes", "sizes", "pages", "headers", "reached", "runs", "pending")
    stops = ("stopped_at", "stopped_why", "strays")
    # Not compared in the assert: pytest would take minutes to show how two large arrays differ.
    differ = [name for name in columns + stops if getattr(plain, name) != getattr(quick, name)]
    assert not differ
    assert quick.pinned == pytest.approx(plain.pinned)


@pytest.mark.parametrize("number", [0, 700, 1999])
def test_a_corrupt_size_ends_the_walk_there_in_both(number: int) -> None:
    heap = make_heap(2000, 3, corrupt_at=number)
    plain, quick = tally_of(heap, glibc_heap.walk), tally_of(heap, lockstep.walk)
    assert plain.stopped_why == CORRUPT
    assert heap.start <= plain.stopped_at < heap.top
    assert_same(plain, quick)


@pytest.mark.parametrize(("head", "why"), [(17, FENCEPOST), (16, FENCEPOST), (1, FENCEPOST), (0, CORRUPT)])
@pytest.mark.parametrize("walker", WALKERS)
def test_the_end_of_a_piece_of_heap_is_one_whether_what_stands_before_it_is_free_or_not(
    walker: Walker, head: int, why: str
) -> None:
    assert tally_of(make_heap(2000, 3, corrupt_at=700, corrupt_head=head), walker).stopped_why == why


@pytest.mark.parametrize("walker", WALKERS)
@pytest.mark.parametrize(
    ("head", "why"), [(0x11, FENCEPOST), (0x10, FENCEPOST), (0x15, FENCEPOST), (1, FENCEPOST), (0, CORRUPT)]
)
def test_a_piece_of_heap_ends_at_mallocs_fencepost_also_behind_a_free_block(
    walker: Walker, head: int, why: str
) -> None:
    heap = make_heap(300, 11)
    base = heap.start & -4096
    words = bytearray(heap.memory.read(base, heap.end - base))
    words[heap.top - base + 8 : heap.top - base + 16] = head.to_bytes(8, "little")
    tally = HeapTally(heap.start, heap.end)
    walker(BytesMemory([(base, bytes(words))]), tally, heap.end, heap.cached)
    assert (tally.stopped_at, tally.stopped_why) == (heap.top, why)


@pytest.mark.parametrize("walker", WALKERS)
def test_a_cached_block_that_is_none_is_named_as_a_stray(walker: Walker) -> None:
    heap = make_heap(300, 4)
    heap.cached.fastbins.append(heap.start + 16)  # type: ignore[attr-defined]
    tally = tally_of(MadeHeap(**{**heap.__dict__, "cached": sort(heap)}), walker)
    assert tally.strays == 1


def sort(heap: MadeHeap) -> object:
    from array import array

    from gdbmem.allocators.glibc.tallies import Cached

    return Cached(array("Q", heap.cached.tcache), array("Q", sorted(heap.cached.fastbins)))


def test_the_top_chunk_is_free_memory() -> None:
    heap = make_heap(100, 5)
    tally = tally_of(heap, glibc_heap.walk)
    before = tally.bytes[FREE]
    tally.add_top(heap.top, heap.end)
    assert tally.bytes[FREE] - before == heap.end - heap.top
    assert sum(tally.pages[FREE::STATES]) == tally.bytes[FREE]


def test_malloc_trim_leaves_the_first_bytes_of_a_free_chunk() -> None:
    assert trim_range(0x1000, 0x3000) == (0x2000, 0x3000)
    assert trim_range(0xFD0, 0x3000) == (0x1000, 0x3000)
    assert trim_range(0xFE0, 0x3000) == (0x2000, 0x3000)


def test_where_the_kernels_pages_are_larger_only_whole_ones_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tallies, "KERNEL_PAGE", 1 << 16)
    assert trim_range(0x1000, 0x3FFFF) == (0x10000, 0x30000)
    assert not tallies.has_pages(0x1000, 0x1F000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_both_walkers_keep_the_same_runs_where_the_kernels_pages_are_larger(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallies, "KERNEL_PAGE", 1 << 16)
    heap = make_heap(4000, seed, sizes=(32, 3000, 40_000))
    assert_same(tally_of(heap, glibc_heap.walk), tally_of(heap, lockstep.walk))


def test_pages_of_another_size_are_found_at_their_place_in_pagemap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pagemap"
    file.write_bytes(struct.pack("<8Q", *(number % 2 << 63 for number in range(8))))
    monkeypatch.setattr(maps, "PAGE", 1 << 16)
    with file.open("rb") as stream:
        found = list(maps._read(stream.fileno(), 2 << 16, 5 << 16))
    assert found == [(3 << 16, 4 << 16)]


@pytest.mark.parametrize("arena_flag", [0, 4])
def test_a_block_whose_header_malloc_has_not_written_ends_where_the_block_that_was_split_ended(
    arena_flag: int,
) -> None:
    def chunk(size: int, *, before: int = 0, in_use: bool = True, content: bytes = b"") -> bytes:
        head = struct.pack("<QQ", before, size | in_use | arena_flag)
        return head + content + bytes(size - 16 - len(content))

    # What the free block held before: blocks that still lead to the next one.
    stale = b"".join(chunk(64, content=b"\x5a" * 48) for _ in range(7))
    split = chunk(96) + struct.pack("<QQ", 0, 0x5A5A5A5A5A5A5A5A) + stale + bytes(16)
    data = chunk(128) + split + chunk(48, before=96 + 16 + 7 * 64 + 16, in_use=False)
    data += b"".join(chunk(80) for _ in range(40))
    base = 0x7F0000000000
    memory = BytesMemory([(base, data + struct.pack("<QQ", 0, 0x1001) + bytes(4096))])
    before, at, top = base + 128, base + 224, base + len(data)
    assert find_end(memory, before, at, top, top + 0x1000) == before + len(split)
    # The former top, which still has its size.
    last = chunk(80) + chunk(80 + 0x1000)[:80]
    memory = BytesMemory([(base, last + bytes(4096))])
    assert find_end(memory, base, base + 80, base + 160, base + 160 + 0x1000) == base + 160
