"""Naming the class of a chunk and the pointers to it: classes by vtables, variables by symbols, threads by stacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from gdbmem.allocators.glibc.blocks.chunks import ChunkTable
from gdbmem.allocators.glibc.blocks.one_block import view_chunk
from gdbmem.allocators.glibc.blocks.pointers import FoundPointer, find_pointers
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.analysis.ledger.block_types import class_of
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.errors import TargetError
from gdbmem.inspection.vector_slack import variable_areas
from gdbmem.linux.memory.maps import mapping_at
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.ledger.chunks import HEADER, IN_USE, MMAPPED, Chunk, ChunkView, Pointer
from gdbmem.model.ledger.vectors import DATA, HEAP
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at
from gdbmem.records import dataclass, replace
from gdbmem.symbols.vtables import ObjectSymbols, VtableSymbols

_MOST_NAMED = 16
NameOf = Callable[[int], Optional[str]]


def namer(reading: ProcessImage, memory: Memory) -> NameOf:
    """Return a function from the address of a vtable to the mangled name of its class; None for other addresses."""
    files, symbols = constant_files(reading), VtableSymbols(reading.images, reading.open)
    in_file = files.__contains__
    return lambda vtable: class_of(memory, vtable, in_file, symbols.name) if vtable in files else None


def constant_files(reading: ProcessImage) -> Ranges:
    """Return the mapped parts of files that may contain vtables."""
    # Vtables are constant; lists end at variables in the same files.
    return Ranges((m.start, m.end) for m in reading.mappings if m.is_file and "w" not in m.permissions)


def look_at_chunk(
    reading: ProcessImage,
    memory: Memory,
    heap: HeapReading,
    tables: Sequence[ChunkTable],
    address: int,
    *,
    pure: bool,
) -> ChunkView:
    """Return the chunk that contains *address*. Raises TargetError if malloc has none there."""
    view = view_chunk(memory, heap, tables, address, pure=pure)
    if view is None:
        raise TargetError(
            f"no block of malloc lies at 0x{address:x}: {_what_lies_at(reading, address)}",
            slug="no-block-there",
            hint="'info proc mappings' in gdb shows the process's memory",
        )
    names = _Names(reading, memory)
    chunk = view.chunk
    found: list[FoundPointer] = []
    if chunk.state in (IN_USE, MMAPPED) or not chunk.size:
        target = (chunk.memory, chunk.address + max(chunk.size, HEADER + 8))
        areas = variable_areas(reading)
        found = list(find_pointers(memory, tables, heap.mmapped, areas, target, pure=pure))
    found.sort(key=lambda one: (one.value != chunk.memory, one.place == HEAP, one.address))
    return replace(
        view,
        before=[names.classed(one) for one in view.before],
        chunk=names.classed(chunk),
        after=[names.classed(one) for one in view.after],
        pointers=[names.pointer(one) for one in found[:_MOST_NAMED]],
        pointer_count=len(found),
    )


def _what_lies_at(reading: ProcessImage, address: int) -> str:
    mapping = mapping_at(reading.mappings, address)
    if mapping is None:
        return "the process has no memory there"
    return f"it is in {mapping.name}" if mapping.name else "it is in anonymous memory"


@dataclass
class _Names:
    reading: ProcessImage
    memory: Memory

    def __post_init__(self) -> None:
        self._class_of = namer(self.reading, self.memory)
        self._variables = ObjectSymbols(self.reading.images, self.reading.open)

    def classed(self, chunk: Chunk) -> Chunk:
        """Return *chunk* with its class, if it is an object of one."""
        if chunk.state not in (IN_USE, MMAPPED):
            return chunk
        return replace(chunk, class_name=self._class_at(chunk.memory))

    def _class_at(self, address: int) -> str:
        try:
            return self._class_of(word_at(self.memory, address)) or ""
        except MemoryUnreadable:
            return ""

    def pointer(self, found: FoundPointer) -> Pointer:
        if found.place == HEAP:
            place = f"the block at 0x{found.owner:x}"
            return Pointer(found.address, found.value, place, self._class_at(found.owner))
        place = self._variable(found.address) if found.place == DATA else self._stack(found.address)
        return Pointer(found.address, found.value, place)

    def _variable(self, address: int) -> str:
        name, offset = self._variables.place(address)
        where = next((i for i in self.reading.images for s, e in i.writable if s <= address < e), None)
        file = Path(where.name).name if where is not None else ""
        if not name:
            return f"a variable of {file}" if file else "a variable"
        return f"{name}{f'+{offset}' if offset else ''} of {file}"

    def _stack(self, address: int) -> str:
        mapping = mapping_at(self.reading.mappings, address)
        if mapping is not None:
            for thread in self.reading.threads:
                if mapping.start <= thread.stack_pointer <= address:
                    return f"the stack of thread {thread.tid}"
        return "a stack"
