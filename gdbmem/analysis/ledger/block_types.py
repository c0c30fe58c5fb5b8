"""Finds the classes of vtables by the type information before each vtable."""

from __future__ import annotations

from typing import Callable, Optional

from gdbmem.model.ledger.block_types import CLASS, UNKNOWN, BlockType
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text, words_at
from gdbmem.patterns import lazy_pattern

# The possible beginnings of a class name in the Itanium C++ ABI.
_CLASS_NAME = lazy_pattern(rb"\*?((?:\d|N|S|Z|I)[A-Za-z0-9_.$]+)")
_LONGEST = 4096


def class_of(
    memory: Memory, vtable: int, in_file: Callable[[int], bool], symbol: Callable[[int], str] = lambda _: ""
) -> Optional[str]:
    """Return the mangled name of the class whose objects begin with a pointer to *vtable*; None: not a vtable.

    A vtable is preceded by the offset to the object's start, which is 0 for the vtable of the whole object, and its
    std::type_info. If the program was compiled without it, *symbol* may know the vtable's name.
    Source: Itanium C++ ABI, 2.5.2 and 2.9.5.
    """
    if vtable % 8:
        return None
    try:
        to_start, info = words_at(memory, vtable - 16, 2)
        if to_start:
            return None
        if not info:
            return symbol(vtable) or None
        if not in_file(info) or info % 8:
            return None
        kind, name = words_at(memory, info, 2)
        if not in_file(kind) or not in_file(name):
            return None
        found = _CLASS_NAME.fullmatch(read_text(memory, name, _LONGEST) or b"")
    except MemoryUnreadable:
        return None
    return found[1].decode("ascii") if found else None


def name_types(
    blocks: dict[tuple[str, int], int],
    sizes: dict[tuple[str, int], int],
    pinned: dict[tuple[str, int], float],
    name_of: Callable[[int], Optional[str]],
) -> list[BlockType]:
    """Return the types, largest first; objects of unrecognised classes count as unknown."""
    sums: dict[tuple[str, str], list[float]] = {}
    for kind, vtable in blocks:
        name = name_of(vtable) if kind == CLASS else None
        label = (CLASS, name) if name else (UNKNOWN if kind == CLASS else kind, "")
        figures = sums.setdefault(label, [0, 0, 0.0])
        figures[0] += blocks[kind, vtable]
        figures[1] += sizes[kind, vtable]
        figures[2] += pinned[kind, vtable]
    types = [
        BlockType(kind, name, int(figures[0]), int(figures[1]), round(figures[2], 3))
        for (kind, name), figures in sums.items()
    ]
    return sorted(types, key=lambda t: (-t.bytes, t.kind, t.name))
