"""The sums of a walk over one heap region: chunks by size and state, and bytes on each page."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators.glibc.layout import IS_MMAPPED, NON_MAIN_ARENA
from gdbmem.linux.memory.maps import PAGE as KERNEL_PAGE
from gdbmem.model.memory import Memory, word_at, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.trails import HeapChunks, Trail


PAGE = 4096  # granularity of the sums; the kernel's pages may be larger
LIVE, FREE, TCACHE, FASTBIN = range(4)
STATES = 4
HEADER = 8  # malloc's overhead per live chunk, bytes
# malloc_trim leaves the first bytes of a free chunk alone: sizeof (struct malloc_chunk).
TRIM_KEEPS = 48
_MOST_ODD = 64

ENDED, FENCEPOST, CORRUPT = "ended", "fencepost", "corrupt"


def why_stopped(head: int) -> str:
    """Return why no chunk begins at the size word *head*, which is too small.

    A fencepost ends a piece of heap that could not grow: 16 bytes, then 16 or 0 bytes in use. Its flag shows whether
    the chunk before it is in use; that is the rest of the piece, which malloc may have freed.
    """
    return FENCEPOST if head & ~7 == 16 or head & ~6 == 1 else CORRUPT


class Cached:
    """Chunks that look in use but are not: addresses, sorted, of those in tcaches and in fastbins."""

    def __init__(
        self,
        tcache: Sequence[int] = array("Q"),
        fastbins: Sequence[int] = array("Q"),
        trails: Optional[dict[int, Trail]] = None,
    ) -> None:
        self.tcache, self.fastbins = tcache, fastbins
        self.trails = {} if trails is None else trails  # start of a region → its chunks, walked already

    def __len__(self) -> int:
        return len(self.tcache) + len(self.fastbins)

    def between(self, start: int, end: int) -> Cached:
        return Cached(_slice(self.tcache, start, end), _slice(self.fastbins, start, end), self.trails)


def _slice(addresses: Sequence[int], start: int, end: int) -> Sequence[int]:
    return addresses[bisect_left(addresses, start) : bisect_left(addresses, end)]


class HeapTally:
    """The sums of one region; `walk` and `lockstep` fill it, and must agree to the byte."""

    def __init__(self, start: int, end: int, *, in_further_arena: bool = False) -> None:
        self.start, self.end, self.in_further_arena = start, end, in_further_arena
        self.base = start & -PAGE
        count = -(-(end - self.base) // PAGE)
        self.pages = array("H", bytes(2 * STATES * count))  # 4 figures a page: bytes of each state
        self.headers = array("H", bytes(2 * count))  # per page: live chunks that begin on it
        self.reached = bytearray(count)  # per page: whether a live chunk from before reaches into it
        self.chunks = [0] * STATES
        self.bytes = [0] * STATES
        self.sizes: dict[int, list[int]] = {}  # size → chunks of each state
        self.pinned: dict[int, float] = {}  # size of live chunks → free bytes beside them
        self.runs: list[tuple[int, int]] = []  # neighbouring free chunks, pages among them
        self.pending = 0  # start of the current free run of the walk; 0: none
        self.last = 0  # the chunk before the one where the walk ended
        self.stopped_at = 0
        self.stopped_why = ""
        self.beside_end: list[int] = []  # sizes of live chunks on the page where the walk ended
        self.strays = 0  # cached chunks that the walk did not encounter
        self.odd: dict[int, str] = {}  # chunk → its inconsistencies with its neighbours
        self.link_sum = 0  # over the links of free chunks: see `linksums`

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, HeapTally) else NotImplemented

    def note_odd(self, address: int, why: str) -> None:
        """Record that the chunk at *address* is inconsistent with its neighbours; only the first ones are kept."""
        if len(self.odd) < _MOST_ODD:
            self.odd.setdefault(address, why)

    @property
    def page_count(self) -> int:
        return len(self.headers)

    def add_range(self, state: int, start: int, end: int) -> None:
        """Add the bytes ``[start, end)`` to the pages, whole pages in one go."""
        first, last = (start - self.base) // PAGE, (end - 1 - self.base) // PAGE
        pages = self.pages
        if first == last:
            pages[STATES * first + state] += end - start
            return
        pages[STATES * first + state] += self.base + PAGE * (first + 1) - start
        pages[STATES * last + state] += end - (self.base + PAGE * last)
        if last - first > 1:
            middle = slice(STATES * (first + 1) + state, STATES * last, STATES)
            pages[middle] = array("H", [PAGE]) * (last - first - 1)

    def shared_free(self, page: int) -> float:
        """Return the free bytes on *page* that each live chunk on it keeps from being returned."""
        sharing = self.headers[page] + self.reached[page]
        return self.pages[STATES * page + FREE] / sharing if sharing else 0.0

    def end_run(self, end: int) -> None:
        """End the free run that began at `pending` at *end*; it is kept if whole pages fit inside."""
        if self.pending and has_pages(self.pending, end):
            self.runs.append((self.pending, end))
        self.pending = 0

    def add_top(self, top: int, end: int) -> None:
        """Add the top chunk, and join the free run below it."""
        beside = min((top | (PAGE - 1)) + 1, end) - top
        for size in self.beside_end:
            self.pinned[size] = self.pinned.get(size, 0.0) + beside / len(self.beside_end)
        self.chunks[FREE] += 1
        self.bytes[FREE] += end - top
        self.sizes.setdefault(end - top, [0] * STATES)[FREE] += 1
        self.add_range(FREE, top, end)
        self.pending = 0

    def sums(self, ranges: Iterable[tuple[int, int]]) -> tuple[list[int], int]:
        """Return the bytes of each state, and the live headers, on the pages of *ranges*.

        A range that begins or ends inside a page counts that page; the caller gives whole pages.
        """
        totals = [0] * STATES
        headers = 0
        for start, end in ranges:
            first = max((start - self.base) // PAGE, 0)
            last = min(-(-(end - self.base) // PAGE), self.page_count)
            if last <= first:
                continue
            for state in range(STATES):
                totals[state] += sum(self.pages[STATES * first + state : STATES * last : STATES])
            headers += sum(self.headers[first:last])
        return totals, headers


def has_pages(start: int, end: int) -> bool:
    """True if malloc_trim would find a whole page in the free run ``[start, end)``."""
    low, high = trim_range(start, end)
    return high > low


def trim_range(start: int, end: int) -> tuple[int, int]:
    """Return the pages of a free chunk ``[start, end)`` that malloc_trim returns.

    Source: glibc malloc/malloc.c, mtrim.
    """
    return (start + TRIM_KEEPS + KERNEL_PAGE - 1) & -KERNEL_PAGE, end & -KERNEL_PAGE


# Checking each chunk against its neighbours, and free chunks' links by a sum, while a heap is walked.
#
# A free chunk c is in a ring: c.fd.bk is c. For all chunks and heads of bins the pairs (c, c.fd) are then the pairs
# (c.bk, c) in another order, so that the sums of a hash of each pair are equal: one pass, however many there are.
# Only if the sums differ are the rings followed one by one (`bins`). Source: glibc malloc/malloc.c, struct
# malloc_chunk, unlink_chunk, _int_malloc.


_MASK = (1 << 64) - 1
_FIRST, _SECOND, _THIRD = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
LARGE = 1024  # from here on chunks of one size in a bin have a separate ring
_NAMED = 8  # inconsistent chunks recorded per region


def mix(first: int, second: int) -> int:
    """Return a hash of a pair of words."""
    mixed = (first * _FIRST & _MASK) ^ (second * _SECOND & _MASK)
    return (mixed ^ mixed >> 29) * _THIRD & _MASK


def link_difference(address: int, forward: int, backward: int) -> int:
    """Return the contribution of a member of a ring to the sum, which is 0 (mod 2^64) over whole rings."""
    return (mix(address, forward) - mix(backward, address)) & _MASK


def check_chunk(tally: HeapTally, address: int, head: int, *, in_use: bool, is_last: bool) -> None:
    """Record the chunk at *address* if its flags are impossible."""
    if head & IS_MMAPPED:
        tally.note_odd(address, _MMAPPED)
    elif bool(head & NON_MAIN_ARENA) != (tally.in_further_arena and in_use) and not is_last:
        tally.note_odd(address, _ARENA)


def check_free(memory: Memory, tally: HeapTally, address: int, size: int) -> None:
    """Check the free chunk at *address*, in plain Python."""
    forward, backward, next_size, previous_size = words_at(memory, address + 16, 4)
    foot = word_at(memory, address + size)
    if foot != size:
        tally.note_odd(address, _foot(foot))
    difference = link_difference(address, forward, backward)
    if size >= LARGE and (next_size or previous_size):
        difference += link_difference(address + 1, next_size + 1, previous_size + 1)
    tally.link_sum = (tally.link_sum + difference) & _MASK


_MMAPPED = "is flagged as individually mapped"
_ARENA = "is flagged as part of another arena"


def _foot(foot: int) -> str:
    return (
        f"is free by its neighbour's flag, and its size isn't repeated at its end (0x{foot:x} stands there)"
    )


class LinkSums:
    """Does the same with numpy, block by block."""

    def __init__(self, np: Any, tally: HeapTally, memory: Memory) -> None:
        self.np, self.tally, self.memory = np, tally, memory
        self._factors = [np.uint64(factor) for factor in (_FIRST, _SECOND, _THIRD)]

    def add(self, chunks: HeapChunks, free: Any) -> None:
        """Check *chunks*, of which those with the numbers *free* are free by the next one's flag."""
        self._check_flags(chunks)
        if not len(free):
            return
        np, base = self.np, chunks.base
        at, sizes = chunks.at[free], chunks.sizes[free]
        inner = len(free) if int(at[-1]) + 2 < chunks.units else len(free) - 1
        if inner and int(at[inner - 1] + sizes[inner - 1]) >= chunks.units:
            inner -= 1
        for number in range(inner, len(free)):  # the last chunk extends beyond the data read
            check_free(self.memory, self.tally, base + 16 * int(at[number]), 16 * int(sizes[number]))
        at, sizes = at[:inner], sizes[:inner]
        words = chunks.words
        feet = words[2 * (at + sizes)]
        odd = feet != (sizes << 4).view(np.uint64)
        if odd.any():
            for number in np.flatnonzero(odd)[:_NAMED].tolist():
                self.tally.note_odd(base + 16 * int(at[number]), _foot(int(feet[number])))
        self._add_links(words, at, base)
        self._add_next_sizes(words, at[sizes >= LARGE // 16], base)

    def _check_flags(self, chunks: HeapChunks) -> None:
        np, flags, tally = self.np, chunks.flags, self.tally
        if tally.in_further_arena:
            in_use = np.append(flags[1:], np.uint8(chunks.next_head & 1)) & 1
            odd = (flags & IS_MMAPPED) | ((flags & NON_MAIN_ARENA) ^ (in_use << 2))
            if chunks.next_head & ~7 in (0, 16):
                odd[-1] &= IS_MMAPPED
        elif not np.bitwise_or.reduce(flags) & (IS_MMAPPED | NON_MAIN_ARENA):
            return
        else:
            odd = flags & (IS_MMAPPED | NON_MAIN_ARENA)
        for number in np.flatnonzero(odd)[:_NAMED].tolist():
            why = _MMAPPED if int(odd[number]) & IS_MMAPPED else _ARENA
            tally.note_odd(chunks.base + 16 * int(chunks.at[number]), why)

    def _add_links(self, words: Any, at: Any, base: int) -> None:
        addresses = ((at << 4) + base).view(self.np.uint64)
        self._add(addresses, words[2 * at + 2], words[2 * at + 3])

    def _add_next_sizes(self, words: Any, at: Any, base: int) -> None:
        if not len(at):
            return
        np = self.np
        following, before = words[2 * at + 4], words[2 * at + 5]
        ringed = np.flatnonzero(following | before)
        one = np.uint64(1)
        addresses = ((at[ringed] << 4) + base).view(np.uint64)
        self._add(addresses + one, following[ringed] + one, before[ringed] + one)

    def _add(self, addresses: Any, forward: Any, backward: Any) -> None:
        difference = int(self._mixed(addresses, forward).sum()) - int(self._mixed(backward, addresses).sum())
        self.tally.link_sum = (self.tally.link_sum + difference) & _MASK

    def _mixed(self, first: Any, second: Any) -> Any:
        np = self.np
        mixed = first * self._factors[0]
        mixed ^= second * self._factors[1]
        mixed ^= mixed >> np.uint64(29)
        mixed *= self._factors[2]
        return mixed
