"""The memory that malloc and the kernel would get back if some blocks were freed, by the pages around them.

Freed blocks join the free chunks beside them. Then `malloc_trim(0)` returns the whole pages inside of each free chunk
of each arena, but for the chunk's first bytes, and the end of the main arena's top; a block with a mapping of its own
goes at once. A page stays where a live block, or one that a tcache keeps, has a byte of it.
Source: glibc malloc/malloc.c, _int_free, mtrim, systrim; malloc/arena.c, heap_trim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from gdbmem.allocators.glibc.tallies import TRIM_KEEPS
from gdbmem.arrays import import_numpy
from gdbmem.heap.blocks import HEADER, Blocks
from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.model.heap_graph import GivenBack

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import HeapReading
    from gdbmem.ledger.ledger import ProcessImage

_TOP_KEEPS = 33  # bytes of a top that systrim and heap_trim leave alone
_CACHED_UNITS = 66  # of 16 bytes: blocks from here on are in no tcache
_CACHED = 7, 16  # blocks of a size in a tcache, of releases with fastbins and without
_PINNED = 2  # most pages that a block in a tcache keeps
_NEVER = 1 << 62


class Top(NamedTuple):
    """The free end of an arena."""

    start: int
    end: int
    page: (
        int  # what it is shortened by, a multiple of this; 0: only free() shortens it, malloc_trim() does not
    )
    keeps: int  # bytes that then stay
    least: int  # bytes that it has to have before


@dataclass
class PageLedger:
    """The pages of a heap, and what pins them."""

    blocks: Blocks
    pinned: Any  # bool, for each block: in a tcache
    tops: Sequence[Top]
    mapped: Sequence[tuple[int, int]]  # blocks with mappings of their own: all their pages
    resident: Ranges
    cached: int  # most blocks of a size that a tcache takes

    @classmethod
    def of(cls, reading: ProcessImage, heap: HeapReading, blocks: Blocks) -> PageLedger:
        """Return the ledger of the *blocks* of *heap*."""
        np = import_numpy()
        pinned = np.zeros(blocks.count, bool)
        addresses = np.array(heap.caches.cached.tcache, np.uint64) + np.uint64(HEADER)
        if len(addresses) and blocks.count:
            low, size = blocks.span
            numbers = blocks.find(addresses[addresses - np.uint64(low) < np.uint64(size)])
            pinned[numbers[numbers >= 0]] = True
        usual = _CACHED["fastbinsY" not in heap.found.layout.state]
        return cls(
            blocks,
            pinned & ~blocks.live,
            list(_tops(reading, heap)),
            [(chunk.start, chunk.end) for chunk in heap.mmapped],
            reading.resident,
            max([usual, *(len(chunks) for chunks in heap.caches.tcache_lists.values())]),
        )

    def given_back(self, rows: Any, count: int) -> list[GivenBack]:
        """Return what would come back if all blocks of each of *count* rows were freed, each row for itself.

        *rows* has for each block the number of its row, -1: none.
        """
        np = import_numpy()
        rows = np.where(self.blocks.live, rows, -1)
        mine = np.flatnonzero(rows >= 0)
        row, units = rows[mine], self._units(mine)
        sizes = np.bincount(row, units << 4, count)
        small = units < _CACHED_UNITS
        by_size = np.bincount(row[small] * _CACHED_UNITS + units[small], minlength=count * _CACHED_UNITS)
        kept = np.minimum(by_size, self.cached).reshape(count, -1).sum(1) * (_PINNED * PAGE)
        at_once = self._at_once(rows, count)
        run_rows, starts, ends = self._runs(rows)
        least, most = (np.bincount(run_rows, gains, count) for gains in self._gains(starts, ends))
        least, most = np.maximum(least - kept, 0) + at_once, np.maximum(most, 0) + at_once
        columns = (column.astype(np.int64).tolist() for column in (sizes, at_once, least, most))
        return [GivenBack(*figures) for figures in zip(*columns)]

    def _units(self, numbers: Any) -> Any:
        """Return the sizes of the blocks *numbers* in units of 16 bytes."""
        np = import_numpy()
        return (self.blocks.unit[numbers + 1] - self.blocks.unit[numbers]).astype(np.int64)

    def _at_once(self, rows: Any, count: int) -> Any:
        """Return for each row the resident bytes of blocks with mappings of their own, and take these from *rows*."""
        np = import_numpy()
        found = np.zeros(count, np.int64)
        for start, end in self.mapped:
            number = self.blocks.find_one(
                end - 16
            )  # in its last bytes: it may be aligned to more than a page
            if number >= 0 and rows[number] >= 0:
                found[rows[number]] += self.resident.within(start, end)
                rows[number] = -1
        return found

    def _runs(self, rows: Any) -> tuple[Any, Any, Any]:
        """Return row, start and end (addresses) of each run of blocks of one row and the free chunks beside them."""
        np = import_numpy()
        blocks, mine = self.blocks, np.flatnonzero(rows >= 0)
        used = blocks.live | self.pinned
        order = np.cumsum(used, dtype=np.int32)
        places = np.concatenate(([-1], np.flatnonzero(used), [blocks.count])).astype(np.int32)
        begins = np.asarray(blocks.begins)
        region = np.searchsorted(begins, mine, "right") - 1
        new = np.ones(len(mine), bool)
        new[1:] = order[mine[1:]] - order[mine[:-1]] != 1
        new[1:] |= (rows[mine[1:]] != rows[mine[:-1]]) | (region[1:] != region[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(mine))[: len(first)] - 1
        # From behind the used one before to the used one behind.
        begin = np.maximum(places[order[mine[first]] - 1] + 1, begins[region[first]])
        end = np.minimum(places[order[mine[last]] + 1], begins[region[last] + 1])
        return rows[mine[first]], self._start_of(begin), self._end_of(end)

    def _start_of(self, numbers: Any) -> Any:
        return self.blocks.addresses(numbers) - HEADER

    def _end_of(self, numbers: Any) -> Any:
        """Return where the chunks before *numbers* end."""
        return self._start_of(numbers - 1) + (self._units(numbers - 1) << 4)

    def _gains(self, starts: Any, ends: Any) -> tuple[Any, Any]:
        """Return how many resident bytes more than now malloc_trim() would return of each run, at least and at most."""
        np = import_numpy()
        least = self._trimmed(starts, ends)
        most = least.copy()
        for top in self.tops:
            for n in np.flatnonzero(ends == top.start).tolist():
                most[n] = self._top_returns(top, int(starts[n]))
                least[n] = most[n] if top.page else 0
        # What it returns before anything is freed.
        at, sizes = self._free_now
        sums = np.concatenate(([0], np.cumsum(sizes)))
        is_top = np.isin(ends, [top.start for top in self.tops])
        now = sums[np.searchsorted(at, ends + is_top)] - sums[np.searchsorted(at, starts)]
        return least - now, most - now

    def _trimmed(self, starts: Any, ends: Any) -> Any:
        """Return the resident bytes that malloc_trim() returns of free chunks that aren't at the top."""
        np = import_numpy()
        low = (starts + TRIM_KEEPS + PAGE - 1) & -PAGE
        return self.resident.within_each(low, np.maximum(low, ends & -PAGE))

    def _top_returns(self, top: Top, start: int) -> int:
        length = top.end - start
        extra = max(length - _TOP_KEEPS - top.keeps, 0) & -(top.page or PAGE)
        return self.resident.within(top.end - extra, top.end) if length >= top.least else 0

    @cached_property
    def _free_now(self) -> tuple[Any, Any]:
        """Where free runs begin, in order of address, and the resident bytes that malloc_trim() returns of each."""
        np = import_numpy()
        blocks = self.blocks
        free = np.zeros(blocks.count + 1, bool)
        np.logical_or(blocks.live, self.pinned, out=free[:-1])
        np.logical_not(free[:-1], out=free[:-1])
        begins = np.asarray(blocks.begins)
        new = free.copy()
        new[1:] &= ~free[:-1]
        new[begins] = free[begins]
        first = np.flatnonzero(new)
        used = np.flatnonzero(~free)
        region = np.searchsorted(begins, first, "right")
        behind = np.minimum(used[np.searchsorted(used, first)], begins[region])
        starts, ends = self._start_of(first), self._end_of(behind)
        sizes = self._trimmed(starts, ends)
        tops: list[tuple[int, int]] = []
        for top in self.tops:
            below = np.flatnonzero(ends == top.start)
            start = int(starts[below[0]]) if len(below) else top.start
            sizes[below] = 0
            tops.append((start, self._top_returns(top, start) if top.page else 0))
        both = np.concatenate((np.stack((starts, sizes)), np.array(tops, np.int64).reshape(-1, 2).T), axis=1)
        at, sizes = both[:, np.argsort(both[0], kind="stable")]
        return at, sizes

    def trimmed_now(self) -> int:
        """Return the resident bytes that malloc_trim() would return before anything is freed."""
        return int(self._free_now[1].sum())


def _tops(reading: ProcessImage, heap: HeapReading) -> Any:
    """Yield the end of each arena. That of the main one is shortened if it ends at the program break."""
    parameters = heap.parameters
    break_end = next((m.end for m in reading.mappings if m.name == "[heap]"), 0)
    for arena in heap.arenas:
        for region in arena.state.regions:
            if not region.has_top:
                continue
            if arena.state.is_main and region.end == break_end:
                yield Top(region.limit, region.end, max(parameters.thp_page if parameters else 0, PAGE), 0, 0)
            elif arena.state.is_main or parameters is None:
                yield Top(region.limit, region.end, 0, 0, _NEVER)
            else:
                yield Top(region.limit, region.end, 0, parameters.top_pad, parameters.trim_threshold)
