"""A diff as a tree from main to the allocations, with only the large calls expanded."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import sub
from typing import Optional

from gdbmem.analysis.profiles.grouping import LISTED, GroupedPaths, grouped
from gdbmem.analysis.profiles.query import Query
from gdbmem.model.profiles.calltree import PRUNED, ROOT, Frame
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import dataclass, replace


@dataclass(frozen=True)
class _EndingPaths:
    """Paths as columns: the node at which each ends, the next node inward, its change in bytes."""

    ends: array[int]
    following: array[int]
    changes: array[int]


@dataclass(frozen=True)
class Outward:
    """A call, with all bytes through it."""

    frame: Optional[Frame]  # None: the caller of main; unlisted places
    delta_bytes: int
    weight: int  # bytes added and bytes removed
    _paths: GroupedPaths
    _at: _EndingPaths
    _least: float  # bytes: the least change of a listed call
    _has_hidden: bool  # there are nodes that are not shown: pruned, or of frames that are left out

    @cached_property
    def children(self) -> Sequence[Outward]:
        """The large calls by this one, the largest first; computed on access."""
        diff, paths, at = self._paths.diff, self._paths, self._at
        frame, left_out, nodes = diff.frame, paths.walk.left_out, at.following
        if self._has_hidden:
            is_shown = [frame[node] >= 0 and not left_out[frame[node]] for node in nodes]
            rows = zip(is_shown, at.ends, nodes)
            nodes = array("q", [node if shown else paths.next_shown(end, node) for shown, end, node in rows])
        numbers = array("q", map(frame.__getitem__, nodes))
        groups = {number: _EndingPaths(array("q"), array("q"), array("q")) for number in self._large(numbers)}
        for end, node, number, change in zip(at.ends, nodes, numbers, at.changes) if groups else ():
            if number in groups:
                group = groups[number]
                group.ends.append(end)
                group.following.append(diff.parent[node])
                group.changes.append(change)
        found = [self._child(number, group) for number, group in groups.items()]
        return sorted(found, key=lambda child: -child.weight)

    def _large(self, numbers: Sequence[int]) -> Iterable[int]:
        # The frames that are called by enough of the paths, of which *numbers* has the frame of each, in its order.
        least, sizes = self._least, map(abs, self._at.changes)
        if len(set(numbers)) == len(numbers):  # none is called twice, as in the largest files
            found = [number for number, size in zip(numbers, sizes) if size >= least]
        else:
            weights: defaultdict[int, int] = defaultdict(int)
            for number, size in zip(numbers, sizes):
                weights[number] += size
            found = [number for number, weight in weights.items() if weight >= least]
        return [number for number in found if number != ROOT]

    def _child(self, number: int, at: _EndingPaths) -> Outward:
        frame = self._paths.diff.frames[number] if number >= 0 else None
        return _call(frame, self._paths, at, self._least, has_hidden=self._has_hidden)


def outward(diff: Diff, query: Query, least_share: float) -> Outward:
    """Return the paths of *diff* that *query* lists as a tree of calls; *least_share* is relative to the total."""
    # Cached by the report: their grouping is irrelevant here.
    paths = grouped(diff, replace(query, by="line"))
    ends = array("q", paths.holders())
    if paths.walk.marks:
        ends = array("q", [end for end in ends if paths.fate(end) == LISTED])
    changes = array("q", map(sub, map(paths.after.__getitem__, ends), map(paths.before.__getitem__, ends)))
    weight = sum(map(abs, changes))
    has_hidden = PRUNED in diff.frame or any(paths.walk.left_out)
    least = max(least_share * weight, 1)
    return _call(None, paths, _EndingPaths(ends, ends, changes), least, has_hidden=has_hidden)


def _call(
    frame: Optional[Frame], paths: GroupedPaths, at: _EndingPaths, least: float, *, has_hidden: bool
) -> Outward:
    return Outward(frame, sum(at.changes), sum(map(abs, at.changes)), paths, at, least, has_hidden)
