"""Pools of BFC allocators in the resident set: live, wasted and free parts of their regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gdbmem.errors import Notice
from gdbmem.ledger.division import Division, Key
from gdbmem.model.bfc import FREE, Allocator, Region
from gdbmem.model.ledger import BFC, FREE_CHUNKS, INTERNAL_WASTE, LIVE

_LIVE, _WASTE, _FREE = (BFC, LIVE), (BFC, INTERNAL_WASTE), (BFC, FREE_CHUNKS)


@dataclass
class PoolClaims:
    """The share of the pools in a process's memory. Sizes are bytes, resident or not."""

    allocated: Counter[Key] = field(default_factory=Counter)
    taken: Counter[Key] = field(default_factory=Counter)  # from live blocks of malloc's arenas
    regions: list[tuple[int, int]] = field(default_factory=list)  # claimed outside the arenas
    details: dict[Key, dict[str, object]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)


def claim_pools(
    division: Division, pools: Iterable[Allocator], arenas: Sequence[tuple[int, int, Key]]
) -> PoolClaims:
    """Assign the regions of *pools* to their entries.

    *arenas* are malloc's, claimed already, each with the key of its live blocks: regions in one are moved from these.
    Regions elsewhere that others have claimed, those outside this process's memory, and pools whose chunks aren't
    contiguous are left unchanged.
    """
    claims = PoolClaims()
    found: list[dict[str, object]] = []
    for pool in pools:
        regions = pool.regions if pool.is_complete else ()
        held = sum(_claim(division, pool, region, arenas, claims) for region in regions)
        if held:
            found.append({"name": pool.name, "regions": held, "in_use_bytes": pool.in_use_bytes})
        claims.notices += _doubts(pool)
    if found:
        claims.details[_LIVE] = {"pools": found}
    return claims


def _claim(
    division: Division,
    pool: Allocator,
    region: Region,
    arenas: Sequence[tuple[int, int, Key]],
    claims: PoolClaims,
) -> bool:
    start, end = region.address, region.end
    if not any(division.mappings[number].is_anonymous for number in division.mappings_in(start, end)):
        return False  # on a device, or mapped from one
    pieces = list(_pieces(pool, region))
    owner = next((key for low, high, key in arenas if low <= start and end <= high), None)
    if owner is not None:
        division.move_pieces(start, pieces, owner)
        claims.taken[owner] += region.size_bytes
    elif division.claim_pieces(start, pieces):
        claims.regions.append((start, end))
    else:
        return False
    for stop, key in pieces:
        claims.allocated[key] += stop - start
        start = stop
    return True


def _pieces(pool: Allocator, region: Region) -> Iterator[tuple[int, Key]]:
    """Yield the end and the kind of each piece of *region*, in order."""
    chunks = pool.chunks
    for index in region.indices:
        address, size = chunks.address[index], chunks.size[index]
        if chunks.state[index] == FREE:
            yield address + size, _FREE
            continue
        asked = chunks.requested_of(index)
        asked = size if asked is None else min(asked, size)
        if asked:
            yield address + asked, _LIVE
        if asked < size:
            yield address + size, _WASTE


def _doubts(pool: Allocator) -> Iterator[Notice]:
    yield from (notice for notice in pool.notices if notice.slug == "bfc-locked")
    for broken in pool.violations[:1]:
        name = pool.name or "a pool without a name"
        text = f"{name} is inconsistent, so its live part is uncertain: {broken.text}"
        yield Notice("bfc-contradiction", text)
