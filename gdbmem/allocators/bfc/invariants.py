"""The invariants of a BFC allocator, and checks for violations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Optional

from gdbmem.allocators.bfc.layout import NONE
from gdbmem.model.bfc.pools import FREE, GAP, IN_USE, Allocator, Region, Violation, bin_of

if TYPE_CHECKING:
    from gdbmem.allocators.bfc.walk import RawPool


def check_handles(raw: RawPool, order: Sequence[int], regions: Sequence[Region]) -> Iterator[Violation]:
    """Yield the places where a region's handles don't match the chunks found by the walk."""
    step = raw.layout.chunk_stride >> 3
    addresses = raw.slots[3::step]
    for region, handles in zip(regions, raw.handles):
        if handles is None:
            continue
        met = order[region.first : region.first + region.count]
        lost = next((h for h in met if _entry(handles, addresses[h] - region.address) != h), None)
        named = len(handles) - handles.count(NONE)
        if lost is not None:
            text = f"no handle leads to chunk {lost} at 0x{addresses[lost]:x}"
            yield Violation("handles-name-chunks", text)
        elif named != len(met):
            text = f"the region at 0x{region.address:x} has {named} handles and {len(met)} chunks"
            yield Violation("handles-name-chunks", text)


def _entry(handles: Sequence[int], offset: int) -> Optional[int]:
    return handles[offset >> 8] if offset >> 8 < len(handles) else None


def check_allocator(allocator: Allocator, next_id: Optional[int]) -> Iterator[Violation]:
    """Yield each violated rule, with the first contradiction of each kind, in a fixed order."""
    if not allocator.is_complete:
        return
    yield from _sums(allocator)
    yield from _ids(allocator, next_id)
    yield from _bins(allocator)
    yield from _merged(allocator)


def _sums(allocator: Allocator) -> Iterator[Violation]:
    counted = allocator.counters
    in_use, pool = allocator.in_use_bytes, allocator.pool_bytes + allocator.reserved_bytes
    if counted.in_use_bytes is not None and counted.in_use_bytes != in_use:
        text = f"chunks of {in_use} bytes are in use, and {counted.in_use_bytes} are counted"
        yield Violation("in-use-counted", text)
    if counted.pool_bytes is not None and counted.pool_bytes != pool:
        yield Violation("pool-counted", f"regions have {pool} bytes, and {counted.pool_bytes} are counted")


def _ids(allocator: Allocator, next_id: Optional[int]) -> Iterator[Violation]:
    ids = allocator.chunks.allocation_id
    if ids is None:
        return
    used = list(compress(ids, allocator.where(IN_USE)))
    if len(set(used)) != len(used):
        yield Violation("ids-unique", "two chunks have the same allocation id")
    if next_id is not None and used and max(used) >= next_id:
        yield Violation(
            "ids-below-next", f"a chunk has the allocation id {max(used)}, and {next_id} is the next one"
        )


def _bins(allocator: Allocator) -> Iterator[Violation]:
    chunks = allocator.chunks
    if chunks.bin is None:
        return
    for index, (number, size, state) in enumerate(zip(chunks.bin, chunks.size, chunks.state)):
        is_gap = chunks.tag is not None and chunks.tag[index] == GAP
        expected = bin_of(size) if state == FREE and not is_gap else -1
        if number != expected:
            place = f"the chunk at 0x{chunks.address[index]:x}"
            yield Violation("bin-by-size", f"{place} is in bin {number}, and belongs to {expected}")
            return


def _merged(allocator: Allocator) -> Iterator[Violation]:
    chunks = allocator.chunks
    for region in allocator.regions:
        before = IN_USE
        for index in region.indices:
            state = chunks.state[index]
            if state == before == FREE and _mergeable(allocator, index - 1, index):
                text = f"the chunk at 0x{chunks.address[index]:x} and the one before it are free"
                yield Violation("neighbours-merged", text)
                return
            before = state


def _mergeable(allocator: Allocator, one: int, other: int) -> bool:
    chunks = allocator.chunks
    if chunks.freed_at is not None and (chunks.freed_at[one] or chunks.freed_at[other]):
        return False
    columns = (chunks.tag, chunks.stream)
    return all(column is None or column[one] == column[other] for column in columns)
