"""Heaps of allocators that replace malloc in the resident set: what of them is live, free, and their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from gdbmem.allocators import malloc_heap
from gdbmem.allocators.malloc_heap import LARGE, SLAB, MallocHeap
from gdbmem.arrays import import_numpy
from gdbmem.ledger.division import Division, Key
from gdbmem.model import ledger as names
from gdbmem.model.ledger import BlockSize, OtherMalloc

# By kind of span: the label of what of it is neither live nor cached.
_REST = {
    SLAB: names.IN_SLABS,
    LARGE: names.LIVE,  # the part of its last page that its size rounds up to
    malloc_heap.FREE: names.FREE_PAGES,
    malloc_heap.LAZY: names.LAZY_PAGES,
    malloc_heap.RETURNED: names.RETURNED_PAGES,
    malloc_heap.METADATA: names.ALLOCATORS_OWN,
    malloc_heap.CHANGING: names.CHANGING,
    malloc_heap.CACHED: names.IN_CACHES,
    malloc_heap.IN_HUGE: names.IN_HUGE_PAGES,
}


class MallocClaims:
    """The parts of these heaps in a process's memory. Sizes are bytes, resident or not."""

    def __init__(self) -> None:
        self.allocated: Counter[Key] = Counter()
        self.details: dict[Key, dict[str, object]] = {}
        self.mallocs: list[OtherMalloc] = []


def claim_mallocs(division: Division, heaps: Sequence[MallocHeap]) -> MallocClaims:
    """Assign the spans of *heaps* to their entries, as far as no other has claimed them."""
    claims = MallocClaims()
    several = Counter(heap.allocator for heap in heaps)
    for heap in heaps:
        suffix = f", {PurePath(heap.file).name}" if several[heap.allocator] > 1 else ""
        _claim(division, heap, suffix, claims)
    return claims


def _claim(division: Division, heap: MallocHeap, suffix: str, claims: MallocClaims) -> None:
    category, spans = f"allocator.{heap.allocator}", heap.spans
    sizes, number = spans.sizes
    live, cached = _divide(heap, sizes, number)
    keys = [(category, _REST[kind] + suffix) for kind in sorted(_REST)]
    live_key, cached_key = (category, names.LIVE + suffix), (category, names.IN_CACHES + suffix)
    rest = division.claim_spans(
        spans.starts, spans.ends, [(live_key, live), (cached_key, cached)], keys, spans.kinds
    )
    lengths = spans.ends - spans.starts

    def pages(kind: int) -> int:
        return int(lengths[spans.kinds == kind].sum())

    is_slab, is_own = spans.kinds == SLAB, spans.kinds == malloc_heap.METADATA
    cached_bytes = sum(size * count for size, count in heap.cached.items())
    live_bytes = int((spans.block_bytes * spans.live_blocks).sum()) - cached_bytes
    cached_bytes += pages(malloc_heap.CACHED)
    summary = OtherMalloc(
        category=category,
        suffix=suffix,
        layout=heap.layout,
        file=heap.file,
        live_bytes=live_bytes,
        live_blocks=int(spans.live_blocks.sum()) - sum(heap.cached.values()),
        cached_bytes=cached_bytes if heap.is_complete else None,
        caches=heap.caches,
        in_slabs_bytes=int((lengths - spans.block_bytes * spans.live_blocks)[is_slab].sum()),
        free_page_bytes=pages(malloc_heap.FREE),
        lazy_page_bytes=pages(malloc_heap.LAZY),
        returned_page_bytes=pages(malloc_heap.RETURNED),
        metadata_bytes=pages(malloc_heap.METADATA),
        sizes=_in_slabs(heap, sizes, number, rest),
        metadata_resident_bytes=int(
            division.resident.within_each(spans.starts[is_own], spans.ends[is_own]).sum()
        ),
        in_huge_page_bytes=pages(malloc_heap.IN_HUGE),
        odd_descriptors=heap.odd_descriptors,
    )
    claims.mallocs.append(summary)
    claims.allocated[live_key] += summary.live_bytes
    claims.allocated[cached_key] += cached_bytes
    claims.details[live_key] = {"blocks": summary.live_blocks}


def divide_spans(heap: MallocHeap) -> tuple[Any, Any]:
    """Return how many bytes of each span are live, and kept by caches.

    Which blocks of a size caches keep is not read: each slab or large block has the same part of them.
    """
    return _divide(heap, *heap.spans.sizes)


def _divide(heap: MallocHeap, sizes: Any, number: Any) -> tuple[Any, Any]:
    np = import_numpy()
    spans = heap.spans
    used = spans.block_bytes * spans.live_blocks
    of_size = np.bincount(number, spans.live_blocks, len(sizes))
    kept = np.array([heap.cached.get(size, 0) for size in sizes.tolist()], np.float64)
    part = np.where(of_size > 0, kept / np.maximum(of_size, 1), 0.0)
    cached = np.round(used * part[number]).astype(np.int64)
    return used - cached, cached


def _in_slabs(heap: MallocHeap, sizes: Any, number: Any, rest: Any) -> list[BlockSize]:
    """Return the blocks in slabs by size; *rest* are the resident bytes of each span that are not used."""
    np = import_numpy()
    spans, is_slab = heap.spans, heap.spans.kinds == SLAB
    number = number[is_slab]
    blocks = (spans.ends - spans.starts)[is_slab] // np.maximum(spans.block_bytes[is_slab], 1)
    slabs = np.bincount(number, None, len(sizes))
    columns = (
        np.bincount(number, column, len(sizes)).astype(np.int64)
        for column in (spans.live_blocks[is_slab], blocks, rest[is_slab])
    )
    rows = zip(*(column[slabs > 0].tolist() for column in (sizes, slabs, *columns)))
    return [
        BlockSize(size, live - (cached := heap.cached.get(size, 0)), cached, all_of_it - live, count, free)
        for size, count, live, all_of_it, free in rows
    ]
