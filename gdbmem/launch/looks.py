"""What may be asked of single blocks beside the ledger: vectors found by their pointers, types, a map of the heap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from gdbmem.allocators.glibc.chunks import chunk_tables
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.vectors import Area, find_vectors
from gdbmem.analysis.ledger import Reading
from gdbmem.analysis.vectors import sum_vectors
from gdbmem.errors import Notice, TargetError
from gdbmem.model.memory import Memory
from gdbmem.model.vectors import DATA, STACK, FoundVector, FoundVectors

VECTORS = "vectors"


@dataclass
class Looks:
    """What was asked for, as it is found; call it with what was read of the process."""

    wanted: frozenset[str]
    pure: bool = False  # without numpy
    vectors: Optional[FoundVectors] = None

    def order(self) -> dict[str, Any]:
        """Return what is asked for as JSON values, for `ordered` in another interpreter."""
        return {"wanted": sorted(self.wanted)}

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> Looks:
        return cls(frozenset(order["wanted"]))

    def document(self) -> dict[str, Any]:
        """Return what was found as JSON values, for `fill`."""
        return {"vectors": None if self.vectors is None else asdict(self.vectors)}

    def fill(self, document: Mapping[str, Any]) -> None:
        """Take over what document() wrote."""
        vectors = document["vectors"]
        if vectors is not None:
            self.vectors = FoundVectors(
                **{
                    **vectors,
                    "largest": [FoundVector(**one) for one in vectors["largest"]],
                    "notices": [Notice(**one) for one in vectors["notices"]],
                }
            )

    def __call__(self, reading: Reading, memory: Memory) -> None:
        """Look into the blocks of the heap. Raises TargetError where malloc could not be read."""
        heap = reading.heap
        if heap is None:
            why = next((n.message for n in reading.notices), "its malloc could not be read")
            raise TargetError(
                f"no single blocks can be looked at: {why}",
                slug="heap-unread",
                hint="memexplain shows the kernel's view",
            )
        if VECTORS in self.wanted:
            tables = chunk_tables(memory, heap, pure=self.pure)
            found = find_vectors(memory, tables, heap.mmapped, _areas(reading, heap), pure=self.pure)
            self.vectors = sum_vectors(found, heap.notices)


def _areas(reading: Reading, heap: HeapReading) -> Sequence[Area]:
    """Return where the program's variables are: objects' data, then the stacks that are in use."""
    areas = [
        (DATA, max(start, m.start), min(end, m.end))
        for image in reading.images
        for start, end in image.writable
        for m in reading.mappings
        if m.start < end and start < m.end and "w" in m.permissions and m.name != "[heap]"
    ]
    for thread in reading.threads:
        for mapping in reading.mappings:
            if mapping.start <= thread.stack_pointer < mapping.end:
                end = next((s.end for s in reading.stacks if s.tid == thread.tid), mapping.end)
                areas.append((STACK, thread.stack_pointer & -16, min(end, mapping.end)))
    return areas
