"""The difference of two snapshots, path by path, with its uncertainty."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.model.calltree import (
    LOST_BYTES,
    PAGE_BYTES,
    PRUNED,
    ROOT,
    CallTree,
    Frame,
    Frames,
    Snapshot,
    Totals,
    as_nothing,
)
from gdbmem.model.diff import Diff, OutsideHeap, Side, SideSites
from gdbmem.text import format_size, printable

_MINOR_VERSION = r"(\.so\.[0-9]+)(?:\.[0-9]+)+$"


def diff_snapshots(before: Snapshot, after: Snapshot) -> Diff:
    """Merge the trees of *before* and *after* on (function, file, line, object), ignoring addresses.

    Siblings with equal key are summed. If a side hides small paths, a path with more call sites on one side than on
    the other is uncertain by the bytes that the other side may hide. A line with one call site on each side is assumed
    to have the same one: call sites with equal text can't be distinguished.
    Raises InputError if one side counts the heap and the other pages.
    """
    return diff_series((before, after))


def diff_series(snapshots: Sequence[Snapshot]) -> Diff:
    """Merge the trees of two or more *snapshots*, oldest first, into the diff of the first and the last.

    With more than two, the diff has the bytes of each node at each of them in ``course``.
    Raises InputError if they count different quantities.
    """
    before, after = snapshots[0], snapshots[-1]
    for snapshot in snapshots[1:]:
        _check_units(before, snapshot)
    trees = [snapshot.tree for snapshot in snapshots]
    table = _FrameTable(base_names={_has_folders(tree) for tree in trees} >= {True, False})
    numbers = [table.intern(tree.frames) for tree in trees]
    frames = table.frames()
    merged = _merge(trees, numbers, len(frames))
    columns = [merged.add(tree.bytes, side) for side, tree in enumerate(trees)]
    uncertain = _uncertainty(merged, frames, trees, columns)
    sides = [
        Side(one.source, one.name, one.tree.bytes[0], one.source_format, one.command) for one in snapshots
    ]
    before_blocks, after_blocks = _blocks(merged, trees)
    diff = Diff(
        before_side=sides[0],
        after_side=sides[-1],
        frames=frames,
        parent=merged.parent,
        frame=merged.frame,
        before=columns[0],
        after=columns[-1],
        uncertain=uncertain,
        before_blocks=before_blocks,
        after_blocks=after_blocks,
        notices=_notices(snapshots, base_names=table.base_names, hides=any(uncertain)),
        unit=after.unit,
        is_cut=any(tree.scattered for tree in trees),
        outside=_outside(before.totals, after.totals),
        has_addresses=all(tree.address is not None for tree in (trees[0], trees[-1])),
        variance=_variance(merged, trees, [tree.variance for tree in trees]),
        path_variance=_variance(merged, trees, [tree.path_variance for tree in trees]),
        course=columns if len(columns) > 2 else (),
        sides=sides,
        ends=merged.add_ends(trees),
        side_sites=_side_sites(merged, len(frames), trees) if len(columns) > 2 else (),
    )
    return diff if merged.is_one_tree else _in_pre_order(diff)


def _check_units(before: Snapshot, after: Snapshot) -> None:
    what = before.unit, after.unit
    if what == (LOST_BYTES, LOST_BYTES):
        what = before.totals.name, after.totals.name  # as the metrics of leak searches are called
    if what[0] != what[1]:
        raise InputError(
            f"{printable(before.source)} counts {printable(what[0])}, {printable(after.source)} {printable(what[1])}",
            slug="units-differ",
            hint="compare two snapshots that were both taken with --pages-as-heap, or both without"
            if PAGE_BYTES in (before.unit, after.unit)
            else "choose the same --metric for both",
        )


def as_growth(snapshot: Snapshot) -> Diff:
    """Return *snapshot* as a diff against nothing, so that one ranking serves both."""
    return diff_snapshots(as_nothing(snapshot), snapshot)


def _outside(before: Totals, after: Totals) -> list[OutsideHeap]:
    found = [
        OutsideHeap("stacks", before.stacks_bytes, after.stacks_bytes),
        OutsideHeap("allocator overhead", before.extra_bytes, after.extra_bytes),
    ]
    # A value unknown on one side is not 0 there.
    found += [
        OutsideHeap(name, before.beside[name], size)
        for name, size in after.beside.items()
        if name in before.beside
    ]
    return [one for one in found if one.before_bytes or one.after_bytes]


def as_difference(went: Snapshot, came: Snapshot) -> Diff:
    """Return the diff in a file that is a difference already: the earlier bytes are unknown."""
    return diff_snapshots(went, came).with_columns(is_relative=True)


class _FrameTable:
    # One table of frames for both sides; the first frame with a key represents all (the one with the folder
    # wins if one side has only base names, so that its source can be found).
    def __init__(self, *, base_names: bool) -> None:
        self.base_names = base_names
        self._functions: list[Optional[str]] = []
        self._files: list[Optional[str]] = []
        self._lines: list[int] = []
        self._objects: list[Optional[str]] = []
        self._inlined = bytearray()
        self._index: dict[object, int] = {}
        self._adopted: Optional[Frames] = None

    def intern(self, frames: Sequence[Frame]) -> Sequence[int]:
        found = Frames.of(frames)
        if not found:
            return ()
        if self._adopted is None and found.distinct and not self._index and self._are_distinct(found):
            self._adopted = found
            return range(len(found))
        if self._adopted is not None and not self._index:
            self._add(self._adopted)
        self._adopted = self._adopted or found
        return self._add(found)

    def frames(self) -> Frames:
        if self._adopted is not None and not self._index:
            return self._adopted
        return Frames(self._functions, self._files, self._lines, self._objects, self._inlined)

    def _are_distinct(self, frames: Frames) -> bool:
        # On this table's terms, too.
        libraries = [name for name in set(frames.objects) if name is not None]
        return not self.base_names and len(set(map(_library_name, libraries))) == len(libraries)

    def _keys(self, frames: Frames) -> Iterator[object]:
        files, objects = frames.files, frames.objects
        # A program that was installed, or built, elsewhere is the same program.
        libraries = {name: name and _library_name(name) for name in set(objects)}
        if self.base_names:
            files = [file and PurePosixPath(file).name for file in files]
        places = (None if file else libraries[name] for file, name in zip(files, objects))
        return zip(frames.functions, files, frames.lines, places)

    def _add(self, frames: Frames) -> array[int]:
        numbers, index = array("i"), self._index
        for at, key in enumerate(self._keys(frames)):
            number = index.setdefault(key, len(index))
            numbers.append(number)
            if number == len(self._files):
                self._functions.append(frames.functions[at])
                self._files.append(frames.files[at])
                self._lines.append(frames.lines[at])
                self._objects.append(frames.objects[at])
                self._inlined.append(frames.inlined[at])
            elif (
                self.base_names and "/" in (frames.files[at] or "") and "/" not in (self._files[number] or "")
            ):
                self._files[number] = frames.files[at]
            self._inlined[number] |= frames.inlined[at]
        return numbers


def _library_name(path: str) -> str:
    # Some tools name the link that a program loads, libz.so.1, others the file behind it, libz.so.1.2.13.
    return re.sub(_MINOR_VERSION, r"\1", path[path.rfind("/") + 1 :])


_ANY_NUMBER = 1 << 20  # of call sites
_MOST_SITES = 2_000_000  # of all snapshots of a series: of more, only the first and the last are compared


class _Merged(NamedTuple):
    # Nodes still in the order of making: all of the first tree, then what only the second has, and so on.
    parent: array[int]
    frame: array[int]
    targets: Sequence[Sequence[int]]  # per tree: the merged node of each of its nodes

    @property
    def hides_paths(self) -> bool:
        """Whether a node stands for paths that a tool did not list."""
        return PRUNED in self.frame

    @property
    def is_one_tree(self) -> bool:
        """True if one of the trees has all nodes, in its own order, and the others have no further ones."""
        return any(isinstance(one, range) and len(one) == len(self.parent) for one in self.targets)

    def add(self, column: Sequence[int], side: int) -> array[int]:
        """Return *column* of the tree *side*, summed for each merged node."""
        if not any(column):  # the nothing that a single snapshot is compared with
            return array("b", bytes(len(self.parent)))
        if isinstance(self.targets[side], range):
            missing = len(self.parent) - len(column)
            return _as_array(column) + array("q", [0]) * missing if missing else _as_array(column)
        result = array("q", [0]) * len(self.parent)
        for place, number in zip(self.targets[side], column):
            result[place] += number
        return result

    def add_ends(self, trees: Sequence[CallTree]) -> Optional[Sequence[int]]:
        """Return the merged nodes at which a path ends in any of *trees*; None: any may."""
        if any(tree.ends is None for tree in trees):
            return None
        rows = [(target, tree.ends) for target, tree in zip(self.targets, trees) if tree.ends]
        if len(rows) == 1 and isinstance(rows[0][0], range):  # the tree's own nodes
            return rows[0][1]
        found: set[int] = set()
        for target, ends in rows:
            found.update(map(target.__getitem__, ends))
        return array("q", sorted(found))

    def sites(self, side: int) -> array[int]:
        """Return the number of nodes of the tree *side* for each merged node."""
        return self.add([1] * len(self.targets[side]), side)


def _merge(trees: Sequence[CallTree], numbers: Sequence[Sequence[int]], frame_count: int) -> _Merged:
    parents, frames = array("q", [-1]), array("q", [ROOT])
    targets: list[Sequence[int]] = []
    index: dict[int, int] = {}
    stride = frame_count + 2  # two for ROOT and PRUNED
    for tree, number in zip(trees, numbers):
        merged_frames = [*number, PRUNED, ROOT]  # at the indices -2 and -1: these stand for themselves
        if len(parents) == 1:
            column = _renumbered(tree, number, merged_frames)
            if tree is trees[-1] and _has_distinct_siblings(tree, number, column, stride):
                parents, frames = _as_array(tree.parent), column
                targets.append(range(len(parents)))
                continue
            index = dict(zip(_keys(tree, column, stride), range(len(column))))
            if len(index) == len(column):  # the first tree that holds anything, and no two siblings are alike
                parents, frames = array("q", tree.parent), array("q", column)
                targets.append(range(len(column)))
                continue
            index.clear()
        target = [0]
        rows = zip(tree.parent, tree.frame)
        next(rows)
        count = len(parents)
        for above, frame in rows:
            key = target[above] * stride + merged_frames[frame] + 2
            place = index.get(key, count)
            if place == count:
                index[key] = count
                parents.append(target[above])
                frames.append(merged_frames[frame])
                count += 1
            target.append(place)
        targets.append(target)
    return _Merged(parents, frames, targets)


def _renumbered(tree: CallTree, number: Sequence[int], merged_frames: Sequence[int]) -> array[int]:
    if isinstance(number, range):  # the table is the tree's own
        return _as_array(tree.frame)
    return array("q", map(merged_frames.__getitem__, tree.frame))


def _keys(tree: CallTree, column: Sequence[int], stride: int) -> Iterator[int]:
    return (above * stride + frame + 2 for above, frame in zip(tree.parent, column))


def _has_distinct_siblings(tree: CallTree, number: Sequence[int], column: Sequence[int], stride: int) -> bool:
    if tree.ends is not None:  # none that differ in the tree may be one frame in the merged table
        return isinstance(number, range) or len(set(number)) == len(number)
    return len(set(_keys(tree, column, stride))) == len(column)


def _as_array(column: Sequence[int]) -> array[int]:
    return column if isinstance(column, array) else array("q", column)


def _blocks(
    merged: _Merged, trees: Sequence[CallTree]
) -> tuple[Optional[Sequence[int]], Optional[Sequence[int]]]:
    first, last = trees[0].blocks, trees[-1].blocks
    if first is None or last is None:
        return None, None
    return merged.add(first, 0), merged.add(last, len(trees) - 1)


_Column = Optional[Sequence[float]]


def _variance(
    merged: _Merged, trees: Sequence[CallTree], columns: Sequence[_Column]
) -> Optional[array[float]]:
    # Blocks of the first and the last together, which are subtracted.
    shared = bool(trees[0].recording) and trees[0].recording == trees[-1].recording
    result = _sum_of_variances(merged, columns, {0: -1.0 if shared else 1.0, len(trees) - 1: 1.0})
    return array("d", map(abs, result)) if shared and result is not None else result


def _sum_of_variances(
    merged: _Merged, columns: Sequence[_Column], weights: Mapping[int, float]
) -> Optional[array[float]]:
    """Return the sum of the *columns* of the trees with the numbers in *weights*; None if none of them has any."""
    if all(columns[side] is None for side in weights):
        return None
    result = array("d", [0.0]) * len(merged.parent)
    for side, weight in weights.items():
        for place, variance in zip(merged.targets[side], columns[side] or ()):
            result[place] += weight * variance
    return result


def _uncertainty(
    merged: _Merged, frames: Frames, trees: Sequence[CallTree], columns: Sequence[array[int]]
) -> array[int]:
    # A node stands for one or more call sites (equal text, different addresses). A site that one side
    # shows and the other does not may be hidden on the other side: in the pruned node beside it, or beside
    # an ancestor, as far up as that ancestor may itself stand for another call site there. Each hidden
    # site is smaller than the threshold, all of them together no bigger than those pruned nodes. Under a
    # frame without a name nothing says that two sites are the same. Where addresses are known, sites are what has
    # one of its own, and a frame that has several somewhere may have one hidden wherever it doesn't show them all.
    ends = (0, len(trees) - 1)
    both = [_pruned_children(merged, columns[side]) for side in ends]
    if not any(both) and not any(columns[0]):
        return columns[0]  # nought as well: 7 MB of the largest files
    result = array("q", [0]) * len(merged.parent)
    known = _known_sites(merged, frames, trees) if any(both) else None
    for (side, other), pruned in zip((ends, ends[::-1]), both):
        if pruned:
            sites = (merged.sites(side), merged.sites(other))
            _add_hidden(result, merged, frames, sites, pruned, trees[side], known)
    return result


def _side_sites(merged: _Merged, frame_count: int, trees: Sequence[CallTree]) -> Sequence[SideSites]:
    hides = merged.hides_paths
    if not hides and all(tree.variance is None for tree in trees):
        return ()
    if hides and len(merged.parent) * len(trees) > _MOST_SITES:
        return ()
    return [
        SideSites(
            sites=merged.sites(side) if hides else (),
            addresses=_addresses(merged, frame_count, tree, side) if hides else None,
            threshold_bytes=tree.threshold_bytes,
            is_cut=tree.scattered,
            variance=_sum_of_variances(merged, [one.variance for one in trees], {side: 1.0}),
            recording=tree.recording,
        )
        for side, tree in enumerate(trees)
    ]


def _addresses(merged: _Merged, frame_count: int, tree: CallTree, side: int) -> Optional[list[set[int]]]:
    if tree.address is None:
        return None
    found: list[set[int]] = [set() for _ in range(frame_count)]
    for place, address in zip(merged.targets[side], tree.address):
        if merged.frame[place] >= 0:
            found[merged.frame[place]].add(address)
    return found


def _known_sites(merged: _Merged, frames: Frames, trees: Sequence[CallTree]) -> Optional[array[int]]:
    """Return for each merged frame its known number of call sites; None if a tree has no addresses.

    A function without a source line may have any number.
    """
    first, last = (_addresses(merged, len(frames), trees[side], side) for side in (0, len(trees) - 1))
    if first is None or last is None:
        return None
    any_number = [may_be_many(frame) for frame in frames]
    return array("q", [_ANY_NUMBER if many else len(a | b) for a, b, many in zip(first, last, any_number)])


def may_be_many(frame: Frame) -> bool:
    """Return whether *frame* may represent any number of call sites: a function without a source line."""
    return frame.file is None and not frame.is_nameless


def _pruned_children(merged: _Merged, sizes: array[int]) -> dict[int, int]:
    if not merged.hides_paths:
        return {}
    return {
        merged.parent[node]: sizes[node]
        for node, frame in enumerate(merged.frame)
        if frame == PRUNED and sizes[node]
    }


def _add_hidden(
    result: array[int],
    merged: _Merged,
    frames: Frames,
    sites: tuple[array[int], array[int]],
    pruned: Mapping[int, int],
    tree: CallTree,
    known: Optional[Sequence[int]],
) -> None:
    threshold_bytes = tree.threshold_bytes
    here, there = sites
    count = len(merged.parent)
    largest, total = array("q", [0]) * count, array("q", [0]) * count  # hidden in a child of this node
    nameless, parting = bytearray(count), _parting(merged, frames)
    inner, own = bytearray(count), array("q", [0]) * count
    unknown = [function is None and file is None for function, file in zip(frames.functions, frames.files)]
    for parent in merged.parent[1:]:
        inner[parent] = 1
    for node in range(count):
        frame, parent = merged.frame[node], merged.parent[node]
        if frame == PRUNED:
            continue
        above_largest, above_total = (largest[parent], total[parent]) if node else (0, 0)
        nameless[node] = node > 0 and (nameless[parent] or unknown[frame])
        # One address on each side is the same call site; of several, each may be one that is hidden here.
        plain = here[node] <= 1 and there[node] <= 1 and not nameless[node] and not parting[node]
        missing = there[node] - here[node] if plain else there[node]
        if known is not None and node:
            # If each call site has its address, another of this frame may be hidden on both sides.
            others = known[frame] * max(here[parent], 1) - here[node]
            plain = plain and others <= 0
            missing = max(missing, others)
        if missing > 0 and above_total:
            # In a truncated file any number of stacks may be missing below an inner node.
            many = tree.scattered and inner[node]
            own[node] = above_total if many else min(above_total, missing * above_largest)
        if known is not None and node:
            own[node] = max(own[node], own[parent])  # hidden bytes of a caller may continue along this path
        result[node] += own[node]
        hidden = pruned.get(node, 0)
        single = node == 0 or (plain and here[node] == there[node] and not frames.inlined[frame])
        single = single and not tree.scattered
        # A file that does not state its threshold leaves the pruned bytes as the only bound.
        capped = min(hidden, threshold_bytes) if threshold_bytes else hidden
        largest[node] = capped if single else max(capped, above_largest)
        total[node] = hidden if single else hidden + above_total


def _parting(merged: _Merged, frames: Frames) -> bytearray:
    # Inlined frames repeat the calls at one address: if they differ further out, they are several call sites.
    parting, children = bytearray(len(merged.parent)), bytearray(len(merged.parent))
    for node in range(len(merged.parent) - 1, 0, -1):
        parent = merged.parent[node]
        if parent and frames.inlined[merged.frame[parent]]:
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

    return diff.with_columns(
        parent=array("q", [-1] + [place[diff.parent[node]] for node in order[1:]]),
        frame=sort(diff.frame),
        before=sort(diff.before),
        after=sort(diff.after),
        uncertain=sort(diff.uncertain),
        before_blocks=None if diff.before_blocks is None else sort(diff.before_blocks),
        after_blocks=None if diff.after_blocks is None else sort(diff.after_blocks),
        variance=_chosen(diff.variance, order),
        path_variance=_chosen(diff.path_variance, order),
        course=tuple(sort(column) for column in diff.course),
        side_sites=[
            one._replace(sites=sort(one.sites) if one.sites else (), variance=_chosen(one.variance, order))
            for one in diff.side_sites
        ],
        ends=None if diff.ends is None else sorted(place[node] for node in diff.ends),
    )


def _chosen(column: _Column, nodes: Sequence[int]) -> Optional[array[float]]:
    return None if column is None else array("d", [column[node] for node in nodes])


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
    files = set(Frames.of(tree.frames).files) - {None}
    return any("/" in file for file in files if file) if files else None


def _notices(snapshots: Sequence[Snapshot], *, base_names: bool, hides: bool) -> list[Notice]:
    notices = []
    trees = [snapshot.tree for snapshot in snapshots]
    if base_names:
        bare = next(one for one in reversed(snapshots) if _has_folders(one.tree) is False)
        notices.append(
            Notice(
                "compared-on-base-names",
                f"{bare.source} names source files without their folders, so files are compared by their"
                " last part; files of one name in several folders count as one",
            )
        )
    if any(tree.variance is not None for tree in trees):
        notices.append(
            Notice("sampled", "the numbers are estimated from samples; ± is one standard error of each row")
        )
    if hides and any(tree.scattered for tree in trees):
        text = "one side was truncated: changes marked ± may be wrong by as much as it may hide"
        notices.append(Notice("cut-hides", text))
    elif hides:
        limit = max(tree.threshold_bytes for tree in trees)
        notices.append(
            Notice(
                "threshold-hides",
                f"call sites under {format_size(limit) if limit else 'a threshold'} are not listed,"
                " so changes marked ± may be wrong by as much; snapshots taken with --threshold=0 hide nothing",
            )
        )
    return notices


# Snapshots scaled to one total, so that a diff shows changes of the proportions.


def normalized(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Return *snapshots*, all but the last scaled to the total of the last, to the byte.

    Blocks are no longer counted then. Raises InputError if one of them is empty.
    """
    total_bytes = snapshots[-1].tree.bytes[0]
    for snapshot in snapshots:
        if not snapshot.tree.bytes[0]:
            raise InputError(
                f"{printable(snapshot.source)} is empty and can't be scaled",
                slug="nothing-to-normalize",
                hint="leave --normalize out",
            )
    return [one._replace(tree=_scaled(one.tree, total_bytes)) for one in snapshots]


def scaling_notices(snapshots: Sequence[Snapshot]) -> list[Notice]:
    """Return the notices on normalized(): the original total of each of *snapshots*."""
    total_bytes = snapshots[-1].tree.bytes[0]
    return [
        Notice(
            "scaled",
            f"{printable(one.source)} holds {format_size(one.tree.bytes[0])}, here scaled to"
            f" {format_size(total_bytes)} by --normalize",
        )
        for one in snapshots[:-1]
        if one.tree.bytes[0] != total_bytes
    ]


def _scaled(tree: CallTree, total_bytes: int) -> CallTree:
    whole = tree.bytes[0]
    sizes = tree.self_bytes()
    seen = scaled_seen = 0
    for node, size_bytes in enumerate(sizes):
        # Rounding the running sum, not each number, leaves the total exact.
        seen += size_bytes
        scaled = seen * total_bytes // whole
        sizes[node], scaled_seen = scaled - scaled_seen, scaled
    for node in range(len(sizes) - 1, 0, -1):
        sizes[tree.parent[node]] += sizes[node]
    factor = total_bytes / whole
    return tree.with_columns(
        bytes=sizes,
        blocks=None,
        threshold_bytes=-(-tree.threshold_bytes * total_bytes // whole),
        variance=_times(tree.variance, factor * factor),
        path_variance=_times(tree.path_variance, factor * factor),
    )


def _times(column: Optional[Sequence[float]], factor: float) -> Optional[Sequence[float]]:
    return None if column is None else array("d", [one * factor for one in column])
