"""The live blocks of a heap as a table, one a row, in a file of Parquet or Arrow."""

from __future__ import annotations

from typing import Any

from gdbmem.arrays import import_numpy
from gdbmem.heap.text import HolderWords
from gdbmem.model.heap_graph import SavedHeap
from gdbmem.profiles.export import encode_columns, parquet_text

_WORDS = HolderWords({})  # names are demangled


def encode_blocks(saved: SavedHeap, blocks: tuple[Any, Any, Any], kind: str) -> bytes:
    """Return the *blocks* of *saved*, as heap_blocks() gives them, as a file of *kind*. Raises MissingToolError."""
    np = import_numpy()
    addresses, sizes, holders = blocks
    rows = [(_WORDS.sum(one), one.kind, one.object) for one in saved.holders]
    rows += [("", "", "")] * 2  # LOST and MAYBE_LOST, which count from the end
    held = {
        name: ("name", np.array([*map(parquet_text, column)], object)[holders])
        for name, column in zip(("holder", "holder_kind", "holder_object"), zip(*rows))
    }
    lost = np.array([*[None] * len(saved.holders), "perhaps", "lost"], object)[holders]
    return encode_columns(
        {"address": ("int64", addresses), "size_bytes": ("int64", sizes), **held, "lost": ("name", lost)},
        {"allocator": saved.view.allocator, "target": parquet_text(saved.view.program) or ""},
        kind,
    )
