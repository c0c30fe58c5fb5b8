"""The parts of allocators that replace malloc in the resident set."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gdbmem.allocators.malloc_heap import CACHED, LARGE, SLAB, MallocHeap, Spans
from gdbmem.allocators.others import Recognised
from gdbmem.arrays import import_numpy
from gdbmem.ledger.answer import answer_ledger
from gdbmem.ledger.division import Division, claim_mallocs
from gdbmem.ledger.ledger import ProcessImage, build_ledger
from gdbmem.ledger.text import what_holds
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.ledger import (
    FREE_PAGES,
    IN_CACHES,
    IN_SLABS,
    LIVE,
    OTHER,
    BlockSize,
    Entry,
    Ledger,
    OtherMalloc,
)

pytest.importorskip("numpy")
START, KIB = 0x7F00_0000_0000, 1024
KERNELS = 0xFFFF_FFFF_FF60_0000  # of the kernel's page, which cores have

SPANS = [
    (START, START + 4 * KIB, SLAB, 1024, 3),
    (START + 4 * KIB, START + 36 * KIB, LARGE, 32 * KIB, 1),
    (START + 36 * KIB, START + 68 * KIB, LARGE, 32 * KIB, 1),
    (START + 68 * KIB, START + 72 * KIB, CACHED, 0, 0),
]


def test_large_blocks_and_pages_that_caches_keep_are_free_also_in_a_core() -> None:
    mappings = [
        Mapping(START, START + 72 * KIB, "rw-p", 0, "00:00", 0, "", rss_bytes=72 * KIB),
        Mapping(KERNELS, KERNELS + 4096, "--xp", 0, "00:00", 0, "[vsyscall]", rss_bytes=4096),
    ]
    division = Division(mappings, Ranges((m.start, m.end) for m in mappings))
    heap = MallocHeap(
        "jemalloc", "5.3", "/usr/lib/a.so", Spans.of(list(zip(*SPANS))), {1024: 1, 32 * KIB: 1}, 1
    )
    claims = claim_mallocs(division, [heap])
    category = "allocator.jemalloc"
    assert division.parts[0] == {
        (category, LIVE): (2 + 32) * KIB,
        (category, IN_CACHES): (1 + 32 + 4) * KIB,
        (category, IN_SLABS): 1 * KIB,
    }
    assert claims.mallocs[0].live_bytes == (2 + 32) * KIB
    assert claims.mallocs[0].cached_bytes == (1 + 32 + 4) * KIB


def _ledger_beside_own_mapping(others: Recognised, heaps: list[MallocHeap]) -> Ledger:
    """Return the ledger of a process that has mapped 800 KiB itself."""
    mappings = [
        Mapping(START, START + 72 * KIB, "rw-p", 0, "00:00", 0, "", rss_bytes=72 * KIB),
        Mapping(START + KIB * KIB, START + 2 * KIB * KIB, "rw-p", 0, "00:00", 0, "", rss_bytes=800 * KIB),
    ]
    resident = Ranges([(START, START + 72 * KIB), (START + KIB * KIB, START + (KIB + 800) * KIB)])
    reading = ProcessImage("app", 1, mappings, resident, True, [])
    reading.others, reading.mallocs = others, heaps
    return build_ledger(reading)


def test_the_largest_part_of_what_jemalloc_keeps_is_named_though_each_part_is_small() -> None:
    category = "allocator.jemalloc"
    sizes = (BlockSize(64, 5, 0, 3, 1, 192), BlockSize(224, 9, 1, 30, 4, 400 * KIB))
    malloc = OtherMalloc(category, "", "5.3", "/usr/bin/app", 0, 0, 0, 1, 0, 0, 0, 0, 0, sizes)

    def answer(slabs: int, pages: int, caches: int) -> str:
        parts = ((IN_SLABS, slabs), (FREE_PAGES, pages), (IN_CACHES, caches))
        entries = [Entry(category, label, size * KIB, size * KIB) for label, size in parts]
        entries.append(Entry("file.code", "code", (9000 - slabs - pages - caches) * KIB, 0))
        return answer_ledger(Ledger("app", 1, 9000 * KIB, entries, [], None, mallocs=(malloc,)))

    assert "keeps: 600.0 KiB are free pages: mallctl" in answer(300, 600, 550)
    assert "keeps: 600.0 KiB are free blocks in slabs that live ones share, most of them of 224" in answer(
        600, 300, 550
    )


def test_what_a_program_maps_itself_is_not_called_memory_of_a_malloc_whose_heap_was_read() -> None:
    heap = MallocHeap("jemalloc", "5.3", "/usr/lib/a.so", Spans.of(list(zip(*SPANS))), {}, 1)
    ledger = _ledger_beside_own_mapping(Recognised("jemalloc"), [heap])
    found = {entry.category: entry.resident_bytes for entry in ledger.entries if not entry.label}
    assert found == {OTHER: 800 * KIB}
    assert "of unknown use" in answer_ledger(ledger)


@pytest.mark.parametrize("others", [Recognised("scudo"), Recognised(runtime="ruby")])
def test_what_native_code_may_have_mapped_is_not_said_to_be_the_heap_of_the_runtime(
    others: Recognised,
) -> None:
    ledger = _ledger_beside_own_mapping(others, [])
    assert "or mapped by other code" in answer_ledger(ledger)
    assert "or mapped by other code" in what_holds(ledger.entries[0], is_sound=True)


def _cut(dice: random.Random, count: int) -> list[tuple[int, int]]:
    """Return some disjoint ranges of units below *count*."""
    ends = sorted(dice.sample(range(count + 1), 2 * dice.randint(1, count // 6)))
    return list(zip(ends[::2], ends[1::2]))


def test_each_resident_byte_of_a_span_that_mappings_and_claims_cut_is_in_one_entry() -> None:
    np = import_numpy()
    for seed in range(200):
        dice = random.Random(seed)
        unit, count = 4096, 60
        at = [(START + low * unit, START + high * unit) for low, high in _cut(dice, count)]
        mappings = [Mapping(low, high, "rw-p", 0, "00:00", 0, "", rss_bytes=high - low) for low, high in at]
        resident = Ranges((START + low * unit, START + high * unit) for low, high in _cut(dice, count))
        division = Division(mappings, resident)
        for low, high in _cut(dice, count)[:2]:
            division.claim(START + low * unit, START + high * unit, ("other", "claimed"))
        before = [Counter(parts) for parts in division.parts]
        spans = _cut(dice, count)
        starts, ends = (np.array(column) * unit + START for column in zip(*spans))
        which = np.array([dice.randrange(2) for _ in spans])
        live = np.array([dice.randrange(high - low + 1) * unit for low, high in spans])
        taken = Ranges(division._taken)
        rest = division.claim_spans(starts, ends, [(("a", "live"), live)], [("a", "x"), ("a", "y")], which)
        expected = [
            sum(
                resident.within(max(low, m.start), min(high, m.end))
                - sum(
                    resident.within(*piece) for piece in taken.overlaps(max(low, m.start), min(high, m.end))
                )
                for low, high in zip(starts.tolist(), ends.tolist())
            )
            for m in mappings
        ]
        claimed = [Counter(now) - then for now, then in zip(division.parts, before)]
        assert [sum(parts.values()) for parts in claimed] == expected
        lives = sum(parts["a", "live"] for parts in claimed)
        assert sum(expected) - lives == rest.sum() and lives <= live.sum()
        assert sum(parts["a", "y"] for parts in claimed) == rest[which == 1].sum()
        # What was claimed is nobody else's.
        again = division.claim_spans(starts, ends, [], [("b", "x"), ("b", "y")], which)
        assert not again.any()


def test_ranges_hold_as_many_bytes_of_many_pieces_as_of_each() -> None:
    np = import_numpy()
    dice = random.Random(1)
    for ranges in ([], [(16, 32), (40, 41), (50, (1 << 63) - 1)]):
        some = Ranges(ranges)
        starts = np.array([dice.randrange(-20, 80) for _ in range(300)])
        ends = starts + np.array([dice.randrange(-5, 40) for _ in range(300)])
        assert some.within_each(starts, ends).tolist() == [
            some.within(low, high) for low, high in zip(starts.tolist(), ends.tolist())
        ]
        starts.sort()
        ends.sort()
        assert (
            some.within_each(starts, ends, in_order=True).tolist() == some.within_each(starts, ends).tolist()
        )
