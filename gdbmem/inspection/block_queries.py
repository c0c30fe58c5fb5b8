"""Queries about single blocks besides the ledger, and their answers, as gdb and its worker exchange them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.json_values import as_json, from_fields
from gdbmem.model.heap_blocks import BlockTypes, ChunkView, FoundVectors, FreeLists, HeapMap

if TYPE_CHECKING:
    from gdbmem.ledger.ledger import ProcessImage
    from gdbmem.model.memory import Memory

VECTORS, TYPES, MAP, BINS = "vectors", "types", "map", "bins"
MAP_IF_ANY = "map_if_any"  # the map, if malloc was read; no error otherwise


class _Order(NamedTuple):
    wanted: frozenset[str]
    chunk_at: Optional[int]


class _Answers(NamedTuple):
    vectors: Optional[FoundVectors] = None
    types: Optional[BlockTypes] = None
    map: Optional[HeapMap] = None
    chunk: Optional[ChunkView] = None
    bins: Optional[FreeLists] = None


class BlockQueries:
    """The answers to the queries; called with the data read from the process."""

    def __init__(self, wanted: frozenset[str], chunk_at: Optional[int] = None) -> None:
        self.wanted = wanted
        self.pure = False  # without numpy
        self.chunk_at = chunk_at  # an address
        self.vectors: Optional[FoundVectors] = None
        self.types: Optional[BlockTypes] = None
        self.map: Optional[HeapMap] = None
        self.chunk: Optional[ChunkView] = None  # the chunk at that address
        self.bins: Optional[FreeLists] = None

    @classmethod
    def of_options(cls, args: argparse.Namespace, chunk_at: Optional[int]) -> Optional[BlockQueries]:
        """Return the queries of the options of `explain` and memexplain, as asked()."""
        has_map = args.map is not None
        return cls.asked(
            chunk_at, types=args.types, map=has_map, map_if_any=args.html is not None, bins=args.bins
        )

    @classmethod
    def asked(cls, chunk_at: Optional[int] = None, **wanted: bool) -> Optional[BlockQueries]:
        """Return the queries whose arguments are true, and that for the chunk at *chunk_at*; None if there are none."""
        names = frozenset(name for name, asked in wanted.items() if asked)
        return cls(names, chunk_at) if names or chunk_at is not None else None

    def class_names(self) -> list[str]:
        """Return the mangled names of the classes found."""
        names = [one.name for one in self.types.types if one.name] if self.types is not None else []
        return names + (list(self.chunk.class_names()) if self.chunk is not None else [])

    def order(self) -> dict[str, object]:
        """Return the queries as JSON values, for `ordered` in another interpreter."""
        return as_json(_Order(self.wanted, self.chunk_at))

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> BlockQueries:
        return cls(*from_fields(_Order, order))

    def document(self) -> dict[str, object]:
        """Return the answers as JSON values, for `fill`."""
        return as_json(_Answers(self.vectors, self.types, self.map, self.chunk, self.bins))

    def fill(self, document: Mapping[str, Any]) -> None:
        """Take the answers from the result of document(). Raises ValueError if they are of another form."""
        self.vectors, self.types, self.map, self.chunk, self.bins = from_fields(_Answers, document)

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        """Read the blocks of the heap. Raises TargetError if malloc could not be read."""
        from gdbmem.inspection.block_answers import answer_queries  # for gdb a worker does it

        answer_queries(self, reading, memory)
