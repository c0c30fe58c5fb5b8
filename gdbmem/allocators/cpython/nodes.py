"""All live blocks of a Python process in order of address, with their kinds: the nodes of the reference graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gdbmem.allocators.cpython.objects import TypedBlocks
from gdbmem.allocators.cpython.types import PythonType
from gdbmem.arrays import import_numpy
from gdbmem.errors import TargetError
from gdbmem.records import dataclass
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

        An object is referred to by its own address, another block by any address within.
        """
        number = self.around(addresses)
        if not len(self):
            return number
        kinds = self.kinds[number]
        known = (number >= 0) & ((kinds == NO_OBJECT) | ((kinds >= 0) & (self.objects[number] == addresses)))
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
