"""A call tree inverted: from main inward, if that takes fewer nodes than from the allocations outward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gdbmem.arrays import import_numpy
from gdbmem.records import dataclass

_SMALL = 20_000  # nodes: importing numpy takes longer than writing this many


@dataclass(frozen=True)
class PathTree:
    """Nodes of paths; a parent precedes its children, node 0 is the root."""

    parent: Sequence[int]
    frame: Sequence[int]
    ends: Sequence[int]  # the node at which each path ends
    outermost_first: bool  # the root's children are the outermost functions; else the allocation sites


def smallest_tree(parent: Sequence[int], frame: Sequence[int], ends: Sequence[int]) -> PathTree:
    """Return the paths that end at *ends* of a tree from the allocations outward, in the fewest nodes."""
    as_it_is = PathTree(parent, frame, ends, outermost_first=False)
    if len(parent) <= _SMALL:
        return as_it_is
    turned = _turned(parent, frame, ends)
    return turned if len(turned.parent) < len(parent) else as_it_is


def _turned(parent: Sequence[int], frame: Sequence[int], ends: Sequence[int]) -> PathTree:
    np: Any = import_numpy()
    above, frames = np.asarray(parent, dtype=np.int64), np.asarray(frame, dtype=np.int64)
    # The current position in each path, from its outermost frame inward.
    at = np.asarray(ends, dtype=np.int64)
    last = np.zeros(len(at), dtype=np.int64)  # its node in the new tree
    going = np.flatnonzero(at > 0)
    stride = int(frames.max(initial=0)) + 3
    parents, numbers, count = [np.array([-1])], [np.array([-1])], 1
    while len(going):
        keys = last[going] * stride + frames[at[going]] + 2
        distinct, place = np.unique(keys, return_inverse=True)
        parents.append(distinct // stride)
        numbers.append(distinct % stride - 2)
        last[going] = place.reshape(-1) + count
        count += len(distinct)
        at[going] = above[at[going]]
        going = going[at[going] > 0]
    columns = (np.concatenate(parents).tolist(), np.concatenate(numbers).tolist(), last.tolist())
    return PathTree(*columns, outermost_first=True)
