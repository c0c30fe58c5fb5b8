"""A diff as a tree from main to the allocations, with only the large calls expanded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Optional

from gdbmem.analysis.profiles.grouping import LISTED, GroupedPaths, grouped
from gdbmem.analysis.profiles.query import Query
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import dataclass, replace


@dataclass(frozen=True)
class Outward:
    """A call, with all bytes through it."""

    frame: Optional[Frame]  # None: the caller of main; unlisted places
    delta_bytes: int
    weight: int  # bytes added and bytes removed
    _paths: GroupedPaths
    _at: Sequence[tuple[int, int]]  # for each path: the node at which it ends, and the next node
    _least: float  # bytes: the least change of a listed call

    @cached_property
    def children(self) -> Sequence[Outward]:
        """The large calls by this one, the largest first; computed on access."""
        diff, paths = self._paths.diff, self._paths
        before, after, frame = paths.before, paths.after, diff.frame
        left_out = paths.walk.left_out
        shown = [
            (end, node if frame[node] >= 0 and not left_out[frame[node]] else paths.next_shown(end, node))
            for end, node in self._at
        ]
        weights: dict[int, int] = {}
        for end, node in shown:
            number = frame[node]
            weights[number] = weights.get(number, 0) + abs(after[end] - before[end])
        groups: dict[int, list[tuple[int, int]]] = {}
        for end, node in shown:
            if node and weights[frame[node]] >= self._least:
                groups.setdefault(frame[node], []).append((end, diff.parent[node]))
        found = [self._child(number, at) for number, at in groups.items()]
        return sorted(found, key=lambda child: -child.weight)

    def _child(self, number: int, at: list[tuple[int, int]]) -> Outward:
        deltas = [self._paths.after[end] - self._paths.before[end] for end, _ in at]
        frame = self._paths.diff.frames[number] if number >= 0 else None
        return Outward(frame, sum(deltas), sum(map(abs, deltas)), self._paths, at, self._least)


def outward(diff: Diff, query: Query, least_share: float) -> Outward:
    """Return the paths of *diff* that *query* lists as a tree of calls; *least_share* is relative to the total."""
    paths = grouped(
        diff, replace(query, by="line")
    )  # cached by the report: their grouping is irrelevant here
    has_fates = bool(paths.walk.marks)
    at = [(end, end) for end in paths.holders() if not has_fates or paths.fate(end) == LISTED]
    deltas = [paths.after[end] - paths.before[end] for end, _ in at]
    weight = sum(map(abs, deltas))
    return Outward(None, sum(deltas), weight, paths, at, max(least_share * weight, 1))
