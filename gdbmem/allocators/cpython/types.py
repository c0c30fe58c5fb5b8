"""Python's types, by the objects that point to them (Include/cpython/object.h, PyTypeObject; CPython 3.8 to 3.15)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Optional

from gdbmem.model.memory import Memory, MemoryUnreadable, read_text
from gdbmem.records import dataclass

_WORD = 8
_HEAD = struct.Struct("<8Q")  # refcount, type, size, name, basicsize, itemsize, …
_FLAGS_AT = 168
_MOST_STEPS = 8  # from a type to `type` itself, by types of types
_LONGEST_NAME = 256
_LARGEST = 1 << 24  # of one instance without its items
# Flags of a type; a managed dict, and managed weak references, are before the object.
_READY, HAS_GC = 1 << 12, 1 << 14
INLINE_VALUES, MANAGED_DICT, _MANAGED_WEAK = 1 << 2, 1 << 4, 1 << 3
IS_LIST, IS_TUPLE, IS_STR, IS_DICT, IS_TYPE = 1 << 25, 1 << 26, 1 << 28, 1 << 29, 1 << 31
_HIGHEST = 1 << 47


@dataclass(frozen=True)
class PythonType:
    """A type object; sizes are bytes of an instance."""

    address: int
    name: str  # as in tp_name: with its module if the type is built in
    basic_bytes: int
    item_bytes: int
    flags: int

    @property
    def offset(self) -> int:
        """Return the bytes before an instance in its block: the collector's links, and managed pointers."""
        return 16 * bool(self.flags & HAS_GC) + 16 * bool(self.flags & (MANAGED_DICT | _MANAGED_WEAK))


class Types:
    """The types of one process, each read once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: dict[int, Optional[PythonType]] = {}

    def at(self, address: int) -> Optional[PythonType]:
        """Return the type at *address*; None if there is none."""
        if address not in self._known:
            self._known[address] = self._read(address)
        return self._known[address]

    def among(self, addresses: Iterable[int]) -> list[PythonType]:
        """Return the types at any of *addresses*, in order of address."""
        found = (self.at(address) for address in addresses)
        return sorted((one for one in found if one is not None), key=lambda one: one.address)

    def _read(self, address: int) -> Optional[PythonType]:
        try:
            words = self._head(address)
            if words is None or not self._leads_to_type(words[1]):
                return None
            flags = int.from_bytes(self._memory.read(address + _FLAGS_AT, _WORD), "little")
            name = self._name(words[3])
        except MemoryUnreadable:
            return None
        if not flags & _READY or not name:
            return None
        return PythonType(address, name, words[4], words[5], flags)

    def _head(self, address: int) -> Optional[tuple[int, ...]]:
        """Return the first words of a possible type at *address*; None if it can't be a type."""
        if address % _WORD or not 4096 <= address < _HIGHEST:
            return None
        words = _HEAD.unpack(self._memory.read(address, _HEAD.size))
        is_likely = words[0] and 16 <= words[4] < _LARGEST and words[5] < _LARGEST and words[3]
        return words if is_likely and words[1] % _WORD == 0 else None

    def _leads_to_type(self, address: int) -> bool:
        """Return whether the types of types from *address* on end at one that is its own type."""
        for _ in range(_MOST_STEPS):
            words = self._head(address)
            if words is None:
                return False
            if words[1] == address:
                return self._name(words[3]) == "type"
            address = words[1]
        return False

    def _name(self, address: int) -> str:
        if not 4096 <= address < _HIGHEST:
            return ""
        name = (read_text(self._memory, address, _LONGEST_NAME) or b"").decode(errors="replace")
        return name if name.isprintable() else ""
