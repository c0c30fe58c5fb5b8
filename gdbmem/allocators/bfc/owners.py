"""Owners of chunks: the annotations of XLA since 2026, in each chunk a std::optional of a vector of frames.

The bytes are read level by level while the process is stopped, pieces that lie near each other at once, and decoded
afterwards.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import compress
from typing import Optional

from gdbmem.allocators.bfc.layout import NONE
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.records import dataclass, field

_FLAG, _VECTOR = 12, 9  # words of a chunk: whether it has an annotation, and the vector's begin and end
_STRING = 32  # bytes of a std::string, of which the last 16 may be its characters
_FRAME, _ARGUMENT = _STRING + 24, 2 * _STRING  # a name and a vector of arguments; a key and a value
_MOST_CHUNKS = 4096  # some 10 µs each, for which the process is stopped
_MOST_ITEMS = 64  # in a vector
_LONGEST = 4096  # bytes of a string
_APART, _RUN = 1 << 12, 1 << 20  # bytes between pieces that are read together, and in all

Pieces = Mapping[tuple[int, int], bytes]  # by address and size; those that can't be read are missing


@dataclass(frozen=True)
class OwnerBytes:
    """The bytes of the annotations of chunks."""

    vectors: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # by handle: address and size
    pieces: Pieces = field(default_factory=dict)
    annotated: int = 0  # chunks that have an annotation; more than `vectors` in a very large pool

    def texts(self) -> dict[int, str]:
        """Return the owners by handle, as in the allocator's own dump; those that can't be read are missing."""
        found = {}
        for handle, vector in self.vectors.items():
            text = self._text(vector)
            if text is not None:
                found[handle] = text
        return found

    def _text(self, vector: tuple[int, int]) -> Optional[str]:
        words = []
        for frame in _items(self.pieces, vector, _FRAME):
            name = self._string(frame, 0)
            arguments = [
                (self._string(one, 0), self._string(one, _STRING))
                for one in _items(self.pieces, _arguments(frame), _ARGUMENT)
            ]
            if name is None or any(None in pair for pair in arguments):
                return None
            inner = ", ".join(f"{key}={value}" for key, value in arguments)
            words.append(f"{name}{{{inner}}}" if inner else name)
        return " / ".join(words) or None

    def _string(self, item: tuple[int, bytes], offset: int) -> Optional[str]:
        inside, outside = _characters(item, offset)
        data = inside if outside is None else self.pieces.get(outside)
        return None if data is None else data.decode("utf-8", "surrogateescape")


def capture_owners(memory: Memory, slots: array[int], step: int) -> OwnerBytes:
    """Read the annotations of the chunks in *slots*, of *step* words each; in a very large pool of the largest."""
    flags = memoryview(slots).cast("B")[8 * _FLAG :: 8 * step].tobytes()
    chosen = [number for number in compress(range(len(flags)), flags) if slots[number * step + 2] != NONE]
    annotated = len(chosen)
    if not annotated:
        return OwnerBytes()
    if annotated > _MOST_CHUNKS:
        chosen = nlargest(_MOST_CHUNKS, chosen, key=lambda number: slots[number * step])
    begins, ends = slots[_VECTOR::step], slots[_VECTOR + 1 :: step]
    vectors = {number: _extent(begins[number], ends[number]) for number in chosen}
    pieces: dict[tuple[int, int], bytes] = {}
    _read(memory, vectors.values(), pieces)
    frames, words = _columns(pieces, vectors.values(), _FRAME)
    strings = _outside(frames, words[0::7], words[1::7])
    arguments = list(map(_extent, words[4::7], words[5::7]))
    _read(memory, arguments, pieces)
    pairs, words = _columns(pieces, arguments, _ARGUMENT)
    strings += _outside(pairs, words[0::8], words[1::8])
    strings += _outside([at + _STRING for at in pairs], words[4::8], words[5::8])
    _read(memory, strings, pieces)
    return OwnerBytes(vectors, pieces, annotated)


def _columns(
    pieces: Pieces, vectors: Iterable[tuple[int, int]], size: int
) -> tuple[Sequence[int], array[int]]:
    """Return the addresses and the words of all items, of *size* bytes each, of *vectors*."""
    good = [one for one in vectors if one in pieces and one[1] % size == 0]
    words = array("Q", b"".join(pieces[one] for one in good))
    return [at for begin, length in good for at in range(begin, begin + length, size)], words


def _outside(
    addresses: Iterable[int], pointers: Iterable[int], sizes: Iterable[int]
) -> list[tuple[int, int]]:
    """Return where the characters are of those strings at *addresses* that are not short ones."""
    return [(at, size) for own, at, size in zip(addresses, pointers, sizes) if at != own + 16]


def _extent(begin: int, end: int) -> tuple[int, int]:
    return begin, max(0, end - begin)


def _arguments(frame: tuple[int, bytes]) -> tuple[int, int]:
    return _extent(*struct.unpack_from("<QQ", frame[1], _STRING))


def _items(pieces: Pieces, vector: tuple[int, int], size: int) -> Iterator[tuple[int, bytes]]:
    """Yield address and bytes of each item of a vector; nothing if it isn't one."""
    data = pieces.get(vector, b"")
    if len(data) % size == 0:
        for at in range(0, len(data), size):
            yield vector[0] + at, data[at : at + size]


def _characters(item: tuple[int, bytes], offset: int) -> tuple[Optional[bytes], Optional[tuple[int, int]]]:
    """Return the characters of the string at *offset* of *item*, or where they are."""
    address, data = item
    pointer, size = struct.unpack_from("<QQ", data, offset)
    if pointer == address + offset + 16:
        return (data[offset + 16 : offset + 16 + size] if size < 16 else None), None
    return None, (pointer, size)


def _read(memory: Memory, wanted: Iterable[tuple[int, int]], pieces: dict[tuple[int, int], bytes]) -> None:
    """Add to *pieces* all of *wanted* that can be read and is not too large."""
    run: list[tuple[int, int]] = []
    for one in sorted({one for one in wanted if one not in pieces}):
        if not 0 < one[1] <= max(_LONGEST, _MOST_ITEMS * _ARGUMENT):
            continue
        last = run[-1] if run else one
        if run and (one[0] > last[0] + last[1] + _APART or one[0] + one[1] > run[0][0] + _RUN):
            _read_run(memory, run, pieces)
            run = []
        run.append(one)
    _read_run(memory, run, pieces)


def _read_run(memory: Memory, run: Sequence[tuple[int, int]], pieces: dict[tuple[int, int], bytes]) -> None:
    if not run:
        return
    start, end = run[0][0], max(address + size for address, size in run)
    try:
        data = memory.read(start, end - start)
    except MemoryUnreadable:
        if len(run) > 1:  # something between them
            for one in run:
                _read_run(memory, [one], pieces)
        return
    for address, size in run:
        pieces[address, size] = data[address - start : address - start + size]
