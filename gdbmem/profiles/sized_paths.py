"""The call paths of a snapshot by the size of the blocks that each allocates.

A snapshot has bytes and blocks of each path: if all of its blocks have one size, that is bytes/blocks. If the quotient
isn't whole, the path allocates several sizes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Callable, NamedTuple

from gdbmem.errors import InputError
from gdbmem.model.calltree import Snapshot
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.own_code import describe_site
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import Row, rank
from gdbmem.terminal.document import Document
from gdbmem.text import printable

JOINED = "The two are joined by size, so it is likely but not certain that a block comes from the given path."
_ROUNDING = ("jemalloc",)  # formats with the allocator's size classes in place of requested sizes


class SizedPath(NamedTuple):
    """A call path whose blocks are, on average, of one whole size; or one with several sizes."""

    block_bytes: int  # as requested by the program; of several sizes their average
    blocks: int
    row: Row

    @property
    def where(self) -> str:
        """The allocation site, safe to print."""
        site = self.row.site
        return describe_site(site) if site is not None else "call sites that are not listed"

    def document(self) -> Document:
        """Return the path as JSON values."""
        frames = [frame._asdict() for frame in self.row.frames]
        return {"block_bytes": self.block_bytes, "blocks": self.blocks, "frames": frames}


def sized_paths(
    snapshot: Snapshot, source_format: str, allocators: Container[str]
) -> tuple[list[SizedPath], list[SizedPath]]:
    """Return the paths of *snapshot* whose blocks have one size, and those with several sizes, most blocks first.

    *allocators* are those of the process whose blocks are meant. Raises InputError if the snapshot has no block counts,
    or not the requested sizes.
    """
    rounds = source_format in _ROUNDING and source_format not in allocators
    if rounds or snapshot.tree.blocks is None:
        raise InputError(
            f"{printable(snapshot.source)} lacks the sizes of blocks:"
            f" {source_format} {'rounds them up to its own' if rounds else 'counts bytes only'}",
            slug="no-block-sizes",
            hint="take the snapshot with --engine gperftools",
        )
    paths: list[SizedPath] = []
    mixed: list[SizedPath] = []
    is_sampled = snapshot.tree.variance is not None
    for row in rank(as_growth(snapshot), Query(by="path")).rows:
        size, blocks = row.amount.after_bytes, row.amount.delta_blocks or 0
        if blocks <= 0:
            continue
        # Of samples, which are scaled, blocks and bytes are rounded.
        one_size = round(size / blocks) if is_sampled else size // blocks
        is_whole = 2 * abs(size - one_size * blocks) <= (one_size if is_sampled else 0)
        found = paths if is_whole and not row.is_pruned else mixed
        found.append(SizedPath(one_size, blocks, row))
    for some in (paths, mixed):
        some.sort(key=lambda path: -path.blocks)
    return paths, mixed


def paths_of_counts(
    snapshot: Snapshot, fits: Callable[[int, int], bool], sizes: Mapping[int, int]
) -> dict[int, SizedPath]:
    """Return, by size, the paths of a *snapshot* of bytes alone that have allocated all blocks of one of *sizes*.

    *sizes* has the number of blocks of each size, and *fits* says whether a request has a block of a size. A path
    counts if its bytes are a whole request for each block of one size, of no other one, and no other path's are.
    """
    found: dict[int, list[SizedPath]] = {}
    for row in rank(as_growth(snapshot), Query(by="path")).rows:
        total = row.amount.after_bytes
        if total <= 0 or row.is_pruned:
            continue
        fitting = [
            (size, count)
            for size, count in sizes.items()
            if total % count == 0 and fits(total // count, size)
        ]
        for size, count in fitting:
            # One that fits several sizes makes each of these uncertain.
            found.setdefault(size, []).extend([SizedPath(total // count, count, row)] * len(fitting))
    return {size: paths[0] for size, paths in found.items() if len(paths) == 1}


def chunk_bytes(request_bytes: int) -> int:
    """Return the size of the chunk that glibc's malloc makes for a block of *request_bytes*."""
    return max((request_bytes + 8 + 15) & ~15, 32)
