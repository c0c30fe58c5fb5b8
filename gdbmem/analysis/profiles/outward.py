"""A diff as a tree from main to the allocations, with only the large calls expanded."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Optional

from gdbmem.analysis.profiles.grouping import LISTED, GroupedPaths, grouped
from gdbmem.analysis.profiles.query import Query
from gdbmem.model.profiles.calltree import ROOT, Frame
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import dataclass, replace


@dataclass(frozen=True)
class Outward:
    """A call, with all bytes through it."""

    frame: Optional[Frame]  # None: the caller of main; unlisted places
    delta_bytes: int
    weight: int  # bytes added and bytes removed
    _paths: GroupedPaths
    _ends: Sequence[int]  # for each path: the node at which it ends
    _next: Sequence[int]  # and the next node inward
    _least: float  # bytes: the least change of a listed call

    @cached_property
    def children(self) -> Sequence[Outward]:
        """The large calls by this one, the largest first; computed on access."""
        diff, paths = self._paths.diff, self._paths
        before, after, frame = paths.before, paths.after, diff.frame
        left_out = paths.walk.left_out
        numbers = array("q")
        nodes = array("q")
        weights: dict[int, int] = {}
        for end, node in zip(self._ends, self._next):
            number = frame[node]
            if number < 0 or left_out[number]:
                node = paths.next_shown(end, node)
                number = frame[node]
            nodes.append(node)
            numbers.append(number)
            weights[number] = weights.get(number, 0) + abs(after[end] - before[end])
        weights[ROOT] = 0
        groups: dict[int, tuple[array[int], array[int]]] = {}
        for end, node, number in zip(self._ends, nodes, numbers):
            if weights[number] >= self._least:
                ends, following = groups.setdefault(number, (array("q"), array("q")))
                ends.append(end)
                following.append(diff.parent[node])
        found = [self._child(number, *of_child) for number, of_child in groups.items()]
        return sorted(found, key=lambda child: -child.weight)

    def _child(self, number: int, ends: Sequence[int], following: Sequence[int]) -> Outward:
        named = self._paths.diff.frames[number] if number >= 0 else None
        return _call(named, self._paths, ends, following, self._least)


def outward(diff: Diff, query: Query, least_share: float) -> Outward:
    """Return the paths of *diff* that *query* lists as a tree of calls; *least_share* is relative to the total."""
    paths = grouped(
        diff, replace(query, by="line")
    )  # cached by the report: their grouping is irrelevant here
    has_fates = bool(paths.walk.marks)
    ends = [end for end in paths.holders() if not has_fates or paths.fate(end) == LISTED]
    weight = sum(abs(paths.after[end] - paths.before[end]) for end in ends)
    at = array("q", ends)
    return _call(None, paths, at, at, max(least_share * weight, 1))


def _call(
    frame: Optional[Frame], paths: GroupedPaths, ends: Sequence[int], following: Sequence[int], least: float
) -> Outward:
    deltas = [paths.after[end] - paths.before[end] for end in ends]
    return Outward(frame, sum(deltas), sum(map(abs, deltas)), paths, ends, following, least)
