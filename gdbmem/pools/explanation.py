"""Sentences about a pool and a decision: the answer, and remedies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Optional

from gdbmem.errors import InputError
from gdbmem.model import bfc
from gdbmem.pools.decision import Request, decide
from gdbmem.pools.replay import WhatIf, replay
from gdbmem.text import format_size, plural, printable

NO_LIMIT = 1 << 62  # larger limits mean no limit: allocators write the largest number
_NAMED_ONE_BY_ONE = 3
_MOST_REPLAYED = 100_000  # chunks in use
_OF_A_GPU = ("GPU_", "gpu_")  # names of allocators


def pool_name(allocator: bfc.Allocator) -> str:
    """Return the printable name of the pool."""
    return printable(allocator.name) or "allocator without a name"


def headline(allocator: bfc.Allocator, decision: bfc.Decision | None = None) -> str:
    """Return the answer in one sentence: the pool's sums, and the outcome of a request."""
    text = pool_sentence(allocator)
    return text if decision is None else f"{text}: {decision_sentence(allocator, decision)}"


def pool_sentence(allocator: bfc.Allocator) -> str:
    """Return "300.0 MiB limit, 272.0 MiB in use, 28.0 MiB free in 6 pieces, the largest 14.0 MiB"."""
    parts = []
    limit = allocator.limit_bytes
    if not allocator.is_complete:
        return _sums_sentence(allocator)
    if allocator.kind == bfc.PYTORCH:
        parts.append(f"{format_size(allocator.pool_bytes)} reserved")
    elif limit is None:
        parts.append(f"{format_size(allocator.pool_bytes)} pool")
    elif limit >= NO_LIMIT:
        parts.append(f"no limit, {format_size(allocator.pool_bytes)} pool")
    elif limit == allocator.pool_bytes:
        parts.append(f"{format_size(limit)} limit")
    else:
        parts.append(f"{format_size(limit)} limit, {format_size(allocator.pool_bytes)} pool")
    in_use = "allocated" if allocator.kind == bfc.PYTORCH else "in use"
    parts.append(f"{format_size(allocator.in_use_bytes)} {in_use}")
    if allocator.pending_bytes:
        parts.append(f"{format_size(allocator.pending_bytes)} freed but not yet usable")
    count = allocator.free_count
    if count == 0:
        parts.append("nothing free")
    elif count == 1:
        parts.append(f"{format_size(allocator.free_bytes)} free in one piece")
    else:
        free, largest = format_size(allocator.free_bytes), format_size(allocator.largest_free_bytes)
        parts.append(f"{free} free in {count:,} pieces, the largest {largest}")
    return ", ".join(parts)


def _sums_sentence(allocator: bfc.Allocator) -> str:
    """Describe a pool with missing chunks, by its own counts and its log's bar."""
    counted, limit = allocator.counters, allocator.limit_bytes
    parts = [] if limit is None or limit >= NO_LIMIT else [f"{format_size(limit)} limit"]
    if counted.pool_bytes is not None:
        parts.append(f"{format_size(counted.pool_bytes)} pool")
    if counted.in_use_bytes is not None:
        parts.append(f"{format_size(counted.in_use_bytes)} in use")
        if counted.pool_bytes is not None:
            parts.append(f"{format_size(max(0, counted.pool_bytes - counted.in_use_bytes))} free")
    if len(allocator.chunks):
        used, free = allocator.bytes_in(bfc.IN_USE), allocator.free_bytes
        largest = format_size(allocator.largest_free_bytes)
        parts.append(
            f"listed are {format_size(used)} in use and {format_size(free)} free, the largest {largest}"
        )
    if allocator.bar:
        bar, count = allocator.bar, len(allocator.bar)
        longest = max(map(len, re.findall("_+", bar)), default=0)
        shares = ", ".join(
            f"{100 * bar.count(sign) / count:.0f}% {word}"
            for sign, word in (("*", "in use"), ("x", "unused in chunks in use"), ("_", "free"))
        )
        parts.append(f"of its pool about {shares}, the longest free stretch {100 * longest / count:.0f}%")
    return ", ".join(parts) if parts else "its pool is unknown"


def decision_sentence(allocator: bfc.Allocator, decision: bfc.Decision) -> str:
    """Return the outcome of the request, with the reason."""
    asked = f"a request of {format_size(decision.request_bytes)}"
    if decision.outcome == bfc.NOTHING:
        return f"{asked} returns nothing immediately"
    if decision.outcome == bfc.FITS:
        return f"{asked} fits{_place(allocator, decision)}"
    if decision.outcome == bfc.EXTENDS:
        by = "" if decision.extends_bytes is None else f" by {format_size(decision.extends_bytes)}"
        return f"{asked} makes the pool grow{by}, if the device has as much"
    if decision.outcome == bfc.FAILS:
        return f"{asked} fails{_why(allocator, decision)}"
    return f"the outcome of {asked} is unknown"


def _place(allocator: bfc.Allocator, decision: bfc.Decision) -> str:
    if decision.chunk is None:
        return ""
    size = format_size(allocator.chunks.size[decision.chunk])
    if decision.is_split:
        return f" into a free chunk of {size}, which is split"
    if decision.wasted_bytes < bfc.SMALLEST:
        return f" into a free chunk of {size}"
    return f" into a free chunk of {size}, whole: {format_size(decision.wasted_bytes)} of it stay unused"


def _why(allocator: bfc.Allocator, decision: bfc.Decision) -> str:
    free, available = allocator.free_bytes, allocator.available_bytes or 0
    texts = {
        bfc.ALIGNMENT: f": a free chunk is large enough, but not at an alignment of {decision.alignment}",
        bfc.OTHER_END: ": the free chunks that are large enough belong to the other end of the pool",
        bfc.OTHER_STREAM: ": the free chunks that are large enough, or would be, belong to other streams",
        bfc.DEVICE: f": the limit leaves {_limited(available)}, but the device refused it",
        bfc.IDLE_REGIONS: (
            " by fragmentation: enough is free in regions in which nothing is in use,"
            " but regions are neither joined nor returned"
        ),
        bfc.FRAGMENTATION: " by fragmentation" + _if_freed(allocator, decision),
        bfc.FULL: f": only {format_size(free + available)} are free, or left of the limit"
        f"{_if_freed(allocator, decision)}",
    }
    if not allocator.is_complete:
        return {
            bfc.FRAGMENTATION: (
                " by fragmentation, if the bar is right: it shows as much free, but in no stretch as long"
            ),
            bfc.FULL: ": by the bar less is free",
        }.get(decision.cause, "")
    if allocator.kind == bfc.PYTORCH and decision.cause == bfc.FULL:
        return f": {format_size(free)} are free, and the device refused a new segment{_if_freed(allocator, decision)}"
    return texts.get(decision.cause, "")


def _limited(available: int) -> str:
    return "any room" if available >= NO_LIMIT else format_size(available)


def _if_freed(allocator: bfc.Allocator, decision: bfc.Decision) -> str:
    """Return "; freeing these 2 chunks of 4.0 MiB would be enough"."""
    obstacle = decision.obstacle
    if obstacle is None:
        return f"; no region is as large as {format_size(decision.rounded_bytes)}"
    sizes = [allocator.chunks.size[index] for index in obstacle.in_use]
    if not sizes:
        return ""
    this = "this chunk" if len(sizes) == 1 else f"these {plural(len(sizes), 'chunk')}"
    of = format_size(sizes[0]) if len(set(sizes)) == 1 else f"{format_size(obstacle.in_use_bytes)} together"
    return f"; freeing {this} of {of} would be enough"


def with_advice(allocator: bfc.Allocator, decision: bfc.Decision, request: Request) -> bfc.Decision:
    """Return *decision* with advice; remedies that can be simulated on this pool have been."""
    if decision.outcome != bfc.FAILS or not allocator.is_complete:
        return decision
    advice = [
        *_smaller_request(allocator, decision, request),
        *_one_region(allocator, decision, request),
        *_regions(allocator, request),
        *_limit(allocator, decision, request.device_bytes),
        *_waste(allocator, decision),
    ]
    if decision.cause == bfc.DEVICE:
        advice.append(
            bfc.Advice(
                "device",
                "others hold the device's memory, or it is fragmented: find out which processes use it",
            )
        )
    return decision._replace(advice=tuple(advice))


def _smaller_request(
    allocator: bfc.Allocator, decision: bfc.Decision, request: Request
) -> Sequence[bfc.Advice]:
    """Return the largest request that does not fail, if it is at least half of this one."""
    largest = allocator.largest_free_bytes
    if not request.has_failed:
        largest = max(largest, allocator.available_bytes or 0)
    if not decision.rounded_bytes <= 2 * largest < 2 * decision.rounded_bytes:
        return []
    if decide(allocator, request._replace(bytes=largest)).outcome not in (bfc.FITS, bfc.EXTENDS):
        return []
    text = f"a request of at most {format_size(largest)}, {format_size(request.bytes - largest)} less"
    return [bfc.Advice("smaller-request", text, is_tried=True)]


def _one_region(allocator: bfc.Allocator, decision: bfc.Decision, request: Request) -> Sequence[bfc.Advice]:
    """Return the advice to have the limit as one region, if what is in use now would leave room in it."""
    setting = _where_one_region_is_set(allocator)
    may_grow = allocator.options.allow_growth is not False and len(allocator.regions) > 1
    if not (setting and may_grow and decision.cause in (bfc.FRAGMENTATION, bfc.IDLE_REGIONS)):
        return []
    if allocator.in_use_count > _MOST_REPLAYED:
        return []
    try:
        other = replay(allocator, WhatIf(allow_growth=False))
    except InputError:  # the requested sizes are unknown
        return []
    if decide(other, request._replace(has_failed=False)).outcome != bfc.FITS:
        return []
    text = f"the whole limit as one region ({setting}), in which the chunks now in use would leave enough room at best"
    return [bfc.Advice("allow-growth", text)]


def _where_one_region_is_set(allocator: bfc.Allocator) -> str:
    if allocator.kind == bfc.ONNXRUNTIME:
        return "initial_chunk_size_bytes of the arena"
    if allocator.name.startswith(_OF_A_GPU):
        return (
            "TensorFlow: set_memory_growth(device, False), TF_FORCE_GPU_ALLOW_GROWTH=false;"
            " JAX: XLA_PYTHON_CLIENT_PREALLOCATE=true"
        )
    return ""


def _regions(allocator: bfc.Allocator, request: Request) -> Sequence[bfc.Advice]:
    """Return the advice to return idle regions, if that alone makes the request succeed."""
    if allocator.kind == bfc.PYTORCH or allocator.options.garbage_collection:
        return []
    collecting = replace(allocator, options=allocator.options._replace(garbage_collection=True))
    if decide(collecting, request).outcome != bfc.EXTENDS:
        return []
    how = (
        "shrinking the arena (memory.enable_memory_arena_shrinkage) returns idle regions"
        if allocator.kind == bfc.ONNXRUNTIME
        else "garbage collection of regions (TF_ENABLE_GPU_GARBAGE_COLLECTION=true) returns idle regions"
    )
    return [bfc.Advice("garbage-collection", f"{how}: the request then makes the pool grow", is_tried=True)]


def _limit(
    allocator: bfc.Allocator, decision: bfc.Decision, device_bytes: Optional[int]
) -> Sequence[bfc.Advice]:
    """Return the advice with the necessary increase of the limit."""
    if decision.cause not in (bfc.FRAGMENTATION, bfc.FULL, bfc.IDLE_REGIONS) or allocator.limit_bytes is None:
        return []
    missing = decision.rounded_bytes - (allocator.available_bytes or 0)
    text = (
        f"a limit higher by {format_size(missing)} lets the pool grow, if the device has as much"
        f"{_share(allocator.limit_bytes + missing, device_bytes)} ({_where_limit_is_set(allocator)})"
    )
    if allocator.options.allow_growth is False:
        return [bfc.Advice("limit", f"{text}; all of it is requested when the program starts")]
    return [bfc.Advice("limit", text, is_tried=True)]


def _share(limit: int, device_bytes: Optional[int]) -> str:
    """Return ": fraction=0.65 of the device's 16.0 GiB", rounded up."""
    if not device_bytes:
        return ""
    if limit > device_bytes:
        return f": {format_size(limit)} in all, more than the device has"
    return (
        f": fraction={-(-limit * 100 // device_bytes) / 100:.2f} of the device's {format_size(device_bytes)}"
    )


def _where_limit_is_set(allocator: bfc.Allocator) -> str:
    if allocator.kind == bfc.ONNXRUNTIME:
        return "gpu_mem_limit, or max_mem of the arena"
    if allocator.name.startswith(_OF_A_GPU):
        return (
            "TensorFlow: memory_limit or per_process_gpu_memory_fraction; otherwise it is computed once, at start,"
            " from what the device then has free, less a reserve: 225 MiB of less than 2 GiB, else 500 MiB to 1.8 GiB"
            " by the device's generation, or TF_DEVICE_MIN_SYS_MEMORY_IN_MB; JAX: XLA_PYTHON_CLIENT_MEM_FRACTION"
        )
    if "cpu" in allocator.name:
        return "TF_CPU_BFC_MEM_LIMIT_IN_MB"
    return "it is fixed when the allocator is made"


def _waste(allocator: bfc.Allocator, decision: bfc.Decision) -> Sequence[bfc.Advice]:
    """Return the advice about chunks that are larger than requested, if they waste as much as lacks."""
    asked = allocator.requested_bytes
    if asked is None:
        return []
    wasted = allocator.in_use_bytes - asked
    free = allocator.free_bytes + (allocator.available_bytes or 0) if decision.cause == bfc.FULL else 0
    if wasted < decision.rounded_bytes - free:
        return []
    largest = largest_waste(allocator)
    text = f"{format_size(wasted)} of the chunks in use were not requested: free chunks are taken whole up to"
    return [bfc.Advice("internal-waste", f"{text} twice the request; most in {largest}")]


def largest_waste(allocator: bfc.Allocator) -> str:
    """Return the sizes of chunks in use that waste most, as "3 chunks of 4.0 MiB (1.2 MiB unused)"."""
    chunks = allocator.chunks
    if chunks.requested is None:
        return ""
    wasted: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for size, asked in compress(zip(chunks.size, chunks.requested), allocator.where(bfc.IN_USE)):
        wasted[size] += size - asked
        counts[size] += 1
    return ", ".join(
        f"{plural(counts[size], 'chunk')} of {format_size(size)} ({format_size(waste)} unused)"
        for size, waste in wasted.most_common(_NAMED_ONE_BY_ONE)
    )
