"""Who allocated what holders retain, exactly: by a tool that has recorded the call path of each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy, places_of
from gdbmem.model.heap_graph import (
    OF_HOLDER,
    OF_NONE,
    OF_OTHERS,
    AllocatedGroup,
    AllocationPath,
    Allocations,
    HeapView,
)
from gdbmem.profiles.own_code import describe_site, own_frame
from gdbmem.terminal import drawing
from gdbmem.text import format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.heap.blocks import Blocks
    from gdbmem.heap.text import HolderWords
    from gdbmem.model.calltree import Frame
    from gdbmem.terminal.console import Console

_PATHS = 3  # of each holder


class BlockPaths(NamedTuple):
    """The call path of each block of a heap."""

    source: str  # the tool
    path: Any  # int32: for each block the place of its path in *stacks*; -1: it is free
    requested: Any  # int64: bytes that the program asked for
    is_reached: Any  # bool: for each block whether the tool has found a pointer to it
    stacks: Sequence[Sequence[Frame]]

    def of(self, block: int) -> AllocationPath:
        """Return the path of *block* alone."""
        return AllocationPath(1, int(self.requested[block]), self.stacks[int(self.path[block])])

    def sums(self, row_of: Any, rows: int, block: Optional[int]) -> Allocations:
        """Return the sums by *row_of*: for each block its row, *rows* for other holders' and *rows* + 1 for lost ones.

        *block* is the one that was asked for.
        """
        np = import_numpy()
        live = np.flatnonzero(self.path >= 0)
        many = max(len(self.stacks), 1)
        keys, which = places_of(row_of[live].astype(np.int64) * many + self.path[live])
        counts = np.bincount(which, minlength=len(keys)).tolist()
        sums = np.bincount(which, weights=self.requested[live], minlength=len(keys)).astype(np.int64).tolist()
        paths: dict[int, list[AllocationPath]] = {}
        for key, count, size in zip(keys.tolist(), counts, sums):
            row, number = divmod(key, many)
            paths.setdefault(row, []).append(AllocationPath(count, size, self.stacks[number]))
        groups = [_group(row, rows, mine) for row, mine in sorted(paths.items())]
        return Allocations(
            self.source, len(live), sum(sums), groups, self.of(block) if block is not None else None
        )


def _group(row: int, rows: int, paths: list[AllocationPath]) -> AllocatedGroup:
    kind = OF_HOLDER if row < rows else OF_OTHERS if row == rows else OF_NONE
    paths.sort(key=lambda path: (-path.bytes, -path.blocks))
    return AllocatedGroup(
        kind, row if kind == OF_HOLDER else None,
        sum(path.blocks for path in paths), sum(path.bytes for path in paths), len(paths), paths[:_PATHS],
    )  # fmt: skip


def block_paths(
    blocks: Blocks, source: str, columns: Sequence[Any], stacks: Sequence[Sequence[Frame]]
) -> BlockPaths:
    """Return the path of each of *blocks*, by *columns* of *source*: address, size, path, whether it is reached."""
    np = import_numpy()
    path, requested = np.full(blocks.count, -1, np.int32), np.zeros(blocks.count, np.int64)
    is_reached = np.zeros(blocks.count, bool)
    addresses, sizes, paths, are_reached = columns
    number = blocks.find(addresses.astype(np.uint64))
    path[number], requested[number], is_reached[number] = paths, sizes, are_reached
    return BlockPaths(source, path, requested, is_reached, stacks)


def path_in_words(path: AllocationPath) -> str:
    """Return where *path* allocates, safe to print."""
    return (
        describe_site(path.frames[max(own_frame(path.frames), 0)]) if path.frames else "an unknown function"
    )


def print_allocations(view: HeapView, found: Allocations, say: HolderWords, console: Console) -> None:
    """Print a table of who allocated what each holder retains."""
    others = "other holders" if any(group.kind == OF_HOLDER for group in found.groups) else "held"
    kinds = {OF_OTHERS: others, OF_NONE: "lost"}
    table = drawing.new_table("blocks", "bytes", last="held by, allocated by")
    for group in found.groups:
        holder = say.holder(view.holders[group.row]) if group.row is not None else kinds[group.kind]
        table.add_row(f"{group.blocks:,}", f"{group.bytes:,}", holder)
        for path in group.paths:
            table.add_row(f"{path.blocks:,}", f"{path.bytes:,}", f"  {path_in_words(path)}")
        if group.path_count > len(group.paths):
            blocks = group.blocks - sum(path.blocks for path in group.paths)
            size = group.bytes - sum(path.bytes for path in group.paths)
            more = plural(group.path_count - len(group.paths), "more call path")
            table.add_row(f"{blocks:,}", f"{size:,}", f"  {more}")
    console.print(
        f"\n{printable(found.source)} has recorded who allocated each block"
        f" ({plural(found.blocks, 'block')}; bytes are those that the program asked for, {format_size(found.bytes)}):",
        soft_wrap=True,
    )
    console.print(table)
