"""A diff as a tree from main to the allocations, with only the large calls expanded."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Optional, Union

from gdbmem.analysis.profiles.grouping import LISTED, GroupedPaths, grouped
from gdbmem.analysis.profiles.query import Query
from gdbmem.model.profiles.calltree import ROOT, Frame
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import dataclass, replace

_FEW = 4  # calls are few if there are more than so many frames for each


@dataclass(frozen=True)
class _EndingPaths:
    """Paths as columns: the node at which each ends, the next node inward, its change in bytes."""

    ends: Sequence[int]
    following: Sequence[int]
    changes: Sequence[int]


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
        return _call(frame, self._paths, at, self._least, has_hidden=self._has_hidden)


def outward(diff: Diff, query: Query, least_share: float) -> Outward:
    """Return the paths of *diff* that *query* lists as a tree of calls; *least_share* is relative to the total."""
    # Cached by the report: their grouping is irrelevant here.
    paths = grouped(diff, replace(query, by="line"))
    ends, before, after = paths.holders(), paths.before, paths.after
    if paths.walk.marks:
        ends = array("i", [end for end in ends if paths.fate(end) == LISTED])
    changes = array("q", [after[end] - before[end] for end in ends])
    weight = sum(map(abs, changes))
    has_hidden = diff.hides_paths or any(paths.walk.left_out)
    least = max(least_share * weight, 1)
    return _call(None, paths, _EndingPaths(ends, ends, changes), least, has_hidden=has_hidden)


def _call(
    frame: Optional[Frame], paths: GroupedPaths, at: _EndingPaths, least: float, *, has_hidden: bool
) -> Outward:
    return Outward(frame, sum(at.changes), sum(map(abs, at.changes)), paths, at, least, has_hidden)
