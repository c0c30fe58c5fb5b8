"""The parts of allocators that replace malloc in the resident set."""

from __future__ import annotations

import pytest

from gdbmem.allocators.malloc_heap import CACHED, LARGE, SLAB, MallocHeap, Spans
from gdbmem.ledger.division import Division
from gdbmem.ledger.mallocs import claim_mallocs
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.ledger import IN_CACHES, IN_SLABS, LIVE

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
