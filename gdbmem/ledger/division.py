"""Dividing each mapping's resident bytes among claims, which always add up to its Rss.

BFC pools, and the heaps of mallocs other than glibc's, are claimed here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators import malloc_heap
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, TCACHE, HeapTally
from gdbmem.allocators.malloc_heap import LARGE, SLAB, MallocHeap
from gdbmem.arrays import counts_between, distinct, import_numpy
from gdbmem.errors import Notice
from gdbmem.linux.memory.maps import Mapping, Ranges, address_column
from gdbmem.model import ledger as names
from gdbmem.model.ledger import LAZILY_FREED, BlockSize, OtherMalloc, Share

if TYPE_CHECKING:
    from gdbmem.model.bfc import Allocator, Region

Key = tuple[str, str]


class Division:
    """The resident set being divided: mappings, their resident pages, and the claims."""

    def __init__(self, mappings: Sequence[Mapping], resident: Ranges) -> None:
        self.mappings = sorted(mappings, key=lambda m: m.start)
        # Pages of hugetlbfs are present, and not part of Rss.
        self.resident = _without_hugetlb(self.mappings, resident)
        self.parts: list[dict[Key, int]] = [{} for _ in self.mappings]
        self._starts = [m.start for m in self.mappings]
        self._taken: list[tuple[int, int]] = []

    def mappings_in(self, start: int, end: int) -> Iterator[int]:
        """Yield the numbers of the mappings that overlap ``[start, end)``."""
        number = max(bisect_left(self._starts, start + 1) - 1, 0)
        while number < len(self.mappings) and self.mappings[number].start < end:
            if self.mappings[number].end > start:
                yield number
            number += 1

    def free_parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the unclaimed parts of ``[start, end)``."""
        number = max(bisect_left(self._taken, (start, start)) - 1, 0)
        pieces = []
        while number < len(self._taken) and self._taken[number][0] < end:
            low, high = self._taken[number]
            if high > start:
                if low > start:
                    pieces.append((start, low))
                start = high
            number += 1
        if start < end:
            pieces.append((start, end))
        return pieces

    def claim(self, start: int, end: int, key: Key) -> int:
        """Assign the unclaimed parts of ``[start, end)`` to *key*; return their resident bytes."""
        total = 0
        for low, high in self.free_parts(start, end):
            for number in self.mappings_in(low, high):
                mapping = self.mappings[number]
                size = self.resident.within(max(low, mapping.start), min(high, mapping.end))
                self._add(number, key, size)
                total += size
            insort(self._taken, (low, high))
        return total

    def claim_divided(self, start: int, end: int, sizes: Sequence[tuple[Key, int]], rest: Key) -> None:
        """Assign the unclaimed resident bytes of ``[start, end)`` to the keys of *sizes*, to each that many bytes.

        The remainder goes to *rest*; if there are too few bytes, the last keys get less.
        """
        whole = end - start
        for low, high in self.free_parts(start, end):
            for number in self.mappings_in(low, high):
                mapping = self.mappings[number]
                begin, stop = max(low, mapping.start), min(high, mapping.end)
                left = self.resident.within(begin, stop)
                for key, size in sizes:
                    part = min(size * (stop - begin) // whole, left)
                    self._add(number, key, part)
                    left -= part
                self._add(number, rest, left)
            insort(self._taken, (low, high))

    def claim_pieces(self, start: int, pieces: Iterable[tuple[int, Key]]) -> bool:
        """Assign the consecutive *pieces* from *start* on, given by their ends, to their keys.

        Returns False, and assigns nothing, if part of it is claimed already.
        """
        pieces = list(pieces)
        end = pieces[-1][0] if pieces else start
        if start >= end or self.free_parts(start, end) != [(start, end)]:
            return False
        self._divide(start, end, pieces, None)
        insort(self._taken, (start, end))
        return True

    def move_pieces(self, start: int, pieces: Iterable[tuple[int, Key]], owner: Key) -> None:
        """Move the consecutive *pieces* from *start* on, given by their ends, from *owner* to their keys."""
        pieces = list(pieces)
        if pieces and start < pieces[-1][0]:
            self._divide(start, pieces[-1][0], pieces, owner)

    def _divide(self, start: int, end: int, pieces: Sequence[tuple[int, Key]], owner: Optional[Key]) -> None:
        at = 0
        for number in self.mappings_in(start, end):
            mapping, low = self.mappings[number], max(start, self.mappings[number].start)
            while at < len(pieces) and low < mapping.end:
                stop, key = pieces[at]
                size = self.resident.within(low, min(stop, mapping.end))
                if owner is not None:
                    size = min(size, self.parts[number].get(owner, 0))
                    self._add(number, owner, -size)
                self._add(number, key, size)
                low = min(stop, mapping.end)
                if stop > mapping.end:
                    break
                at += 1

    def claim_spans(
        self, starts: Any, ends: Any, parts: Sequence[tuple[Key, Any]], rest: Sequence[Key], which: Any
    ) -> Any:
        """Assign the unclaimed resident bytes of many spans, which don't overlap; columns of numpy.

        Each of *parts* is a key, and how many bytes of each span are that key's, the first ones before the others; the
        remainder of a span goes to the key of *rest* whose number it has in *which*. Returns these remainders.
        """
        np = import_numpy()
        low, high, span = self._pieces_of(starts, ends)
        starts_of, taken = address_column(self._starts), Ranges(self._taken).bounds
        number = np.repeat(np.arange(-1, len(starts_of)), counts_between(starts_of, low))
        is_free = np.repeat(np.arange(len(taken) + 1) % 2 == 0, counts_between(taken, low))
        is_free &= (number >= 0) & (low < address_column(m.end for m in self.mappings)[number])
        if not is_free.all():
            low, high, span, number = low[is_free], high[is_free], span[is_free], number[is_free]
        left = self.resident.within_each(low, high, in_order=True)
        whole, length = (ends - starts)[span], high - low
        is_part = np.flatnonzero(length < whole)
        firsts = np.flatnonzero(np.diff(number, prepend=-1))  # in each mapping: they are in order of address
        for key, sizes in parts:
            part = sizes[span]
            part[is_part] = part[is_part] * length[is_part] // whole[is_part]
            part = np.minimum(part, left)
            self._add_each(number[firsts], firsts, key, part)
            left = left - part
        which = which[span]
        for at in np.flatnonzero(np.bincount(which)).tolist():
            self._add_each(number[firsts], firsts, rest[at], np.where(which == at, left, 0))
        if len(low):
            apart = np.flatnonzero(low[1:] != high[:-1])
            for piece in zip(low[np.append(0, apart + 1)].tolist(), high[np.append(apart, -1)].tolist()):
                insort(self._taken, piece)
        return np.bincount(span, left, len(starts)).astype(np.int64)

    def _pieces_of(self, starts: Any, ends: Any) -> tuple[Any, Any, Any]:
        """Return start, end and span of pieces of spans: each is in one mapping, and is claimed as a whole."""
        np = import_numpy()
        if not len(starts):
            return starts, ends, starts
        bounds = [at for m in self.mappings for at in (m.start, m.end)]
        cuts = distinct(address_column([*bounds, *(at for taken in self._taken for at in taken)]))
        span = np.searchsorted(starts, cuts, "right") - 1
        inside = (span >= 0) & (starts[span] < cuts) & (cuts < ends[span])
        cuts, span = cuts[inside], span[inside]
        return (
            np.insert(starts, span + 1, cuts),
            np.insert(ends, span, cuts),
            np.insert(np.arange(len(starts)), span + 1, span),
        )

    def _add_each(self, numbers: Any, firsts: Any, key: Key, sizes: Any) -> None:
        """Add *sizes* to *key*: those from each of *firsts* on are in the mapping of *numbers* beside it."""
        if len(firsts):
            sums = import_numpy().add.reduceat(sizes, firsts)
            for number, size in zip(numbers.tolist(), sums.tolist()):
                self._add(number, key, size)

    def claim_tally(
        self, tally: HeapTally, end: int, releasable: Sequence[tuple[int, int]], keys: dict[str, Key]
    ) -> dict[str, int]:
        """Divide a heap region among live, free, … by the bytes on its resident pages.

        *releasable* are the pages of this region that malloc_trim would return. Returns the resident bytes
        of each part.
        """
        totals: dict[str, int] = dict.fromkeys(keys, 0)
        for number in self.mappings_in(tally.start, end):
            mapping = self.mappings[number]
            low, high = max(tally.start, mapping.start), min(end, mapping.end)
            sums, headers = tally.sums(self.resident.overlaps(low, high))
            freed, cached = self._releasable(tally, releasable, low, high)
            parts = {
                "metadata": headers * 8,
                "live": sums[LIVE] - headers * 8,
                "cached": sums[TCACHE] + sums[FASTBIN] - cached,
                "releasable": freed,
                "pinned": sums[FREE] - (freed - cached),
            }
            for name, size in parts.items():
                self._add(number, keys[name], size)
                totals[name] += size
        insort(self._taken, (tally.start, end))
        return totals

    def _releasable(
        self, tally: HeapTally, ranges: Sequence[tuple[int, int]], low: int, high: int
    ) -> tuple[int, int]:
        """Return the resident bytes of *ranges* in ``[low, high)``, and those of them in fastbins."""
        total = cached = 0
        first = bisect_left(ranges, (low, 0))
        for start, end in ranges[max(first - 1, 0) :]:
            if start >= high:
                break
            if end <= low:
                continue
            pieces = list(self.resident.overlaps(max(start, low), min(end, high)))
            sums, _ = tally.sums(pieces)
            total += sum(stop - begin for begin, stop in pieces)
            cached += sums[FASTBIN]
        return total, cached

    def _add(self, number: int, key: Key, size: int) -> None:
        if size:
            parts = self.parts[number]
            parts[key] = parts.get(key, 0) + size

    def settle(self, number: int, key: Key) -> int:
        """Assign the rest of mapping *number* to *key*; return by how much its claims exceeded its Rss.

        Lazily freed pages of the rest have a separate entry. Claims exceed the Rss if the kernel can't distinguish zero
        pages, or if the process wasn't stopped.
        """
        mapping, parts = self.mappings[number], self.parts[number]
        rest = mapping.rss_bytes - sum(parts.values())
        if rest >= 0:
            # The kernel counts these pages, but does not show which ones they are.
            lazy = min(rest, mapping.lazily_freed_bytes)
            self._add(number, (LAZILY_FREED, key[0].partition("allocator.")[2]), lazy)
            self._add(number, key, rest - lazy)
            return 0
        # The largest claims are reduced first: the sum is right, and the caller reports the possible error.
        excess = -rest
        for owner in sorted(parts, key=lambda k: -parts[k]):
            cut = min(excess, parts[owner])
            parts[owner] -= cut
            excess -= cut
        return -rest

    def shares(self) -> list[Share]:
        return [
            Share(m.start, m.end, m.name, m.rss_bytes, parts) for m, parts in zip(self.mappings, self.parts)
        ]


def _without_hugetlb(mappings: Sequence[Mapping], resident: Ranges) -> Ranges:
    if not any(mapping.hugetlb_bytes for mapping in mappings):
        return resident
    counted = [mapping for mapping in mappings if mapping.rss_bytes]
    return Ranges(piece for m in counted for piece in resident.overlaps(m.start, m.end))


def areas_to_scan(mappings: Sequence[Mapping]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the anonymous areas whose resident pages must be queried, and those that are fully resident."""
    partial: list[tuple[int, int]] = []
    whole: list[tuple[int, int]] = []
    for mapping in mappings:
        if not mapping.is_anonymous or not mapping.rss_bytes:
            continue
        (whole if mapping.rss_bytes == mapping.size_bytes else partial).append((mapping.start, mapping.end))
    return partial, whole


# Pools of BFC allocators in the resident set: live, wasted and free parts of their regions.


_LIVE, _WASTE = (names.BFC, names.LIVE), (names.BFC, names.INTERNAL_WASTE)
_FREE = (names.BFC, names.FREE_CHUNKS)


class PoolClaims:
    """The share of the pools in a process's memory. Sizes are bytes, resident or not."""

    def __init__(self) -> None:
        self.allocated: Counter[Key] = Counter()
        self.taken: Counter[Key] = Counter()  # from live blocks of malloc's arenas
        self.regions: list[tuple[int, int]] = []  # claimed outside the arenas
        self.details: dict[Key, dict[str, object]] = {}
        self.notices: list[Notice] = []


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
    from gdbmem.model import bfc  # few processes have pools

    chunks = pool.chunks
    for index in region.indices:
        address, size = chunks.address[index], chunks.size[index]
        if chunks.state[index] == bfc.FREE:
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
        _claim_heap(division, heap, suffix, claims)
    return claims


def _claim_heap(division: Division, heap: MallocHeap, suffix: str, claims: MallocClaims) -> None:
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
