"""A diff as a tree from main to the allocations, with only the large calls expanded."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress
from typing import NamedTuple, Optional, Union

from gdbmem.model.calltree import PRUNED, ROOT, Frame, Frames
from gdbmem.model.diff import Diff
from gdbmem.profiles.paths import Query, nodes_on_paths
from gdbmem.profiles.ranking import KNOWN, LISTED, GroupedPaths, grouped
from gdbmem.text import format_size

_FEW = 4  # calls are few if there are more than so many frames for each


class _EndingPaths(NamedTuple):
    """Paths as columns: the node at which each ends, the next node inward, its change in bytes."""

    ends: Sequence[int]
    following: Sequence[int]
    changes: Sequence[int]


class Outward:
    """A call, with all bytes through it."""

    def __init__(
        self,
        frame: Optional[Frame],
        paths: GroupedPaths,
        at: _EndingPaths,
        least: float,
        *,
        has_hidden: bool,
    ) -> None:
        """*least* is the least change in bytes of a call that is listed; *has_hidden*: there are nodes that are not
        shown, pruned or of frames that are left out.
        """
        self.frame = frame  # None: the caller of main; unlisted places
        self.delta_bytes = sum(at.changes)
        self.weight = sum(map(abs, at.changes))  # bytes added and bytes removed
        self._paths = paths
        self._at = at
        self._least = least
        self._has_hidden = has_hidden

    @cached_property
    def children(self) -> Sequence[Outward]:
        """The large calls by this one, the largest first; computed on access."""
        diff, paths, at = self._paths.diff, self._paths, self._at
        frame, left_out, nodes = diff.frame, paths.walk.left_out, at.following
        if self._has_hidden:
            is_shown = [frame[node] >= 0 and not left_out[frame[node]] for node in nodes]
            rows = zip(is_shown, at.ends, nodes)
            nodes = array("i", [node if shown else paths.next_shown(end, node) for shown, end, node in rows])
        numbers = array("i", [frame[node] for node in nodes])
        if len(nodes) and numbers.count(numbers[0]) == len(nodes):  # one call of all, main as a rule
            if self.weight < self._least or numbers[0] == ROOT:
                return []
            called = array("i", [diff.parent[node] for node in nodes])
            return [self._child(numbers[0], _EndingPaths(at.ends, called, at.changes))]
        groups = {number: (array("i"), array("i"), array("q")) for number in self._large(numbers)}
        for end, node, number, change in zip(at.ends, nodes, numbers, at.changes) if groups else ():
            if number in groups:
                ends, following, changes = groups[number]
                ends.append(end)
                following.append(diff.parent[node])
                changes.append(change)
        found = [self._child(number, _EndingPaths(*columns)) for number, columns in groups.items()]
        return sorted(found, key=lambda child: -child.weight)

    def _large(self, numbers: Sequence[int]) -> Iterable[int]:
        # The frames that are called by enough of the paths, of which *numbers* has the frame of each, in its order.
        least, frames = self._least, len(self._paths.diff.frames)
        is_few = len(numbers) * _FEW <= frames
        # PRUNED and ROOT are the last two.
        weights: Union[dict[int, int], array[int]] = (
            defaultdict(int) if is_few else array("q", [0]) * (frames + 2)
        )
        for number, size in zip(numbers, map(abs, self._at.changes)):
            weights[number] += size
        if max(weights.values() if isinstance(weights, dict) else weights, default=0) < least:
            return ()
        return dict.fromkeys([n for n in numbers if weights[n] >= least and n != ROOT])

    def _child(self, number: int, at: _EndingPaths) -> Outward:
        frame = self._paths.diff.frames[number] if number >= 0 else None
        return Outward(frame, self._paths, at, self._least, has_hidden=self._has_hidden)


def outward(diff: Diff, query: Query, least_share: float) -> Outward:
    """Return the paths of *diff* that *query* lists as a tree of calls; *least_share* is relative to the total."""
    # Cached by the report: their grouping is irrelevant here.
    paths = grouped(diff, query._replace(by="line"))
    ends, before, after = paths.holders(), paths.before, paths.after
    if paths.walk.marks:
        ends = array("i", [end for end in ends if paths.fate(end) == LISTED])
    changes = array("q", [after[end] - before[end] for end in ends])
    weight = sum(map(abs, changes))
    has_hidden = diff.hides_paths or any(paths.walk.left_out)
    least = max(least_share * weight, 1)
    return Outward(None, paths, _EndingPaths(ends, ends, changes), least, has_hidden=has_hidden)


# A diff of very many paths with the smallest of them merged into one, for pictures that can't show all.


MOST_PATHS = 30_000  # number of paths that are always kept separate
LEAST_SHARE = 1e-5  # fraction of the total: larger paths are also kept separate


class LargePaths(NamedTuple):
    """A diff, and the number of paths merged into its last one."""

    diff: Diff
    merged: int = 0
    largest_bytes: int = 0  # the largest size of any of these at any snapshot


def large_paths(
    diff: Diff, query: Query, most: int = MOST_PATHS, least_share: float = LEAST_SHARE
) -> LargePaths:
    """Return *diff* with all paths merged that are not among the *most* largest and are below *least_share*.

    The size of a path is its maximum over the snapshots. Known paths of *query* and omitted parts stay separate.
    """
    paths = grouped(diff, query._replace(by="line"))
    ends = paths.holders()
    if len(ends) <= most:
        return LargePaths(diff)
    held = [column for column in paths.course or (paths.before, paths.after) if any(column)]
    columns = [array("q", [column[end] for end in ends]) for column in held]
    sizes = columns[0] if len(columns) == 1 else array("q", map(max, *columns))
    total = max(column[0] for column in (*diff.course, diff.before, diff.after))
    order = sorted(range(len(ends)), key=sizes.__getitem__, reverse=True)
    while most < len(order) and sizes[order[most]] >= least_share * total:
        most += 1
    is_small = bytearray(b"\1") * len(ends)
    for at in order[:most]:
        is_small[at] = False
    del order  # 12 MB in the largest files
    if diff.hides_paths or paths.walk.marks:
        for at, end in enumerate(ends):
            if diff.frame[end] == PRUNED or (paths.walk.marks and paths.fate(end) == KNOWN):
                is_small[at] = False
    if sum(is_small) < 2:
        return LargePaths(diff)
    largest = max(compress(sizes, is_small))
    small = array("i", compress(ends, is_small))
    kept = array("i", compress(ends, is_small.translate(bytes([1, 0]) + bytes(254))))
    del paths, ends
    diff.memo.clear()  # 20 MB of the largest files: what follows is asked of the merged diff
    return LargePaths(_Merging(diff, query, kept, small).diff(largest), len(small), largest)


class _Merging:
    # The nodes of some paths of a diff, and one for all its others.
    def __init__(self, diff: Diff, query: Query, kept: Sequence[int], small: Sequence[int]) -> None:
        self._diff, self._query, self._kept, self._small = diff, query, kept, small
        self._nodes = array("i", [0, *nodes_on_paths(diff.parent, kept)])
        self._place = dict(zip(self._nodes, range(len(self._nodes))))
        self._parent = array("i", [-1, *(self._place[diff.parent[node]] for node in self._nodes[1:]), 0])

    def diff(self, largest_bytes: int) -> Diff:
        diff, nodes = self._diff, self._nodes
        numbers = dict.fromkeys(map(diff.frame.__getitem__, nodes))
        for absent in (ROOT, PRUNED):
            numbers.pop(absent, None)
        frames = Frames.of(diff.frames).chosen(numbers, self._frame(largest_bytes))
        number_of = {**dict(zip(numbers, range(len(numbers)))), ROOT: ROOT, PRUNED: PRUNED}
        return diff.with_columns(
            frames=frames,
            parent=self._parent,
            frame=array("i", [*(number_of[diff.frame[node]] for node in nodes), len(numbers)]),
            before=self._inclusive(diff.own_before),
            after=self._inclusive(diff.own_after),
            uncertain=array("q", [*(diff.uncertain[node] for node in nodes), self._uncertain()]),
            before_blocks=self._blocks(diff.before_blocks),
            after_blocks=self._blocks(diff.after_blocks),
            variance=self._variance(self._diff.variance),
            path_variance=self._variance(self._diff.path_variance),
            course=tuple(map(self._inclusive, diff.own_course)),
            side_sites=(),
            ends=array("i", [*(self._place[end] for end in self._kept), len(nodes)]),
        )

    def _frame(self, largest_bytes: int) -> Frame:
        return Frame(f"{len(self._small):,} smaller paths, each of at most {format_size(largest_bytes)}")

    def _inclusive(self, own: Sequence[int]) -> array[int]:
        column = array("q", bytes(8 * len(self._parent)))
        if not any(own):  # the nothing that a single snapshot is compared with
            return column
        for end in self._kept:
            column[self._place[end]] = own[end]
        column[-1] = sum([own[end] for end in self._small])
        for node in range(len(column) - 1, 0, -1):
            column[self._parent[node]] += column[node]
        return column

    def _blocks(self, column: Optional[Sequence[int]]) -> Optional[Sequence[int]]:
        return None if column is None else self._inclusive(self._diff.own(column))

    def _variance(self, variance: Optional[Sequence[float]]) -> Optional[Sequence[float]]:
        if variance is None:
            return None
        return array("d", [*(variance[n] for n in self._nodes), sum(variance[n] for n in self._small)])

    def _uncertain(self) -> int:
        if not any(self._diff.uncertain):
            return 0
        paths = GroupedPaths(self._diff, self._query._replace(by="line"), self._small)
        return sum(sum(origins.values()) for origins in paths.sums.origins.values())
