"""Adding blocks of chunks to a tally with numpy: sizes, bytes on each page, free runs, pinned bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.tallies import (
    FASTBIN,
    FREE,
    LIVE,
    PAGE,
    STATES,
    TCACHE,
    Cached,
    HeapTally,
    LinkSums,
    has_pages,
)
from gdbmem.allocators.glibc.trails import UNIT, HeapChunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Units = NDArray[np.int64]

_PER_PAGE = PAGE // UNIT
_SMALL = 1 << 13  # sizes below 128 KiB are counted by table, in units


class PageSums:
    """Fills *tally*, block by block. Most chunks are live: only the others are processed one by one."""

    def __init__(self, np: Any, tally: HeapTally, cached: Cached, links: LinkSums) -> None:
        self.np, self.tally, self.cached, self.links = np, tally, cached, links
        self.pages = np.frombuffer(tally.pages, dtype=np.uint16).reshape(-1, STATES)
        self.headers = np.frombuffer(tally.headers, dtype=np.uint16)
        self.reached = np.frombuffer(tally.reached, dtype=np.uint8)
        self.counts = np.zeros((_SMALL, STATES), dtype=np.int64)
        self.pinned = np.zeros(_SMALL)
        self.found = 0  # cached chunks encountered
        self.waiting: Units = np.empty(0, dtype=np.int64)  # sizes of the live chunks that lie on …
        self.waiting_page = 0  # … the current page of the chain

    def add(self, chunks: HeapChunks) -> None:
        """Add *chunks*, which follow those added before."""
        self.base, self.at, self.size, self.end = chunks.base, chunks.at, chunks.sizes, chunks.end
        self.offset = (self.base - self.tally.base) // PAGE  # the block's first page as a page of the region
        self._find_others(chunks.flags, chunks.next_head)
        self.links.add(chunks, self.kinds[FREE])
        self._count_sizes()
        self._fill_pages()
        self._share_pins()
        self._find_runs()

    def finish(self) -> None:
        """Transfer the tables to the tally."""
        self.tally.beside_end = (self.waiting * UNIT).tolist()
        self._charge_waiting()
        tally = self.tally
        self.counts[0] = self.pinned[0] = 0
        for units in self.np.flatnonzero(self.counts.any(axis=1)).tolist():
            for state, count in enumerate(self.counts[units].tolist()):
                if count:
                    self._count(units, state, count)
        for units in self.np.flatnonzero(self.pinned).tolist():
            self._pin(units, float(self.pinned[units]))
        tally.strays += len(self.cached.tcache) + len(self.cached.fastbins) - self.found

    def _count(self, units: int, state: int, chunks: int) -> None:
        tally = self.tally
        tally.chunks[state] += chunks
        tally.bytes[state] += chunks * units * UNIT
        tally.sizes.setdefault(units * UNIT, [0] * STATES)[state] += chunks

    def _pin(self, units: int, share: float) -> None:
        self.tally.pinned[units * UNIT] = self.tally.pinned.get(units * UNIT, 0.0) + share

    def _find_others(self, flags: Any, next_head: int) -> None:
        """Find the chunks that are not live, in order, by state and together."""
        np = self.np
        free = np.flatnonzero(flags & 1 == 0) - 1  # a chunk's flag is in the size word of the next
        if len(free) and free[0] < 0:
            free = free[1:]  # it belongs to the previous block
        if not next_head & 1:
            free = np.append(free, len(self.at) - 1)
        self.others: Units = free
        self.kinds: dict[int, Units] = {FREE: free}
        here = self.cached.between(self.base + UNIT * int(self.at[0]), self.base + UNIT * self.end)
        for addresses, state in ((here.tcache, TCACHE), (here.fastbins, FASTBIN)):
            if len(addresses):
                self.kinds[state] = self._indexes(addresses)
                self.found += len(self.kinds[state])
                self.others = _merged(np, self.others, self.kinds[state], len(self.at))

    def _indexes(self, addresses: Any) -> Units:
        """Return which of the block's chunks begin at *addresses*, and are not already known as not live."""
        np = self.np
        units = (np.frombuffer(addresses, dtype=np.int64) - self.base) >> 4
        there = np.zeros(int(self.at[-1]) + 1, dtype=bool)
        there[units[units < len(there)]] = True
        there[self.at[self.others]] = False
        found: Units = np.flatnonzero(there[self.at])
        return found

    # -- sizes --------------------------------------------------------------------------------------------

    def _count_sizes(self) -> None:
        np = self.np
        least, most = int(self.size.min()), int(self.size.max())
        self.live = self.size
        if len(self.others):
            self.live = self.size.copy()
            self.live[self.others] = 0  # nothing has size 0
        self.small, self.large = self.live, []
        if most >= _SMALL:
            self.large = np.flatnonzero(self.live >= _SMALL).tolist()
            self.small = np.where(self.live < _SMALL, self.live, 0)
            for index in self.large:
                self._count(int(self.live[index]), LIVE, 1)
        if least == most < _SMALL:
            self.counts[least, LIVE] += len(self.size) - len(self.others)
        else:
            self._add_counts(self.small, LIVE)
        for state, mine in self.kinds.items():
            sizes = self.size[mine]
            if most >= _SMALL:
                for units in sizes[sizes >= _SMALL].tolist():
                    self._count(units, state, 1)
                sizes = sizes[sizes < _SMALL]
            self._add_counts(sizes, state)

    def _add_counts(self, sizes: Units, state: int) -> None:
        counts = self.np.bincount(sizes)
        self.counts[: len(counts), state] += counts

    # -- pages --------------------------------------------------------------------------------------------

    def _fill_pages(self) -> None:
        """Add each chunk's bytes to its pages, and count the live ones that begin there.

        Chunks are adjacent, so pages are full except at the ends of the block: bytes of no other chunk are live.
        """
        np = self.np
        self.first, last = int(self.at[0]) // _PER_PAGE, (self.end - 1) // _PER_PAGE
        edges = np.arange(self.first, last + 2, dtype=np.int64) * _PER_PAGE
        edges[0], edges[-1] = self.at[0], self.end
        rows = slice(self.offset + self.first, self.offset + last + 1)
        pages = self.pages[rows]
        live = edges[1:] - edges[:-1]
        self.before: Units = np.searchsorted(self.at, edges)  # number of chunks that begin before each edge
        begun = self.before[1:] - self.before[:-1]
        self._note_over(edges[1:-1], rows)
        for state, mine in self.kinds.items():
            if len(mine):
                at = self.at[mine]
                before = np.searchsorted(at, edges)
                begun -= before[1:] - before[:-1]
                held = self._held(at, self.size[mine], edges, before)
                live -= held
                pages[:, state] += (held * UNIT).astype(np.uint16)
        pages[:, LIVE] += (live * UNIT).astype(np.uint16)
        self.headers[rows] += begun.astype(np.uint16)

    def _note_over(self, edges: Units, rows: slice) -> None:
        """Find the chunk that spans each of *edges*, between two pages, if one does."""
        over = self.before[1:-1] - 1
        lies_over = self.at[over] + self.size[over] > edges
        self.over: Units = self.np.where(lies_over, self.small[over], 0)
        self.reached[rows][1:] |= lies_over & (self.live[over] > 0)

    def _held(self, at: Units, size: Units, edges: Units, before: Units) -> Units:
        """Return the bytes of the chunks *at* between each two *edges*, given the number that begin *before* each."""
        np = self.np
        sums, ends = np.zeros(len(at) + 1, dtype=np.int64), np.zeros(len(at) + 1, dtype=np.int64)
        np.cumsum(size, out=sums[1:])
        np.add(at, size, out=ends[1:])
        until = sums[before] - np.maximum(ends[before] - edges, 0)
        held: Units = until[1:] - until[:-1]
        return held

    def _share_pins(self) -> None:
        """Charge the free bytes of each page to the live chunks on it, in equal shares.

        The current page of the chain waits: free chunks may follow.
        """
        left = self.end // _PER_PAGE  # pages before this one are complete
        count = int(self.before[left - self.first])
        if left > self.first and len(self.waiting):
            self._charge_waiting()
        if count:
            self._charge(count, left)
        over = left > self.first and int(self.at[count - 1] + self.size[count - 1]) > left * _PER_PAGE
        live = self.live[count - over :]
        self.waiting = self.np.append(self.waiting, live[live > 0])
        self.waiting_page = self.offset + left

    def _charge(self, count: int, left: int) -> None:
        np = self.np
        rows = slice(self.offset + self.first, self.offset + left)
        free = self.pages[rows, FREE]
        if not free.any():
            return
        each = free / np.maximum(self.headers[rows] + self.reached[rows], 1)
        begun = self.before[1:] - self.before[:-1]
        shares = np.repeat(each, begun[: left - self.first])
        sums = np.bincount(self.small[:count], weights=shares)
        self.pinned[: len(sums)] += sums
        sums = np.bincount(self.over[: len(each) - 1], weights=each[1:])
        self.pinned[: len(sums)] += sums
        for index in self.large:
            begin, end = int(self.at[index]), int(self.at[index] + self.size[index])
            for page in (begin // _PER_PAGE - self.first, (end - 1) // _PER_PAGE - self.first):
                if page < len(each) and each[page]:
                    self._pin(end - begin, float(each[page]))

    def _charge_waiting(self) -> None:
        if not len(self.waiting):
            return
        share = self.tally.shared_free(self.waiting_page)
        if share:
            for units in self.waiting.tolist():
                self._pin(units, share)
        self.waiting = self.waiting[:0]

    def _find_runs(self) -> None:
        """Keep the runs of adjacent free chunks that contain whole pages."""
        np, tally, base = self.np, self.tally, self.base
        free = self.kinds[FREE]
        if FASTBIN in self.kinds:  # malloc_trim empties these first
            free = _merged(np, free, self.kinds[FASTBIN], len(self.at))
        if tally.pending and not (len(free) and free[0] == 0):
            tally.end_run(base + UNIT * int(self.at[0]))
        if not self._has_free_page():
            free = self._at_the_ends(free)
        if not len(free):
            return
        apart = np.flatnonzero(np.diff(free) != 1)
        begins, ends = free[np.append(0, apart + 1)], free[np.append(apart, len(free) - 1)]
        low, high = self.at[begins], self.at[ends] + self.size[ends]
        long = high - low >= _PER_PAGE  # shorter ones contain no whole page; those at the ends may continue
        long[0] = long[-1] = True
        long = np.flatnonzero(long)
        low, high, ends = low[long] * UNIT + base, high[long] * UNIT + base, ends[long]
        if tally.pending:
            low[0] = tally.pending
        tally.pending = 0
        if ends[-1] == len(self.at) - 1:
            tally.pending = int(low[-1])
            low, high = low[:-1], high[:-1]
        kept = has_pages(low, high)  # column by column
        tally.runs.extend(zip(low[kept].tolist(), high[kept].tolist()))

    def _has_free_page(self) -> bool:
        pages = self.pages[self.offset + self.first : self.offset + self.end // _PER_PAGE + 1]
        return bool((pages[:, FREE] + pages[:, FASTBIN] == PAGE).any())

    def _at_the_ends(self, free: Units) -> Units:
        """Return those of *free* whose run touches an end of the block, where it may continue."""
        begin, end = 0, len(free)
        while begin < end and free[begin] == begin:
            begin += 1
        while end > begin and free[end - 1] == len(self.at) - 1 - (len(free) - end):
            end -= 1
        kept: Units = self.np.append(free[:begin], free[end:])
        return kept


def _merged(np: Any, some: Units, more: Units, count: int) -> Units:
    """Merge *some* and *more*, both sorted and disjoint, and return the numbers below *count*."""
    if not len(some):
        return more
    there = np.zeros(count, dtype=bool)
    there[some] = there[more] = True
    merged: Units = np.flatnonzero(there)
    return merged
