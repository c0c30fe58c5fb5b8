"""Walking a heap with numpy: many walkers side by side over one block, every seam verified.

A chunk's place is known only from the one before it. Here thousands of walkers begin at places that look
like chunks, walk in lockstep, and each must land where the next one began. Where one doesn't, the next one
was wrong: it walks again from where the true chain comes in, until all agree. The result is that of `walk`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.layout import IS_MMAPPED
from gdbmem.allocators.glibc.tally import (
    CORRUPT,
    ENDED,
    FASTBIN,
    FENCEPOST,
    FREE,
    LIVE,
    PAGE,
    STATES,
    TCACHE,
    TRIM_KEEPS,
    Cached,
    Tally,
)
from gdbmem.allocators.glibc.walk import BLOCK
from gdbmem.model.memory import Memory, word_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Units = NDArray[np.int64]

UNIT = 16  # chunks begin at multiples of this
PAGE_UNITS = PAGE // UNIT
_STUCK = 1 << 60  # where a walker ends that met a size which can't be
_SEGMENT_UNITS = 512  # one walker's share: 8 KiB
_NEAR_UNITS = 64  # where a chunk is looked for first
_TRIES = 64
_HOPS = 4  # a chunk is believed at first sight when this many of its successors look like chunks
_SMALL_UNITS = 1 << 13  # sizes below 128 KiB are counted by table


def walk(memory: Memory, tally: Tally, limit: int, cached: Cached, *, block_bytes: int = BLOCK) -> None:
    """Do what `walk.walk` does, in numpy."""
    import numpy as np

    limit = min(limit, tally.end - 16)
    buffer = np.empty(block_bytes // 8, dtype=np.int64)
    address = tally.start
    found = 0
    while address < limit and not tally.stopped_why:
        base = address & -PAGE
        size = min(block_bytes, limit + 16 - base)
        words = buffer[: size // 8]
        memory.read_into(base, words.view(np.uint8).data)
        block = _Block(np, words, base, address, limit)
        positions, end = block.chain()
        address, hits = _add(np, memory, tally, block, positions, end, cached, limit)
        found += hits
    if not tally.stopped_why:
        tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT
    tally.strays += len(cached.tcache) + len(cached.fastbins) - found


class _Block:
    """A block of heap as size words, by unit: unit u is the chunk at ``base + 16 u``."""

    def __init__(self, np: Any, words: Units, base: int, address: int, limit: int) -> None:
        self.np = np
        self.words = words
        self.heads: Units = words[1::2]
        self.base = base
        self.first = (address - base) // UNIT
        self.count = len(self.heads)
        # Chunks begin before `stop`; the one at the limit (top) belongs to nobody's walk.
        self.stop = min(self.count, (limit - base) // UNIT)
        self.limit = (limit - base) // UNIT

    def chain(self) -> tuple[Units, int]:
        """Return the units where chunks begin, and where the chain goes on (or where it is stuck)."""
        np = self.np
        bounds = np.arange(self.first, self.stop, _SEGMENT_UNITS, dtype=np.int64)
        bounds = np.append(bounds, self.stop)
        mark = np.zeros(self.count, dtype=bool)
        entries = self._guess(bounds)
        exits = np.full(len(bounds) - 1, _STUCK, dtype=np.int64)
        stuck = np.full(len(bounds) - 1, -1, dtype=np.int64)
        todo = np.arange(len(bounds) - 1)
        while True:
            self._run(entries, bounds, todo, mark, exits, stuck)
            wrong = entries[1:] != exits[:-1]
            if not wrong.any():
                break
            first = int(wrong.argmax())
            if exits[first] == _STUCK:  # all before it is verified: here the chain really ends
                mark[bounds[first + 1] :] = False
                return np.flatnonzero(mark), int(stuck[first])
            # A walker that nobody confirms, or that got stuck, corrects no other: that would spread its error.
            trusted = np.append(True, ~wrong[:-1]) & (exits[:-1] != _STUCK)
            todo = np.flatnonzero(wrong & trusted) + 1
            entries[todo] = exits[todo - 1]
            for segment in todo:
                mark[bounds[segment] : bounds[segment + 1]] = False
        end = int(exits[-1])
        return np.flatnonzero(mark), int(stuck[-1]) if end == _STUCK else end

    def _guess(self, bounds: Units) -> Units:
        """Return for each segment the first unit that looks like a chunk; its end where none does."""
        np = self.np
        entries = bounds[1:].copy()
        entries[0] = bounds[0]
        pending = np.arange(1, len(entries) - 1)  # the last one is shorter: its predecessor covers it
        if not len(pending):
            return entries
        rows = self.heads[bounds[0] :][: (len(entries) - 1) * _SEGMENT_UNITS].reshape(-1, _SEGMENT_UNITS)
        for low, high in ((0, _NEAR_UNITS), (_NEAR_UNITS, _SEGMENT_UNITS)):
            pending = self._guess_among(rows, bounds, pending, low, high, entries)
        return entries

    def _guess_among(
        self, rows: Any, bounds: Units, pending: Units, low: int, high: int, entries: Units
    ) -> Units:
        """Try the units ``[low, high)`` of the segments *pending*; return those where none looks right."""
        np = self.np
        heads = rows[pending, low:high]
        row, column = np.nonzero((heads >= 32) & (heads & (8 | IS_MMAPPED) == 0) & (heads <= self.limit << 4))
        units = bounds[pending[row]] + low + column
        turn = np.searchsorted(row, np.arange(len(pending)))
        end = np.searchsorted(row, np.arange(len(pending)), side="right")
        left = np.arange(len(pending))
        for _ in range(_TRIES):
            left = left[turn[left] < end[left]]
            if not len(left):
                break
            candidates = units[turn[left]]
            good = self._plausible(candidates)
            entries[pending[left[good]]] = candidates[good]
            left = left[~good]
            turn[left] += 1
        missed: Units = pending[entries[pending] == bounds[pending + 1]]
        return missed

    def _plausible(self, units: Units) -> Any:
        np = self.np
        good = np.ones(len(units), dtype=bool)
        alive = np.arange(len(units))
        current = units
        for _ in range(_HOPS):
            word = self.heads[current]
            size = word >> 4
            following = current + size
            fine = (size >= 2) & (word & (8 | IS_MMAPPED) == 0) & (following <= self.limit)
            inside = fine & (following < self.count)
            at = following[inside]
            # A free chunk's size stands again at its end.
            free = self.heads[at] & 1 == 0
            foot = self.words[2 * at] >> 4
            fine[inside] &= ~free | (foot == size[inside])
            good[alive[~fine]] = False
            onward = fine & (following < self.stop)
            alive, current = alive[onward], following[onward]
            if not len(alive):
                break
        return good

    def _run(self, entries: Units, bounds: Units, todo: Units, mark: Any, exits: Units, stuck: Units) -> None:
        """Walk the segments *todo* from their entries to the first chunk beyond them, in lockstep."""
        current, ends, ids = entries[todo], bounds[todo + 1], todo
        stuck[todo] = -1
        while True:
            alive = current < ends
            if not alive.all():
                over = ~alive
                exits[ids[over]] = current[over]
                current, ends, ids = current[alive], ends[alive], ids[alive]
            if not len(current):
                return
            word = self.heads[current]
            size = word >> 4
            following = current + size
            bad = (size < 2) | (word & 8 != 0) | (following > self.limit)
            if bad.any():
                exits[ids[bad]] = _STUCK
                stuck[ids[bad]] = current[bad]
                good = ~bad
                current, following, ends, ids = current[good], following[good], ends[good], ids[good]
            mark[current] = True
            current = following


def _add(
    np: Any,
    memory: Memory,
    tally: Tally,
    block: _Block,
    at: Units,
    end: int,
    cached: Cached,
    limit: int,
) -> tuple[int, int]:
    """Add the block's chunks to *tally*; return where the next one begins and how many cached ones came by."""
    if not len(at):
        _note_stop(tally, block, end, limit)
        return block.base + UNIT * end, 0
    heads = block.heads[at]
    size = heads >> 4
    in_use = np.empty(len(at), dtype=bool)
    in_use[:-1] = heads[1:] & 1
    next_head = int(block.heads[end]) if end < block.count else word_at(memory, block.base + UNIT * end + 8)
    in_use[-1] = next_head & 1
    state = np.where(in_use, LIVE, FREE).astype(np.int64)
    hits = _mark_cached(np, block, at, state, end, cached)
    table = _Table(np, tally, block.base, at, size, state)
    table.count_sizes()
    table.fill_pages()
    table.share_pins()
    table.find_runs(end)
    _note_stop(tally, block, end, limit)
    return block.base + UNIT * end, hits


def _note_stop(tally: Tally, block: _Block, end: int, limit: int) -> None:
    if end >= block.stop:
        return
    word = int(block.heads[end])
    address = block.base + UNIT * end
    tally.end_run(address)
    tally.stopped_at = address
    tally.stopped_why = FENCEPOST if word & ~7 in (0, 16) and word & 1 else CORRUPT


def _mark_cached(np: Any, block: _Block, at: Units, state: Units, end: int, cached: Cached) -> int:
    here = cached.between(block.base + UNIT * int(at[0]), block.base + UNIT * end)
    hits = 0
    for addresses, kind in ((here.tcache, TCACHE), (here.fastbins, FASTBIN)):
        if not len(addresses):
            continue
        units = (np.frombuffer(addresses, dtype=np.uint64).astype(np.int64) - block.base) // UNIT
        index = np.minimum(np.searchsorted(at, units), len(at) - 1)
        index = index[at[index] == units]
        index = index[state[index] == LIVE]
        state[index] = kind
        hits += len(index)
    return hits


class _Table:
    """The chunks of one block as columns, and how they add up."""

    def __init__(self, np: Any, tally: Tally, base: int, at: Units, size: Units, state: Units) -> None:
        self.np, self.tally, self.base = np, tally, base
        self.at, self.size, self.state = at, size, state
        self.page = at >> 8
        # The block's first page as a page of the region.
        self.offset = (base - tally.base) // PAGE

    def count_sizes(self) -> None:
        np = self.np
        small = self.size < _SMALL_UNITS
        every = bool(small.all())
        size = self.size if every else self.size[small]
        state = self.state if every else self.state[small]
        counts = np.bincount(size * STATES + state)
        for key in np.flatnonzero(counts).tolist():
            self._count(key // STATES, key % STATES, int(counts[key]))
        if not every:
            for units, kind in zip(self.size[~small].tolist(), self.state[~small].tolist()):
                self._count(units, kind, 1)

    def _count(self, units: int, state: int, chunks: int) -> None:
        tally = self.tally
        tally.chunks[state] += chunks
        tally.bytes[state] += chunks * units * UNIT
        tally.sizes.setdefault(units * UNIT, [0] * STATES)[state] += chunks

    def fill_pages(self) -> None:
        """Add each chunk's bytes to the pages it lies on, and count the live ones that begin there.

        Chunks are sorted and touch, so the bytes of a state up to an address are a running sum, and a page's
        are the difference of two.
        """
        np, tally = self.np, self.tally
        end = int(self.at[-1] + self.size[-1])
        first, last = int(self.page[0]), (end - 1) >> 8
        inner = np.arange(first + 1, last + 1, dtype=np.int64) << 8
        edges = np.concatenate((self.at[:1], inner, [end]))
        inside = np.searchsorted(self.at, edges, side="right") - 1  # the chunk that each edge is in
        rows = slice(self.offset + first, self.offset + last + 1)
        pages = np.frombuffer(tally.pages, dtype=np.uint16).reshape(-1, STATES)[rows]
        live = np.diff(edges)
        for state in (FREE, TCACHE, FASTBIN):
            mine = self.state == state
            if not mine.any():
                continue
            sums = self._before(np.where(mine, self.size, 0))[inside]
            sums += np.where(mine[inside], edges - self.at[inside], 0)
            sums = np.diff(sums)
            live -= sums
            pages[:, state] += (sums * UNIT).astype(np.uint16)
        pages[:, LIVE] += (live * UNIT).astype(np.uint16)
        self.live = self.state == LIVE
        starts = np.searchsorted(self.at, edges)
        counts = np.append(self._before(self.live), np.count_nonzero(self.live))[starts]
        headers = np.frombuffer(tally.headers, dtype=np.uint16)[rows]
        headers += np.diff(counts).astype(np.uint16)

    def _before(self, column: Any) -> Units:
        """Return for each chunk the sum of *column* over those before it."""
        sums: Units = self.np.cumsum(column, dtype=self.np.int64)
        before: Units = sums - column
        return before

    def share_pins(self) -> None:
        """Charge the free bytes of each page to the live chunks that begin on it, in equal shares."""
        np, tally = self.np, self.tally
        count = int(self.page[-1]) + 1
        start = STATES * self.offset
        free = np.frombuffer(tally.pages, dtype=np.uint16)[start + FREE : start + STATES * count : STATES]
        headers = np.frombuffer(tally.headers, dtype=np.uint16)[self.offset : self.offset + count]
        if not free.any():
            return
        each = free / np.maximum(headers, 1)
        shares = each[self.page[self.live]]
        size = self.size[self.live]
        if not len(size):
            return
        small = size < _SMALL_UNITS
        sums = np.bincount(size[small], weights=shares[small])
        for units in np.flatnonzero(sums).tolist():
            tally.pinned[units * UNIT] = tally.pinned.get(units * UNIT, 0.0) + float(sums[units])
        for units, share in zip(size[~small].tolist(), shares[~small].tolist()):
            if share:
                tally.pinned[units * UNIT] = tally.pinned.get(units * UNIT, 0.0) + share

    def find_runs(self, end: int) -> None:
        """Keep the runs of neighbouring free chunks that hold whole pages."""
        np, tally, base = self.np, self.tally, self.base
        free = (self.state == FREE) | (self.state == FASTBIN)
        if tally.pending and not free[0]:
            tally.end_run(base + UNIT * int(self.at[0]))
        change = np.diff(free.astype(np.int8), prepend=0, append=0)
        begins, ends = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
        bounds = np.append(self.at, end)
        low, high = bounds[begins] * UNIT + base, bounds[ends] * UNIT + base
        if len(low) and tally.pending and free[0]:
            low[0] = tally.pending
        pending = 0
        if len(low) and free[-1]:
            pending = int(low[-1])
            low, high = low[:-1], high[:-1]
        kept = ((low + TRIM_KEEPS + PAGE - 1) & -PAGE) < (high & -PAGE)
        tally.runs.extend(zip(low[kept].tolist(), high[kept].tolist()))
        tally.pending = pending


def available() -> bool:
    """Tell whether numpy is there."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def columns(addresses: Sequence[int]) -> Sequence[int]:
    """Return *addresses* sorted, as the walkers want them."""
    from array import array

    return array("Q", sorted(addresses))
