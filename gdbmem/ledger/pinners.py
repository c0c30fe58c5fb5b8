"""Call paths that allocate blocks of the sizes that keep free pages from being returned.

The heap does not record who allocated a block, and profilers replace malloc. So the blocks are joined by size with a
snapshot of another run at the same point, or of the same process where its allocator has a profiler. A snapshot has
bytes and blocks of each path: if all of its blocks have one size, that is bytes/blocks. If the quotient isn't whole,
the path allocates several sizes, and is only listed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple

from gdbmem.json_values import as_json
from gdbmem.model.calltree import Snapshot
from gdbmem.model.ledger import Ledger, OtherMalloc
from gdbmem.profiles.sized_paths import JOINED, SizedPath, chunk_bytes, sized_paths
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import Document
from gdbmem.text import format_size, plural, printable

MOST_SIZES = 10
_PATHS = 3  # of each size


class Pinner(NamedTuple):
    """Live blocks of one size that keep free memory around them from being returned."""

    size_bytes: int  # with malloc's header, if it has one
    usable_bytes: int
    live: int
    pinned_bytes: float


class PinningSize(NamedTuple):
    """Live blocks of one size, and the paths that allocate such blocks, most blocks first."""

    size: Pinner
    paths: Sequence[SizedPath]


class PinnerPaths(NamedTuple):
    """The sizes that pin most, with their paths."""

    source: str  # the snapshot
    sizes: Sequence[PinningSize]
    mixed: Sequence[SizedPath]  # paths that allocate several, unknown sizes, most blocks first
    is_sampled: bool  # allocations were sampled

    def likely_site(self, size_bytes: int) -> str:
        """Return where most blocks of *size_bytes*, with a header if they have one, are allocated.

        "" if no path allocates only that size, or paths that allocate several sizes may have more of them: as many as
        live there, less those of the paths with that size only; or if there are too few samples.
        """
        of_size = [one for one in self.sizes if one.size.size_bytes == size_bytes]
        paths = [path for one in of_size for path in one.paths]
        sites: dict[str, list[SizedPath]] = {}
        for path in paths:
            if path.row.site is not None:
                sites.setdefault(path.where, []).append(path)
        if not sites:
            return ""
        first = max(sites, key=lambda name: _blocks(sites[name]))
        others = sum(one.size.live for one in of_size) - _blocks(paths)
        error = math.hypot(*(path.row.amount.error_bytes for path in sites[first]))
        if _blocks(sites[first]) < min(_blocks(self.mixed), others) or 2 * error > _bytes(sites[first]):
            return ""
        return f"{first} and {plural(len(sites) - 1, 'other place')}" if len(sites) > 1 else first

    def why_unknown(self) -> str:
        """Return why no site is likely for a size, as the end of a sentence."""
        if self.is_sampled:
            return f"{printable(self.source)} has too few samples to tell who allocates such blocks"
        if not self.mixed:
            return f"{printable(self.source)} has no path that allocates such blocks"
        most = self.mixed[0]
        return (
            f"by {printable(self.source)} {plural(len(self.mixed), 'path')} with several sizes may allocate them,"
            f" most of all {most.where}"
        )

    def document(self) -> Document:
        """Return the paths in the form of ``kind=ledger``, ``pinner_paths``."""
        sizes = [
            {
                **as_json(one.size, "size_bytes", "live", "pinned_bytes"),
                "paths": [path.document() for path in one.paths],
            }
            for one in self.sizes
        ]
        return {
            "source": self.source,
            "mixed_paths": len(self.mixed),
            "mixed_blocks": _blocks(self.mixed),
            "sizes": sizes,
        }

    def print(self, console: Console) -> None:
        """Print, for each size that pins free pages, the call paths that allocate blocks of that size."""
        source = printable(self.source)
        if not self.sizes:
            console.print("\nNo live block pins free pages.")
            return
        numbers = ("pinned", "live here", "of bytes", "allocated there")
        table = drawing.new_table(*numbers, last="bytes each, allocated by")
        for one in self.sizes:
            first = [format_size(one.size.pinned_bytes), f"{one.size.live:,}", f"≤ {one.size.usable_bytes:,}"]
            for path in one.paths[:_PATHS]:
                table.add_row(*first, f"{path.blocks:,}", f"{path.block_bytes:,}  {path.where}")
                first = ["", "", ""]
            if not one.paths:
                table.add_row(*first, "", "no path allocates only this size")
            elif len(one.paths) > _PATHS:
                table.add_row("", "", "", "", f"and {plural(len(one.paths) - _PATHS, 'more path')}")
        console.print(
            f"\nCall paths that allocate blocks of the sizes that pin free pages, by {source}", soft_wrap=True
        )
        console.print(table)
        said = JOINED
        if self.is_sampled:
            said += " The snapshot is of samples: the numbers are estimates, and paths with few bytes are missing."
        if self.mixed:
            said += (
                f" {plural(len(self.mixed), 'path')} with {plural(_blocks(self.mixed), 'block')} there"
                " allocate several sizes, and may have any of these:"
            )
        console.print(said, soft_wrap=True)
        if self.mixed:
            table = drawing.new_table("allocated there", "bytes on average", last="allocated by")
            for path in self.mixed[:_PATHS]:
                table.add_row(f"{path.blocks:,}", f"{path.block_bytes:,}", path.where)
            console.print(table)


def join_paths(ledger: Ledger, snapshot: Snapshot, *, source_format: str) -> PinnerPaths:
    """Return the paths of *snapshot* that allocate blocks of the sizes which pin most in *ledger*.

    Raises InputError if the snapshot has no block counts, or not the requested sizes.
    """
    paths, mixed = sized_paths(snapshot, source_format, {one.allocator for one in ledger.mallocs})
    sizes = [
        *_of_glibc(ledger, paths),
        *(one for malloc in ledger.mallocs for one in _of_slabs(malloc, paths)),
    ]
    sizes.sort(key=lambda one: -one.size.pinned_bytes)
    is_sampled = snapshot.tree.variance is not None
    return PinnerPaths(snapshot.source, sizes[:MOST_SIZES], mixed, is_sampled=is_sampled)


def _of_glibc(ledger: Ledger, paths: Sequence[SizedPath]) -> Iterator[PinningSize]:
    by_chunk = _grouped(paths, lambda path: chunk_bytes(path.block_bytes))
    for size in ledger.heap.sizes if ledger.heap else ():
        if size.pinned_bytes >= 1:
            pinner = Pinner(size.size_bytes, size.size_bytes - 8, size.live, size.pinned_bytes)
            # A remainder of 16 bytes is too small for a chunk: it stays with the block.
            yield PinningSize(pinner, by_chunk.get(size.size_bytes) or by_chunk.get(size.size_bytes - 16, []))


def _of_slabs(malloc: OtherMalloc, paths: Sequence[SizedPath]) -> Iterator[PinningSize]:
    """Yield the sizes of slabs with free blocks. A request has a block of the smallest size that is large enough."""
    sizes = sorted(size.block_bytes for size in malloc.sizes)
    by_size = _grouped(paths, lambda path: next(iter(sizes[bisect_left(sizes, path.block_bytes) :]), 0))
    for size in malloc.sizes:
        if size.free_resident_bytes:
            pinner = Pinner(size.block_bytes, size.block_bytes, size.live, size.free_resident_bytes)
            yield PinningSize(pinner, by_size.get(size.block_bytes, []))


def _blocks(paths: Sequence[SizedPath]) -> int:
    return sum(path.blocks for path in paths)


def _bytes(paths: Sequence[SizedPath]) -> int:
    return sum(path.row.amount.after_bytes for path in paths)


def _grouped(paths: Sequence[SizedPath], size_of: Callable[[SizedPath], int]) -> dict[int, list[SizedPath]]:
    found: dict[int, list[SizedPath]] = {}
    for path in sorted(paths, key=lambda path: -path.blocks):
        found.setdefault(size_of(path), []).append(path)
    return found
