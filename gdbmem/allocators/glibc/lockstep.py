"""Walking a heap with numpy: many walkers side by side over one block, every seam verified.

The address of a chunk is known only from the one before it. Here hundreds of walkers start at addresses that look
like chunks, each in its own segment, and walk in lockstep; each must arrive at the start of the next one.
If it doesn't, the next one was wrong: it walks again from where the true chain enters its segment, until all agree.
The result is that of `walk`. The working set of the walkers fits into a processor's second-level cache: the heap is
read in pieces that are processed once, and a step of all walkers over a block is one gather.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators.glibc.layout import IS_MMAPPED
from gdbmem.allocators.glibc.tallies import (
    CORRUPT,
    ENDED,
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
    why_stopped,
)
from gdbmem.allocators.glibc.trails import UNIT, HeapChunks
from gdbmem.model.memory import Memory, word_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.trails import Flags, Units, Words


# Adding blocks of chunks to a tally with numpy: sizes, bytes on each page, free runs, pinned bytes.


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


BLOCK = 1 << 21
_PIECE = 1 << 14  # units read at once
_SPACING = 256  # units from one walker to the next
_NEAR = 8  # units examined for a chunk where a walker could start
_SAMPLE = 32  # chunks examined before all of a block are
_WARM_UP = 8  # warm-up steps of a walker: wrong chains soon join the true one
_OUTSIZE = 32  # factor on the mean of the previous block
_STEPS = 160  # below 256: they are counted in bytes
_CHECK_EVERY = 4  # steps between two tests whether all have arrived, which cost more than a step
_STUCK = 1 << 60  # the end of a walker at an impossible size
_BEYOND = 1 << 61


def walk(memory: Memory, tally: HeapTally, limit: int, cached: Cached, *, block_bytes: int = BLOCK) -> None:
    """The same as `walk.walk`, in numpy."""
    import numpy as np  # slow to import

    sums = PageSums(np, tally, cached, LinkSums(np, tally, memory))
    limit = min(limit, tally.end - UNIT)
    address, head = tally.start, 0
    for chunks in chunks_of(memory, address, limit, cached, block_bytes=block_bytes):
        address, head = chunks.base + UNIT * chunks.end, chunks.next_head
        if len(chunks.at):
            tally.last = chunks.base + UNIT * int(chunks.at[-1])
            sums.add(chunks)
    tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT
    if address < limit:
        tally.end_run(address)
        tally.stopped_why = why_stopped(head)
    sums.finish()


def chunks_of(
    memory: Memory, address: int, limit: int, cached: Cached, *, block_bytes: int = BLOCK
) -> Iterator[HeapChunks]:
    """Return follow_chunks(), or what is already known of the region that begins at *address*."""
    trail = cached.trails.get(address)
    if trail and trail.end <= limit:
        return trail.replay(memory)
    return follow_chunks(memory, address, limit, block_bytes=block_bytes)


def follow_chunks(
    memory: Memory, address: int, limit: int, *, block_bytes: int = BLOCK
) -> Iterator[HeapChunks]:
    """Yield the chunks from *address* to *limit*, where 16 bytes must be readable, block by block.

    Ends before *limit* at an impossible size.
    """
    import numpy as np  # slow to import

    chain = _Chain(np, min(block_bytes, max(limit + UNIT - (address & -PAGE), UNIT)) // UNIT)
    while address < limit:
        base = address & -PAGE
        count, stop = min(block_bytes, limit + UNIT - base) // UNIT, (limit - base) // UNIT
        chain.load(memory, base, count)
        at, sizes, flags, end = chain.follow((address - base) // UNIT, stop)
        address = base + UNIT * end
        head = chain.head(end) if end < count else word_at(memory, address + 8)
        yield HeapChunks(base, at, sizes, flags, end, head, chain.words, count)
        if end < min(count, stop):
            return


class _Chain:
    """The walkers over one block, and the arrays that they reuse for the next one.

    Unit u of a block is the chunk at ``base + 16 u``. Each walker goes from its start to that of the next one.
    """

    def __init__(self, np: Any, units: int) -> None:
        self.np = np
        self.words: Words = np.empty(2 * units, dtype=np.uint64)
        room = units + _SPACING  # padding for accesses between a walker and the next
        self.index: Units = np.arange(room, dtype=np.int64)
        self.following: Units = np.zeros(room, dtype=np.int64)
        self.all_flags: Flags = np.zeros(room, dtype=np.uint8)
        self.rows: Units = np.empty((_STEPS + 1, room // _SPACING + 1), dtype=np.int64)
        self.usual = 0  # steps until all walkers of the last block had arrived
        self.likely = units  # largest chunk, in units, at which a walker may start

    def load(self, memory: Memory, base: int, count: int) -> None:
        """Read the *count* units at *base*; store for each its flags and the position of the next chunk, if it is one.

        The data is processed while it is in the processor's cache: another pass over it would dominate the time.
        """
        np = self.np
        self.follows, self.flags = self.following[: count + 1], self.all_flags[:count]
        for begin in range(0, count, _PIECE):
            here = slice(begin, min(begin + _PIECE, count))
            follows = self.follows[here]
            words = self.words[2 * begin : 2 * here.stop]
            memory.read_into(base + UNIT * begin, words.view(np.uint8).data)
            np.right_shift(words[1::2], 4, out=follows.view(np.uint64))
            follows += self.index[here]
            self.flags[here] = words.view(np.uint8)[8::16]
        self.follows[-1] = _BEYOND  # walkers that have left the block stay outside

    def head(self, unit: int) -> int:
        """Return the size word at *unit*."""
        return (int(self.follows[unit]) - unit) << 4 | int(self.flags[unit]) & 15

    def follow(self, first: int, limit: int) -> tuple[Units, Units, Flags, int]:
        """Return the units where chunks begin, from *first* on, their sizes, flags, and where the chain continues.

        The chain is broken there if that is before the end. The chunk at *limit* (top) is not part of the walk.
        """
        np = self.np
        self.stop = min(len(self.flags), limit)
        equal = self._equal(first)
        if equal is not None:
            return self._checked(equal, limit)
        self.entries = self._warmed_up(first, self._guess(first, min(limit, self.likely)))
        self.exits: Units = np.empty_like(self.entries)
        self.alive = np.ones(len(self.entries), dtype=bool)
        self.paths: list[
            tuple[Units, Any, Units]
        ] = []  # units that walkers stepped on, which of them count, and by which walker
        everyone = self.index[: len(self.entries)]
        self._run(everyone, self.entries, np.append(self.entries[1:], self.stop), self.rows)
        self._settle()
        at = self._collect()
        self.likely = _OUTSIZE * (self.stop - first) // len(at)
        return self._checked(at, limit)

    def _equal(self, first: int) -> Optional[Units]:
        """Return the units where chunks begin if all are as large as the one at *first*, without a walk."""
        size = int(self.follows[first]) - first
        if size < 2:
            return None
        # In most heaps the first few show that they are not.
        for stop in (min(first + _SAMPLE * size, self.stop), self.stop):
            at, follows = self.index[first:stop:size], self.follows[first:stop:size]
            if (follows - at != size).any():
                return None
        return at

    def _guess(self, first: int, limit: int) -> Units:
        """Return units beyond *first*, spaced apart, where chunks seem to begin."""
        np = self.np
        begin = first + _SPACING - 2 * _WARM_UP  # so that walkers over small chunks are evenly spaced
        if begin + _NEAR > self.stop:
            return self.index[:0]
        every = slice(begin, begin + ((self.stop - _NEAR - begin) // _SPACING + 1) * _SPACING)
        follows, flags, units = (
            array[every].reshape(-1, _SPACING)[:, :_NEAR]
            for array in (self.following, self.all_flags, self.index)
        )
        sizes = (follows - units).view(np.uint64) - 2  # unsigned: what is below 2 is beyond every limit
        likely = (sizes < limit - 2) & (flags & (8 | IS_MMAPPED) == 0)
        column = likely.argmax(axis=1)
        numbers = self.index[: len(column)]
        guesses: Units = (numbers * _SPACING + column + begin)[likely[numbers, column]]
        return guesses

    def _warmed_up(self, first: int, guesses: Units) -> Units:
        """Return *first*, and the positions of chains from *guesses* after some steps, in order.

        Adjacent free chunks are merged, and the size words of the old ones remain inside. A chain from such a word
        joins the true one within some steps: a walker that starts there needn't be corrected.
        """
        np = self.np
        take = self.follows.take
        for _ in range(_WARM_UP if len(guesses) else 0):
            guesses = take(guesses, mode="clip")
        # Those that have left the block, or are stuck, were false.
        guesses = guesses[(guesses < self.stop) & (take(guesses, mode="clip") > guesses)]
        later = np.minimum.accumulate(guesses[::-1])[::-1]
        entries: Units = np.concatenate(([first], guesses[:-1][guesses[:-1] < later[1:]], guesses[-1:]))
        return entries

    def _run(self, walkers: Units, here: Units, ends: Units, rows: Optional[Units] = None) -> None:
        """Advance *walkers* from *here* until all are at *ends* or beyond, at first through *rows*."""
        np = self.np
        while len(walkers):
            expected = 0 if rows is None else self.usual
            places = np.empty((_STEPS + 1, len(walkers)), np.int64) if rows is None else rows[:, : len(here)]
            places[0] = here
            step = self._step(places, ends, expected)
            places = places[: step + 1]
            if (places[step] == ends).all() and (places[step - 1] < ends).all():
                self.usual = step
                self.paths.append((places[:-1], None, walkers))  # chunks of one size: all stepped in time
                self.exits[walkers] = ends
                return
            inside = places < ends
            counts = inside.view(np.uint8).sum(axis=0, dtype=np.uint8).astype(np.intp)
            if rows is not None:
                self.usual, rows = int(counts.max()), None
            self.paths.append((places[:-1], inside[:-1], walkers))
            onward = counts > step
            exits = places[np.minimum(counts, step), self.index[: len(walkers)]]
            exits[onward & (exits == places[-2])] = _STUCK
            self.exits[walkers] = exits
            onward &= exits != _STUCK
            walkers, here, ends = walkers[onward], exits[onward], ends[onward]

    def _step(self, places: Units, ends: Units, expected: int) -> int:
        """Fill *places*, row by row, until all are at *ends*; return the last row, which is *expected* there."""
        take = self.follows.take
        check = max(min(expected, _STEPS), 1)
        before = places[0]
        for step in range(1, _STEPS + 1):
            here = places[step]
            take(before, out=here, mode="clip")
            if step == check:
                if (here >= ends).all():
                    break
                check += _CHECK_EVERY
            before = here
        return step

    def _settle(self) -> None:
        """Discard walkers until each one arrives at the start of the next one."""
        np = self.np
        while True:
            busy = np.flatnonzero(self.alive)
            entries, exits = self.entries[busy], self.exits[busy]
            broken = exits[:-1] != entries[1:]
            if not broken.any():
                return
            first = int(broken.argmax())
            if exits[first] == _STUCK:  # all before it are verified: the chain really ends here
                self.alive[busy[first + 1 :]] = False
                return
            # A walker that is unconfirmed, or stuck, corrects no other: that would spread its error.
            trusted = np.append(True, ~broken[:-1]) & (exits[:-1] != _STUCK)
            reach = np.maximum.accumulate(np.where(trusted, exits[:-1], 0))
            inside = np.append(False, entries[1:] < reach)
            self.alive[busy[inside]] = False
            again = busy[np.append(broken & trusted, False) & ~inside]
            ends = np.append(self.entries, self.stop)[np.append(self._next_alive(), len(self.entries))[again]]
            self._run(again, self.exits[again], ends)

    def _next_alive(self) -> Units:
        """Return for each walker the next one that wasn't discarded."""
        np = self.np
        numbers = np.where(self.alive, self.index[: len(self.alive)], len(self.alive))
        after: Units = np.minimum.accumulate(np.append(numbers[1:], len(self.alive))[::-1])[::-1]
        return after

    def _collect(self) -> Units:
        """Return the units that the walkers stepped on, in order."""
        np = self.np
        everyone = self.alive.all()
        pieces = []
        for places, inside, walkers in self.paths:
            if not everyone:
                counts = self.alive[walkers]
                inside = np.broadcast_to(counts, places.shape) if inside is None else inside & counts
            pieces.append(places.T.ravel() if inside is None else places.T[inside.T])
        if len(pieces) == 1:
            return pieces[0]
        at: Units = np.concatenate(pieces)
        at.sort(kind="stable")  # merges sorted runs
        return at

    def _checked(self, at: Units, limit: int) -> tuple[Units, Units, Flags, int]:
        """Truncate the chain at an impossible size."""
        np = self.np
        flags = self.flags[at]
        end = int(self.follows[at[-1]])
        sizes = np.empty(len(at), dtype=np.int64)
        np.subtract(at[1:], at[:-1], out=sizes[:-1])
        sizes[-1] = end - at[-1]
        if end <= limit and sizes.min() >= 2 and not np.bitwise_or.reduce(flags) & 8:
            return at, sizes, flags, end
        bad = (sizes < 2) | (flags & 8 != 0) | (self.follows[at] > limit)
        first = int(bad.argmax())
        return at[:first], sizes[:first], flags[:first], int(at[first])
