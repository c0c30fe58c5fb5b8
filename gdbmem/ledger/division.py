"""Dividing each mapping's resident bytes among claims, BFC pools among them, which always add up to its Rss."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, TCACHE, HeapTally
from gdbmem.arrays import counts_between, distinct, import_numpy
from gdbmem.errors import Notice
from gdbmem.linux.memory.maps import Mapping, Ranges, address_column
from gdbmem.model import ledger as names
from gdbmem.model.ledger import LAZILY_FREED, Share

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
