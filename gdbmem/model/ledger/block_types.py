"""Live blocks of a heap by their content, as far as the blocks themselves show it."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.errors import Notice
from gdbmem.records import dataclass

# The feature by which a block was recognised.
CLASS, VECTOR, TREE, LIST, UNKNOWN = "class", "vector", "tree", "list", "unknown"


@dataclass(frozen=True)
class BlockType:
    """Live blocks of one kind; sizes are bytes, without malloc's headers."""

    kind: str
    name: str  # of a class, mangled as the compiler wrote it; "" for the other kinds
    blocks: int
    bytes: int
    pinned_bytes: float  # free bytes on the pages that these blocks share, in equal shares


@dataclass(frozen=True)
class BlockTypes:
    """All live blocks, the types that hold most first; together they are the live heap."""

    types: Sequence[BlockType]
    notices: Sequence[Notice] = ()
