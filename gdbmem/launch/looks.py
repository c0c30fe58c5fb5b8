"""What may be asked of single blocks beside the ledger: vectors found by their pointers, types, a map of the heap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from gdbmem.allocators.glibc.blocktypes import sort_blocks
from gdbmem.allocators.glibc.chunks import ChunkTable, chunk_tables
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.vectors import find_vectors
from gdbmem.analysis.blocktypes import class_of, name_types
from gdbmem.analysis.heapmap import map_heap
from gdbmem.analysis.ledger import Reading
from gdbmem.analysis.vectors import sum_vectors
from gdbmem.errors import Notice, TargetError
from gdbmem.launch.vectorslack import note_unused, resident_bytes, variable_areas
from gdbmem.launch.vtables import VtableSymbols
from gdbmem.model.blocktypes import BlockType, BlockTypes
from gdbmem.model.heapmap import HeapMap, MapRegion
from gdbmem.model.memory import Memory
from gdbmem.model.vectors import FoundVector, FoundVectors

VECTORS, TYPES, MAP = "vectors", "types", "map"


@dataclass
class Looks:
    """What was asked for, as it is found; call it with what was read of the process."""

    wanted: frozenset[str]
    pure: bool = False  # without numpy
    vectors: Optional[FoundVectors] = None
    types: Optional[BlockTypes] = None
    map: Optional[HeapMap] = None

    @classmethod
    def asked(cls, **wanted: bool) -> Optional[Looks]:
        """Return the looks whose names are true; None where there is none."""
        names = frozenset(name for name, asked in wanted.items() if asked)
        return cls(names) if names else None

    def class_names(self) -> list[str]:
        """Return the mangled names of the classes that were found."""
        return [one.name for one in self.types.types if one.name] if self.types is not None else []

    def order(self) -> dict[str, Any]:
        """Return what is asked for as JSON values, for `ordered` in another interpreter."""
        return {"wanted": sorted(self.wanted)}

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> Looks:
        return cls(frozenset(order["wanted"]))

    def document(self) -> dict[str, Any]:
        """Return what was found as JSON values, for `fill`."""
        return {
            "vectors": None if self.vectors is None else asdict(self.vectors),
            "types": None if self.types is None else asdict(self.types),
            "map": None if self.map is None else asdict(self.map),
        }

    def fill(self, document: Mapping[str, Any]) -> None:
        """Take over what document() wrote."""
        vectors, types = document["vectors"], document["types"]
        if vectors is not None:
            largest = [FoundVector(**one) for one in vectors["largest"]]
            self.vectors = FoundVectors(**{**vectors, "largest": largest, "notices": _notices(vectors)})
        if types is not None:
            self.types = BlockTypes([BlockType(**one) for one in types["types"]], _notices(types))
        drawn = document["map"]
        if drawn is not None:
            self.map = HeapMap(drawn["cell_bytes"], [MapRegion(**one) for one in drawn["regions"]])

    def __call__(self, reading: Reading, memory: Memory) -> None:
        """Look into the blocks of the heap. Raises TargetError where malloc could not be read."""
        heap = reading.heap
        if heap is None or not heap.is_used:
            why = next((n.message for n in reading.notices), "its malloc could not be read")
            raise TargetError(
                f"no single blocks can be looked at: {why}",
                slug="heap-unread",
                hint="the ledger alone shows the kernel's view",
            )
        if MAP in self.wanted:
            self.map = map_heap(heap, reading.resident)
        if not self.wanted & {VECTORS, TYPES}:
            return
        tables = chunk_tables(memory, heap, pure=self.pure)
        found = find_vectors(memory, tables, heap.mmapped, variable_areas(reading), pure=self.pure)
        pieces = ((vector.end, vector.limit) for vector in found)
        note_unused(reading, resident_bytes(reading.resident, pieces))
        if VECTORS in self.wanted:
            self.vectors = sum_vectors(found, heap.notices)
        if TYPES in self.wanted:
            self.types = self._sort(reading, memory, heap, tables, [vector.begin for vector in found])

    def _sort(
        self,
        reading: Reading,
        memory: Memory,
        heap: HeapReading,
        tables: Sequence[ChunkTable],
        vectors: Sequence[int],
    ) -> BlockTypes:
        tallies = {tally.start: tally for arena in heap.arenas for tally in arena.tallies}
        # Vtables are constant; variables in the same files are what lists end at.
        files = sorted((m.start, m.end) for m in reading.mappings if m.is_file and "w" not in m.permissions)
        pairs = [(table, tallies[table.start]) for table in tables]
        sums = sort_blocks(memory, pairs, heap.mmapped, vectors, files, pure=self.pure)
        symbols = VtableSymbols(reading.images, f"/proc/{reading.pid}/root" if reading.pid else "")

        def in_file(address: int) -> bool:
            at = bisect_right(files, (address, 1 << 64)) - 1
            return at >= 0 and address < files[at][1]

        def name_of(vtable: int) -> Optional[str]:
            return class_of(memory, vtable, in_file, symbols.name)

        return BlockTypes(name_types(sums.blocks, sums.bytes, sums.pinned, name_of), heap.notices)


def _notices(document: Mapping[str, Any]) -> list[Notice]:
    return [Notice(**one) for one in document["notices"]]
