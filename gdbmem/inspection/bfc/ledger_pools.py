"""Pools of BFC allocators for a ledger, searched for if a library with such an allocator is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.errors import Notice, TargetError
from gdbmem.inspection.bfc.pools import read_stopped_pools
from gdbmem.model.bfc.pools import Allocator
from gdbmem.model.memory import Memory
from gdbmem.patterns import lazy_pattern
from gdbmem.symbols.vtables import VtableSymbols

_LIBRARIES = lazy_pattern(
    r"/[^/]*(tensorflow|onnxruntime|xla_extension|xla_cuda|libtsl)[^/]*$|/jaxlib/[^/]*$"
)


def find_pools(reading: ProcessImage, memory: Memory) -> list[Allocator]:
    """Return the BFC allocators of the process of *reading*; none if no such library is loaded."""
    files = {mapping.name.removesuffix(" (deleted)") for mapping in reading.mappings if mapping.is_file}
    if not any(_LIBRARIES.search(name) for name in files):
        return []
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
