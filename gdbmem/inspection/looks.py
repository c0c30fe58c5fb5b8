"""Queries about single blocks besides the ledger, and their answers, as gdb and its worker exchange them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.errors import Notice
from gdbmem.files import JsonObject
from gdbmem.model.ledger.block_types import BlockType, BlockTypes
from gdbmem.model.ledger.chunks import ArenaLists, Chunk, ChunkView, FreeList, FreeLists, Pointer, ThreadLists
from gdbmem.model.ledger.heap_map import HeapMap, MapRegion
from gdbmem.model.ledger.vectors import FoundVector, FoundVectors
from gdbmem.records import asdict, dataclass

if TYPE_CHECKING:
    from gdbmem.analysis.ledger.ledger import ProcessImage
    from gdbmem.model.memory import Memory

VECTORS, TYPES, MAP, BINS = "vectors", "types", "map", "bins"
MAP_IF_ANY = "map_if_any"  # the map, if malloc was read; no error otherwise


@dataclass
class Looks:
    """The answers to the queries; called with the data read from the process."""

    wanted: frozenset[str]
    pure: bool = False  # without numpy
    vectors: Optional[FoundVectors] = None
    types: Optional[BlockTypes] = None
    map: Optional[HeapMap] = None
    chunk_at: Optional[int] = None  # an address
    chunk: Optional[ChunkView] = None  # the chunk there
    bins: Optional[FreeLists] = None

    @classmethod
    def asked(cls, chunk_at: Optional[int] = None, **wanted: bool) -> Optional[Looks]:
        """Return the queries whose arguments are true, and that for the chunk at *chunk_at*; None if there are none."""
        names = frozenset(name for name, asked in wanted.items() if asked)
        return cls(names, chunk_at=chunk_at) if names or chunk_at is not None else None

    def class_names(self) -> list[str]:
        """Return the mangled names of the classes found."""
        names = [one.name for one in self.types.types if one.name] if self.types is not None else []
        return names + (list(self.chunk.class_names()) if self.chunk is not None else [])

    def order(self) -> dict[str, object]:
        """Return the queries as JSON values, for `ordered` in another interpreter."""
        return {"wanted": sorted(self.wanted), "chunk_at": self.chunk_at}

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> Looks:
        return cls(frozenset(order["wanted"]), chunk_at=order["chunk_at"])

    def document(self) -> dict[str, object]:
        """Return the answers as JSON values, for `fill`."""
        return {
            "vectors": None if self.vectors is None else asdict(self.vectors),
            "types": None if self.types is None else asdict(self.types),
            "map": None if self.map is None else asdict(self.map),
            "chunk": None if self.chunk is None else asdict(self.chunk),
            "bins": None if self.bins is None else asdict(self.bins),
        }

    def fill(self, document: Mapping[str, Any]) -> None:
        """Take the answers from the result of document()."""
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
        """Read the blocks of the heap. Raises TargetError if malloc could not be read."""
        from gdbmem.inspection.block_questions import look  # 30 ms: for gdb a worker does it

        look(self, reading, memory)


def _notices(document: Mapping[str, Any]) -> list[Notice]:
    return [Notice(**one) for one in document["notices"]]


def _chunk_view(document: Mapping[str, Any]) -> ChunkView:
    before, after = ([Chunk(**one) for one in document[side]] for side in ("before", "after"))
    pointers = [Pointer(**one) for one in document["pointers"]]
    chunk = Chunk(**document["chunk"])
    parts = {"chunk": chunk, "before": before, "after": after, "pointers": pointers}
    return ChunkView(**{**document, **parts})


def _free_lists(document: Mapping[str, Any]) -> FreeLists:
    def with_lists(one: Mapping[str, Any]) -> JsonObject:
        return {**one, "lists": [FreeList(**entry) for entry in one["lists"]]}

    tcaches = [ThreadLists(**with_lists(one)) for one in document["tcaches"]]
    return FreeLists(tcaches, [ArenaLists(**with_lists(one)) for one in document["arenas"]])
