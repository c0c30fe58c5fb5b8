"""Walking a heap with numpy: many walkers side by side over one block, every seam verified.

A chunk's place is known only from the one before it. Here hundreds of walkers begin at places that look
like chunks, each in a segment of its own, and walk in lockstep; each must land where the next one began.
Where one doesn't, the next one was wrong: it walks again from where the true chain comes in, until all agree.
The result is that of `walk`. What the walkers touch fits a processor's second-level cache: the heap is read in
blocks of that size, and a step of all walkers is one gather.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators.glibc.layout import IS_MMAPPED
from gdbmem.allocators.glibc.pagesums import PageSums
from gdbmem.allocators.glibc.tally import CORRUPT, ENDED, PAGE, Cached, Tally, why_stopped
from gdbmem.model.memory import Memory, word_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Units = NDArray[np.int64]
    Words = NDArray[np.uint64]

BLOCK = 1 << 21
UNIT = 16  # chunks begin at multiples of this
_SPACING = 128  # units from one walker to the next
_NEAR = 8  # so many units are looked at for a chunk where a walker might begin
_STEPS = 64
_CHECK_EVERY = 4  # steps; asking whether all have arrived costs as much as a step
_STUCK = 1 << 60  # where a walker ends that met a size which can't be
_BEYOND = 1 << 61


def walk(memory: Memory, tally: Tally, limit: int, cached: Cached, *, block_bytes: int = BLOCK) -> None:
    """Do what `walk.walk` does, in numpy."""
    import numpy as np

    limit = min(limit, tally.end - 16)
    words = np.empty(min(block_bytes, max(limit + 16 - tally.base, 16)) // 8, dtype=np.uint64)
    chain = _Chain(np, len(words) // 2)
    sums = PageSums(np, tally, cached)
    address = tally.start
    while address < limit and not tally.stopped_why:
        base = address & -PAGE
        block = words[: min(block_bytes, limit + 16 - base) // 8]
        memory.read_into(base, block.view(np.uint8).data)
        heads = block[1::2]
        at, sizes, found, end = chain.follow(block, (address - base) // UNIT, (limit - base) // UNIT)
        address = base + UNIT * end
        head = int(heads[end]) if end < len(heads) else word_at(memory, address + 8)
        if len(at):
            sums.add(base, at, sizes, found, end, head)
        if end < min(len(heads), (limit - base) // UNIT):
            tally.end_run(address)
            tally.stopped_at = address
            tally.stopped_why = why_stopped(head)
    sums.finish()
    if not tally.stopped_why:
        tally.stopped_at, tally.stopped_why = address, ENDED if address == limit else CORRUPT


class _Chain:
    """The walkers over one block, and the arrays that they use again for the next one.

    Unit u of a block is the chunk at ``base + 16 u``. Each walker goes from its entry to that of the next one.
    """

    def __init__(self, np: Any, units: int) -> None:
        self.np = np
        self.index: Units = np.arange(units, dtype=np.int64)
        self.following: Units = np.empty(units + 1, dtype=np.int64)
        self.rows: Units = np.empty((_STEPS + 1, units // _SPACING + 1), dtype=np.int64)

    def follow(self, words: Words, first: int, limit: int) -> tuple[Units, Units, Words, int]:
        """Return the units where chunks begin, from *first* on, their sizes, size words, and where it goes on.

        That is where it is stuck if it is before the end. The chunk at *limit* (top) belongs to nobody's walk.
        """
        np = self.np
        self.feet, self.heads = words[0::2], words[1::2]
        count = len(self.heads)
        self.stop = min(count, limit)
        self.follows = self.following[: count + 1]
        np.right_shift(self.heads, 4, out=self.follows[:-1].view(np.uint64))
        self.follows[:-1] += self.index[:count]
        self.follows[-1] = _BEYOND  # who has left the block stays outside
        self.entries = self._guess(first, limit)
        self.exits: Units = np.empty_like(self.entries)
        self.alive = np.ones(len(self.entries), dtype=bool)
        self.paths: list[tuple[Units, Any, Units]] = []  # where walkers stepped, which of it counts, and who
        everyone = self.index[: len(self.entries)]
        self._run(everyone, self.entries, np.append(self.entries[1:], self.stop), self.rows)
        self._settle()
        return self._checked(self._collect(), limit)

    def _guess(self, first: int, limit: int) -> Units:
        """Return *first*, and where beyond it at places a little apart chunks seem to begin."""
        np = self.np
        begin, whole = first // _SPACING + 1, self.stop // _SPACING
        if begin >= whole:
            return self.index[first : first + 1]
        rows = self.heads[begin * _SPACING : whole * _SPACING].reshape(-1, _SPACING)[:, :_NEAR]
        likely = self._plausible(rows, limit)
        column = likely.argmax(axis=1)
        numbers = self.index[: len(column)]
        units = (numbers + begin) * _SPACING + column
        good = likely[numbers, column] & self._is_followed(units, limit)
        guesses: Units = np.append(first, units[good])
        return guesses

    def _is_followed(self, units: Units, limit: int) -> Any:
        """Tell which of *units* are followed by what looks like a chunk too.

        What can't be seen is not believed: a walker too few costs less than one that goes wrong.
        """
        there = self.follows[units]
        at = self.np.minimum(there, self.stop - 1)
        heads = self.heads[at]
        # A free chunk's size stands again at its end.
        fits = (heads & 1 != 0) | (self.feet[at] >> 4 == there - units)
        return fits & (there < self.stop) & self._plausible(heads, limit)

    def _plausible(self, heads: Any, limit: int) -> Any:
        # Unsigned: what is below 32 is beyond every limit.
        likely = heads - 32 < limit << 4
        likely &= heads & (8 | IS_MMAPPED) == 0
        return likely

    def _run(self, walkers: Units, here: Units, ends: Units, rows: Optional[Units] = None) -> None:
        """Have *walkers* go from *here* on until all are at *ends* or beyond."""
        np = self.np
        take = self.follows.take
        while len(walkers):
            places = np.empty((_STEPS + 1, len(walkers)), np.int64) if rows is None else rows[:, : len(here)]
            rows = None
            places[0] = here
            for step in range(1, _STEPS + 1):
                take(places[step - 1], out=places[step], mode="clip")
                if step % _CHECK_EVERY == 0 and (places[step] >= ends).all():
                    break
            places = places[: step + 1]
            if (places[step] == ends).all() and (places[step - 1] < ends).all():
                self.paths.append((places[:-1], None, walkers))  # chunks of one size: all stepped in time
                self.exits[walkers] = ends
                return
            inside = places < ends
            counts = inside.view(np.uint8).sum(axis=0, dtype=np.uint8).astype(np.intp)
            self.paths.append((places[:-1], inside[:-1], walkers))
            onward = counts > step
            exits = places[np.minimum(counts, step), self.index[: len(walkers)]]
            exits[onward & (exits == places[-2])] = _STUCK
            self.exits[walkers] = exits
            onward &= exits != _STUCK
            walkers, here, ends = walkers[onward], exits[onward], ends[onward]

    def _settle(self) -> None:
        """Dismiss walkers until each one lands where the next one began."""
        np = self.np
        while True:
            busy = np.flatnonzero(self.alive)
            entries, exits = self.entries[busy], self.exits[busy]
            broken = exits[:-1] != entries[1:]
            if not broken.any():
                return
            first = int(broken.argmax())
            if exits[first] == _STUCK:  # all before it is verified: here the chain really ends
                self.alive[busy[first + 1 :]] = False
                return
            # A walker that nobody confirms, or that got stuck, corrects no other: that would spread its error.
            trusted = np.append(True, ~broken[:-1]) & (exits[:-1] != _STUCK)
            reach = np.maximum.accumulate(np.where(trusted, exits[:-1], 0))
            inside = np.append(False, entries[1:] < reach)
            self.alive[busy[inside]] = False
            again = busy[np.append(broken & trusted, False) & ~inside]
            ends = np.append(self.entries, self.stop)[np.append(self._next_alive(), len(self.entries))[again]]
            self._run(again, self.exits[again], ends)

    def _next_alive(self) -> Units:
        """Return for each walker which is the next one that wasn't dismissed."""
        np = self.np
        numbers = np.where(self.alive, self.index[: len(self.alive)], len(self.alive))
        after: Units = np.minimum.accumulate(np.append(numbers[1:], len(self.alive))[::-1])[::-1]
        return after

    def _collect(self) -> Units:
        """Return where the walkers stepped on their way, in order."""
        np = self.np
        at: Units
        if len(self.paths) == 1 and self.alive.all():
            places, inside, _ = self.paths[0]
            at = places.T.ravel()
            return at if inside is None else at.take(np.flatnonzero(inside.T))
        mark = np.zeros(self.stop, dtype=bool)
        for places, inside, walkers in self.paths:
            counts = self.alive[walkers] if inside is None else inside & self.alive[walkers]
            counts = np.broadcast_to(counts, places.shape).ravel()
            mark[places.ravel().take(np.flatnonzero(counts))] = True
        at = np.flatnonzero(mark)
        return at

    def _checked(self, at: Units, limit: int) -> tuple[Units, Units, Words, int]:
        """Cut the chain *at* where a size can't be."""
        np = self.np
        heads = self.heads[at]
        end = int(self.follows[at[-1]])
        sizes = np.empty(len(at), dtype=np.int64)
        np.subtract(at[1:], at[:-1], out=sizes[:-1])
        sizes[-1] = end - at[-1]
        if end <= limit and sizes.min() >= 2 and not np.bitwise_or.reduce(heads) & 8:
            return at, sizes, heads, end
        bad = (sizes < 2) | (heads & 8 != 0) | (self.follows[at] > limit)
        first = int(bad.argmax())
        return at[:first], sizes[:first], heads[:first], int(at[first])


def available() -> bool:
    """Tell whether numpy is there."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True
