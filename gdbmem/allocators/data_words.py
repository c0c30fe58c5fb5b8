"""The data of a loaded object as columns of its words that are not zero, to look for the roots of allocators in.

Pages that nobody has touched are neither read nor held: most of a large .bss has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gdbmem.allocators.malloc_heap import SearchedMemory
from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Buffer, Memory, MemoryUnreadable, read_pieces

_PIECE = 1 << 24


class TouchedMemory:
    """A `Memory` that refuses what was never touched: reading it would map the page of zeros."""

    def __init__(self, view: SearchedMemory) -> None:
        self._memory, self._touched = view.memory, view.touched

    def read(self, address: int, size: int) -> bytes:
        self._check(address, size)
        return self._memory.read(address, size)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self._check(address, memoryview(buffer).nbytes)
        self._memory.read_into(address, buffer)

    def _check(self, address: int, size: int) -> None:
        if self._touched.within(address, address + size) != size:
            raise MemoryUnreadable(address, "it was never touched")


class ZeroedMemory:
    """A `Memory` that has zeros where nobody has touched it, without reading it there."""

    def __init__(self, view: SearchedMemory) -> None:
        self._memory, self._touched = view.memory, view.touched

    def read(self, address: int, size: int) -> bytes:
        if self._touched.within(address, address + size) == size:
            return self._memory.read(address, size)
        data = bytearray(size)
        for low, high in self._touched.overlaps(address, address + size):
            data[low - address : high - address] = self._memory.read(low, high - low)
        return bytes(data)

    def read_into(self, address: int, buffer: Buffer) -> None:
        memoryview(buffer).cast("B")[:] = self.read(address, memoryview(buffer).nbytes)


class DataWords(NamedTuple):
    """Words that are not zero, in order of address."""

    addresses: Any  # int64, multiples of 8
    values: Any  # int64

    def at(self, addresses: Any) -> Any:
        """Return the words at *addresses*, an array of multiples of 8: zero where there is none."""
        np = import_numpy()
        if not len(self.addresses):
            return np.zeros(np.shape(addresses), np.int64)
        places = np.minimum(np.searchsorted(self.addresses, addresses), len(self.addresses) - 1)
        return np.where(self.addresses[places] == addresses, self.values[places], 0)

    def row(self, address: int, count: int) -> Any:
        """Return *count* words from *address* on."""
        return self.at(address + 8 * import_numpy().arange(count))

    def count_between(self, starts: Any, ends: Any) -> Any:
        """Return how many words are not zero from each of *starts* to the one of *ends* beside it."""
        np = import_numpy()
        return np.searchsorted(self.addresses, ends) - np.searchsorted(self.addresses, starts)


def data_words(view: SearchedMemory, areas: Iterable[tuple[int, int]]) -> DataWords:
    """Return the words in *areas* that are not zero; what can't be read is left out."""
    np = import_numpy()
    addresses, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start, data in touched_pieces(view, areas):
        nonzero = np.flatnonzero(data)
        addresses.append(start + 8 * nonzero)
        values.append(data[nonzero])
    return DataWords(np.concatenate(addresses), np.concatenate(values))


def touched_pieces(
    view: SearchedMemory, areas: Iterable[tuple[int, int]], most: int = _PIECE
) -> Iterable[tuple[int, Any]]:
    """Yield address and words (int64) of each piece of *areas* that was touched and can be read.

    Bounds of *areas* are multiples of 8. A piece has at most *most* bytes.
    """
    np = import_numpy()
    for area in areas:
        for low, high in view.touched.overlaps(*area):
            for start, data in read_pieces(view.memory, low, high, most, 0):
                yield start, np.frombuffer(data, np.int64, len(data) // 8)


def entries_of(view: SearchedMemory, leaves: Iterable[tuple[int, int]], leaf_bits: int) -> tuple[Any, Any]:
    """Return the entries that are not zero of the *leaves* of a map, number and address each, and their indexes.

    A leaf has ``1 << leaf_bits`` words; leaf number N begins with entry ``N << leaf_bits``.
    """
    np = import_numpy()
    indexes, entries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, leaf in leaves:
        found = data_words(view, [(leaf, leaf + (8 << leaf_bits))])
        indexes.append((number << leaf_bits) + (found.addresses - leaf) // 8)
        entries.append(found.values)
    return np.concatenate(indexes), np.concatenate(entries)


def are_in(ranges: Ranges, addresses: Any) -> Any:
    """Return for each of *addresses* whether it is in one of *ranges*."""
    np = import_numpy()
    return np.searchsorted(ranges.bounds, addresses, "right") % 2 == 1


def are_within(ranges: Ranges, starts: Any, ends: Any) -> Any:
    """Return for each piece from one of *starts* to the one of *ends* beside it whether it is in one of *ranges*."""
    np = import_numpy()
    bounds = np.array(ranges.items, np.int64).reshape(-1)
    places = np.searchsorted(bounds, starts, "right")
    return (places % 2 == 1) & (places == np.searchsorted(bounds, ends, "left"))


def pointers(words: DataWords, ranges: Ranges) -> DataWords:
    """Return those of *words* that may be pointers to words in *ranges*."""
    kept = (words.values & 7 == 0) & are_in(ranges, words.values)
    return DataWords(words.addresses[kept], words.values[kept])


def read_words(memory: Memory, address: int, count: int) -> Any:
    """Return *count* words (int64) from *address* on. Raises MemoryUnreadable."""
    np = import_numpy()
    return np.frombuffer(memory.read(address, 8 * count), np.int64)


def pages_around(addresses: Any, size: int, apart: int) -> Sequence[tuple[int, int]]:
    """Return ranges of whole 4096 bytes around objects of *size* bytes; those less than *apart* apart are one range."""
    np = import_numpy()
    if not len(addresses):
        return []
    ordered = np.sort(addresses)
    cuts = np.flatnonzero(np.diff(ordered) > apart)
    firsts = ordered[np.concatenate(([0], cuts + 1))] & -4096
    lasts = ordered[np.concatenate((cuts, [len(ordered) - 1]))] + size + 4095 & -4096
    return list(zip(firsts.tolist(), lasts.tolist()))
