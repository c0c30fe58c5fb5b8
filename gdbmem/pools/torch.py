"""The decision of PyTorch's caching allocator on a request, by the blocks of a snapshot.

Source: c10/cuda/CUDACachingAllocator.cpp: blocks of small (up to 1 MiB) and large requests, of each stream and of each
private pool, never serve each other; what no free block can serve needs a new segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from gdbmem.model import bfc
from gdbmem.pools.decision import Request, smallest_obstacle
from gdbmem.text import format_size, plural

_ROUNDED_TO = 512
_SMALL = 1 << 20  # requests up to this come from small segments
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 << 20, 20 << 20
_OWN_SEGMENT = 10 << 20  # requests from this size on get a segment of exactly their size
_SEGMENTS_ROUNDED_TO = 2 << 20


def decide_torch(allocator: bfc.Allocator, request: Request) -> bfc.Decision:
    """Return the outcome of *request*; for one that failed the reason, from the blocks of its snapshot."""
    need = max(_ROUNDED_TO, -(-request.bytes // _ROUNDED_TO) * _ROUNDED_TO)
    base = bfc.Decision(request.bytes, _ROUNDED_TO, need, bfc.UNDECIDED)
    usable = [
        region
        for region in allocator.regions
        if bfc.is_small(region) == (need <= _SMALL) and not bfc.is_private(region)
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
        return base._replace(outcome=bfc.FITS, chunk=best, taken_bytes=need, steps=steps)
    segment = _segment_bytes(need)
    if not request.has_failed:
        steps.append(f"it requests from the device a segment of {format_size(segment)}")
        return base._replace(outcome=bfc.EXTENDS, extends_bytes=segment, taken_bytes=need, steps=steps)
    steps.append(f"the device refused a segment of {format_size(segment)}")
    total = sum(allocator.chunks.size[index] for index in free)
    cause = bfc.OTHER_STREAM if fitting else bfc.FRAGMENTATION if total >= need else bfc.FULL
    obstacle = None if fitting else smallest_obstacle(replace(allocator, regions=usable), need)
    decision = base._replace(outcome=bfc.FAILS, cause=cause, obstacle=obstacle, steps=steps)
    return decision._replace(advice=_advice(usable, cause, total))


def _free(allocator: bfc.Allocator, regions: Sequence[bfc.Region]) -> Sequence[int]:
    state = allocator.chunks.state
    return [index for index in chain.from_iterable(r.indices for r in regions) if state[index] == bfc.FREE]


def _free_sentence(allocator: bfc.Allocator, free: Sequence[int], kind: str) -> str:
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


def _advice(usable: Sequence[bfc.Region], cause: str, free_bytes: int) -> Sequence[bfc.Advice]:
    if cause != bfc.FRAGMENTATION or any(bfc.EXPANDABLE in region.label for region in usable):
        return ()
    text = (
        f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, where pieces of {format_size(free_bytes)} in all"
        " that are free in different segments could be mapped as one"
    )
    return (bfc.Advice("expandable-segments", text),)


# Who has the memory that PyTorch could not get, and what would have been enough.


_OVERFLOW = 1.05  # a device's whole capacity, and rounding: no process has more
_SAME = 1.02  # of what PyTorch holds and the context of CUDA, by rounding


def account_sentence(account: bfc.TorchAccount) -> str:
    """Return the account as a sentence: the parts of the memory, and why the request failed."""
    return f"{_parts(account)}: {_reason(account)}"


def _parts(account: bfc.TorchAccount) -> str:
    held = f"PyTorch holds {format_size(account.held)}"
    if account.unused is not None:
        held += f" ({format_size(account.allocated)} allocated, {format_size(account.unused)} unused)"
    parts = [held]
    if account.private is not None:
        parts[0] += f", {format_size(account.private)} of it in private pools"
    beside = account.own - account.held if account.own is not None else 0
    if beside > 0:
        parts.append(f"other libraries of the process and the device's context {format_size(beside)}")
    others, unsure = _others(account)
    if others:
        of = plural(len(others), "other process", "other processes")
        parts.append(f"{of} {format_size(sum(size for _, size in others))}")
    parts += unsure
    if account.free is not None:
        parts.append(f"free are {format_size(account.free)}")
    whole = f" of {format_size(account.capacity)}" if account.capacity is not None else ""
    return f"the device's memory{whole}: {', '.join(parts)}"


def _others(account: bfc.TorchAccount) -> tuple[Sequence[tuple[int, int]], Sequence[str]]:
    """Return the other processes, and remarks on those that are this one, or nobody's."""
    others, remarks = [], []
    for pid, size in account.processes:
        if account.capacity is not None and size > account.capacity * _OVERFLOW:
            remarks.append(f"of process {pid} the driver knows no amount")
        elif account.own is None and size * _SAME >= account.held and _fills(account, size):
            remarks.append(f"process {pid} ({format_size(size)}) is this one itself, by another number")
        else:
            others.append((pid, size))
    return others, remarks


def _fills(account: bfc.TorchAccount, size: int) -> bool:
    """Return whether *size* is this process's: beside it, and what is free, the device has no room for PyTorch's."""
    if account.capacity is None or account.free is None:
        return False
    return account.capacity - account.free - size < account.held


def _reason(account: bfc.TorchAccount) -> str:
    asked, unused, free = account.asked, account.unused or 0, account.free
    wanted = f"the request of {format_size(asked)}"
    if account.is_limited:
        limit = format_size(account.allowed or 0)
        return f"{wanted} exceeds the {limit} that the process may use, not the device"
    if free is not None and free >= asked:
        return f"{wanted} is less than what is free, which was read after the refusal"
    if unused + (free or 0) >= asked:
        with_free = " and the free memory together are" if unused < asked else " alone is"
        remedy = "expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF joins the pieces"
        return f"the unused memory{with_free} enough for {wanted}, but in pieces: {remedy}"
    available = format_size(unused + (free or 0))
    others = sum(size for _, size in _others(account)[0])
    if free is not None and others and unused + free + others >= asked:
        return f"{wanted} exceeds the {available} that are unused or free: the rest is other processes'"
    return f"{wanted} exceeds the {available} that are unused{' or free' if free is not None else ''}"
