"""Pools of BFC allocators for a ledger, searched for if a library with such an allocator is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc import lockstep
from gdbmem.allocators.glibc.blocks import chunk_tables
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.vectors import Area, find_columns, find_vectors
from gdbmem.errors import Notice, TargetError
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import VtableSymbols
from gdbmem.linux.memory.maps import mapping_at
from gdbmem.linux.memory.pages import Ranges, resident_ranges
from gdbmem.model.heap_blocks import DATA, STACK
from gdbmem.model.ledger import UNUSED_IN_VECTORS
from gdbmem.model.memory import Memory, MemoryUnreadable

if TYPE_CHECKING:
    from gdbmem.model.bfc import Allocator

_LIBRARIES = re.compile(r"/[^/]*(tensorflow|onnxruntime|xla_extension|xla_cuda|libtsl)[^/]*$|/jaxlib/[^/]*$")


def find_pools(reading: ProcessImage, memory: Memory) -> list[Allocator]:
    """Return the BFC allocators of the process of *reading*; none if no such library is loaded."""
    files = {mapping.name.removesuffix(" (deleted)") for mapping in reading.mappings if mapping.is_file}
    if not any(_LIBRARIES.search(name) for name in files):
        return []
    from gdbmem.inspection.pools import read_stopped_pools  # few processes have any

    names = VtableSymbols(reading.images, reading.open)
    try:
        pools = read_stopped_pools(memory, _areas(reading), reading.mappings, reading.program, names.name)
    except TargetError as error:  # none, or of an unknown layout
        if error.slug == "bfc-layout-unknown":
            reading.notices.append(Notice(error.slug, error.message))
        return []
    reading.notices.extend(pools.notices)
    return list(pools.allocators)


def _areas(reading: ProcessImage) -> Iterator[tuple[int, int]]:
    """Yield the resident memory that can contain an allocator's object.

    It is a block of some 1,500 bytes: if malloc's arenas are known, blocks that malloc maps individually are excluded.
    """
    heap = reading.heap
    if heap is not None and heap.is_used:
        for arena in heap.arenas:
            for tally in arena.tallies:
                yield from reading.resident.overlaps(tally.start, tally.end)
        for image in reading.images:
            for start, end in image.writable:
                yield from reading.resident.overlaps(start, end)
        return
    for mapping in reading.mappings:
        if mapping.is_anonymous and mapping.permissions[:2] == "rw":
            yield from reading.resident.overlaps(mapping.start, mapping.end)


# The part of the resident set that is unused capacity of vectors, searched for if that is cheap.
#
# It takes 0.1 s of CPU time for 50 MiB of large blocks, three times as much for small ones, so it is omitted if a
# user waits and the heap is large. `memcontainers --everywhere` and `--types` always search.


# How many bytes of a heap are searched:
WHILE_HELD = 32 << 20  # while the process waits that was running until now,
AT_PROMPT = 128 << 20  # while only the user of gdb does,
WHEN_STILL = 512 << 20  # in a copy or a core,
_PLAIN = 8 << 20  # and without numpy.


def add_unused_in_vectors(reading: ProcessImage, memory: Memory, *, most_bytes: int) -> None:
    """Add the resident unused capacity of vectors to the figures beside the ledger.

    Nothing is added if more than *most_bytes* would have to be searched.
    """
    heap = reading.heap
    if heap is None or not heap.is_used or UNUSED_IN_VECTORS in reading.beside:
        return
    pure = not lockstep.available()
    areas = variable_areas(reading)
    size = heap_bytes(heap) + sum(end - start for _, start, end in areas)
    if size > (_PLAIN if pure else most_bytes):
        return
    try:
        tables = chunk_tables(memory, heap, pure=pure)
        if pure:
            found = find_vectors(memory, tables, heap.mmapped, areas, pure=True)
            unused = resident_bytes(reading.resident, ((one.end, one.limit) for one in found))
        else:
            columns = find_columns(memory, tables, heap.mmapped, areas)
            unused = _resident_of_columns(reading.resident, columns.end, columns.limit)
    except MemoryUnreadable:
        return  # the ledger itself reports unreadable memory
    note_unused(reading, unused)


def note_unused(reading: ProcessImage, unused_bytes: int) -> None:
    """Put *unused_bytes* of vectors beside the ledger made of *reading*."""
    reading.beside = {**reading.beside, UNUSED_IN_VECTORS: unused_bytes}


def heap_bytes(heap: HeapReading) -> int:
    """Return the bytes of all regions of *heap*, and of the chunks that malloc mapped individually."""
    return sum(tally.stopped_at - tally.start for tally in heap.tallies) + heap.mmapped_bytes


def resident_bytes(resident: Ranges, pieces: Iterable[tuple[int, int]]) -> int:
    """Return the number of resident bytes in *pieces*."""
    return sum(resident.within(start, end) for start, end in pieces)


def variable_areas(reading: ProcessImage) -> Sequence[Area]:
    """Return the memory of the program's variables: data of object files, then the used stacks.

    Non-resident pages of files are omitted: nothing has written to them, and reading would bring them in.
    """
    data = [
        (max(start, m.start), min(end, m.end), m.is_file)
        for image in reading.images
        for start, end in image.writable
        for m in reading.mappings
        if m.start < end and start < m.end and "w" in m.permissions and m.name != "[heap]"
    ]
    in_files = [(start, end) for start, end, is_file in data if is_file]
    if reading.pid is not None and in_files:
        present = resident_ranges(reading.pid, in_files)[0]
        in_files = [piece for start, end in in_files for piece in present.overlaps(start, end)]
    areas = [(DATA, start, end) for start, end, is_file in data if not is_file]
    areas += [(DATA, start, end) for start, end in in_files]
    for thread in reading.threads:
        mapping = mapping_at(reading.mappings, thread.stack_pointer)
        if mapping is not None:
            end = next((s.end for s in reading.stacks if s.tid == thread.tid), mapping.end)
            areas.append((STACK, thread.stack_pointer & -16, min(end, mapping.end)))
    return areas


def _resident_of_columns(resident: Ranges, starts: Any, ends: Any) -> int:
    import numpy as np  # slow to import

    if not resident.items or not len(starts):
        return 0
    low, high = np.array(resident.items, dtype=np.int64).T
    before = np.array([0, *accumulate(end - start for start, end in resident.items)])

    def up_to(addresses: Any) -> Any:
        number = np.searchsorted(low, addresses, side="right")
        last = np.maximum(number - 1, 0)
        return np.where(number > 0, before[last] + np.minimum(addresses, high[last]) - low[last], 0)

    return int((up_to(ends) - up_to(starts)).sum())
