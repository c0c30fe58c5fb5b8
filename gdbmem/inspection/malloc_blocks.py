"""Single blocks of allocators that replace malloc: one with its neighbours, and what a block can't be told of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from gdbmem.allocators.block_columns import BlockColumns, Question, find_block_pointers
from gdbmem.allocators.glibc.vectors import FoundPointer
from gdbmem.allocators.malloc_heap import (
    CACHED,
    CHANGING,
    FREE,
    IN_HUGE,
    LARGE,
    LAZY,
    METADATA,
    RETURNED,
    SLAB,
    MallocHeap,
)
from gdbmem.errors import Notice
from gdbmem.inspection.ledger_parts import variable_areas
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.model import heap_blocks
from gdbmem.model.memory import MemoryUnreadable
from gdbmem.text import plural

_MOST_POINTERS = 16
_SHOWN = 64  # bytes of the program's memory
_KINDS = {
    LARGE: "the rest of the pages of a large block",
    FREE: "free pages",
    LAZY: "free pages (MADV_FREE)",
    RETURNED: "address space whose pages were returned",
    METADATA: "the own structures",
    CHANGING: "pages that were being changed",
    CACHED: "free pages that a cache keeps",
    IN_HUGE: "free pages of a huge page",
}


def open_heaps(reading: ProcessImage) -> list[Question]:
    """Return the heaps of allocators that replace malloc with their blocks in use."""
    found = []
    for heap in reading.mallocs:
        blocks = heap.live_blocks()
        if blocks is not None and reading.heap_view is not None:
            found.append(Question(reading.heap_view, BlockColumns(heap, blocks)))
    return found


def notices(heaps: Sequence[Question]) -> Iterator[Notice]:
    """Yield a notice for each heap whose list of blocks differs from its own counts."""
    for _, columns in heaps:
        blocks, name = columns.blocks, columns.heap.allocator
        parts = []
        if blocks.unlisted:
            parts.append(
                f"{plural(blocks.unlisted, 'live block')} of {name} are left out: which blocks of their slabs are free"
                " could not be read"
            )
        if blocks.doubtful:
            parts.append(
                f"{plural(blocks.doubtful, 'block')} of {name} count as live, though a cache keeps as many that could"
                " not be told from them"
            )
        if not columns.heap.is_complete:
            parts.append(
                f"freed blocks that caches of {name} keep count as live: {columns.heap.unread_caches}"
            )
        if parts:
            yield Notice("blocks-unlisted", "; ".join(parts))


def view_block(
    other: Question,
    reading: ProcessImage,
    address: int,
    classed: Callable[[heap_blocks.Chunk], heap_blocks.Chunk],
    named: Callable[[FoundPointer], heap_blocks.Pointer],
) -> Optional[heap_blocks.ChunkView]:
    """Return the block in use that contains *address*, with its neighbours in its slab; None: there is none."""
    columns = other.columns
    number = columns.find(address)
    if number is None:
        return None
    spans = columns.heap.spans
    span = _span_at(columns.heap, address)
    start, end = int(spans.starts[span]), int(spans.ends[span])

    def block(at: int) -> list[heap_blocks.Chunk]:
        if not 0 <= at < len(columns.starts) or not start <= columns.starts[at] < end:
            return []
        size = int(columns.sizes[at])
        one = heap_blocks.Chunk(int(columns.starts[at]), size, 0, heap_blocks.IN_USE, header=0)
        return [classed(one)]

    (chunk,) = block(number)
    home = f"{columns.heap.allocator}, with pages of its own"
    if spans.kinds[span] == SLAB:
        home = f"a slab of {columns.heap.allocator} for blocks of {int(spans.block_bytes[span]):,} bytes"
    target = (chunk.memory, chunk.memory + chunk.size)
    found = list(find_block_pointers(other, variable_areas(reading), target))
    found.sort(key=lambda one: (one.value != chunk.memory, one.place == heap_blocks.HEAP, one.address))
    return heap_blocks.ChunkView(
        asked=address,
        home=home,
        chunk=chunk,
        before=block(number - 1),
        after=block(number + 1),
        faults=(),
        data=_data(other, chunk),
        pointers=[named(one) for one in found[:_MOST_POINTERS]],
        pointer_count=len(found),
    )


def _data(other: Question, chunk: heap_blocks.Chunk) -> str:
    try:
        return other.memory.read(chunk.memory, min(chunk.size, _SHOWN)).hex()
    except MemoryUnreadable:
        return ""


def _span_at(heap: MallocHeap, address: int) -> int:
    """Return the number of the span that contains *address*; -1: none does."""
    number = int(heap.spans.starts.searchsorted(address, "right")) - 1
    return number if number >= 0 and address < heap.spans.ends[number] else -1


def what_lies_at(heap: MallocHeap, address: int) -> str:
    """Return what of *heap* is at *address*, which is in no block in use; "" if it is elsewhere."""
    span = _span_at(heap, address)
    if span < 0:
        return ""
    if heap.spans.kinds[span] == SLAB:
        size = int(heap.spans.block_bytes[span])
        return f"a free block, or one that a cache keeps, in a slab of {heap.allocator} for blocks of {size:,} bytes"
    return f"{_KINDS[int(heap.spans.kinds[span])]} of {heap.allocator}"
