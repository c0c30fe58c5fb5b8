"""Python's objects by type, recognised by the words of the allocated blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Blocks
from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text

# Python's types, by the objects that point to them (Include/cpython/object.h, PyTypeObject; CPython 3.8 to 3.15).


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


class PythonType(NamedTuple):
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


_OFFSETS = (0, 16, 32)  # of an object in its block
_MOST_REFERENCES = 1 << 32  # immortal objects included, in their low half


@dataclass
class TypeCounts:
    """Blocks and their bytes by type."""

    blocks: dict[PythonType, int] = field(default_factory=dict)
    bytes: dict[PythonType, int] = field(default_factory=dict)
    unused_blocks: int = 0  # dead objects that the interpreter keeps for reuse
    unused_bytes: int = 0
    other_blocks: int = 0  # that are not objects: tables of dicts, items of lists, buffers
    other_bytes: int = 0


class TypedBlocks(NamedTuple):
    """Blocks and their types."""

    blocks: Blocks
    types: Sequence[PythonType]
    kinds: Any  # int64: for each block the number of its type; -1: it is not an object
    dead: Any  # bool: an object kept for reuse
    lead: Any  # int64, bytes of each block before the part that Python uses (PYTHONMALLOC=debug)


class ObjectCounter:
    """Counts objects by type, block by block."""

    def __init__(self, memory: Memory, mappings: Iterable[Mapping], arenas: Sequence[PythonArena]) -> None:
        np = import_numpy()
        self._types = Types(memory)
        readable = Ranges((m.start, m.end) for m in mappings if m.permissions.startswith("r"))
        # A type is too large for a pool.
        places = [
            piece for m in readable.items for piece in Ranges((a.address, a.end) for a in arenas).gaps(*m)
        ]
        self._starts = np.array([start for start, _ in places], np.uint64)
        self._ends = np.array([end for _, end in places], np.uint64)

    def sorted_by_type(self, sources: Iterable[Blocks]) -> Iterator[TypedBlocks]:
        """Yield the blocks of *sources* with their types."""
        for source in sources:
            blocks = source.without_hooks()
            types = self._types_in(blocks)
            kinds, dead = _classify(blocks, types)
            yield TypedBlocks(source, types, kinds, dead, (blocks.at - source.at) * 8)

    def count(self, sources: Iterable[Blocks]) -> TypeCounts:
        """Return the objects in the blocks of *sources*."""
        counts = TypeCounts()
        for typed in self.sorted_by_type(sources):
            _add(counts, typed)
        return counts

    def _types_in(self, blocks: Blocks) -> list[PythonType]:
        """Return the possible types of objects in *blocks*, in order of address."""
        np = import_numpy()
        found = np.zeros(0, np.uint64)
        for offset in _OFFSETS:
            references, pointer = blocks.word(offset // 8), blocks.word(offset // 8 + 1)
            pointer = pointer[_is_count(references) & (pointer != 0) & (pointer & 7 == 0)]
            number = np.searchsorted(self._starts, pointer, "right")
            possible = (number > 0) & (pointer < self._ends[np.maximum(number, 1) - 1])
            found = np.union1d(found, pointer[possible])
        return self._types.among(found.tolist())


def _is_count(references: Any) -> Any:
    """Return for each word whether it can be a reference count; 0 is that of a dead object kept for reuse."""
    return references < _MOST_REFERENCES


def _classify(blocks: Blocks, types: Sequence[PythonType]) -> tuple[Any, Any]:
    """Return the number of the type of each block, -1 if it is not an object, and which objects are dead."""
    np = import_numpy()
    kinds = np.full(len(blocks.at), -1, np.int64)
    dead = np.zeros(len(blocks.at), bool)
    for offset in _OFFSETS:
        alike = [(one.address, number) for number, one in enumerate(types) if one.offset == offset]
        if not alike:
            continue
        addresses, numbers = np.array([a for a, _ in alike], np.uint64), np.array([n for _, n in alike])
        references, pointer = blocks.word(offset // 8), blocks.word(offset // 8 + 1)
        at = np.minimum(np.searchsorted(addresses, pointer), len(addresses) - 1)
        match = (addresses[at] == pointer) & _is_count(references) & (kinds < 0)
        kinds[match] = numbers[at[match]]
        dead[match] = references[match] == 0
    return kinds, dead


def _add(counts: TypeCounts, typed: TypedBlocks) -> None:
    np = import_numpy()
    blocks, types, kinds, dead = typed.blocks, typed.types, typed.kinds, typed.dead
    is_object = (kinds >= 0) & ~dead
    blocks_of = np.bincount(kinds[is_object], minlength=len(types))
    bytes_of = np.bincount(kinds[is_object], blocks.sizes[is_object], len(types))
    for number in np.flatnonzero(blocks_of).tolist():
        kind = types[number]
        counts.blocks[kind] = counts.blocks.get(kind, 0) + int(blocks_of[number])
        counts.bytes[kind] = counts.bytes.get(kind, 0) + int(bytes_of[number])
    is_other = kinds < 0
    counts.unused_blocks += int(dead.sum())
    counts.unused_bytes += int(blocks.sizes[dead].sum())
    counts.other_blocks += int(is_other.sum())
    counts.other_bytes += int(blocks.sizes[is_other].sum())


# The text of Python's str objects (Include/cpython/unicodeobject.h), with consistency checks.


_STRING_HEAD = struct.Struct("<QQqqI")  # refcount, type, length, hash, state
_ASCII_AT = (40, 48)  # of the characters, since CPython 3.12 and before
_COMPACT_AT = (56, 72)
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_LONGEST = 1 << 16


def read_str(memory: Memory, address: int, *, control: bool = False) -> str:
    """Return the text of the str object at *address*; "" if none can be read there.

    With *control* it may have unprintable characters: only if it is known to be a str.
    """
    try:
        _, _, length, _, state = _STRING_HEAD.unpack(memory.read(address, _STRING_HEAD.size))
        if not 0 < length <= _LONGEST:
            return ""
        kind = state >> 2 & 7
        for at in _ASCII_AT:
            text = _text(memory, address + at, length, 1, control)
            if text and text.isascii():
                return text
        for at in _COMPACT_AT:
            text = _text(memory, address + at, length, kind if kind in _ENCODINGS else 1, control)
            if text:
                return text
    except MemoryUnreadable:
        pass
    return ""


def _text(memory: Memory, address: int, length: int, kind: int, control: bool) -> str:
    """Return *length* characters of *kind* bytes; "" unless a zero follows, and they are printable or *control*."""
    data = memory.read(address, (length + 1) * kind)
    try:
        text = data.decode(_ENCODINGS[kind])
    except UnicodeDecodeError:
        return ""
    text, end = text[:-1], text[-1:]
    return text if end == "\0" and (text.isprintable() or (control and "\0" not in text)) else ""
