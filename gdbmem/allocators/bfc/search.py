"""Finding BFC allocators in memory: by the sizes of their 21 bins, and by the type information before them.

No symbol is needed. An object without type information is named by the symbol of its vtable, if the caller has one;
without both it has no name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Callable, Optional

from gdbmem.model.bfc.pools import BINS, bin_floor
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text
from gdbmem.patterns import lazy_pattern
from gdbmem.records import dataclass

_LAST = struct.pack("<Q", bin_floor(BINS - 1))
_PIECE = 32 << 20
_FARTHEST = 512  # of the bins from the beginning of their object
_STRIDES = range(16, 129, 8)
_LONGEST_NAME = 512
_NESTED = lazy_pattern(r"N((?:\d+\w+?)+)E$")


@dataclass(frozen=True)
class FoundObject:
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
