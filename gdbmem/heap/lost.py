"""The blocks that nothing reaches, by the first block of each lost structure; cycles have one, too."""

from __future__ import annotations

from typing import Any, NamedTuple

from gdbmem.arrays import import_numpy
from gdbmem.heap.graph import TEXT_END, Graph, Reached


class Lost(NamedTuple):
    """Lost structures: columns of one length."""

    heads: Any  # blocks from which the others of each structure are reached
    blocks: Any  # that each has
    bytes: Any


def lost_blocks(graph: Graph, reached: Reached) -> tuple[Any, Any]:
    """Return for each block whether no word leads to it, and whether only the end of a text may."""
    np = import_numpy()
    phases = reached.phases(graph.nodes)[: graph.blocks]
    return graph.live & (phases == 0), np.asarray(phases == TEXT_END)


def lost_structures(graph: Graph, lost: Any) -> Lost:
    """Return the structures among the *lost* blocks: as few heads as lead to all of them."""
    np = import_numpy()
    numbers = np.flatnonzero(lost)
    heads = _sources(graph, lost, numbers)
    owner = np.full(graph.blocks, -1, np.int32)
    picked = _search_from(graph, lost, owner, heads)
    rest = numbers[owner[numbers] < 0]
    more = _search_from(graph, lost, owner, rest) if len(rest) else rest
    if len(more):
        # What was begun with in a cycle may be reached from what was begun with later.
        heads = np.concatenate((picked, more))[::-1]
        owner[:] = -1
        picked = _search_from(graph, lost, owner, heads)
    sizes = graph.sizes[numbers]
    index = owner[numbers]
    return Lost(
        np.asarray(picked, np.int32),
        np.bincount(index, minlength=len(picked)),
        np.bincount(index, weights=sizes, minlength=len(picked)).astype(np.int64),
    )


def _sources(graph: Graph, lost: Any, numbers: Any) -> Any:
    """Return the lost blocks to which no other lost one leads."""
    np = import_numpy()
    held = np.zeros(graph.blocks, bool)
    begin = graph.first[numbers]
    count = graph.first[numbers + 1] - begin
    ends = np.cumsum(count)
    at = np.arange(int(count.sum()))
    at += np.repeat(begin - (ends - count), count)
    to = graph.to[at]
    held[np.where(to < 0, ~to, to)] = True
    return numbers[~held[numbers]]


def _search_from(graph: Graph, lost: Any, owner: Any, starts: Any) -> Any:
    """Give each lost block the number of the first of *starts* that reaches it; return those that were needed."""
    np = import_numpy()
    first, to, owned, is_lost = (memoryview(c) for c in (graph.first, graph.to, owner, lost))
    picked: list[int] = []
    for start in starts.tolist():
        if owned[start] >= 0:
            continue
        number = len(picked)
        picked.append(start)
        owned[start] = number
        todo = [start]
        while todo:
            v = todo.pop()
            for u in to[first[v] : first[v + 1]]:
                if u < 0:
                    u = ~u
                if is_lost[u] and owned[u] < 0:
                    owned[u] = number
                    todo.append(u)
    return np.array(picked, np.int64)
