"""Heaps made of bytes, as glibc would lay them out, with what is true about them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from gdbmem.allocators.glibc.tallies import Cached
from gdbmem.allocators.malloc_heap import MallocHeap
from gdbmem.model.memory import BytesMemory

PAGE = 4096


@dataclass(frozen=True)
class MadeHeap:
    memory: BytesMemory
    start: int
    top: int
    end: int
    cached: Cached
    live_bytes: int
    live_chunks: int


def make_heap(
    count: int,
    seed: int,
    *,
    decoys: bool = False,
    corrupt_at: int = -1,
    corrupt_head: int = 0x4141414141414141,
    sizes: Sequence[int] = (),
) -> MadeHeap:
    """Return a heap of *count* chunks; *decoys* fill live blocks with words that look like chunk sizes.

    The size of chunk number *corrupt_at* is overwritten with *corrupt_head*. Chunks are of *sizes*, or of all kinds.
    """
    rng = random.Random(seed)
    start = 0x555555559000 + 16 * rng.randrange(256)
    sizes = [rng.choice(sizes) & -16 if sizes else _size(rng) for _ in range(count)]
    free = [rng.random() < 0.3 for _ in sizes]
    for index in range(1, count):
        free[index] = free[index] and not free[index - 1]  # neighbours would have been joined
    top = start + sum(sizes)
    end = (top + 9000) & -PAGE
    base = start & -PAGE
    words = memoryview(bytearray(end - base)).cast("Q")
    tcache, fastbins = [], []
    address, previous_in_use, live_bytes, live_chunks = start, 1, 0, 0
    for index, (size, is_free) in enumerate(zip(sizes, free)):
        at = (address - base) >> 3
        words[at + 1] = size | previous_in_use if index != corrupt_at else corrupt_head
        kind = rng.random()
        if is_free:
            words[at + size // 8] = size
        elif kind < 0.05:
            tcache.append(address)
        elif kind < 0.15:
            fastbins.append(address)
        else:
            live_bytes += size
            live_chunks += 1
            if decoys:
                for word in range(at + 2, at + size // 8):
                    words[word] = 0x21 | 0x40 * (word & 1)
        previous_in_use = 0 if is_free else 1
        address += size
    words[((top - base) >> 3) + 1] = (end - top) | previous_in_use
    cached = Cached(array("Q", tcache), array("Q", fastbins))
    return MadeHeap(
        BytesMemory([(base, bytes(words.cast("B")))]), start, top, end, cached, live_bytes, live_chunks
    )


def _size(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.95:
        return 32 + 16 * rng.randrange(14)
    if kind < 0.999:
        return 16 * rng.randrange(64, 600)
    return 16 * rng.randrange(1000, 20000)


def check_spans(heap: Optional[MallocHeap]) -> None:
    """Check that the spans of *heap*, if one was read, are in order, and that their blocks fit in."""
    if heap is not None:
        spans = heap.spans
        assert (spans.ends > spans.starts).all()
        assert (spans.starts[1:] >= spans.ends[:-1]).all()
        assert (spans.live_blocks * spans.block_bytes <= spans.ends - spans.starts).all()
