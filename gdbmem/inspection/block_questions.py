"""Questions about single blocks beside the ledger: vectors found by their pointers, types, a map of the heap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from gdbmem.allocators.glibc.bins import read_free_lists
from gdbmem.allocators.glibc.block_types import sort_blocks
from gdbmem.allocators.glibc.chunks import ChunkTable, chunk_tables
from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.vectors import find_vectors
from gdbmem.analysis.ledger.block_types import name_types
from gdbmem.analysis.ledger.heap_map import map_heap
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.analysis.ledger.vectors import sum_vectors
from gdbmem.errors import Notice, TargetError
from gdbmem.inspection.block_owners import look_at_chunk, namer
from gdbmem.inspection.vector_slack import note_unused, resident_bytes, variable_areas
from gdbmem.model.block_types import BlockType, BlockTypes
from gdbmem.model.chunks import ArenaLists, Chunk, ChunkView, FreeList, FreeLists, Pointer, ThreadLists
from gdbmem.model.heap_map import HeapMap, MapRegion
from gdbmem.model.memory import Memory
from gdbmem.model.vectors import FoundVector, FoundVectors

VECTORS, TYPES, MAP, BINS = "vectors", "types", "map", "bins"


@dataclass
class Looks:
    """The answers to the questions; call it with what was read of the process."""

    wanted: frozenset[str]
    pure: bool = False  # without numpy
    vectors: Optional[FoundVectors] = None
    types: Optional[BlockTypes] = None
    map: Optional[HeapMap] = None
    chunk_at: Optional[int] = None  # an address
    chunk: Optional[ChunkView] = None  # that lies there
    bins: Optional[FreeLists] = None

    @classmethod
    def asked(cls, chunk_at: Optional[int] = None, **wanted: bool) -> Optional[Looks]:
        """Return the looks whose names are true, and at the chunk at *chunk_at*; None where there is none."""
        names = frozenset(name for name, asked in wanted.items() if asked)
        return cls(names, chunk_at=chunk_at) if names or chunk_at is not None else None

    def class_names(self) -> list[str]:
        """Return the mangled names of the classes that were found."""
        names = [one.name for one in self.types.types if one.name] if self.types is not None else []
        return names + (list(self.chunk.class_names()) if self.chunk is not None else [])

    def order(self) -> dict[str, Any]:
        """Return what is asked for as JSON values, for `ordered` in another interpreter."""
        return {"wanted": sorted(self.wanted), "chunk_at": self.chunk_at}

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> Looks:
        return cls(frozenset(order["wanted"]), chunk_at=order["chunk_at"])

    def document(self) -> dict[str, Any]:
        """Return what was found as JSON values, for `fill`."""
        return {
            "vectors": None if self.vectors is None else asdict(self.vectors),
            "types": None if self.types is None else asdict(self.types),
            "map": None if self.map is None else asdict(self.map),
            "chunk": None if self.chunk is None else asdict(self.chunk),
            "bins": None if self.bins is None else asdict(self.bins),
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
        if document["chunk"] is not None:
            self.chunk = _chunk_view(document["chunk"])
        if document["bins"] is not None:
            self.bins = _free_lists(document["bins"])

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
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
        if BINS in self.wanted:
            self.bins = read_free_lists(memory, heap)
        if not self.wanted & {VECTORS, TYPES} and self.chunk_at is None:
            return
        tables = chunk_tables(memory, heap, pure=self.pure)
        if self.chunk_at is not None:
            self.chunk = look_at_chunk(reading, memory, heap, tables, self.chunk_at, pure=self.pure)
        if self.wanted & {VECTORS, TYPES}:
            self._find_types(reading, memory, heap, tables)

    def _find_types(
        self, reading: ProcessImage, memory: Memory, heap: HeapReading, tables: Sequence[ChunkTable]
    ) -> None:
        found = find_vectors(memory, tables, heap.mmapped, variable_areas(reading), pure=self.pure)
        pieces = ((vector.end, vector.limit) for vector in found)
        note_unused(reading, resident_bytes(reading.resident, pieces))
        if VECTORS in self.wanted:
            self.vectors = sum_vectors(found, heap.notices)
        if TYPES in self.wanted:
            self.types = self._sort(reading, memory, heap, tables, [vector.begin for vector in found])

    def _sort(
        self,
        reading: ProcessImage,
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
        named = name_types(sums.blocks, sums.bytes, sums.pinned, namer(reading, memory))
        return BlockTypes(named, heap.notices)


def _notices(document: Mapping[str, Any]) -> list[Notice]:
    return [Notice(**one) for one in document["notices"]]


def _chunk_view(document: Mapping[str, Any]) -> ChunkView:
    before, after = ([Chunk(**one) for one in document[side]] for side in ("before", "after"))
    pointers = [Pointer(**one) for one in document["pointers"]]
    chunk = Chunk(**document["chunk"])
    parts = {"chunk": chunk, "before": before, "after": after, "pointers": pointers}
    return ChunkView(**{**document, **parts})


def _free_lists(document: Mapping[str, Any]) -> FreeLists:
    def with_lists(one: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, "lists": [FreeList(**entry) for entry in one["lists"]]}

    tcaches = [ThreadLists(**with_lists(one)) for one in document["tcaches"]]
    return FreeLists(tcaches, [ArenaLists(**with_lists(one)) for one in document["arenas"]])
