"""The smallest set of chunks in use whose release makes a hole large enough for a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gdbmem.model.bfc.pools import FREE, Allocator, Obstacle, Region


def smallest_obstacle(allocator: Allocator, need_bytes: int) -> Optional[Obstacle]:
    """Return the run of adjacent chunks of *need_bytes* with the fewest bytes in use; None if none is so large.

    Among several with as few bytes, it is the one with fewer chunks in use; then the first.
    """
    windows = (one for region in allocator.regions for one in _windows(allocator, region, need_bytes))
    best = min(windows, default=None)
    if best is None:
        return None
    used, _, first, last = best
    chunks = allocator.chunks
    in_use = tuple(index for index in range(first, last + 1) if chunks.state[index] != FREE)
    return Obstacle(first, last, in_use, used, sum(chunks.size[first : last + 1]))


def _windows(allocator: Allocator, region: Region, need: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield bytes and chunks in use, first and last chunk of a window that slides over *region*.

    It is never larger than necessary.
    """
    size, state = allocator.chunks.size, allocator.chunks.state
    start, total, used, count = region.first, 0, 0, 0
    for index in region.indices:
        total += size[index]
        if state[index] != FREE:
            used += size[index]
            count += 1
        while total - size[start] >= need:
            total -= size[start]
            if state[start] != FREE:
                used -= size[start]
                count -= 1
            start += 1
        if total >= need:
            yield used, count, start, index
