"""Who allocated what holders retain: joined by size with a snapshot of a heap profiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.heap.text import HolderWords
from gdbmem.model.calltree import Snapshot
from gdbmem.model.heap_graph import HeapView, Part
from gdbmem.profiles.sized_paths import JOINED, SizedPath, chunk_bytes, sized_paths
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import Document
from gdbmem.text import plural, printable

_PATHS = 3  # of each size
_ROUNDED = 1.25  # most that an allocator with size classes makes of a request


class SizeSites(NamedTuple):
    """Blocks of one size that the listed holders retain, or that are lost, and the paths that allocate such ones."""

    block_bytes: int  # usable
    blocks: int
    holder: str  # of most of them, in words; "": most are lost
    paths: Sequence[SizedPath]


class HeapSites(NamedTuple):
    """The sizes of a view with their paths."""

    source: str  # the snapshot
    sizes: Sequence[SizeSites]
    mixed: Sequence[SizedPath]  # paths that allocate several sizes, most blocks first

    def document(self) -> Document:
        """Return the paths as the field ``allocated_by`` of ``kind=heap``."""
        sizes = [
            {
                "block_bytes": one.block_bytes,
                "blocks": one.blocks,
                "holder": one.holder or None,
                "paths": [path.document() for path in one.paths],
            }
            for one in self.sizes
        ]
        return {"source": self.source, "sizes": sizes, "mixed_paths": len(self.mixed)}

    def print(self, console: Console) -> None:
        """Print a table of the sizes, and what a join by size can't tell."""
        table = drawing.new_table(
            "blocks here", "of bytes", "allocated there", last="held by most, allocated by"
        )
        for one in self.sizes:
            first = [f"{one.blocks:,}", f"{one.block_bytes:,}"]
            text = f"{one.holder or 'lost'}: "
            for path in one.paths[:_PATHS]:
                table.add_row(*first, f"{path.blocks:,}", f"{text}{path.where}")
                first, text = ["", ""], "  "
            if not one.paths:
                table.add_row(*first, "", f"{text}no path allocates only this size")
        console.print(
            f"\nCall paths that allocate blocks of these sizes, by {printable(self.source)}", soft_wrap=True
        )
        console.print(table)
        mixed = (
            f" {plural(len(self.mixed), 'path')} there with several sizes may have any of these."
            if self.mixed
            else ""
        )
        console.print(f"{JOINED}{mixed}", soft_wrap=True)


def join_sites(view: HeapView, say: HolderWords, snapshot: Snapshot, source_format: str) -> HeapSites:
    """Return the paths of *snapshot* by the sizes of *view*, those with most bytes first. Raises InputError."""
    paths, mixed = sized_paths(snapshot, source_format, {view.allocator})
    rows: list[tuple[str, Part]] = [
        (say.holder(holder), part) for holder in view.holders for part in holder.parts if part.block_bytes
    ]
    rows += [("", Part(one.structures, 0, one.block_bytes, one.class_name)) for one in view.leaks.structures]
    sizes = []
    for size in {part.block_bytes for _, part in rows}:
        mine = [(part.blocks, name) for name, part in rows if part.block_bytes == size]
        fitting = [path for path in paths if _is_of(path.block_bytes, size, view.allocator)]
        sizes.append(SizeSites(size, sum(count for count, _ in mine), max(mine)[1], fitting))
    sizes.sort(key=lambda one: (-one.blocks * one.block_bytes, one.block_bytes))
    return HeapSites(snapshot.source, sizes, mixed)


def _is_of(request: int, usable: int, allocator: str) -> bool:
    """Return whether a request of so many bytes has a block with *usable* ones."""
    if allocator == "glibc":
        # A remainder of 16 bytes is too small for a chunk: it stays with the block.
        return usable + 8 in (chunk_bytes(request), chunk_bytes(request) + 16)
    return request <= usable <= max(request * _ROUNDED, request + 16)
