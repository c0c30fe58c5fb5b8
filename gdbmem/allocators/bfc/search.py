"""Finding BFC allocators in memory: by the sizes of their 21 bins, and by the type information before them.

No symbol is needed. An object without type information is named by the symbol of its vtable, if the caller has one;
without both it has no name.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import compress
from typing import Callable, NamedTuple, Optional

from gdbmem.allocators.bfc.layout import NONE
from gdbmem.model.bfc import BINS, bin_floor
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text

_LAST = struct.pack("<Q", bin_floor(BINS - 1))
_PIECE = 32 << 20
_FARTHEST = 512  # of the bins from the beginning of their object
_STRIDES = range(16, 129, 8)
_LONGEST_NAME = 512
_NESTED = re.compile(r"N((?:\d+\w+?)+)E$")


class FoundObject(NamedTuple):
    """An object with the bins of a BFC allocator."""

    address: int
    class_name: str  # demangled; "" if unknown


def find_objects(
    memory: Memory,
    areas: Iterable[tuple[int, int]],
    constants: Callable[[int], bool],
    vtable_name: Callable[[int], str],
    code: Callable[[int], bool],
) -> Iterator[FoundObject]:
    """Yield the allocators in *areas*, in order of address.

    *constants* returns whether an address is in read-only data of files, which contains vtables, *code* whether it is
    in their code. *vtable_name* returns the mangled class by its vtable's symbol, for programs without type
    information.
    """
    for at in _bins(memory, areas):
        found = _owner(memory, at, constants, vtable_name, code)
        if found is not None:
            yield found


def _bins(memory: Memory, areas: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the address of the first of 21 bins."""
    before = (BINS - 1) * _STRIDES[-1]
    for start, end in areas:
        for low in range(start, end, _PIECE):
            begin = max(start, low - before)
            try:
                data = memory.read(begin, min(end, low + _PIECE) - begin)
            except MemoryUnreadable:
                continue
            at = data.find(_LAST, low - begin)
            while at >= 0:
                if (begin + at) % 4 == 0:  # character arrays to the compiler
                    for stride in _STRIDES:
                        if _is_table(data, at, stride):
                            yield begin + at - (BINS - 1) * stride
                at = data.find(_LAST, at + 1)


def _is_table(data: bytes, last: int, stride: int) -> bool:
    """Return whether the bins before the one at *last* are *stride* bytes apart."""
    return last >= (BINS - 1) * stride and all(
        data[last - back * stride : last - back * stride + 8] == struct.pack("<Q", bin_floor(BINS - 1 - back))
        for back in range(1, BINS)
    )


def _owner(
    memory: Memory,
    bins: int,
    constants: Callable[[int], bool],
    vtable_name: Callable[[int], str],
    code: Callable[[int], bool],
) -> Optional[FoundObject]:
    """Return the object with the bins at *bins*: it begins at the nearest pointer to a vtable before them."""
    bins &= -8
    try:
        data = memory.read(bins - _FARTHEST, _FARTHEST)
    except MemoryUnreadable:
        return None
    for at in range(_FARTHEST - 16, -1, -8):
        (vtable,) = struct.unpack_from("<Q", data, at)
        if vtable % 8 or not constants(vtable):
            continue
        name = class_of(memory, vtable, constants) or class_name(vtable_name(vtable))
        if name or _is_bare_vtable(memory, vtable, code):
            return FoundObject(bins - _FARTHEST + at, name)
    return None


def _is_bare_vtable(memory: Memory, vtable: int, code: Callable[[int], bool]) -> bool:
    """Return whether functions begin at *vtable*, without type information before them."""
    try:
        top, info, *functions = struct.unpack("<QQ3Q", memory.read(vtable - 16, 40))
    except MemoryUnreadable:
        return False
    return not top and not info and all(map(code, functions))


def class_of(memory: Memory, vtable: int, constants: Callable[[int], bool]) -> str:
    """Return the class of objects with *vtable*, by its type information; "" if it has none."""
    try:
        (top, info) = struct.unpack("<QQ", memory.read(vtable - 16, 16))
        if top or info % 8 or not constants(info):
            return ""
        (text,) = struct.unpack("<Q", memory.read(info + 8, 8))
        if not constants(text):
            return ""
        mangled = (read_text(memory, text, _LONGEST_NAME) or b"").decode("ascii")
    except (MemoryUnreadable, UnicodeDecodeError, struct.error):
        return ""
    return class_name(mangled.lstrip("*"))


def class_name(mangled: str) -> str:
    """Return N3tsl12BFCAllocatorE as tsl::BFCAllocator; "" for other forms except plain names."""
    nested = _NESTED.match(mangled)
    rest = nested[1] if nested else mangled
    parts = []
    while rest:
        digits = re.match(r"\d+", rest)
        if digits is None:
            return ""
        size = int(digits[0])
        part, rest = rest[digits.end() : digits.end() + size], rest[digits.end() + size :]
        if len(part) != size or not part.isidentifier():
            return ""
        parts.append(part)
    return "::".join(parts)


# Owners of chunks: the annotations of XLA since 2026, in each chunk a std::optional of a vector of frames.
#
# The bytes are read level by level while the process is stopped, pieces that lie near each other at once, and
# decoded afterwards.


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
