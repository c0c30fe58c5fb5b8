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
from gdbmem.model.memory import Memory, MemoryUnreadable

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.arenas import ArenaState, HeapRegion

_LARGEST = 176  # of the chunks that mallopt(M_MXFAST) can have put into fastbins
_WALKERS = 1 << 14
_STEPS = 64  # between two looks at who has arrived
_UNIT = 16
_PIECE = 1 << 18


@dataclass
class FastLists:
    """The chunks of one arena's fastbins."""

    chunks: Any  # numpy's uint64: their addresses, sorted
    counts: dict[int, int] = field(default_factory=dict)  # bin → chunks
    broken: list[tuple[int, int, int]] = field(default_factory=list)  # bin; a chunk in it; where that leads


def read_fast_lists(memory: Memory, arena: ArenaState, protected: bool) -> Optional[FastLists]:
    """Follow the fastbins of *arena*; *protected*: links are xored with their place.

    None where the chunks don't lead from one end of the arena to the other without a break.
    """
    import numpy as np

    regions = sorted(arena.regions, key=lambda region: region.start)
    nodes = _Nodes(np, regions)
    for region in regions:
        if not nodes.add_region(memory, region.start, region.limit, protected):
            return None
    nodes.link()
    return nodes.follow(arena.fastbins)


class _Nodes:
    """The chunks that may be in a fastbin, numbered by address, and where the link of each leads."""

    def __init__(self, np: Any, regions: Sequence[HeapRegion]) -> None:
        self.np = np
        self.starts = np.array([region.start for region in regions], dtype=np.int64)
        self.limits = np.array([region.limit for region in regions], dtype=np.int64)
        sizes = (self.limits - self.starts) // _UNIT
        # Units are counted through all regions; 0 is for the end of a list.
        self.firsts = np.cumsum(np.append(1, sizes))[:-1]
        self.units: Any = []
        self.links: Any = []

    def add_region(self, memory: Memory, start: int, limit: int, protected: bool) -> bool:
        """Add what may be in a fastbin between *start* and *limit*; False where not all of it can be walked."""
        np = self.np
        at_end = start
        try:
            for chunks in lockstep.follow_chunks(memory, start, limit):
                small = chunks.at[(chunks.sizes <= _LARGEST // _UNIT) & (chunks.at + 1 < chunks.count)]
                at = (small << 4) + chunks.base
                links = chunks.words[2 * small + 2]
                if protected:
                    links = links ^ ((at.view(np.uint64) + np.uint64(16)) >> np.uint64(12))
                to = self._units(links)
                kept = np.flatnonzero(to >= 0)
                self.units.append(self._units(at[kept].view(np.uint64)).astype(np.uint32))
                self.links.append(to[kept].astype(np.uint32))
                self._add_last(memory, chunks, protected)
                at_end = chunks.base + _UNIT * chunks.end
        except MemoryUnreadable:
            return False
        return at_end == limit

    def _add_last(self, memory: Memory, chunks: Any, protected: bool) -> None:
        """Add the last chunk of a block where its link lies in the next one."""
        np = self.np
        if (
            not len(chunks.at)
            or int(chunks.at[-1]) + 1 < chunks.count
            or int(chunks.sizes[-1]) > _LARGEST // 16
        ):
            return
        address = chunks.base + 16 * int(chunks.at[-1])
        link = int.from_bytes(memory.read(address + 16, 8), "little")
        link ^= address + 16 >> 12 if protected else 0
        both = self._units(np.array([address, link], dtype=np.uint64))
        if both[1] >= 0:
            self.units.append(both[:1].astype(np.uint32))
            self.links.append(both[1:].astype(np.uint32))

    def _units(self, addresses: Any) -> Any:
        """Return the units at *addresses*; -1 where none of the arena's is, 0 for address 0."""
        np = self.np
        signed = addresses.view(np.int64)
        region = np.maximum(np.searchsorted(self.starts, signed, side="right") - 1, 0)
        inside = (signed >= self.starts[region]) & (signed < self.limits[region]) & (signed & 15 == 0)
        units = (signed - self.starts[region]) // _UNIT + self.firsts[region]
        return np.where(inside, units, np.where(signed == 0, 0, -1))

    def link(self) -> None:
        """Turn links from units to numbers of nodes: node 0 ends a list, node 1 is where no node is."""
        np = self.np
        units = np.concatenate([np.zeros(2, np.uint32), *self.units])
        self.units = []
        links = np.concatenate([np.array([0, 1], np.uint32), *self.links])
        self.links = []
        order = None if (units[2:-1] < units[3:]).all() else np.argsort(units[2:], kind="stable")
        if order is not None:
            units[2:], links[2:] = units[2:][order], links[2:][order]
        self.rank = _Rank(np, units)
        for begin in range(2, len(links), _PIECE):
            piece = links[begin : begin + _PIECE]
            links[begin : begin + _PIECE] = self.rank(piece)
        self.units, self.next = units, links

    def follow(self, heads: Sequence[int]) -> FastLists:
        """Return the nodes that *heads* lead to."""
        np = self.np
        begins = self.rank(np.maximum(self._units(np.array(heads, dtype=np.uint64)), 0).astype(np.uint32))
        begins = np.where(np.array(heads, dtype=np.uint64) == 0, 0, np.where(begins == 0, 1, begins))
        ways = _Ways(np, self.next, begins[begins > 1])
        seen = np.zeros(len(self.next), dtype=bool)
        result = FastLists(None)
        reached: list[int] = []
        for number, begin in enumerate(begins.tolist()):
            if begin == 1:
                result.broken.append((number, 0, heads[number]))
            elif begin:
                before = len(reached)
                fault = ways.lead(begin, reached)
                result.counts[number] = sum(ways.onward[one][2] for one in reached[before:])
                if fault is not None:
                    at, to = fault
                    address = self._address(at)
                    result.broken.append((number, address, self._address(to) if to > 1 else 0))
        ways.mark(reached, seen)
        seen[:2] = False
        self.next = None
        result.chunks = self._addresses(seen)
        return result

    def _addresses(self, seen: Any) -> Any:
        np = self.np
        addresses = np.empty(int(np.count_nonzero(seen)), dtype=np.int64)
        done = 0
        for begin in range(0, len(seen), _PIECE):
            here = slice(begin, begin + _PIECE)
            units = self.units[here][seen[here]].astype(np.int64)
            region = np.searchsorted(self.firsts, units, side="right") - 1
            addresses[done : done + len(units)] = (units - self.firsts[region]) * _UNIT + self.starts[region]
            done += len(units)
        return addresses.view(np.uint64)

    def _address(self, node: int) -> int:
        unit = int(self.units[node])
        region = int(self.np.searchsorted(self.firsts, unit, side="right")) - 1
        return int(self.starts[region]) + _UNIT * (unit - int(self.firsts[region]))


class _Rank:
    """Turns units into numbers of nodes: a bit for each unit, and how many are set before each 64 of them."""

    def __init__(self, np: Any, units: Any) -> None:
        self.np = np
        words = int(units[-1]) // 64 + 1 if len(units) > 2 else 1
        self.bits: Any = np.zeros(words, dtype=np.uint64)
        for first in range(0, words, _PIECE // 64):
            here = slice(first, min(first + _PIECE // 64, words))
            # Of the units' own type: numpy would copy them all to make both alike.
            ends = np.array([64 * first, 64 * here.stop], dtype=units.dtype)
            low, high = np.searchsorted(units[2:], ends) + 2
            there = np.zeros(64 * (here.stop - first), dtype=bool)
            there[units[low:high] - np.uint32(64 * first)] = True
            self.bits[here] = np.packbits(there, bitorder="little").view(np.uint64)
        self.before = np.zeros(words + 1, dtype=np.uint32)
        np.cumsum(self._count(self.bits), out=self.before[1:], dtype=np.uint32)

    def __call__(self, units: Any) -> Any:
        """Return the numbers of the nodes at *units*: 0 for unit 0, 1 where no node is."""
        np = self.np
        word = np.minimum(units >> 6, len(self.bits) - 1)
        bits = self.bits[word]
        place = (units & 63).astype(np.uint64)
        one = np.uint64(1)
        there = ((bits >> place) & one).astype(bool) & (units >> 6 == word)
        below = self._count(bits & ((one << place) - one))
        numbers = self.before[word] + below.astype(np.uint32) + 2
        return np.where(units == 0, 0, np.where(there, numbers, 1)).astype(np.uint32)

    def _count(self, words: Any) -> Any:
        """Return how many bits of each word are set."""
        np = self.np
        u = np.uint64
        words = words - ((words >> u(1)) & u(0x5555555555555555))
        words = (words & u(0x3333333333333333)) + ((words >> u(2)) & u(0x3333333333333333))
        words = (words + (words >> u(4))) & u(0x0F0F0F0F0F0F0F0F)
        return (words * u(0x0101010101010101)) >> u(56)


class _Ways:
    """The ways of many walkers, from where each began to where another one did."""

    def __init__(self, np: Any, following: Any, heads: Any) -> None:
        self.np, self.next = np, following
        count = len(following)
        spread = np.arange(2, count, max(count // _WALKERS, 1), dtype=np.uint32)
        begins = np.unique(np.append(spread, heads).astype(np.uint32))
        self.is_begin = np.zeros(count, dtype=bool)
        self.is_begin[:2] = self.is_begin[begins] = True
        self.onward: dict[
            int, tuple[int, int, int]
        ] = {}  # begin → where its way ends, by which node, how long
        self._walk(begins)

    def _walk(self, begins: Any) -> None:
        np = self.np
        before, length = begins, np.zeros(len(begins), dtype=np.int64)
        while len(begins):
            for _ in range(_STEPS):
                here = self.next[before]
                there = self.is_begin[here]
                length += 1
                if there.any():
                    done = np.flatnonzero(there)
                    ends = zip(
                        begins[done].tolist(),
                        here[done].tolist(),
                        before[done].tolist(),
                        length[done].tolist(),
                    )
                    self.onward.update((begin, (end, last, steps)) for begin, end, last, steps in ends)
                    left = np.flatnonzero(~there)
                    begins, here, length = begins[left], here[left], length[left]
                before = here
                if not len(begins):
                    return
            if int(length.max()) > 64 * _STEPS:
                begins, before, length = self._cut(begins, before, length)

    def _cut(self, begins: Any, here: Any, length: Any) -> tuple[Any, Any, Any]:
        """End long ways where they have come to, and begin new ones there: a circle meets itself then."""
        np = self.np
        _, first = np.unique(here, return_index=True)
        for begin, at, steps in zip(begins.tolist(), here.tolist(), length.tolist()):
            self.onward[begin] = (at, 0, steps)
        self.is_begin[here] = True
        return here[first], here[first], np.zeros(len(first), dtype=np.int64)

    def lead(self, begin: int, reached: list[int]) -> Optional[tuple[int, int]]:
        """Add the begins of the ways from *begin* to the end of its list; return where it breaks, if it does.

        That is a node, and where it leads: 1 where no node is.
        """
        seen = set(reached)
        at = begin
        while at > 1:
            if at in seen:
                return at, at
            seen.add(at)
            reached.append(at)
            end, last, _ = self.onward[at]
            if end == 1:
                return last, 1
            at = end
        return None

    def mark(self, reached: list[int], seen: Any) -> None:
        """Set *seen* at every node on the ways that begin at *reached*."""
        np = self.np
        here = np.array(reached, dtype=np.uint32)
        left = np.array([self.onward[begin][2] for begin in reached], dtype=np.int64)
        while len(here):
            seen[here] = True
            left -= 1
            here = self.next[here]
            going = left > 0
            if not going.all():
                here, left = here[going], left[going]
