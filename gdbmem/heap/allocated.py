"""Who allocated what holders retain, and what is lost, exactly: by a tool that knows each block and written word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy, places_of
from gdbmem.errors import Notice
from gdbmem.heap.graph import TEXT_END, Graph, Place, search
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_graph import (
    MEMORY,
    OF_HOLDER,
    OF_NONE,
    OF_OTHERS,
    AllocatedGroup,
    AllocationPath,
    Allocations,
    HeapView,
)
from gdbmem.model.leaks import INTERIOR_POINTER, NO_POINTER, POINTER
from gdbmem.profiles.own_code import describe_site, own_frame
from gdbmem.terminal import drawing
from gdbmem.text import format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.heap.blocks import Blocks
    from gdbmem.heap.holders import HeapGraph
    from gdbmem.heap.text import HolderWords
    from gdbmem.model.calltree import Frame
    from gdbmem.terminal.console import Console

_PATHS = 3  # of each holder
_ROWS = 1 << 18


class BlockPaths(NamedTuple):
    """The call path of each block of a heap."""

    source: str  # the tool
    path: Any  # int32: for each block the place of its path in *stacks*; -1: it is free
    requested: Any  # int64: bytes that the program asked for
    kind: Any  # int8: of each block whether the tool has found a pointer to it, as in model.leaks; -1: it is free
    stacks: Sequence[Sequence[Frame]]
    unsearched: Ranges  # memory whose words the tool has not looked at

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
    blocks: Blocks,
    source: str,
    columns: Sequence[Any],
    stacks: Sequence[Sequence[Frame]],
    unsearched: Ranges,
) -> BlockPaths:
    """Return the path of each of *blocks*, by *columns* of *source*: address, size, path, kind."""
    np = import_numpy()
    path, requested = np.full(blocks.count, -1, np.int32), np.zeros(blocks.count, np.int64)
    kind = np.full(blocks.count, -1, np.int8)
    addresses, sizes, paths, kinds = columns
    number = blocks.find(addresses.astype(np.uint64))
    path[number], requested[number], kind[number] = paths, sizes, kinds
    return BlockPaths(source, path, requested, kind, stacks, unsearched)


# What is lost, by a tool that knows which words the program has written.


_UNREAD = "memory that only memcheck tells from its own"


def settle(found: HeapGraph) -> Graph:
    """Return the graph of *found* with the words that the tool has found to be pointers, and without others.

    Of words that may be no pointers those lead on that lead to a block which the tool reaches, and which no other word
    reaches. No word leads from what the tool reaches to a block that it has found lost: such words are older contents
    that the program has not written. What the tool alone reaches gets a place of its own.
    """
    np = import_numpy()
    paths = found.paths
    assert paths is not None
    lost, is_reached = paths.kind == NO_POINTER, paths.kind == POINTER
    before = search(found.make_graph()).phases[: found.blocks.count]
    sources, targets = found.edges.text_ends
    is_pointer = is_reached[targets] & (before[targets] == TEXT_END) & ~lost[sources]
    found.edges = found.edges.with_words(sources[is_pointer], targets[is_pointer])
    rest = ~is_pointer & (lost[sources] | ~lost[targets])
    found.edges = replace(found.edges, text_ends=(sources[rest], targets[rest]))
    outside = found.outside
    is_unsearched = np.searchsorted(paths.unsearched.bounds, outside.addresses, "right") & 1 == 1
    keep = np.flatnonzero(~lost[outside.blocks] | is_unsearched)
    numbers, blocks, addresses = (column[keep] for column in outside[1:4])
    found.outside = outside._replace(numbers=numbers, blocks=blocks, addresses=addresses)
    graph = _without_old_words(found.make_graph(), lost)
    after = search(graph).phases[: graph.blocks]
    unseen = (is_reached & (after == TEXT_END)) | ((paths.kind != NO_POINTER) & graph.live & (after == 0))
    if unseen.any():
        found.outside = found.outside.with_place(Place(_UNREAD, MEMORY, 0), np.flatnonzero(unseen))
        graph = _without_old_words(found.make_graph(), lost)
        after = search(graph).phases[: graph.blocks]
    held = (after > 0) & (after != TEXT_END)
    texts = (
        (lost & ~held & (before > 0) & (before != TEXT_END), _OLD_WORDS),
        (lost & held, _UNSEARCHED),
        ((paths.kind == INTERIOR_POINTER) & held, _INTERIOR),
    )
    for some, text in texts:
        count = int(np.count_nonzero(some))
        if count:
            size = format_size(int(paths.requested[some].sum()))
            what = f"{plural(count, 'block')}, {size}, {'are' if count > 1 else 'is'}"
            found.notices = [*found.notices, Notice("memcheck-differs", f"{what} {text}")]
    return graph


_OLD_WORDS = (
    "lost by memcheck, and count as lost: only older contents, which the program has not written, lead there"
)
_UNSEARCHED = (
    "lost by memcheck, which does not search read-only memory: words in it lead there, and hold a block here"
)
_INTERIOR = (
    "possibly lost by memcheck, as only pointers into a block's middle lead there: these hold a block here"
)


def _without_old_words(graph: Graph, lost: Any) -> Graph:
    """Return *graph*, in which no word of a block that isn't *lost* leads to one that is."""
    np = import_numpy()
    to = graph.to.copy()
    for begin in range(0, graph.blocks, _ROWS):
        end = min(begin + _ROWS, graph.blocks)
        here = slice(int(graph.first[begin]), int(graph.first[end]))
        source = np.repeat(np.arange(begin, end, dtype=np.int32), np.diff(graph.first[begin : end + 1]))
        target = np.where(to[here] < 0, ~to[here], to[here])
        np.copyto(to[here], source, where=lost[target] & ~lost[source])
    return replace(graph, to=to)


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
