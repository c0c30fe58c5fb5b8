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
from gdbmem.allocators.glibc.page_sums import PageSums
from gdbmem.allocators.glibc.tallies import CORRUPT, ENDED, PAGE, Cached, HeapTally, LinkSums, why_stopped
from gdbmem.allocators.glibc.trails import UNIT, HeapChunks
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory, word_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Units = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Flags = NDArray[np.uint8]

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
    trail = cached.trails.get(address)
    if trail and trail.end <= limit:
        every = trail.replay(memory)
    else:
        every = follow_chunks(memory, address, limit, block_bytes=block_bytes)
    for chunks in every:
        address, head = chunks.base + UNIT * chunks.end, chunks.next_head
        if len(chunks.at):
            tally.last = chunks.base + UNIT * int(chunks.at[-1])
            sums.add(chunks)
    tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT
    if address < limit:
        tally.end_run(address)
        tally.stopped_why = why_stopped(head)
    sums.finish()


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


def available() -> bool:
    """Return whether numpy is available."""
    try:
        import_numpy()
    except ImportError:
        return False
    return True
