"""All live blocks of a Python process in order of address, with their kinds: the nodes of the reference graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gdbmem.allocators.cpython.objects import INLINE_VALUES, MANAGED_DICT, PythonType, TypedBlocks
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.arrays import import_numpy
from gdbmem.errors import TargetError
from gdbmem.model.memory import Memory
from gdbmem.text import plural

# Kinds of blocks: not an object (a table, a buffer, C's own); an object kept for reuse.
NO_OBJECT, DEAD = -1, -2
_MOST_NODES = 40_000_000  # 1.6 GB of this process's memory with their references


@dataclass(frozen=True)
class Nodes:
    """Live blocks, parallel arrays in order of address."""

    starts: Any  # int64
    sizes: Any  # int64, bytes
    kinds: Any  # int32: number of the type in *types*, NO_OBJECT or DEAD
    objects: Any  # int64: address of the object in the block; of the block if it is not an object
    types: Sequence[PythonType]

    def __len__(self) -> int:
        return len(self.starts)

    def of_types(self, numbers: Sequence[int]) -> Any:
        """Return the numbers of the objects of the types with *numbers*."""
        np = import_numpy()
        return np.flatnonzero(np.isin(self.kinds, np.array(numbers, np.int32)))

    def find(self, addresses: Any) -> Any:
        """Return for each of *addresses* the node that it refers to; -1: none.

        An object is referred to by its own address, another block by any address within, one with a dead object by its
        start: it may have been given out again.
        """
        np = import_numpy()
        number = self.around(addresses)
        if not len(self):
            return number
        kinds = self.kinds[number]
        is_exact = np.where(kinds == DEAD, self.starts[number], self.objects[number]) == addresses
        known = (number >= 0) & ((kinds == NO_OBJECT) | is_exact)
        number[~known] = -1
        return number

    def around(self, addresses: Any) -> Any:
        """Return for each of *addresses* the node that contains it; -1: none."""
        np = import_numpy()
        if not len(self.starts):
            return np.full(len(addresses), -1, np.int64)
        order = np.argsort(addresses)
        wanted = addresses[order]
        number = np.searchsorted(self.starts, wanted, "right") - 1
        inside = (number >= 0) & (wanted < self.starts[number] + self.sizes[number])
        found = np.full(len(addresses), -1, np.int64)
        found[order[inside]] = number[inside]
        return found


def collect_nodes(sources: Iterable[TypedBlocks]) -> Nodes:
    """Return the blocks of *sources*. Raises TargetError if there are too many for a graph."""
    np = import_numpy()
    numbers: dict[PythonType, int] = {}
    columns: list[tuple[Any, ...]] = []
    count = 0
    for typed in sources:
        count += len(typed.kinds)
        if count > _MOST_NODES:
            raise TargetError(
                f"this process has more than {plural(_MOST_NODES, 'block')}: too many to follow their references",
                slug="python-too-large",
                hint="'gdbmem python objects PID' counts them by type",
            )
        columns.append(_columns(typed, numbers))
    joined = [np.concatenate(parts) for parts in zip(*columns)] if columns else [np.zeros(0, np.int64)] * 4
    columns.clear()
    order = np.argsort(joined[0], kind="stable")
    starts, sizes, kinds, offsets = (column[order] for column in joined)
    return Nodes(starts, sizes, kinds.astype(np.int32), starts + offsets, list(numbers))


def _columns(typed: TypedBlocks, numbers: dict[PythonType, int]) -> tuple[Any, ...]:
    """Return starts, sizes, kinds by *numbers* (which is extended), and the offset of each object in its block."""
    np = import_numpy()
    known = [numbers.setdefault(one, len(numbers)) for one in typed.types]
    table = np.array([*known, NO_OBJECT], np.int32)  # -1 is the last one
    offsets = np.array([*(one.offset for one in typed.types), 0], np.int64)
    kinds = np.where(typed.dead, np.int32(DEAD), table[typed.kinds])
    starts = typed.blocks.addresses.astype(np.int64)
    return starts, typed.blocks.sizes, kinds, offsets[typed.kinds] + typed.lead


# The used parts of tables: unused capacity of lists, dicts and attributes may contain old references.
#
# Include/internal/pycore_dict.h, before 3.11 Objects/dict-common.h (struct _dictkeysobject, _dictvalues).


_UNLIMITED = 1 << 40
_SIZE, _ITEMS = 2, 3  # words of a list
_KEYS, _VALUES = 4, 5  # words of a dict
_MANAGED = (-4, -3)  # words before an object that may lead to its attributes: 3.11, 3.12
_HEAD_NEW, _HEAD_OLD = 32, 40  # bytes before the indices of a dict's keys
_MOST_ATTRIBUTES = 30  # that keep their own order
_SMALLEST_ADDRESS = 4096


class UsedParts(NamedTuple):
    """The part of each node that may contain references, in bytes from its start."""

    begin: Any  # uint8
    end: Any  # int64


def used_parts(memory: Memory, nodes: Nodes) -> UsedParts:
    """Return the parts of *nodes* that may contain references."""
    used = nodes.sizes.copy()
    lists, dicts = _named(nodes, "list"), _named(nodes, "dict")
    (size, items), could = gather_words(memory, nodes.objects[lists], (_SIZE, _ITEMS))
    _limit(used, nodes, items[could], items[could] + size[could] * 8)
    (keys, values), could = gather_words(memory, nodes.objects[dicts], (_KEYS, _VALUES))
    keys, values = keys[could], values[could]
    tables, attributes = _dict_bytes(memory, keys)
    _limit(used, nodes, keys, keys + tables)
    _limit(used, nodes, values, values + attributes)
    return UsedParts(_limit_attributes(memory, nodes, used), used)


def _named(nodes: Nodes, name: str) -> Any:
    return nodes.of_types([number for number, one in enumerate(nodes.types) if one.name == name])


def _limit(used: Any, nodes: Nodes, inside: Any, ends: Any) -> Any:
    """Limit the blocks without an object that contain *inside* to *ends*; return their numbers, and which of all."""
    np = import_numpy()
    number = nodes.around(inside)
    known = number >= 0
    known[known] = nodes.kinds[number[known]] < 0
    number = number[known]
    used[number] = np.clip(ends[known] - nodes.starts[number], 0, nodes.sizes[number])
    nodes.kinds[number] = NO_OBJECT  # the remains of a dead object may still look like one
    return number, known


def _dict_bytes(memory: Memory, keys: Any) -> tuple[Any, Any]:
    """Return the lengths of the tables of *keys* up to their last entry, and of separate tables of values."""
    np = import_numpy()
    (second, third, fourth, fifth), could = gather_words(memory, keys, (1, 2, 3, 4))
    is_old = third > _SMALLEST_ADDRESS  # dk_lookup, a function; since 3.11 that is dk_usable
    indices = np.left_shift(1, np.minimum(second >> 8 & 255, 40))
    entry = np.where(second >> 16 & 255 == 0, 24, 16)  # by dk_kind
    new = _HEAD_NEW + indices + fourth * entry
    width = np.select([second <= 0xFF, second <= 0xFFFF, second <= 0xFFFFFFFF], [1, 2, 4], 8)
    old = _HEAD_OLD + second * width + fifth * 24
    tables = np.where(could, np.where(is_old, old, new), _UNLIMITED)
    return tables, np.where(could & is_old, 2 * second // 3 * 8, _UNLIMITED)


def _limit_attributes(memory: Memory, nodes: Nodes, used: Any) -> Any:
    """Limit attributes stored apart from their object, and return their offset in each block.

    They are preceded by their count and their order.
    """
    np = import_numpy()
    begin = np.zeros(len(nodes), np.uint8)
    managed = [
        number
        for number, one in enumerate(nodes.types)
        if one.flags & MANAGED_DICT and not one.flags & INLINE_VALUES and one.offset == 32
    ]
    objects = nodes.objects[nodes.of_types(managed)]
    for word in _MANAGED:
        (pointer,), could = gather_words(memory, objects + word * 8, (0,))
        values = (pointer[could] + 7) // 8 * 8  # 3.12 marks them by one less
        values = values[values > _SMALLEST_ADDRESS]
        rows, could = gather(memory, values - _MOST_ATTRIBUTES - 2, _MOST_ATTRIBUTES + 2)
        values, rows = values[could], rows[could][:, ::-1]
        count = rows[:, 1].astype(np.int64)
        order = np.where(np.arange(_MOST_ATTRIBUTES) < count[:, None], rows[:, 2:], 0)
        last = order.max(axis=1).astype(np.int64) + 1 if len(order) else count
        sound = count <= _MOST_ATTRIBUTES
        values = values[sound]
        number, known = _limit(used, nodes, values, values + 8 * np.where(count > 0, last, 0)[sound])
        begin[number] = np.clip(values[known] - nodes.starts[number], 0, 255)
    return begin
