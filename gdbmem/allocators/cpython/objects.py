"""Python's objects by type, recognised by the words of the allocated blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Blocks
from gdbmem.allocators.cpython.types import PythonType, Types
from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.memory import Memory
from gdbmem.records import dataclass, field

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


@dataclass(frozen=True)
class TypedBlocks:
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
