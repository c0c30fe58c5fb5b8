"""Two snapshots, path by path: what grew, what shrank, and how far the data can tell."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.model.calltree import PRUNED, ROOT, CallTree, Frame
from gdbmem.model.diff import Diff, Side
from gdbmem.model.snapshot import PAGE_BYTES, Snapshot
from gdbmem.text import printable
from gdbmem.units import format_size


def diff_snapshots(before: Snapshot, after: Snapshot) -> Diff:
    """Merge the trees of *before* and *after* on (function, file, line, object), addresses left out.

    Siblings with equal key are summed. Where a side hides small paths, a path that shows more call
    sites on one side than on the other is uncertain by what that side may hide of it. A line that shows
    one call site on each side is taken to show the same one: two that read alike can't be told apart.
    Raises InputError where one side counts the heap and the other pages.
    """
    if before.unit != after.unit:
        raise InputError(
            f"{printable(before.source)} counts {before.unit}, {printable(after.source)} {after.unit}",
            slug="units-differ",
            hint="compare two snapshots that were both taken with --pages-as-heap, or both without"
            if PAGE_BYTES in (before.unit, after.unit)
            else "choose the same --metric for both",
        )
    trees = (before.tree, after.tree)
    on_names = _on_base_names(trees)
    table = _FrameTable(base_names=on_names)
    numbers = [table.intern(tree.frames) for tree in trees]
    merged = _merge(trees, numbers, len(table.frames))
    uncertain = _uncertainty(merged, table, trees)
    count_blocks = before.tree.blocks is not None and after.tree.blocks is not None
    diff = Diff(
        before_side=Side(before.source, before.name, before.tree.bytes[0]),
        after_side=Side(after.source, after.name, after.tree.bytes[0]),
        frames=table.frames,
        parent=merged.parent,
        frame=merged.frame,
        before=merged.bytes[0],
        after=merged.bytes[1],
        uncertain=uncertain,
        before_blocks=merged.blocks[0] if count_blocks else None,
        after_blocks=merged.blocks[1] if count_blocks else None,
        notices=_notices(before, after, base_names=on_names, hides=any(uncertain)),
        unit=after.unit,
        variance=merged.variance,
    )
    return _in_pre_order(diff)


def as_growth(snapshot: Snapshot) -> Diff:
    """Return *snapshot* as a diff against nothing, so that one ranking serves both."""
    empty = CallTree(
        frames=(), parent=[-1], frame=[ROOT], bytes=[0], blocks=None if snapshot.tree.blocks is None else [0]
    )
    return diff_snapshots(replace(snapshot, name="nothing", tree=empty), snapshot)


class _FrameTable:
    # One table of frames for both sides; the first frame with a key stands for all (the one with the folder
    # wins where one side has base names only, so that its source can be found).
    def __init__(self, *, base_names: bool) -> None:
        self.base_names = base_names
        self.frames: list[Frame] = []
        self.inlined = bytearray()
        self.nameless = bytearray()
        self._index: dict[object, int] = {}

    def intern(self, frames: Sequence[Frame]) -> list[int]:
        return [self._number(frame) for frame in frames]

    def _number(self, frame: Frame) -> int:
        key = frame.key
        if self.base_names and frame.file is not None:
            key = (frame.function, PurePosixPath(frame.file).name, frame.line, frame.object)
        number = self._index.setdefault(key, len(self.frames))
        if number == len(self.frames):
            self.frames.append(frame)
            self.inlined.append(frame.inlined)
            self.nameless.append(frame.is_nameless)
            return number
        if "/" in (frame.file or "") and "/" not in (self.frames[number].file or ""):
            self.frames[number] = frame
        if frame.inlined and not self.inlined[number]:
            self.inlined[number] = True
            self.frames[number] = self.frames[number]._replace(inlined=True)
        return number


@dataclass
class _Merged:
    # Columns still in the order of making: all of the first tree, then what only the second has.
    parent: array[int] = field(default_factory=lambda: array("q", [-1]))
    frame: array[int] = field(default_factory=lambda: array("q", [ROOT]))
    bytes: tuple[array[int], array[int]] = field(default_factory=lambda: (array("q", [0]), array("q", [0])))
    blocks: tuple[array[int], array[int]] = field(default_factory=lambda: (array("q", [0]), array("q", [0])))
    sites: tuple[array[int], array[int]] = field(default_factory=lambda: (array("q", [0]), array("q", [0])))
    variance: Optional[array[float]] = None  # of both sides together


def _merge(trees: Sequence[CallTree], numbers: Sequence[Sequence[int]], frame_count: int) -> _Merged:
    merged = _Merged()
    parents, frames = merged.parent, merged.frame
    columns: list[array[Any]] = [*merged.bytes, *merged.blocks, *merged.sites]
    if any(tree.variance is not None for tree in trees):
        merged.variance = array("d", [0.0])
        columns.append(merged.variance)
    index: dict[int, int] = {}
    stride = frame_count + 2  # two for ROOT and PRUNED
    for side, tree in enumerate(trees):
        sizes, sites, blocks = merged.bytes[side], merged.sites[side], merged.blocks[side]
        number, target = numbers[side], [0] * len(tree)
        sizes[0], sites[0] = tree.bytes[0], 1
        if tree.blocks is not None:
            blocks[0] = tree.blocks[0]
        for node in range(1, len(tree)):
            frame = tree.frame[node]
            parent = target[tree.parent[node]]
            merged_frame = number[frame] if frame >= 0 else frame
            place = index.setdefault(parent * stride + merged_frame + 2, len(parents))
            if place == len(parents):
                parents.append(parent)
                frames.append(merged_frame)
                for column in columns:
                    column.append(0)
            target[node] = place
            sizes[place] += tree.bytes[node]
            sites[place] += 1
            if tree.blocks is not None:
                blocks[place] += tree.blocks[node]
            if tree.variance is not None and merged.variance is not None:
                merged.variance[place] += tree.variance[node]
    return merged


def _uncertainty(merged: _Merged, table: _FrameTable, trees: Sequence[CallTree]) -> array[int]:
    # A node stands for one or more call sites (equal text, different addresses). A site that one side
    # shows and the other does not may be hidden on the other side: in the pruned node beside it, or beside
    # an ancestor, as far up as that ancestor may itself stand for another call site there. Each hidden
    # site is smaller than the threshold, all of them together no bigger than those pruned nodes. Under a
    # frame without a name nothing says that two sites are the same.
    result = array("q", [0]) * len(merged.parent)
    for side, tree in enumerate(trees):
        pruned = _pruned_children(merged, side)
        if pruned:
            _add_hidden(result, merged, table, side, pruned, tree)
    return result


def _pruned_children(merged: _Merged, side: int) -> dict[int, int]:
    sizes = merged.bytes[side]
    return {
        merged.parent[node]: sizes[node]
        for node, frame in enumerate(merged.frame)
        if frame == PRUNED and sizes[node]
    }


def _add_hidden(
    result: array[int],
    merged: _Merged,
    table: _FrameTable,
    side: int,
    pruned: Mapping[int, int],
    tree: CallTree,
) -> None:
    threshold_bytes = tree.threshold_bytes
    here, there = merged.sites[side], merged.sites[1 - side]
    count = len(merged.parent)
    largest, total = array("q", [0]) * count, array("q", [0]) * count  # hidden in a child of this node
    nameless, parting = bytearray(count), _parting(merged, table)
    inner = bytearray(count)
    for parent in merged.parent[1:]:
        inner[parent] = 1
    for node in range(count):
        frame, parent = merged.frame[node], merged.parent[node]
        if frame == PRUNED:
            continue
        above_largest, above_total = (largest[parent], total[parent]) if node else (0, 0)
        nameless[node] = node > 0 and (nameless[parent] or table.nameless[frame])
        # One address on each side is the same call site; of several, each may be one that is hidden here.
        plain = here[node] <= 1 and there[node] <= 1 and not nameless[node] and not parting[node]
        missing = there[node] - here[node] if plain else there[node]
        if missing > 0 and above_total:
            # Of a cut file any number of stacks may be hidden behind a node that leads on to others.
            many = tree.scattered and inner[node]
            result[node] += above_total if many else min(above_total, missing * above_largest)
        hidden = pruned.get(node, 0)
        single = node == 0 or (plain and here[node] == there[node] and not table.inlined[frame])
        single = single and not tree.scattered
        # A file that does not state its threshold leaves the pruned bytes as the only bound.
        capped = min(hidden, threshold_bytes) if threshold_bytes else hidden
        largest[node] = capped if single else max(capped, above_largest)
        total[node] = hidden if single else hidden + above_total


def _parting(merged: _Merged, table: _FrameTable) -> bytearray:
    # Inlined frames repeat what is called at one address: where they part further out, they are several.
    parting, children = bytearray(len(merged.parent)), bytearray(len(merged.parent))
    for node in range(len(merged.parent) - 1, 0, -1):
        parent = merged.parent[node]
        if parent and table.inlined[merged.frame[parent]]:
            parting[parent] |= parting[node] or children[parent]
            children[parent] = 1
    return parting


def _in_pre_order(diff: Diff) -> Diff:
    order = _pre_order(diff.parent)
    place = array("q", [0]) * len(order)
    for position, node in enumerate(order):
        place[node] = position

    def sort(column: Sequence[int]) -> array[int]:
        return array("q", [column[node] for node in order])

    return Diff(
        before_side=diff.before_side,
        after_side=diff.after_side,
        frames=diff.frames,
        parent=array("q", [-1] + [place[diff.parent[node]] for node in order[1:]]),
        frame=sort(diff.frame),
        before=sort(diff.before),
        after=sort(diff.after),
        uncertain=sort(diff.uncertain),
        before_blocks=None if diff.before_blocks is None else sort(diff.before_blocks),
        after_blocks=None if diff.after_blocks is None else sort(diff.after_blocks),
        notices=diff.notices,
        unit=diff.unit,
        variance=None if diff.variance is None else array("d", [diff.variance[node] for node in order]),
    )


def _pre_order(parent: Sequence[int]) -> array[int]:
    count = len(parent)
    first_child, next_sibling = array("q", [-1]) * count, array("q", [-1]) * count
    for node in range(count - 1, 0, -1):
        next_sibling[node] = first_child[parent[node]]
        first_child[parent[node]] = node
    order, stack = array("q"), [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if next_sibling[node] >= 0:
            stack.append(next_sibling[node])
        if first_child[node] >= 0:
            stack.append(first_child[node])
    return order


def _has_folders(tree: CallTree) -> Optional[bool]:
    files = [frame.file for frame in tree.frames if frame.file is not None]
    return any("/" in file for file in files) if files else None


def _on_base_names(trees: Sequence[CallTree]) -> bool:
    # None (no file at all) differs from neither.
    return {_has_folders(tree) for tree in trees} >= {True, False}


def _notices(before: Snapshot, after: Snapshot, *, base_names: bool, hides: bool) -> list[Notice]:
    notices = []
    if base_names:
        bare = after if _has_folders(before.tree) else before
        notices.append(
            Notice(
                "compared-on-base-names",
                f"{bare.source} names source files without their folders, so files are compared by their"
                " last part; files of one name in several folders count as one",
            )
        )
    if before.tree.variance is not None or after.tree.variance is not None:
        notices.append(
            Notice("sampled", "the numbers are estimated from samples; ± is one standard error of each row")
        )
    if hides and (before.tree.scattered or after.tree.scattered):
        text = "a side was cut, so what is marked ± may be off by as much as it may hide"
        notices.append(Notice("cut-hides", text))
    elif hides:
        limit = max(before.tree.threshold_bytes, after.tree.threshold_bytes)
        notices.append(
            Notice(
                "threshold-hides",
                f"call sites under {format_size(limit) if limit else 'a threshold'} are not listed,"
                " so what is marked ± may be off by as much; snapshots taken with --threshold=0 hide nothing",
            )
        )
    return notices
