"""All blocks of malloc as columns in order of address, and which of them owns an address.

A block of glibc's begins 16 bytes after its chunk and ends 8 bytes into the next one, so an address is shifted by 16
and divided by 16: an end() pointer falls to its own block, never to the next one. A bit for each unit of 16 bytes marks
where a chunk begins, and a count for each 64 of them ranks it: the block of an address is a count plus the bits set
below it. That takes 1.2 % of the heap, and interior pointers cost what others do. Blocks without headers are given
chunks that begin 16 bytes before them, so that one rule finds both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.blocks import ChunkTable
from gdbmem.allocators.glibc.trails import UNIT
from gdbmem.arrays import import_numpy

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.arenas import MmappedChunk
    from gdbmem.linux.memory.maps import Ranges

HEADER = 16  # from a chunk to its memory
_LEAST_MAPPED, _PAGE = 1 << 17, 1 << 12  # malloc gives larger blocks mappings of their own, in whole pages
_BORROWED = 8  # bytes of the next chunk's header that belong to a block
_MARKED = 1 << 25  # units that are marked at a time


def popcount(np: Any, words: Any) -> Any:
    """Return the number of bits set in each of *words* (uint64)."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    one, two, four = (np.uint64(n) for n in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
    words = words - ((words >> np.uint64(1)) & one)
    words = (words & two) + ((words >> np.uint64(2)) & two)
    words = (words + (words >> np.uint64(4))) & four
    return ((words * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint8)


def glibc_regions(tables: Sequence[ChunkTable], mmapped: Sequence[MmappedChunk]) -> Iterator[ChunkTable]:
    """Yield the regions of glibc's malloc."""
    np = import_numpy()
    yield from (table for table in tables if len(table))
    # A block with a mapping of its own ends with it: nobody lends it 8 bytes.
    for chunk in mmapped:
        yield ChunkTable(
            chunk.memory - HEADER, chunk.end - _BORROWED, np.zeros(1, np.uint32), np.ones(1, bool)
        )


def other_regions(spans: Ranges, starts: Any, sizes: Any) -> Iterator[ChunkTable]:
    """Yield the regions of an allocator without headers: its blocks in use, in *spans*, and what is between them.

    *starts* are multiples of 16, in order.
    """
    np = import_numpy()
    ends = starts + ((sizes + UNIT - 1) & -UNIT)
    for low, high in spans.items:
        low &= -UNIT
        begin, end = np.searchsorted(starts, (low, high))
        mine, behind = starts[begin:end], ends[begin:end]
        if not len(mine):
            continue
        follows = np.append(mine[1:], high)
        gaps = np.append(low, behind[behind < follows]) if mine[0] > low else behind[behind < follows]
        at = np.concatenate((mine, gaps))
        order = np.argsort(at, kind="stable")
        live = order < len(mine)
        yield ChunkTable(low - HEADER, high - _BORROWED, ((at[order] - low) >> 4).astype(np.uint32), live)


class Blocks:
    """The blocks: number, unit where each begins, whether it is live.

    The regions are joined into one space of units. *unit* has one more value: the end of the last block.
    """

    def __init__(self, regions: Iterable[ChunkTable], header_bytes: int = 8) -> None:
        """Join *regions*; *header_bytes* of the size of each block are the allocator's."""
        np = import_numpy()
        self.header_bytes = header_bytes
        regions = sorted(regions, key=lambda region: region.start)
        self.lo = np.array([region.start for region in regions], np.uint64)
        self.hi = np.array([region.end for region in regions], np.uint64)
        lengths = [(region.end - region.start + UNIT - 1) // UNIT for region in regions]
        self.first: Any = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)  # unit of each region
        counts = [len(region) for region in regions]
        self.begins = [0, *accumulate(counts)]  # number of the first block of each region
        self.count = self.begins[-1]
        self.live: Any = np.empty(self.count, bool)
        self.unit: Any = np.empty(self.count + 1, np.uint32 if self.first[-1] < 1 << 32 else np.int64)
        for number, region in enumerate(regions):
            here = slice(self.begins[number], self.begins[number + 1])
            self.live[here] = region.live
            self.unit[here] = region.units
            self.unit[here] += self.unit.dtype.type(self.first[number])
        self.unit[self.count] = self.first[-1]
        self.low, self.high = (int(self.lo[0]), int(self.hi[-1])) if regions else (0, 0)
        self._index()

    def _index(self) -> None:
        np = import_numpy()
        words = (int(self.first[-1]) >> 6) + 2
        packed = np.zeros(8 * words, np.uint8)
        mark = np.zeros(min(64 * words, _MARKED), bool)
        for base in range(0, 64 * words, len(mark)):
            ends = np.array([base, base + len(mark)], np.int64)
            low, high = np.searchsorted(self.unit[: self.count], ends)
            mark[:] = False
            mark[self.unit[low:high].astype(np.int64) - base] = True
            piece = np.packbits(mark, bitorder="little")
            room = len(packed) - base // 8
            packed[base // 8 : base // 8 + len(piece)] = piece[:room]
        self.bits: Any = packed.view(np.uint64)
        self.rank: Any = np.zeros(words, np.int32)
        np.cumsum(popcount(np, self.bits[:-1]), out=self.rank[1:])

    @property
    def span(self) -> tuple[int, int]:
        """The lowest address of a block's memory, and the number of bytes from there to the end of the last one."""
        return self.low + HEADER, self.high - self.low - _BORROWED

    def sizes(self) -> Any:
        """Return the size of each block, in glibc with its header, as mallinfo2 counts it.

        The type is int32, or int64 if one has 2 GiB.
        """
        np = import_numpy()
        units = np.diff(self.unit)
        sizes = units.view(np.int32) if units.dtype == np.uint32 else units
        if self.count and int(units.max()) >= 1 << 27:
            sizes = units.astype(np.int64)
        sizes <<= 4
        return sizes

    def spare_words(self, numbers: Any, least: int) -> Any:
        """Return how many words less one at the end of each of *numbers* may be beyond what was asked for."""
        np = import_numpy()
        if self.header_bytes:
            return least
        return np.maximum((self.unit[numbers + 1] - self.unit[numbers]).astype(np.int64) * 2 // 5, least)

    def number_at(self, units: Any) -> Any:
        """Return the number of the block that begins at or before each of *units* (int64), int32."""
        np = import_numpy()
        word = units >> 6
        mask = self.bits.take(word, mode="clip")
        mask <<= (63 - (units & 63)).view(np.uint64)
        number = self.rank.take(word, mode="clip")
        number += popcount(np, mask)
        number -= np.int32(1)
        return number

    def find(self, addresses: Any) -> Any:
        """Return the number of the block that owns each of *addresses* (uint64) within the span, int32; -1: none."""
        np = import_numpy()
        shifted = addresses - np.uint64(HEADER)
        most = int(np.diff(self.first).argmax())
        within = shifted - self.lo[most]
        others = np.flatnonzero(within >= self.hi[most] - self.lo[most] - np.uint64(_BORROWED))
        units = (within >> np.uint64(4)).view(np.int64)
        units += self.first[most]
        shifted = shifted[others]
        region = np.searchsorted(self.lo, shifted, "right") - 1
        outside = others[(region < 0) | (shifted + np.uint64(_BORROWED) >= self.hi.take(region, mode="clip"))]
        units[others] = ((shifted - self.lo[region]) >> np.uint64(4)).view(np.int64) + self.first[region]
        units[outside] = 0
        number = self.number_at(units)
        number[outside] = -1
        return number

    def find_one(self, address: int) -> int:
        """Return the number of the block that owns *address*; -1 if there is none."""
        np = import_numpy()
        low, size = self.span
        if not self.count or not 0 <= address - low < size:
            return -1
        return int(self.find(np.array([address], np.uint64))[0])

    def addresses(self, numbers: Any) -> Any:
        """Return where the memory of each of the blocks *numbers* begins, int64."""
        np = import_numpy()
        units = self.unit[numbers].astype(np.int64)
        region = np.searchsorted(self.first, units, "right") - 1
        return self.lo.astype(np.int64)[region] + ((units - self.first[region]) << 4) + HEADER


def fits(sizes: Any, asked: Any, blocks: Blocks) -> Any:
    """Return whether blocks of these *sizes* are what malloc makes of the bytes that were *asked* for."""
    np = import_numpy()
    least = np.maximum((asked + blocks.header_bytes + 15) & ~15, 2 * blocks.header_bytes + 16)
    if not blocks.header_bytes:
        return (sizes >= least) & (sizes <= least + least // 4 + 16)  # sizes are a quarter apart
    # A remainder of 16 bytes is no chunk: it stays with the block.
    spare = np.where((sizes >= _LEAST_MAPPED) & (sizes % _PAGE <= 16), _PAGE, 16)
    return (sizes >= least) & (sizes <= least + spare)


def sizes_of(blocks: Blocks, numbers: Any) -> Any:
    """Return the sizes of the blocks *numbers*, int64."""
    np = import_numpy()
    return (blocks.unit[numbers + 1].astype(np.int64) - blocks.unit[numbers]) << 4


def blocks_at(blocks: Blocks, addresses: Any) -> Any:
    """Return the live block that begins at each of *addresses* (int64), -1: none."""
    np = import_numpy()
    low, size = blocks.span
    number = np.full(len(addresses), -1, np.int32)
    some = np.flatnonzero((addresses - low).view(np.uint64) < np.uint64(size))
    to = blocks.find(addresses[some].view(np.uint64))
    some, to = some[to >= 0], to[to >= 0]
    is_one = (blocks.addresses(to) == addresses[some]) & blocks.live[to]
    number[some[is_one]] = to[is_one]
    return number
