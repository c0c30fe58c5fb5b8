"""Who allocated what holders retain: joined by size with a snapshot of a heap profiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.heap.text import HolderWords
from gdbmem.model.calltree import Snapshot
from gdbmem.model.heap_graph import HeapView, Part
from gdbmem.profiles.sized_paths import JOINED, SizedPath, chunk_bytes, paths_of_counts, sized_paths
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import Document
from gdbmem.text import format_size, plural, printable

_PATHS = 3  # of each size
_ROUNDED = 1.25  # most that an allocator with size classes makes of a request


class SizeSites(NamedTuple):
    """Blocks of one size that the listed holders retain, or that are lost, and the paths that allocate such ones."""

    block_bytes: int  # usable
    blocks: int
    holder: str  # of most of them, in words; "": most are lost
    paths: Sequence[SizedPath]


class Joined(NamedTuple):
    """Live blocks; bytes as a view counts them."""

    blocks: int
    bytes: int


class HeapSites(NamedTuple):
    """The sizes of a view with their paths."""

    source: str  # the snapshot
    sizes: Sequence[SizeSites]
    mixed: Sequence[SizedPath]  # paths that allocate several sizes, most blocks first
    of_bytes: bool  # whether the snapshot counts bytes alone
    joined: Joined  # blocks of sizes that some path allocates
    live: Joined  # all

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
        return {
            "source": self.source,
            "sizes": sizes,
            "mixed_paths": len(self.mixed),
            "joined_blocks": self.joined.blocks,
            "joined_bytes": self.joined.bytes,
            "unknown_blocks": self.live.blocks - self.joined.blocks,
            "unknown_bytes": self.live.bytes - self.joined.bytes,
        }

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
                unknown = "unknown" if self.of_bytes else "no path allocates only this size"
                table.add_row(*first, "", f"{text}{unknown}")
        console.print(
            f"\nCall paths that allocate blocks of these sizes, by {printable(self.source)}", soft_wrap=True
        )
        console.print(table)
        mixed = (
            f" {plural(len(self.mixed), 'path')} there with several sizes may have any of these."
            if self.mixed
            else ""
        )
        how = (
            f"{printable(self.source)} counts bytes alone: a path is given where it has the bytes of all live blocks of"
            " one size, and no other path has, which is likely but not certain to be so if it is of this moment."
            if self.of_bytes
            else JOINED
        )
        rest = self.live.blocks - self.joined.blocks
        console.print(
            f"{how}{mixed} {plural(self.joined.blocks, 'live block')} of {self.live.blocks:,},"
            f" {format_size(self.joined.bytes)}, have such paths; who allocated the other {rest:,},"
            f" {format_size(self.live.bytes - self.joined.bytes)}, is unknown.",
            soft_wrap=True,
        )


def join_sites(view: HeapView, say: HolderWords, snapshot: Snapshot, source_format: str) -> HeapSites:
    """Return the paths of *snapshot* by the sizes of *view*, those with most bytes first. Raises InputError."""
    counts = {one.block_bytes: one for one in view.sizes or ()}
    of_bytes = source_format == "massif" and snapshot.tree.blocks is None
    mixed: Sequence[SizedPath] = ()
    if of_bytes:

        def fits(request: int, size: int) -> bool:
            return _is_of(request, size, view.allocator, exactly=True)

        of_size = paths_of_counts(snapshot, fits, {size: one.blocks for size, one in counts.items()})
        paths_of = {size: [path] for size, path in of_size.items()}
    else:
        paths, mixed = sized_paths(snapshot, source_format, {view.allocator})
        paths_of = {
            size: [path for path in paths if _is_of(path.block_bytes, size, view.allocator)]
            for size in counts
        }
    rows: list[tuple[str, Part]] = [
        (say.holder(holder), part) for holder in view.holders for part in holder.parts if part.block_bytes
    ]
    rows += [("", Part(one.structures, 0, one.block_bytes, one.class_name)) for one in view.leaks.structures]
    sizes = []
    for size in {part.block_bytes for _, part in rows}:
        mine = [(part.blocks, name) for name, part in rows if part.block_bytes == size]
        sizes.append(SizeSites(size, sum(count for count, _ in mine), max(mine)[1], paths_of.get(size, ())))
    sizes.sort(key=lambda one: (-one.blocks * one.block_bytes, one.block_bytes))
    joined = [one for size, one in counts.items() if paths_of.get(size)]
    return HeapSites(
        snapshot.source, sizes, mixed, of_bytes,
        Joined(sum(one.blocks for one in joined), sum(one.bytes for one in joined)),
        Joined(view.live_blocks, view.live_bytes),
    )  # fmt: skip


def _is_of(request: int, usable: int, allocator: str, *, exactly: bool = False) -> bool:
    """Return whether a request of so many bytes has a block with *usable* ones; *exactly*: and all such ones have."""
    if allocator == "glibc":
        # A remainder of 16 bytes is too small for a chunk: it stays with the block.
        return usable + 8 in (chunk_bytes(request), chunk_bytes(request) + 16 * (not exactly))
    return request <= usable <= max(request * _ROUNDED, request + 16)
