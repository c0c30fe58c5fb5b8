"""Following the long lists of fastbins with numpy: millions of blocks, linked in any order.

A list can only be followed from its head, one block after the other. Here thousands of walkers begin at blocks of all
the lists and go on side by side until each comes to where another one began; what leads from a head to its end is
then put together from their ways. Blocks that look linked, and that no list leads to, are left out: an allocated block
keeps the link that it had in a list until the program writes to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators.glibc import lockstep
from gdbmem.allocators.glibc.heap_tally import FENCEPOST, PAGE, why_stopped
from gdbmem.allocators.glibc.trails import UNIT, Trail
from gdbmem.model.memory import Memory, MemoryUnreadable

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.arenas import ArenaState, HeapRegion
    from gdbmem.allocators.glibc.trails import Chunks

_LARGEST = 176  # of the chunks that mallopt(M_MXFAST) can have put into fastbins
_WALKERS = 1 << 14
_STEPS = 64  # between two looks at who has gone on for very long
_LONG = 64 * _STEPS
_FENCEPOST = 48  # bytes at most at the end of a heap that was filled
_WORD = 64  # units that share a row of slots
_SLOTS = 32  # in a row: no two chunks begin within two units
_PIECE = 1 << 15  # slots or rows at a time: what is computed on the way stays in the processor's cache
_NOWHERE, _END = 0, _SLOTS


@dataclass
class FastLists:
    """The chunks of one arena's fastbins."""

    chunks: Any  # numpy's uint64: their addresses, sorted
    counts: dict[int, int] = field(default_factory=dict)  # bin → chunks
    broken: list[tuple[int, int, int]] = field(default_factory=list)  # bin; a chunk in it; where that leads
    trails: dict[int, Trail] = field(default_factory=dict)  # start of a region → all chunks of it


def read_fast_lists(memory: Memory, arena: ArenaState, protected: bool) -> Optional[FastLists]:
    """Follow the fastbins of *arena*; *protected*: links are xored with their place.

    None where the chunks don't lead from one end of the arena to the other without a break.
    """
    import numpy as np  # 110 ms

    nodes = _Nodes(np, sorted(arena.regions, key=lambda region: region.start))
    for number in range(len(arena.regions)):
        if not nodes.add_region(memory, number, protected):
            return None
    nodes.link()
    return nodes.follow(arena.fastbins)


class _Nodes:
    """The chunks that may be in a fastbin, each in a slot that its address gives it, and where its link leads.

    Units of 16 bytes are counted through all regions; unit 1 is the end of a list, as if a chunk began there. Each 64
    of them with a node among them have a row of slots; the first row is nobody's, and the second that of the end.
    """

    def __init__(self, np: Any, regions: Sequence[HeapRegion]) -> None:
        self.np, self.regions = np, regions
        self.starts = np.array([region.start & -PAGE for region in regions], dtype=np.int64)
        self.spans = np.array([region.limit for region in regions], dtype=np.int64) - self.starts
        words = -(-self.spans // (_WORD * UNIT)) + 1
        self.firsts = np.cumsum([1, *words])[:-1]  # words before each region
        count = 1 + int(words.sum())
        self.bits = np.zeros(8 * count, dtype=np.uint8)
        self.bits[0] = 1 << 1
        pieces = np.split(self.bits, 8 * self.firsts)[1:]
        self.trails = [Trail(int(start), bits) for start, bits in zip(self.starts, pieces)]
        self.row_of = np.zeros(count, dtype=np.uint32)
        self.row_of[0] = 1
        self.rows = 2
        # Rows are taken as they are needed: what lies behind them costs no memory. Two bits of a slot are flags.
        self.slots = np.zeros(_SLOTS * (count + 1), dtype=np.uint32 if count < 1 << 25 else np.uint64)

    def add_region(self, memory: Memory, number: int, protected: bool) -> bool:
        """Add what may be in a fastbin in region *number*; False where not all of it can be walked."""
        region, trail = self.regions[number], self.trails[number]
        shift = _WORD * int(self.firsts[number]) - (trail.base >> 4)
        limit = min(region.limit, region.end - UNIT)
        at_end, head = region.start, 0
        try:
            for chunks in lockstep.follow_chunks(memory, region.start, limit):
                at_end, head = chunks.base + UNIT * chunks.end, chunks.next_head
                if len(chunks.at):
                    trail.note(self.np, chunks)
                    units, links = _linked(self.np, memory, chunks, protected)
                    which, to = self._units(links)
                    self._add(units[which] + shift, to)
        except MemoryUnreadable:
            return False
        return at_end == limit or (region.end - at_end <= _FENCEPOST and why_stopped(head) == FENCEPOST)

    def _add(self, units: Any, to: Any) -> None:
        """Add the chunks at *units*, whose links lead to those at *to*."""
        if not len(units):
            return
        np, words = self.np, units >> 6
        low, high = int(words[0]), int(words[-1]) + 1
        has_row = np.zeros(high - low, dtype=bool)
        has_row[words - low] = True
        rows = self.rows + int(np.count_nonzero(has_row))
        self.row_of[low:high][has_row] = np.arange(self.rows, rows)
        self.rows = rows
        self.slots[self._places(units, words)] = to

    def _places(self, units: Any, words: Any) -> Any:
        """Return the slots of *units*, which are in *words*."""
        places = self.row_of.take(words, mode="clip").astype(self.np.int64)
        places <<= 5
        places += (units >> 1) & (_SLOTS - 1)
        return places

    def _units(self, addresses: Any) -> tuple[Any, Any]:
        """Return which of *addresses* a chunk may be at, or are 0, and the units there."""
        np = self.np
        region = np.zeros(1, dtype=np.int64)
        if len(self.starts) > 1:
            region = np.maximum(np.searchsorted(self.starts, addresses, side="right") - 1, 0)
        units = addresses - self.starts[region]
        is_end = addresses == 0
        odd = (units.view(np.uint64) >= self.spans[region].view(np.uint64)) & ~is_end | (addresses & 15 != 0)
        which = np.flatnonzero(~odd)
        units = units[which] >> 4
        units += (_WORD * self.firsts)[region].take(which, mode="clip")
        units[is_end[which]] = 1
        return which, units

    def link(self) -> None:
        """Turn the links from units to slots."""
        self.slots = self.slots[: _SLOTS * self.rows]
        self.words = self.np.flatnonzero(self.row_of)  # of each row but the first
        for begin in range(0, len(self.slots), _PIECE):
            piece = self.slots[begin : begin + _PIECE]
            filled = self.np.flatnonzero(piece)
            piece[filled] = self._slots(piece[filled].astype(self.np.int64))

    def _slots(self, units: Any) -> Any:
        """Return the slots of the chunks at *units*: `_NOWHERE` where none begins."""
        begins = self.bits.take(units >> 3, mode="clip")
        begins >>= (units & 7).astype(self.np.uint8)
        begins &= 1
        slots = self._places(units, units >> 6)
        slots *= begins
        return slots

    def follow(self, heads: Sequence[int]) -> FastLists:
        """Return the nodes that *heads* lead to."""
        np = self.np
        addresses = np.array(heads, dtype=np.uint64).view(np.int64)
        begins = np.zeros(len(addresses), dtype=np.int64)
        which, units = self._units(addresses)
        begins[which] = self._slots(units)
        begins[(self.slots[begins] == 0) & (begins != _END)] = _NOWHERE
        ways = _Ways(np, self.slots, begins[begins > _END])
        result = FastLists(None, trails={region.start: t for region, t in zip(self.regions, self.trails)})
        reached: list[int] = []
        for number, begin in enumerate(begins.tolist()):
            if begin == _NOWHERE:
                result.broken.append((number, 0, heads[number]))
            elif begin != _END:
                before = len(reached)
                fault = ways.lead(begin, reached)
                result.counts[number] = sum(ways.onward[one][2] for one in reached[before:])
                if fault is not None:
                    at, to = fault
                    result.broken.append((number, self._address(at), self._address(to) if to else 0))
        ways.mark(reached)
        members = self._members(ways.seen)
        self.slots = ways.slots = None
        result.chunks = self._addresses(members)
        return result

    def _members(self, seen: Any) -> Any:
        """Return 64 bits for each row: which units are nodes whose slot has the flag *seen*."""
        np = self.np
        members = self.bits.view(np.uint64)[self.words]
        for low in range(1, self.rows, _PIECE // _SLOTS):
            slots = self.slots[low * _SLOTS : (low + _PIECE // _SLOTS) * _SLOTS]
            pairs = np.packbits(np.repeat(slots & seen != 0, 2), bitorder="little").view(np.uint64)
            members[low - 1 : low - 1 + len(pairs)] &= pairs
        return members

    def _addresses(self, members: Any) -> Any:
        """Return the addresses of *members*, sorted."""
        np = self.np
        region = np.searchsorted(self.firsts, self.words, side="right") - 1
        bases = self.starts[region] + (self.words - self.firsts[region]) * (_WORD * UNIT)
        pieces, size = [], _PIECE // _SLOTS
        for low in range(0, len(members), size):
            bits = np.unpackbits(members[low : low + size].view(np.uint8), bitorder="little")
            pieces.append(np.flatnonzero(bits.view(bool)).astype(np.uint32))
        addresses = np.empty(sum(map(len, pieces)), dtype=np.int64)
        done = 0
        for number, units in enumerate(pieces):
            found = bases[number * size + (units >> 6)] + ((units & 63) << 4)
            addresses[done : done + len(found)] = found
            done += len(found)
        return addresses.view(np.uint64)

    def _address(self, slot: int) -> int:
        row, place = divmod(slot, _SLOTS)
        word = int(self.words[row - 1])
        region = int(self.np.searchsorted(self.firsts, word, side="right")) - 1
        unit = _WORD * word + 2 * place
        unit += not self.bits[unit >> 3] >> (unit & 7) & 1
        return int(self.starts[region]) + UNIT * (unit - _WORD * int(self.firsts[region]))


def _linked(np: Any, memory: Memory, chunks: Chunks, protected: bool) -> tuple[Any, Any]:
    """Return where those of *chunks* are, in units of 16 bytes, that fit into a fastbin, and the links in them."""
    at = chunks.at
    if int(chunks.sizes.max()) > _LARGEST // UNIT:
        at = at[chunks.sizes <= _LARGEST // UNIT]
    links = chunks.words.take(2 * at + 2, mode="clip").view(np.int64)
    units = at + (chunks.base >> 4)
    if len(at) and int(at[-1]) + 1 >= chunks.count:  # its link lies in the next block
        links[-1:] = np.frombuffer(memory.read(UNIT * int(units[-1]) + 16, 8), dtype=np.int64)
    if protected:
        links ^= units + 1 >> 8
    return units, links


class _Ways:
    """The ways of many walkers, from where each began to where another one did.

    The highest bit of a slot says that somebody begins there, the next one that somebody stepped on it.
    """

    def __init__(self, np: Any, slots: Any, heads: Any) -> None:
        self.np, self.slots = np, slots
        kind = slots.dtype.type
        bits = 8 * slots.dtype.itemsize
        self.begin, self.seen, self.link = kind(1 << bits - 1), kind(1 << bits - 2), kind((1 << bits - 2) - 1)
        rows = len(slots) // _SLOTS
        spread = np.arange(1, rows, max(rows // _WALKERS, 1))
        spread = spread * _SLOTS + (slots.reshape(-1, _SLOTS)[spread] != 0).argmax(axis=1)
        begins = np.unique(np.append(spread, heads))
        slots[begins] |= self.begin
        slots[_END] = self.begin
        # begin → where its way ends (`_NOWHERE`: where no node is), by which node, how long
        self.onward: dict[int, tuple[int, int, int]] = {}
        self._walk(begins)

    def _walk(self, begins: Any) -> None:
        np, slots = self.np, self.slots
        here, length = begins, np.zeros(len(begins), dtype=np.int64)
        links = slots[here]
        while len(begins):
            for _ in range(_STEPS):
                slots[here] = links | self.seen
                there = (links & self.link).astype(np.intp)
                links = slots.take(there, mode="clip")
                length += 1
                arrived = (links >= self.begin) | (links == 0)
                if arrived.any():
                    done = np.flatnonzero(arrived)
                    self._note_ends(begins[done], there[done], links[done], here[done], length[done])
                    left = np.flatnonzero(~arrived)
                    begins, there, links, length = begins[left], there[left], links[left], length[left]
                here = there
            if len(begins) and int(length.max()) > _LONG:
                begins, here, links, length = self._cut(begins, here, links, length)

    def _note_ends(self, begins: Any, ends: Any, links: Any, last: Any, length: Any) -> None:
        ends = self.np.where(links == 0, _NOWHERE, ends)
        ways = zip(ends.tolist(), last.tolist(), length.tolist())
        self.onward.update(zip(begins.tolist(), ways))

    def _cut(self, begins: Any, here: Any, links: Any, length: Any) -> tuple[Any, Any, Any, Any]:
        """End long ways where they have come to, and begin new ones there: a circle meets itself then."""
        np = self.np
        _, first = np.unique(here, return_index=True)
        for begin, at, steps in zip(begins.tolist(), here.tolist(), length.tolist()):
            self.onward[begin] = (at, _NOWHERE, steps)
        links = links | self.begin
        return here[first], here[first], links[first], np.zeros(len(first), dtype=np.int64)

    def lead(self, begin: int, reached: list[int]) -> Optional[tuple[int, int]]:
        """Add the begins of the ways from *begin* to the end of its list; return where it breaks, if it does.

        That is a node, and the one before to which it leads back: `_NOWHERE` where it leads to no node.
        """
        seen = set(reached)
        at = begin
        while at != _END:
            if at in seen:
                return at, at
            seen.add(at)
            reached.append(at)
            end, last, _ = self.onward[at]
            if end == _NOWHERE:
                return last, _NOWHERE
            at = end
        return None

    def mark(self, reached: list[int]) -> None:
        """Leave the flag of who was stepped on to the nodes on the ways that begin at *reached*."""
        np, slots = self.np, self.slots
        if len(reached) == len(self.onward):
            return
        slots &= ~self.seen
        here = np.array(reached, dtype=np.intp)
        left = np.array([self.onward[begin][2] for begin in reached], dtype=np.int64)
        while len(here):
            links = slots.take(here, mode="clip")
            slots[here] = links | self.seen
            left -= 1
            here = (links & self.link).astype(np.intp)
            going = left > 0
            if not going.all():
                here, left = here[going], left[going]
