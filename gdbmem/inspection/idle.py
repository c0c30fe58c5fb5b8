"""Memory that a process does not access for some time, by clearing and reading the accessed bits of its pages."""

from __future__ import annotations

import functools
import random
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from gdbmem.allocators.glibc.blocks import HEADER, ChunkTable, chunk_tables, is_tree_node, sort_blocks
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.tallies import HeapTally
from gdbmem.allocators.glibc.trails import UNIT
from gdbmem.allocators.glibc.vectors import find_vectors
from gdbmem.arrays import import_numpy
from gdbmem.inspection.ledger_parts import variable_areas
from gdbmem.inspection.live_process import explain_process
from gdbmem.ledger.blocks import constant_files, namer
from gdbmem.ledger.idle import idle_memory, idle_sizes, idle_types
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import ObjectSymbols
from gdbmem.linux.memory.maps import clear_accessed, mapping_at, read_accessed
from gdbmem.linux.process.process import check_analysable, ended, has_ended
from gdbmem.model.heap_blocks import CLASS, UNKNOWN
from gdbmem.model.ledger import BlockGroup, BlockSum, IdleMemory, TreeHolder
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory
from gdbmem.text import format_duration, printable

# Live blocks by type, size and holder, mapping by mapping, because accessed bits are counted by mapping.


_SAMPLED = 4000  # blocks that are examined for tree nodes
_DEEPEST = 200  # steps from a node up to its tree's header


@dataclass
class BlockCollector:
    """Collects the blocks of the process that it is called with; none if malloc was not read."""

    groups: list[BlockGroup] = field(default_factory=list)
    holders: list[TreeHolder] = field(default_factory=list)

    def __call__(self, image: ProcessImage, memory: Memory) -> None:
        heap = image.heap
        if heap is None or not heap.is_used:
            return
        tables = chunk_tables(memory, heap)
        vectors = sorted(
            one.begin for one in find_vectors(memory, tables, heap.mmapped, variable_areas(image))
        )
        self.groups = _Sorter(image, memory, heap, vectors).groups(tables)
        self.holders = _holders(image, memory, tables)


class _Sorter:
    def __init__(
        self, image: ProcessImage, memory: Memory, heap: HeapReading, vectors: Sequence[int]
    ) -> None:
        self._memory, self._heap, self._vectors = memory, heap, vectors
        self._mappings = sorted(image.mappings, key=lambda one: one.start)
        self._starts = [one.start for one in self._mappings]
        self._files = constant_files(image)
        self._name_of = functools.cache(namer(image, memory))

    def groups(self, tables: Sequence[ChunkTable]) -> list[BlockGroup]:
        tallies = {tally.start: tally for tally in self._heap.tallies}
        found = [self._of_table(table, tallies[table.start]) for table in tables]
        for chunk in self._heap.mmapped:
            sums = sort_blocks(self._memory, (), [chunk], self._vectors, self._files)
            size = chunk.end - chunk.memory
            found.append(self._group(chunk.start, sums.blocks, sums.bytes, {size: BlockSum(1, size)}))
        return found

    def _of_table(self, table: ChunkTable, tally: HeapTally) -> BlockGroup:
        first, last = bisect_left(self._vectors, table.start), bisect_left(self._vectors, table.end)
        sums = sort_blocks(self._memory, [(table, tally)], (), self._vectors[first:last], self._files)
        return self._group(table.start, sums.blocks, sums.bytes, live_sizes(table))

    def _group(
        self,
        start: int,
        blocks: dict[tuple[str, int], int],
        sizes: dict[tuple[str, int], int],
        by_size: dict[int, BlockSum],
    ) -> BlockGroup:
        types: dict[tuple[str, str], BlockSum] = {}
        for kind, vtable in blocks:
            name = self._name_of(vtable) if kind == CLASS else None
            label = (CLASS, name) if name else (UNKNOWN if kind == CLASS else kind, "")
            before = types.get(label, BlockSum(0, 0))
            types[label] = BlockSum(before.blocks + blocks[kind, vtable], before.bytes + sizes[kind, vtable])
        number = bisect_right(self._starts, start) - 1
        mapping = self._mappings[number]
        return BlockGroup(mapping.start, mapping.end - mapping.start, types, by_size)


def live_sizes(table: ChunkTable) -> dict[int, BlockSum]:
    """Return the live blocks of *table* by their usable size."""
    np: Any = import_numpy()
    units = np.asarray(table.units)
    lengths = np.diff(units, append=units.dtype.type((table.end - table.start) // UNIT))
    sizes, counts = np.unique(lengths[np.asarray(table.live, dtype=bool)], return_counts=True)
    return {
        UNIT * size - 8: BlockSum(count, count * (UNIT * size - 8))
        for size, count in zip(sizes.tolist(), counts.tolist())
    }


def _holders(image: ProcessImage, memory: Memory, tables: Sequence[ChunkTable]) -> list[TreeHolder]:
    """Return the variables that own the nodes of trees, from a sample of all blocks."""
    windows = WindowedMemory(memory)
    symbols = ObjectSymbols(image.images, image.open)
    sizes: Counter[str] = Counter()
    for user, size in _sample(tables):
        try:
            header = _header(windows, user) if is_tree_node(windows, user) else None
        except MemoryUnreadable:
            continue
        if header is not None:
            sizes[_holder(image, symbols, tables, header)] += size
    whole = sum(sizes.values())
    return [TreeHolder(name, size / whole) for name, size in sizes.most_common()]


def _sample(tables: Sequence[ChunkTable]) -> Iterator[tuple[int, int]]:
    """Yield address and size of a sample of live blocks, one random block per group: allocations have patterns."""
    step = max(sum(map(len, tables)) // _SAMPLED, 1)
    chance = random.Random(0)
    for table in tables:
        for first in range(0, len(table), step):
            number = min(first + chance.randrange(step), len(table) - 1)
            if table.live[number]:
                start, end = table.bounds(number)
                yield start + HEADER, end - start - 8


def _header(windows: WindowedMemory, node: int) -> Optional[int]:
    """Return the address of the header of the libstdc++ tree that contains *node*; None if there is none.

    The root's parent is the header, whose own parent is the root.
    Source: libstdc++ stl_tree.h, _Rb_tree_node_base: colour, parent, left, right.
    """
    for _ in range(_DEEPEST):
        parent = windows.word(node + 8)
        if not parent or parent % 8:
            return None
        if windows.word(parent + 8) == node:
            # Unlike the root, the header is red, and its left is the first node.
            return parent if windows.word(parent) & 0xFF == 0 else node
        node = parent
    return None


def _holder(image: ProcessImage, symbols: ObjectSymbols, tables: Sequence[ChunkTable], header: int) -> str:
    name, _ = symbols.place(header)
    if name:
        return name
    if any(table.find(header) >= 0 for table in tables):
        return "a block of the heap"
    mapping = mapping_at(image.mappings, header)
    if mapping is None:
        return "other memory"
    if any(mapping.start <= one.stack_pointer < mapping.end for one in image.threads):
        return "a variable on a stack"
    return f"a variable of {Path(mapping.name).name}" if mapping.is_file else "other memory"


_LOOK_SECONDS = 0.5  # whether the process is still there


def read_idle(pid: int, seconds: float, *, say: Callable[[str], None]) -> IdleMemory:
    """Clear the accessed bits of process *pid*, wait *seconds* or until Ctrl-C, and return the pages not accessed.

    The ledger is made afterwards, because reading memory accesses it. Raises TargetError.
    """
    facts = check_analysable(pid)
    name = printable(facts.name)
    say(
        f"the accessed bits of process {pid} ({name}), which the kernel chooses pages to swap out by, are cleared;"
        f" waiting for {format_duration(seconds)} (Ctrl-C ends the wait)"
    )
    clear_accessed(pid)
    waited = _wait(pid, seconds)
    accessed = read_accessed(pid)
    look = BlockCollector()
    found = idle_memory(explain_process(pid, look=look, say=say), accessed, waited)
    types, sizes = idle_types(look.groups, accessed), idle_sizes(look.groups, accessed)
    return found._replace(types=types, sizes=sizes, tree_holders=look.holders)


def _wait(pid: int, seconds: float) -> float:
    """Wait, at most until Ctrl-C; return the elapsed time."""
    began = time.monotonic()
    try:
        while True:
            left = began + seconds - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _LOOK_SECONDS))
            if has_ended(pid):
                raise ended(pid)
    except KeyboardInterrupt:
        pass
    return time.monotonic() - began
