"""The used parts of tables: unused capacity of lists, dicts and attributes may contain old references.

Include/internal/pycore_dict.h, before 3.11 Objects/dict-common.h (struct _dictkeysobject, _dictvalues).
"""

from __future__ import annotations

from typing import Any

from gdbmem.allocators.cpython.nodes import NO_OBJECT, Nodes
from gdbmem.allocators.cpython.types import INLINE_VALUES, MANAGED_DICT
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory
from gdbmem.records import dataclass

_UNLIMITED = 1 << 40
_SIZE, _ITEMS = 2, 3  # words of a list
_KEYS, _VALUES = 4, 5  # words of a dict
_MANAGED = (-4, -3)  # words before an object that may lead to its attributes: 3.11, 3.12
_HEAD_NEW, _HEAD_OLD = 32, 40  # bytes before the indices of a dict's keys
_MOST_ATTRIBUTES = 30  # that keep their own order
_SMALLEST_ADDRESS = 4096


@dataclass(frozen=True)
class UsedParts:
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
