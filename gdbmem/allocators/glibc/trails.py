"""Chunks as yielded by a walk with numpy, and a compact record of them that makes a second walk cheap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.model.memory import Memory

if TYPE_CHECKING:
    import numpy as np  # slow to import
    from numpy.typing import NDArray

    Units = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Flags = NDArray[np.uint8]

UNIT = 16  # chunks begin at multiples of this


class HeapChunks(NamedTuple):
    """Consecutive chunks: each one's unit (it begins at ``base + 16 unit``), units, and flags."""

    base: int
    at: Units
    sizes: Units
    flags: Flags  # the lowest byte of the size word
    end: int  # unit where the last one ends
    next_head: int  # the size word there
    words: Words  # two per unit, from `base` on; overwritten by the next block
    units: int  # that were read


class _Block(NamedTuple):
    base: int
    end: int
    next_head: int
    units: int
    flag: Optional[int]  # the flags of all size words of the block; None if they differ


class Trail:
    """The starts of the chunks of one region: a bit for each unit from *base*, its first page, on."""

    def __init__(self, base: int, bits: Any) -> None:
        self.base = base
        self.bits = bits  # numpy's uint8
        self.blocks: list[_Block] = []

    @property
    def end(self) -> int:
        """Return the end of the last chunk."""
        return self.blocks[-1].base + UNIT * self.blocks[-1].end if self.blocks else self.base

    def has(self, address: int) -> bool:
        """Return whether a recorded chunk begins at *address*."""
        unit, rest = divmod(address - self.base, UNIT)
        return not rest and 0 <= unit < 8 * len(self.bits) and bool(self.bits[unit >> 3] >> (unit & 7) & 1)

    def note(self, np: Any, chunks: HeapChunks) -> None:
        """Record *chunks*, which follow those recorded before."""
        there = np.zeros(-(-chunks.units // 8) * 8, dtype=bool)
        there[chunks.at] = True
        first = (chunks.base - self.base) // (8 * UNIT)
        mine = np.packbits(there, bitorder="little")
        self.bits[first : first + len(mine)] |= mine
        flag = int(chunks.flags[0]) & 7
        # A free chunk is checked by its words: such a block is read again.
        alike = bool(flag & chunks.next_head & 1) and bool(((chunks.flags & 7) == flag).all())
        self.blocks.append(
            _Block(chunks.base, chunks.end, chunks.next_head, chunks.units, flag if alike else None)
        )

    def replay(self, memory: Memory) -> Iterator[HeapChunks]:
        """Yield the chunks again; *memory* is read only for blocks with chunks that are not in use."""
        import numpy as np  # slow to import

        words: Words = np.empty(2 * max((block.units for block in self.blocks), default=0), dtype=np.uint64)
        for block in self.blocks:
            first = (block.base - self.base) // (8 * UNIT)
            mine = self.bits[first : first + -(-block.units // 8)]
            at = np.flatnonzero(np.unpackbits(mine, bitorder="little", count=block.units).view(bool))
            if block.flag is None:
                read = words[: 2 * block.units]
                memory.read_into(block.base, read.view(np.uint8).data)
                flags = read.view(np.uint8)[8::16][at]
            else:
                flags = np.full(len(at), block.flag, dtype=np.uint8)
            sizes = np.diff(at, append=block.end)
            yield HeapChunks(block.base, at, sizes, flags, block.end, block.next_head, words, block.units)

    def first_of_other_size(self, memory: Memory, addresses: Any, sizes: Sequence[int]) -> Optional[int]:
        """Return the first of the chunks at *addresses*, sorted, with a size not in *sizes* (bytes)."""
        import numpy as np  # slow to import

        units = [size // UNIT for size in sizes]
        for chunks in self.replay(memory):
            begin, end = np.searchsorted(addresses, [chunks.base, chunks.base + UNIT * chunks.end])
            here = addresses[begin:end]
            at = np.searchsorted(chunks.at, (here.astype(np.int64) - chunks.base) // UNIT)
            odd = np.flatnonzero(~np.isin(chunks.sizes[at], units))
            if len(odd):
                return int(here[odd[0]])
        return None
