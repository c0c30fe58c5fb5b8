"""Adding blocks of chunks to a tally with numpy: sizes, bytes on each page, free runs, who pins what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.tally import (
    FASTBIN,
    FREE,
    LIVE,
    PAGE,
    STATES,
    TCACHE,
    TRIM_KEEPS,
    Cached,
    Tally,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Units = NDArray[np.int64]

UNIT = 16
_PER_PAGE = PAGE // UNIT
_PAGE_SHIFT = _PER_PAGE.bit_length() - 1  # a division takes several times as long
_SMALL = 1 << 13  # sizes below 128 KiB are counted by table, in units


class PageSums:
    """Fills *tally*, block by block. Most chunks are live: what is added up one by one are the others."""

    def __init__(self, np: Any, tally: Tally, cached: Cached) -> None:
        self.np, self.tally, self.cached = np, tally, cached
        self.pages = np.frombuffer(tally.pages, dtype=np.uint16).reshape(-1, STATES)
        self.headers = np.frombuffer(tally.headers, dtype=np.uint16)
        self.counts = np.zeros((_SMALL, STATES), dtype=np.int64)
        self.pinned = np.zeros(_SMALL)
        self.found = 0  # cached chunks that came by
        self.waiting: Units = np.empty(0, dtype=np.int64)  # sizes of the live chunks that begin on …
        self.waiting_page = 0  # … the page that the chain has not left

    def add(self, base: int, at: Units, size: Units, heads: Any, end: int, next_head: int) -> None:
        """Add the chunks of *size* that begin at units *at* of the block at *base*, their size words *heads*.

        *end* is where the last one ends; *next_head* is the size word there, which says whether it is free.
        """
        self.base, self.at, self.size, self.end = base, at, size, end
        self.offset = (base - self.tally.base) // PAGE  # the block's first page as a page of the region
        self._find_others(heads, next_head)
        self._count_sizes()
        self._fill_pages()
        self._share_pins()
        self._find_runs()

    def finish(self) -> None:
        """Bring what was kept in tables into the tally."""
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

    def _find_others(self, heads: Any, next_head: int) -> None:
        """Find the chunks that are not live: which they are, in order, and in which state."""
        np = self.np
        others = np.flatnonzero(heads & 1 == 0) - 1  # a chunk's flag is in the size word of the next
        if len(others) and others[0] < 0:
            others = others[1:]  # it is of the block before
        if not next_head & 1:
            others = np.append(others, len(self.at) - 1)
        states = np.full(len(others), FREE)
        here = self.cached.between(self.base + UNIT * int(self.at[0]), self.base + UNIT * self.end)
        for addresses, state in ((here.tcache, TCACHE), (here.fastbins, FASTBIN)):
            if len(addresses):
                cached = np.setdiff1d(self._indexes(addresses), others, assume_unique=True)
                self.found += len(cached)
                others, states = np.append(others, cached), np.append(states, np.full(len(cached), state))
                order = np.argsort(others, kind="stable")
                others, states = others[order], states[order]
        self.others, self.states = others, states

    def _indexes(self, addresses: Any) -> Units:
        """Return which of the block's chunks begin at *addresses*."""
        np = self.np
        units = (np.frombuffer(addresses, dtype=np.uint64).astype(np.int64) - self.base) // UNIT
        index = np.minimum(np.searchsorted(self.at, units), len(self.at) - 1)
        found: Units = index[self.at[index] == units]
        return found

    # -- sizes --------------------------------------------------------------------------------------------

    def _count_sizes(self) -> None:
        np = self.np
        least, most = int(self.size.min()), int(self.size.max())
        self.large: list[int] = []
        self.small = self.size
        if most >= _SMALL:
            self.large = np.flatnonzero(self.size >= _SMALL).tolist()
            self.small = np.where(self.size < _SMALL, self.size, 0)  # nothing has size 0
        if least == most < _SMALL:
            self.counts[least, LIVE] += len(self.size)
        else:
            counts = np.bincount(self.small)
            self.counts[: len(counts), LIVE] += counts
        if len(self.others):
            kinds = np.bincount(self.small[self.others] * STATES + self.states, minlength=STATES)
            kinds = np.append(kinds, np.zeros(-len(kinds) % STATES, dtype=np.int64)).reshape(-1, STATES)
            self.counts[: len(kinds)] += kinds
            self.counts[: len(kinds), LIVE] -= kinds.sum(axis=1)
        for index in self.large:
            self._count(int(self.size[index]), self._state(index), 1)

    def _state(self, index: int) -> int:
        place = int(self.np.searchsorted(self.others, index))
        known = place < len(self.others) and self.others[place] == index
        return int(self.states[place]) if known else LIVE

    # -- pages --------------------------------------------------------------------------------------------

    def _fill_pages(self) -> None:
        """Add each chunk's bytes to the pages it lies on, and count the live ones that begin there.

        Chunks touch, so that a page is full of them but at the ends of the block: what the others leave is live.
        """
        np = self.np
        self.first, last = int(self.at[0]) // _PER_PAGE, (self.end - 1) // _PER_PAGE
        edges = np.arange(self.first, last + 2, dtype=np.int64) * _PER_PAGE
        edges[0], edges[-1] = self.at[0], self.end
        rows = slice(self.offset + self.first, self.offset + last + 1)
        live = np.diff(edges)
        begun = np.diff(np.searchsorted(self.at, edges))
        pages = self.pages[rows]
        if len(self.others):
            at, size = self.at[self.others], self.size[self.others]
            begun -= np.diff(np.searchsorted(at, edges))
            for state in (FREE, TCACHE, FASTBIN):
                mine = self.np.flatnonzero(self.states == state)
                if len(mine):
                    held = self._held(at.take(mine), size.take(mine), edges)
                    live -= held
                    pages[:, state] += (held * UNIT).astype(np.uint16)
        pages[:, LIVE] += (live * UNIT).astype(np.uint16)
        self.has_free_page = bool((pages[:, FREE] + pages[:, FASTBIN] == PAGE).any())
        self.headers[rows] += begun.astype(np.uint16)

    def _held(self, at: Units, size: Units, edges: Units) -> Units:
        """Return what the chunks *at* hold between each two *edges*."""
        np = self.np
        before = np.append(0, np.cumsum(size))
        inside = np.searchsorted(at, edges, side="right")  # so many begin at or before the edge
        ends = np.append(0, at + size)
        held: Units = np.diff(before[inside] - np.maximum(ends[inside] - edges, 0))
        return held

    def _share_pins(self) -> None:
        """Charge the free bytes of each page to the live chunks that begin on it, in equal shares.

        A page that the chain has not left waits: what follows may be free.
        """
        np = self.np
        left = self.end // _PER_PAGE  # pages before this one are complete
        count = int(np.searchsorted(self.at, left * _PER_PAGE))
        if left > self.first and len(self.waiting):
            self._charge_waiting()
        if count:
            self._charge(count, left)
        if count < len(self.at):
            live = np.ones(len(self.at) - count, dtype=bool)
            live[self.others[np.searchsorted(self.others, count) :] - count] = False
            self.waiting = np.append(self.waiting, self.size[count:][live])
            self.waiting_page = self.offset + left

    def _charge(self, count: int, left: int) -> None:
        np = self.np
        rows = slice(self.offset + self.first, self.offset + left)
        free = self.pages[rows, FREE]
        if not free.any():
            return
        each = free / np.maximum(self.headers[rows], 1)
        shares = each[(self.at[:count] >> _PAGE_SHIFT) - self.first]
        shares[self.others[: np.searchsorted(self.others, count)]] = 0
        sums = np.bincount(self.small[:count], weights=shares)
        self.pinned[: len(sums)] += sums
        for index in self.large:
            if index < count and shares[index]:
                self._pin(int(self.size[index]), float(shares[index]))

    def _charge_waiting(self) -> None:
        if not len(self.waiting):
            return
        share = float(self.pages[self.waiting_page, FREE] / max(self.headers[self.waiting_page], 1))
        if share:
            for units in self.waiting.tolist():
                self._pin(units, share)
        self.waiting = self.waiting[:0]

    def _find_runs(self) -> None:
        """Keep the runs of neighbouring free chunks that hold whole pages."""
        np, tally, base = self.np, self.tally, self.base
        free = self.others.take(np.flatnonzero(self.states != TCACHE))  # fastbins are emptied first
        if tally.pending and not (len(free) and free[0] == 0):
            tally.end_run(base + UNIT * int(self.at[0]))
        if not self.has_free_page:
            free = self._at_the_ends(free)
        if not len(free):
            return
        apart = np.flatnonzero(np.diff(free) != 1)
        begins, ends = free[np.append(0, apart + 1)], free[np.append(apart, len(free) - 1)]
        low, high = self.at[begins], self.at[ends] + self.size[ends]
        long = high - low >= _PER_PAGE  # shorter ones hold no whole page; those at the ends may go on
        long[0] = long[-1] = True
        long = np.flatnonzero(long)
        low, high, ends = low[long] * UNIT + base, high[long] * UNIT + base, ends[long]
        if tally.pending:
            low[0] = tally.pending
        tally.pending = 0
        if ends[-1] == len(self.at) - 1:
            tally.pending = int(low[-1])
            low, high = low[:-1], high[:-1]
        kept = ((low + TRIM_KEEPS + PAGE - 1) & -PAGE) < (high & -PAGE)
        tally.runs.extend(zip(low[kept].tolist(), high[kept].tolist()))

    def _at_the_ends(self, free: Units) -> Units:
        """Return those of *free* whose run touches an end of the block, where it may go on."""
        begin, end = 0, len(free)
        while begin < end and free[begin] == begin:
            begin += 1
        while end > begin and free[end - 1] == len(self.at) - 1 - (len(free) - end):
            end -= 1
        kept: Units = self.np.append(free[:begin], free[end:])
        return kept
