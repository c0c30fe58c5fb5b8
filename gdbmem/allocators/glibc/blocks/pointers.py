"""Every word that points into one chunk: in live blocks, variables and stacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gdbmem.allocators.glibc.blocks.chunks import HEADER, ChunkTable
from gdbmem.allocators.glibc.blocks.vectors import readable_pieces
from gdbmem.allocators.glibc.walking import lockstep
from gdbmem.model.ledger.vectors import HEAP
from gdbmem.model.memory import Memory

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.blocks.vectors import Area
    from gdbmem.allocators.glibc.places.mmapped import MmappedChunk

_BLOCK = 1 << 23


class FoundPointer(NamedTuple):
    """A word that points into the chunk, and its location."""

    address: int
    value: int
    place: str  # of PLACES
    owner: int  # user address of the live block that contains it; 0 outside the heap


def find_pointers(
    memory: Memory,
    tables: Sequence[ChunkTable],
    mmapped: Sequence[MmappedChunk],
    areas: Iterable[Area],
    target: tuple[int, int],
    *,
    pure: bool,
) -> Iterator[FoundPointer]:
    """Yield the words in *areas* and in live blocks that point into *target*, except words in *target* itself."""
    quick = not pure and lockstep.available()
    low, high = target
    for place, start, end in areas:
        for address, value in _scan(memory, start, end, low, high, quick):
            yield FoundPointer(address, value, place, 0)
    for table in tables:
        for address, value in _scan(memory, table.start, table.end, low, high, quick):
            number = table.find(address)
            begin, _ = table.bounds(number)
            # The first word of the next chunk's header is the last of this one's memory.
            if address == begin and number and table.live[number - 1]:
                begin, _ = table.bounds(number - 1)
            elif not table.live[number] or address < begin + HEADER:
                continue
            if not low <= address < high:
                yield FoundPointer(address, value, HEAP, begin + HEADER)
    for chunk in mmapped:
        for address, value in _scan(memory, chunk.memory, chunk.end, low, high, quick):
            if not low <= address < high:
                yield FoundPointer(address, value, HEAP, chunk.memory)


def _scan(
    memory: Memory, start: int, end: int, low: int, high: int, quick: bool
) -> Iterator[tuple[int, int]]:
    for begin in range(start, end, _BLOCK):
        for base, data in readable_pieces(memory, begin, min(begin + _BLOCK, end)):
            if quick:
                yield from _scan_quick(base, data, low, high)
                continue
            words = memoryview(data[: len(data) & -8]).cast("Q")
            yield from ((base + 8 * at, word) for at, word in enumerate(words) if low <= word < high)


def _scan_quick(base: int, data: bytes, low: int, high: int) -> Iterator[tuple[int, int]]:
    import numpy as np  # 110 ms

    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    # Below *low* the difference wraps around, and is larger than any block.
    for at in np.flatnonzero(words - np.uint64(low) < np.uint64(high - low)).tolist():
        yield base + 8 * at, int(words[at])
