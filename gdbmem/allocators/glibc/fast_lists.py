"""Following the long lists of fastbins with numpy: millions of blocks, linked in any order.

A list can only be followed from its head, block by block. Here thousands of walkers start at blocks of all the lists
and advance in parallel until each reaches the start of another one; the path from a head to its end is then composed
of their segments. Blocks that look linked but are reached from no head are excluded: an allocated block keeps the link
that it had in a list until the program overwrites it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.allocators.glibc import lockstep
from gdbmem.allocators.glibc.tallies import FENCEPOST, PAGE, why_stopped
from gdbmem.allocators.glibc.trails import UNIT, HeapChunks, Trail
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.arenas import ArenaState, HeapRegion

_LARGEST = 176  # of the chunks that mallopt(M_MXFAST) can have put into fastbins
_WALKERS = 1 << 15
_STEPS = 64  # steps between two checks for very long paths
_LONG = 64 * _STEPS
_FENCEPOST = 48  # bytes at most at the end of a full heap
_WORD = 64  # units that share a row of slots
_MOST_ROWS = 3 << 19  # 192 MiB of slots
_SLOTS = 32  # in a row: no two chunks begin within two units
_PIECE = 1 << 15  # slots at a time: intermediate results stay in the processor's cache
_FLAGS = 3  # bits of a slot
_NOWHERE, _END, _PARKED = 0, _SLOTS, _SLOTS + 1


class BrokenList(NamedTuple):
    """The place where a fastbin is broken."""

    bin: int
    chunk: int  # the last chunk with a valid link; 0: the bin itself is invalid
    to: int  # the chunk after that, whose link is invalid, or that occurs for the second time; 0: none
    is_circle: bool

    def text(self, head: int) -> str:
        """Describe the fault of the list whose bin points to *head*."""
        begin = f"from 0x{self.chunk:x} " if self.chunk else ""
        if self.is_circle:
            return f"{begin}to 0x{self.to:x}, where it was before"
        if self.to:
            return f"{begin}to 0x{self.to:x}, and from there to no block"
        return f"{begin}to no block" if self.chunk else f"to no block at 0x{head:x}"


class FastLists:
    """The chunks of one arena's fastbins."""

    def __init__(self, trails: dict[int, Trail]) -> None:
        self.chunks: Any = None  # numpy's uint64: their addresses, sorted
        self.counts: dict[int, int] = {}  # bin → chunks
        self.broken: list[BrokenList] = []
        self.trails = trails  # start of a region → all chunks of it


def read_fast_lists(memory: Memory, arena: ArenaState, protected: bool) -> Optional[FastLists]:
    """Follow the fastbins of *arena*; *protected*: links are xored with their address.

    None if the chunks don't lead from one end of the arena to the other without a break.
    """
    import numpy as np  # slow to import

    nodes = _Nodes(np, sorted(arena.regions, key=lambda region: region.start))
    for number in range(len(arena.regions)):
        if not nodes.add_region(memory, number, protected):
            return None
    nodes.link()
    result = nodes.follow(arena.fastbins)
    for at, broken in enumerate(result.broken):
        if not broken.is_circle:
            to = _link_of(memory, broken.chunk, protected) if broken.chunk else arena.fastbins[broken.bin]
            if any(trail.has(to) for trail in result.trails.values()):
                result.broken[at] = broken._replace(to=to)
    return result


def _link_of(memory: Memory, chunk: int, protected: bool) -> int:
    at = chunk + 16
    return word_at(memory, at) ^ (at >> 12 if protected else 0)


class _Nodes:
    """The chunks that may be in a fastbin, each in a slot determined by its address, with the target of its link.

    Units of 16 bytes are numbered through all regions, from row 2 on; unit 64 is the end of a list, as if a chunk began
    there. Each 64 units that contain a node have a row of slots; the first row is unused. A place is the number of a
    slot and, as its lowest bit, one of the slot's two units. A slot contains the place that a node's link points to,
    and above that three flags: `begin` and `seen` belong to `_Ways`, `odd` is the unit of the node.
    """

    def __init__(self, np: Any, regions: Sequence[HeapRegion]) -> None:
        self.np, self.regions = np, regions
        self.starts = np.array([region.start & -PAGE for region in regions], dtype=np.int64)
        self.spans = np.array([region.limit for region in regions], dtype=np.int64) - self.starts
        words = -(-self.spans // (_WORD * UNIT)) + 1
        self.firsts = np.cumsum([2, *words])[:-1]  # words before each region
        count = 2 + int(words.sum())
        pieces = [np.zeros(8 * size, dtype=np.uint8) for size in words.tolist()]
        self.trails = [Trail(int(start), bits) for start, bits in zip(self.starts, pieces)]
        # In a heap that is not huge each word is a row: searching for one would dominate the time.
        self.row_of = None if count <= _MOST_ROWS else np.zeros(count, dtype=np.uint32)
        self.rows = count
        if self.row_of is not None:
            self.row_of[1] = 1
            self.rows = 2
        # Rows are allocated on demand: the untouched rest takes no memory.
        kind = np.uint32 if _WORD * count < 1 << 32 - _FLAGS else np.uint64
        self.slots = np.zeros(_SLOTS * count, dtype=kind)
        self.odd = 8 * self.slots.itemsize - _FLAGS

    def add_region(self, memory: Memory, number: int, protected: bool) -> bool:
        """Add the possible fastbin chunks in region *number*; False if not all of it can be walked."""
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
        """Add the chunks at *units*, whose links point to those at *to*."""
        if self.row_of is not None and len(units):
            np, words = self.np, units >> 6
            low, high = int(words[0]), int(words[-1]) + 1
            has_row = np.zeros(high - low, dtype=bool)
            has_row[words - low] = True
            rows = self.rows + int(np.count_nonzero(has_row))
            self.row_of[low:high][has_row] = np.arange(self.rows, rows)
            self.rows = rows
        places = self._places(units)
        to |= (places & 1) << self.odd
        self.slots[places >> 1] = to.astype(self.slots.dtype)  # which takes a third of the time

    def _places(self, units: Any) -> Any:
        if self.row_of is None:
            return units
        places = self.row_of.take(units >> 6, mode="clip").astype(self.np.int64)
        places <<= 6
        places += units & (_WORD - 1)
        return places

    def _units(self, addresses: Any) -> tuple[Any, Any]:
        """Return which of *addresses* may be a chunk, or are 0, and their units."""
        np = self.np
        region = np.zeros(1, dtype=np.int64)
        if len(self.starts) > 1:
            region = np.maximum(np.searchsorted(self.starts, addresses, side="right") - 1, 0)
        units = addresses - self.starts[region]
        which = np.flatnonzero(
            (units.view(np.uint64) < self.spans[region].view(np.uint64)) | (addresses == 0)
        )
        units = units[which]
        is_end = units == -self.starts[region].take(which, mode="clip")
        odd = (units & 15 != 0) & ~is_end
        if odd.any():
            kept = np.flatnonzero(~odd)
            which, units, is_end = which[kept], units[kept], is_end[kept]
        units >>= 4
        units += (_WORD * self.firsts)[region].take(which, mode="clip")
        units[is_end] = 2 * _END
        return which, units

    def link(self) -> None:
        """Turn the links from units to places."""
        np, row_of = self.np, self.row_of
        self.slots = self.slots[: _SLOTS * self.rows]
        self.words = np.arange(self.rows) if row_of is None else np.append(0, np.flatnonzero(row_of))
        if row_of is None:
            return
        link = self.slots.dtype.type((1 << self.odd) - 1)
        for begin in range(_SLOTS, len(self.slots), _PIECE):
            piece = self.slots[begin : begin + _PIECE]
            filled = np.flatnonzero(piece)
            values = piece[filled]
            piece[filled] = values & ~link | self._places((values & link).astype(np.int64)).astype(
                values.dtype
            )

    def follow(self, heads: Sequence[int]) -> FastLists:
        """Return the nodes reached from *heads*."""
        np = self.np
        begins = self._begins(heads)
        ways = _Ways(np, self.slots, begins[begins > _END])
        result = FastLists({region.start: t for region, t in zip(self.regions, self.trails)})
        reached: list[int] = []
        for number, begin in enumerate(begins.tolist()):
            if begin == _NOWHERE:
                result.broken.append(BrokenList(number, 0, 0, is_circle=False))
            elif begin != _END:
                before = len(reached)
                fault = ways.lead(begin, reached)
                result.counts[number] = sum(ways.onward[one][2] for one in reached[before:])
                if fault is not None:
                    at, to = fault
                    led = self._address(to) if to else 0
                    result.broken.append(BrokenList(number, self._address(at), led, is_circle=to != _NOWHERE))
        ways.forget_others(reached)
        members = self._members(ways.seen)
        if sum(map(len, members)) != sum(result.counts.values()):  # other paths lead into the lists
            ways.mark(reached)
            members = self._members(ways.seen)
        self.slots = ways.slots = None
        result.chunks = self._addresses(members)
        return result

    def _begins(self, heads: Sequence[int]) -> Any:
        """Return the slots of *heads*: `_NOWHERE` if there are no nodes."""
        np = self.np
        which, units = self._units(np.array(heads, dtype=np.uint64).view(np.int64))
        places = self._places(units)
        values = self.slots[places >> 1]
        odd = (values >> values.dtype.type(self.odd)).astype(np.int64) & 1
        begins = np.zeros(len(heads), dtype=np.int64)
        begins[which] = np.where(
            (values != 0) & (odd == places & 1) | (places == 2 * _END), places >> 1, _NOWHERE
        )
        return begins

    def _members(self, seen: Any) -> list[Any]:
        """Return the places of the nodes whose slot has the flag *seen*, relative to the start of each piece."""
        np, pieces = self.np, []
        odd = self.slots.dtype.type(self.odd)
        for low in range(2 * _SLOTS, len(self.slots), _PIECE):
            slots = self.slots[low : low + _PIECE]
            mine = np.flatnonzero(slots & seen)
            places = (slots[mine] >> odd).astype(np.uint16)
            places &= 1
            places |= (mine << 1).astype(np.uint16)
            pieces.append(places)
        return pieces

    def _addresses(self, members: list[Any]) -> Any:
        """Return the addresses of *members*, sorted."""
        np = self.np
        bases = self._bases()
        addresses = np.empty(sum(map(len, members)), dtype=np.int64)
        done = 0
        for number, places in enumerate(members):
            rows = bases[2 + number * (_PIECE // _SLOTS) :]
            found = addresses[done : done + len(places)]
            np.left_shift(places & np.uint16(_WORD - 1), 4, out=found, casting="unsafe")
            found += rows.take(places >> 6)
            done += len(places)
        return addresses.view(np.uint64)

    def _bases(self) -> Any:
        """Return the start address of each row."""
        region = self.np.searchsorted(self.firsts, self.words, side="right") - 1
        return self.starts[region] + (self.words - self.firsts[region]) * (_WORD * UNIT)

    def _address(self, slot: int) -> int:
        word = int(self.words[slot // _SLOTS])
        region = int(self.np.searchsorted(self.firsts, word, side="right")) - 1
        unit = 2 * (slot % _SLOTS) + (int(self.slots[slot]) >> self.odd & 1)
        unit += _WORD * (word - int(self.firsts[region]))
        address: int = int(self.starts[region]) + UNIT * unit
        return address


def _linked(np: Any, memory: Memory, chunks: HeapChunks, protected: bool) -> tuple[Any, Any]:
    """Return the positions, in units of 16 bytes, of those *chunks* that fit into a fastbin, and their links."""
    at = chunks.at
    if int(chunks.sizes.max()) > _LARGEST // UNIT:
        at = at[chunks.sizes <= _LARGEST // UNIT]
    links = chunks.words.take(2 * at + 2, mode="clip").view(np.int64)
    units = at + (chunks.base >> 4)
    if len(at) and int(at[-1]) + 1 >= chunks.units:  # its link lies in the next block
        links[-1:] = np.frombuffer(memory.read(UNIT * int(units[-1]) + 16, 8), dtype=np.int64)
    if protected:
        links ^= units + 1 >> 8
    return units, links


class _Ways:
    """The paths of many walkers, from the start of each to the start of another one.

    The highest bit of a slot is set if a walker starts there, the next one if a walker stepped on it.
    """

    def __init__(self, np: Any, slots: Any, heads: Any) -> None:
        self.np, self.slots = np, slots
        kind = slots.dtype.type
        bits = 8 * slots.dtype.itemsize
        self.begin, self.seen, self.odd = (kind(1 << bits - one) for one in range(1, 1 + _FLAGS))
        self.link, self.to_odd, self.one = kind((1 << bits - _FLAGS) - 1), kind(bits - _FLAGS), kind(1)
        rows = len(slots) // _SLOTS
        spread = np.arange(2, rows, max(rows // _WALKERS, 1))
        spread = spread * _SLOTS + (slots.reshape(-1, _SLOTS)[spread] != 0).argmax(axis=1)
        begins = np.unique(np.append(spread[slots[spread] != 0], heads))
        slots[begins] |= self.begin
        slots[_END] = self.begin
        slots[_PARKED] = _PARKED << 1
        # start → the end of its path (`_NOWHERE`: not a node), the last node, the length
        self.onward: dict[int, tuple[int, int, int]] = {}
        self._walk(begins)

    def _walk(self, begins: Any) -> None:
        """Advance from *begins*, all at once, until each is at the start of a path; finished walkers are parked."""
        np, slots, one = self.np, self.slots, self.one
        here, links, steps, parked = begins, slots[begins], 0, 0
        while len(begins):
            slots[here] = links | self.seen
            places = links & self.link
            there = (places >> one).astype(np.intp)
            links = slots.take(there, mode="clip")
            steps += 1
            places ^= links >> self.to_odd
            places &= one
            links *= places ^ one  # 0 if the link points to the slot's other unit
            arrived = np.flatnonzero(links - one >= self.begin - one)  # or it is 0
            if len(arrived):
                ends = np.where(links[arrived] == 0, _NOWHERE, there[arrived])
                self._note(begins[arrived], ends, here[arrived], steps)
                there[arrived], links[arrived] = _PARKED, _PARKED << 1
                parked += len(arrived)
            here = there
            if 4 * parked > len(begins):
                left = np.flatnonzero(here != _PARKED)
                begins, here, links, parked = begins[left], here[left], links[left], 0
            if steps > _LONG:
                begins, here, links = self._cut(begins, here, links, steps)
                steps = parked = 0

    def _note(self, begins: Any, ends: Any, last: Any, steps: int) -> None:
        self.onward.update(zip(begins.tolist(), zip(ends.tolist(), last.tolist(), repeat(steps))))

    def _cut(self, begins: Any, here: Any, links: Any, steps: int) -> tuple[Any, Any, Any]:
        """End long paths at their current position, and start new ones there: a cycle then meets itself."""
        np = self.np
        left = np.flatnonzero(here != _PARKED)
        begins, here, links = begins[left], here[left], links[left]
        self._note(begins, here, np.full(len(here), _NOWHERE), steps)
        _, first = np.unique(here, return_index=True)
        return here[first], here[first], links[first] | self.begin

    def lead(self, begin: int, reached: list[int]) -> Optional[tuple[int, int]]:
        """Add the starts of the paths from *begin* to the end of its list; return where it breaks, if it does.

        That is a node, and the earlier one to which it leads back: `_NOWHERE` if it leads to no node.
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

    def forget_others(self, reached: list[int]) -> None:
        """Clear the `seen` flag of the nodes on all paths except those that start at *reached*."""
        self._flag(sorted(set(self.onward).difference(reached)), ~self.seen, self.link & self.seen)

    def mark(self, reached: list[int]) -> None:
        """Keep the `seen` flag of the nodes on the paths that start at *reached*."""
        slots = self.slots
        slots &= ~self.seen
        self._flag(reached, ~self.seen, self.seen)

    def _flag(self, begins: list[int], kept: Any, added: Any) -> None:
        """Keep the bits *kept* of the slots on the paths from *begins*, and set the bits *added*."""
        np, slots = self.np, self.slots
        here = np.array(begins, dtype=np.intp)
        left = np.array([self.onward[begin][2] for begin in begins], dtype=np.int64)
        while len(here):
            links = slots.take(here, mode="clip")
            slots[here] = links & kept | added
            left -= 1
            here = ((links & self.link) >> self.one).astype(np.intp)
            going = left > 0
            if not going.all():
                here, left = here[going], left[going]
