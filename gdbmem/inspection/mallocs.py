"""Heaps of allocators other than glibc's for a ledger: read where anonymous memory has no other explanation."""

from __future__ import annotations

from gdbmem.allocators import gperftools, jemalloc
from gdbmem.allocators.malloc_heap import HeapView, MallocHeap
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.memory.maps import Ranges, resident_ranges
from gdbmem.model.memory import Memory

_WORTH_BYTES = 1 << 20
_LEAST_DATA = 1 << 18  # bytes of variables: the root of every page map is larger
_READERS = (jemalloc.read_heap, gperftools.read_heap)


def find_mallocs(reading: ProcessImage, memory: Memory) -> list[MallocHeap]:
    """Return the heaps of the process of *reading* that could be read; none without numpy."""
    try:
        import numpy  # noqa: F401  (slow to import; gdb's own Python may lack it)
    except ImportError:
        return []
    images = [image for image in reading.images if _data_bytes(image.writable) >= _LEAST_DATA]
    if not images or unexplained_bytes(reading) < _WORTH_BYTES:
        return []
    data = [area for image in images for area in image.writable]
    view = HeapView(
        memory,
        Ranges((m.start, m.end) for m in reading.mappings if m.is_anonymous and "w" in m.permissions),
        Ranges([*reading.resident.items, *_touched_data(reading, data)]),
    )
    found = (read(view, image) for image in images for read in _READERS)
    return [heap for heap in found if heap is not None]


def unexplained_bytes(reading: ProcessImage) -> int:
    """Return the resident bytes of anonymous memory that are neither glibc's, nor Python's, nor stacks'."""
    heap = reading.heap
    used = sum(arena.state.system_bytes for arena in heap.arenas) if heap is not None and heap.is_used else 0
    mapped = heap.mmapped_bytes if heap is not None else 0
    arenas = sum(arena.size_bytes for arena in reading.others.python.arenas)
    anonymous = [m for m in reading.mappings if m.is_anonymous and not m.name.startswith("[stack")]
    stacks = sum(reading.resident.within(stack.start, stack.end) for stack in reading.stacks)
    return sum(m.rss_bytes for m in anonymous) - used - mapped - arenas - stacks


def _data_bytes(areas: object) -> int:
    return sum(end - start for start, end in areas)  # type: ignore[attr-defined]


def _touched_data(reading: ProcessImage, areas: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of *areas* that are in memory: reading others would make pages of a file resident."""
    if reading.pid is None:
        return []  # a core's resident set has them
    in_files = [
        (max(start, m.start), min(end, m.end))
        for start, end in areas
        for m in reading.mappings
        if m.is_file and m.start < end and start < m.end
    ]
    return list(resident_ranges(reading.pid, in_files)[0].items) if in_files else []
