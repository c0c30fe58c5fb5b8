"""Shortest paths of references to all blocks of a Python process, from modules first, then from other roots."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from gdbmem.allocators.cpython.nodes import Nodes
from gdbmem.allocators.cpython.references import References
from gdbmem.arrays import import_numpy

NOTHING = -1
_THIN = 64  # number of nodes of one distance up to which they are followed one by one: arrays are slow for long lists
_WIDE = 4096
_PATIENCE = 1 << 16


class Reach:
    """A tree of shortest paths: the *parent* of each node, and the *owner*, the nearest object on the path to it."""

    def __init__(self, nodes: Nodes, references: References, *, seconds: float) -> None:
        np = import_numpy()
        count = len(references.first) - 1
        self._nodes, self._references = nodes, references
        self.parent = np.full(count, NOTHING, np.int32)
        self.owner = np.full(count, NOTHING, np.int32)
        self.is_seen = np.zeros(count, bool)
        self._is_object = nodes.kinds >= 0
        self._steps: list[tuple[Any, bool]] = []  # nodes in order of distance, and whether one by one
        self._deadline = time.monotonic() + seconds
        self.is_cut = False  # the time limit was reached before everything was followed

    def avoid(self, nodes: Any) -> None:
        """Never enter *nodes*: what is reached then is reached without them."""
        self.is_seen[nodes] = True

    def add(self, seeds: Any) -> None:
        """Follow all references from those of *seeds* that were not reached before."""
        np = import_numpy()
        seeds = seeds[~self.is_seen[seeds]]
        self.is_seen[seeds] = True
        inside = seeds[seeds < len(self._nodes)]
        self.owner[inside] = inside
        frontier = np.asarray(seeds, np.int64)
        self._steps.append((frontier, False))
        while len(frontier) and not self.is_cut:
            follow = self._follow_singly if len(frontier) < _THIN else self._follow
            frontier = follow(frontier)
            self.is_cut = time.monotonic() > self._deadline

    def _follow(self, frontier: Any) -> Any:
        """Return the nodes reached from *frontier* for the first time."""
        np = import_numpy()
        first = self._references.first
        begin, count = first[frontier], first[frontier + 1] - first[frontier]
        every = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        to = self._references.to[every]
        new = ~self.is_seen[to]
        to, origin = to[new], np.repeat(frontier, count)[new]
        found, at = np.unique(to, return_index=True)
        found = found.astype(np.int64)
        self.is_seen[found] = True
        self.parent[found] = origin[at]
        self.owner[found] = np.where(self._is_object[found], found, self.owner[origin[at]])
        self._steps.append((found, False))
        return found

    def _follow_singly(self, frontier: Any) -> Any:
        """Follow *frontier* node by node; return the rest when it grows wide."""
        np = import_numpy()
        queue = frontier.tolist()
        done = len(queue)
        at = 0
        while at < len(queue) and len(queue) - at < _WIDE and at < _PATIENCE:
            holder = queue[at]
            at += 1
            to = self._references.of(holder)
            for node in dict.fromkeys(to[~self.is_seen[to]].tolist()):
                self.is_seen[node] = True
                self.parent[node] = holder
                self.owner[node] = node if self._is_object[node] else self.owner[holder]
                queue.append(node)
        self._steps.append((np.array(queue[done:], np.int64), True))
        return np.array(queue[at:], np.int64)

    def ancestors(self, targets: Any) -> Any:
        """Return which nodes are on the paths to *targets*, inclusive, as an array of booleans."""
        np = import_numpy()
        marked = np.zeros(len(self.parent), bool)
        nodes = targets[self.is_seen[targets]]
        while len(nodes) >= _THIN:
            marked[nodes] = True
            nodes = np.unique(self.parent[nodes])
            nodes = nodes[(nodes >= 0) & ~marked[np.maximum(nodes, 0)]]
        for node in nodes.tolist():
            while node >= 0 and not marked[node]:
                marked[node] = True
                node = int(self.parent[node])
        return marked

    def in_order(self, marked: Any) -> Iterator[tuple[Any, bool]]:
        """Yield the *marked* nodes in groups, parents first.

        With True a node may be the parent of another in the same group.
        """
        for nodes, singly in self._steps:
            chosen = nodes[marked[nodes]]
            if len(chosen):
                yield chosen, singly

    def path(self, node: int) -> Sequence[int]:
        """Return the nodes from a root to *node*."""
        found = [node]
        while self.parent[found[-1]] >= 0:
            found.append(int(self.parent[found[-1]]))
        return found[::-1]
