"""The decision of PyTorch's caching allocator on a request, by the blocks of a snapshot.

Source: c10/cuda/CUDACachingAllocator.cpp: blocks of small (up to 1 MiB) and large requests, of each stream and of each
private pool, never serve each other; what no free block can serve needs a new segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from gdbmem.analysis.bfc.decision import Request
from gdbmem.analysis.bfc.obstacles import smallest_obstacle
from gdbmem.model.bfc.pools import (
    EXTENDS,
    FAILS,
    FITS,
    FRAGMENTATION,
    FREE,
    FULL,
    OTHER_STREAM,
    UNDECIDED,
    Advice,
    Allocator,
    Decision,
    Region,
)
from gdbmem.model.bfc.torch_memory import EXPANDABLE, is_private, is_small
from gdbmem.records import replace
from gdbmem.text import plural
from gdbmem.units import format_size

_ROUNDED_TO = 512
_SMALL = 1 << 20  # requests up to this come from small segments
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 << 20, 20 << 20
_OWN_SEGMENT = 10 << 20  # requests from this size on get a segment of exactly their size
_SEGMENTS_ROUNDED_TO = 2 << 20


def decide_torch(allocator: Allocator, request: Request) -> Decision:
    """Return the outcome of *request*; for one that failed the reason, from the blocks of its snapshot."""
    need = max(_ROUNDED_TO, -(-request.bytes // _ROUNDED_TO) * _ROUNDED_TO)
    base = Decision(request.bytes, _ROUNDED_TO, need, UNDECIDED)
    usable = [
        region
        for region in allocator.regions
        if is_small(region) == (need <= _SMALL) and not is_private(region)
    ]
    free = _free(allocator, usable)
    kind = "small" if need <= _SMALL else "large"
    steps = [_free_sentence(allocator, free, kind)]
    others = allocator.free_bytes - sum(allocator.chunks.size[index] for index in free)
    if others:
        steps.append(
            f"{format_size(others)} more are free in segments of the other size, or of private pools"
        )
    fitting = [index for index in free if allocator.chunks.size[index] >= need]
    if fitting and not request.has_failed:
        best = min(fitting, key=lambda index: (allocator.chunks.size[index], allocator.chunks.address[index]))
        steps.append("a free block serves only requests of its stream")
        return replace(base, outcome=FITS, chunk=best, taken_bytes=need, steps=steps)
    segment = _segment_bytes(need)
    if not request.has_failed:
        steps.append(f"it requests from the device a segment of {format_size(segment)}")
        return replace(base, outcome=EXTENDS, extends_bytes=segment, taken_bytes=need, steps=steps)
    steps.append(f"the device refused a segment of {format_size(segment)}")
    total = sum(allocator.chunks.size[index] for index in free)
    cause = OTHER_STREAM if fitting else FRAGMENTATION if total >= need else FULL
    obstacle = None if fitting else smallest_obstacle(replace(allocator, regions=usable), need)
    decision = replace(base, outcome=FAILS, cause=cause, obstacle=obstacle, steps=steps)
    return replace(decision, advice=_advice(usable, cause, total))


def _free(allocator: Allocator, regions: Sequence[Region]) -> Sequence[int]:
    state = allocator.chunks.state
    return [index for index in chain.from_iterable(r.indices for r in regions) if state[index] == FREE]


def _free_sentence(allocator: Allocator, free: Sequence[int], kind: str) -> str:
    if not free:
        return f"nothing is free in {kind} segments"
    sizes = [allocator.chunks.size[index] for index in free]
    return (
        f"{format_size(sum(sizes))} are free in {kind} segments, in {plural(len(free), 'block')},"
        f" the largest {format_size(max(sizes))}"
    )


def _segment_bytes(need: int) -> int:
    if need <= _SMALL:
        return _SMALL_SEGMENT
    if need < _OWN_SEGMENT:
        return _LARGE_SEGMENT
    return -(-need // _SEGMENTS_ROUNDED_TO) * _SEGMENTS_ROUNDED_TO


def _advice(usable: Sequence[Region], cause: str, free_bytes: int) -> Sequence[Advice]:
    if cause != FRAGMENTATION or any(EXPANDABLE in region.label for region in usable):
        return ()
    text = (
        f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, where pieces of {format_size(free_bytes)} in all"
        " that are free in different segments could be mapped as one"
    )
    return (Advice("expandable-segments", text),)
