"""The graph of a heap: blocks, the places outside that lead to them, and how well each block is held.

A block is held by the strongest chain of words that reaches it, in this order: from variables (data, thread-local
ones, memory that is not malloc's) by pointers that lead onward; from variables by any pointers; from stacks and
registers, in the same two ways, from the frames of callers before those of the functions that they called; by words
that may be the end of a text over an older pointer. Words that are weaker than that hold nothing of it: an iterator on
a stack does not share what a variable owns, nor a callee what its caller owns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy, index_type, joined, release_freed_memory, runs_of
from gdbmem.heap.dominators import dominators, retain
from gdbmem.heap.links import Classified

_THIN = 48  # blocks of a level below which they are followed one at a time
_WIDE = 256  # words of a block from which on these are followed at once, nevertheless
_BEFORE_AHEAD = 1 << 10  # thin levels after which those behind are guessed
_AHEAD = 1 << 14  # blocks that are guessed at a time
_RANKS = 160  # of places in frames; those of functions that are called deeper count alike
_ROWS = 1 << 18

# How a block is reached: 0 for one that is not.
VARIABLE, VARIABLE_BACK, STACK, STACK_BACK, TEXT_END = 1, 2, 3, 4, 5
PHASES = 6
UNREACHED = 0


class Place(NamedTuple):
    """A place outside of the blocks whose words lead to some: a node above them."""

    name: str  # of a variable; "stack of thread 4711", …
    kind: str  # data, thread_local, memory, stack
    address: int
    object: str = ""  # the file of a variable
    thread: str = ""  # of a stack and of thread-local memory, as it is shown
    frame: Optional[int] = None  # number of the frame that its words are in, from the innermost one on
    rank: int = 0  # of a frame or register: how many functions called one another before
    type: str = ""  # of a variable, by debug information; in words
    element_size: int = 0  # of the first argument of that type, if it is a template
    contents: bytes = b""  # the first bytes of a variable

    @property
    def is_passing(self) -> bool:
        """Whether its words are those of the code that runs at this moment."""
        return self.kind == "stack"


@dataclass
class Graph:
    """Blocks 0 to *blocks*, places behind them; edges sorted by source, negative (``~target``) ones lead back."""

    blocks: int
    places: Sequence[Place]
    first: Any  # one more than nodes
    to: Any  # int32
    text_ends: tuple[Any, Any]
    live: Any  # of blocks
    unit: Any  # where each block begins, in units of 16 bytes, and one more
    trees: Any = None  # of blocks: nodes of trees and of lists, by their links; None: no edge was classified
    lists: Any = None

    @property
    def nodes(self) -> int:
        return self.blocks + len(self.places)

    def sizes_of(self, nodes: Any) -> Any:
        """Return the bytes of each of *nodes*, int64: 0 for places and for -1."""
        np = import_numpy()
        sizes = self.unit.take(nodes + 1, mode="clip").astype(np.int64)
        sizes -= self.unit.take(nodes, mode="clip")
        sizes <<= 4
        return sizes

    def bytes_by(self, kind: Any, count: int) -> Any:
        """Return the bytes of the blocks of each *kind*, by a number for each block, less than *count*; int64."""
        np = import_numpy()
        sums = np.zeros(count)
        for begin in range(0, self.blocks, _ROWS):
            units = np.diff(self.unit[begin : begin + _ROWS + 1])
            sums += np.bincount(kind[begin : begin + _ROWS], weights=units, minlength=count)
        return sums.astype(np.int64) << 4

    def forget_edges(self) -> None:
        """Drop the edges, which take most memory: nothing can be searched afterwards."""
        self.first, self.to = self.first[:0].copy(), self.to[:0].copy()

    def merged(self, group_of: Any, places: Sequence[Place]) -> Graph:
        """Return the same graph with *places* instead of its own; *group_of* has for each of these its place there."""
        np = import_numpy()
        start = int(self.first[self.blocks])
        of_edge = np.repeat(group_of, np.diff(self.first[self.blocks :]))
        order = np.argsort(of_edge, kind="stable")
        to, of_edge = self.to[start:][order], of_edge[order]
        to = np.where(to >= self.blocks, self.blocks + of_edge, to).astype(
            self.to.dtype
        )  # words that don't count
        ends = start + np.cumsum(np.bincount(of_edge, minlength=len(places)))
        first = np.concatenate((self.first[: self.blocks + 1], ends.astype(self.first.dtype)))
        return replace(self, places=places, first=first, to=np.concatenate((self.to[:start], to)))

    def without(self, nodes: Iterable[int]) -> Graph:
        """Return the same graph, in which the words of *nodes* don't count."""
        to = self.to.copy()
        for node in nodes:
            to[int(self.first[node]) : int(self.first[node + 1])] = node
        return replace(self, to=to)


def make_graph(
    edges: Any,
    links: Optional[Classified],
    live: Any,
    unit: Any,
    places: Sequence[Place],
    words: tuple[Any, Any],
) -> Graph:
    """Return the graph of the edges between blocks, and those of *words*: of each its place's number, and its block."""
    np = import_numpy()
    of_place, blocks = words
    order = np.argsort(of_place, kind="stable")
    of_place, blocks = of_place[order], blocks[order].astype(np.int32)
    new = np.ones(len(blocks), bool)
    new[1:] = (of_place[1:] != of_place[:-1]) | (blocks[1:] != blocks[:-1])
    of_place, blocks = of_place[new], blocks[new]
    to = np.concatenate((edges.to, blocks))
    if links is not None:
        of_blocks = to[: len(edges.to)]
        np.invert(of_blocks, out=of_blocks, where=links.back)
    more = np.cumsum(np.bincount(of_place, minlength=len(places))) + int(edges.first[-1])
    return Graph(
        blocks=len(live),
        places=places,
        first=np.concatenate((edges.first, more.astype(index_type(len(to))))),
        to=to,
        text_ends=edges.text_ends,
        live=live,
        unit=unit,
        trees=links.trees if links is not None else None,
        lists=links.lists if links is not None else None,
    )


@dataclass
class Reached:
    """The result of a search: *order* the nodes in the order of finding, by phases; *parent* of each node, -1 none."""

    order: Any  # int32
    parent: Any  # int32; that of a place is the number of nodes
    phase_ends: list[
        int
    ]  # how many nodes had been found after each phase; STACK is one for each rank of frames
    phases: Any  # in which phase each node was found, uint8; 0: never


def search(graph: Graph) -> Reached:
    """Search the graph phase by phase."""
    np = import_numpy()
    parent = np.full(graph.nodes, -1, np.int32)
    searching = _Search(graph, parent)
    rank = np.array([min(place.rank, _RANKS) if place.is_passing else -1 for place in graph.places], np.int32)
    numbers = graph.blocks + np.arange(len(graph.places), dtype=np.int32)
    of_phases = []
    for phase, ranks in (
        (VARIABLE, (-1,)),
        (VARIABLE_BACK, ()),
        (STACK, sorted({0, *rank[rank > 0].tolist()})),
        (STACK_BACK, ()),
    ):
        for one in ranks:
            starts = numbers[rank == one]
            searching.start(starts, np.full(len(starts), graph.nodes, np.int32))
            searching.run(back=False)
            of_phases.append(phase)
        if not ranks:
            if graph.trees is not None:
                searching.start(*searching.ends_back())
            searching.run(back=True)
            of_phases.append(phase)
    while len((found := searching.ends_of_texts())[0]):
        searching.start(*found)
        searching.run(back=True, is_text_end=True)
    searching.end_phase()
    order = joined(searching.orders)
    release_freed_memory()
    phases, begin = np.zeros(graph.nodes, np.uint8), 0
    for number, end in zip((*of_phases, TEXT_END), searching.phase_ends):
        phases[order[begin:end]] = number
        begin = end
    return Reached(order, parent, searching.phase_ends, phases)


class _Search:
    """Breadth first: by levels, and where these are thin, as in lists, one block at a time."""

    def __init__(self, graph: Graph, parent: Any) -> None:
        np = import_numpy()
        self.graph, self.parent = graph, parent
        self.orders: list[Any] = [np.zeros(0, np.int32)]
        self.phase_ends: list[int] = []
        self._level = np.zeros(0, np.int32)
        self._found = 0

    def start(self, starts: Any, parents: Any) -> None:
        self._level = self._take(starts, parents)

    def run(self, *, back: bool, is_text_end: bool = False) -> None:
        """Find all that the level leads to, by links that lead *back*, too."""
        while len(self._level):
            self.orders.append(self._level)
            self._found += len(self._level)
            self._level = self._thin(back=back) if len(self._level) <= _THIN else self._next(back=back)
        if not is_text_end:
            self.end_phase()

    def end_phase(self) -> None:
        self.phase_ends.append(self._found)

    def _next(self, *, back: bool) -> Any:
        """Return the level that the present one leads to, which is followed some blocks at a time."""
        pieces = [
            self._led_to(self._level[begin : begin + _ROWS], back=back)
            for begin in range(0, len(self._level), _ROWS)
        ]
        return pieces[0] if len(pieces) == 1 else joined(pieces)

    def _led_to(self, level: Any, *, back: bool) -> Any:
        np = import_numpy()
        graph = self.graph
        begin = graph.first[level]
        count = graph.first[level + 1] - begin
        if not count.any():
            return level[:0]
        target = graph.to[runs_of(begin, count)]
        return self._new_of(target, np.repeat(level, count), back=back)

    def _of_wide(self, block: int, *, back: bool) -> Any:
        """Return the same for one block of many words."""
        np = import_numpy()
        target = self.graph.to[int(self.graph.first[block]) : int(self.graph.first[block + 1])][::-1]
        return self._new_of(target, np.full(len(target), block, np.int32), back=back)[::-1]

    def _new_of(self, target: Any, source: Any, *, back: bool) -> Any:
        np = import_numpy()
        if back:
            target = np.where(target < 0, ~target, target)
        new = self.parent.take(target, mode="clip") == -1
        if not back:
            new &= target >= 0
        new = np.flatnonzero(new)
        return self._take(target[new], source[new])

    def _take(self, targets: Any, sources: Any) -> Any:
        """Note from which of *sources* each of *targets* was found, the last one if there are several; return these."""
        np = import_numpy()
        index = np.arange(len(targets), dtype=np.int32)
        self.parent[targets] = index
        last = np.flatnonzero(self.parent.take(targets) == index)
        targets = targets[last]
        self.parent[targets] = sources[last]
        return targets

    def _thin(self, *, back: bool) -> Any:
        np = import_numpy()
        first, to, parent = (memoryview(column) for column in (self.graph.first, self.graph.to, self.parent))
        queue, out = array("i", self._level.tobytes()), array("i")
        levels, trial = 0, _BEFORE_AHEAD
        while queue and len(queue) <= _THIN:
            following = array("i")
            for v in queue:
                begin, end = first[v], first[v + 1]
                if end - begin > _WIDE:
                    following.frombytes(self._of_wide(v, back=back).tobytes())
                    continue
                for u in to[begin:end]:
                    if u < 0:
                        if not back:
                            continue
                        u = ~u
                    if parent[u] == -1:
                        parent[u] = v
                        following.append(u)
            out += following
            before, queue = queue, following
            levels += 1
            if levels >= trial and not back and len(queue) == len(before):
                while len(ahead := self._ahead(before, queue)):
                    self._add(out, ahead[:-1].ravel())
                    before, queue = (array("i", row.tobytes()) for row in ahead[-2:])
                    out, trial = queue[:], _BEFORE_AHEAD
                levels, trial = 0, 2 * trial
        self._add(out[: len(out) - len(queue)])
        return np.array(queue, np.int32)

    def _add(self, *found: Any) -> None:
        """Add blocks that were *found*, in this order."""
        np = import_numpy()
        for some in found:
            self.orders.append(np.asarray(some, np.int32))
            self._found += len(some)

    def _ahead(self, before: Sequence[int], level: Sequence[int]) -> Any:
        """Find the levels behind *level*, one a row, as long as each block is as far from the one that leads to it.

        Such are lists whose nodes were allocated one after the other. *before* is the level that leads to *level*.
        """
        np = import_numpy()
        start = np.array(level, np.int64)
        step = start - np.array(before, np.int64)
        rows = start + step * np.arange(_AHEAD // len(level) + 1)[:, None]
        rows = rows[: _true_rows((rows >= 0) & (rows < self.graph.blocks))].astype(np.int32)
        rows = rows[: _true_rows(self._lead_on(np.array(before, np.int32), rows)) + 1]
        found = rows[1:]
        if len(found) < 2:
            return found[:0]  # nothing is gained
        self.parent[found] = rows[:-1]
        if (self.parent[found] == rows[:-1]).all():
            return found
        self.parent[found] = -1  # two lists meet
        return found[:0]

    def _lead_on(self, before: Any, rows: Any) -> Any:
        """Return of all *rows* but the last one which blocks lead to the one in the next row and to nothing else new.

        *before* is the row before the first one.
        """
        np = import_numpy()
        graph, blocks, following = self.graph, rows[:-1].ravel(), rows[1:].ravel()
        begin = graph.first[blocks]
        count = graph.first[blocks + 1] - begin
        target = graph.to[runs_of(begin, count)]
        is_next = target == np.repeat(following, count)
        is_known = (target < 0) | (target == np.repeat(np.append(before, blocks)[: len(blocks)], count))
        is_known |= is_next
        is_known[~is_known] = self.parent[target[~is_known]] != -1
        ends = np.append(0, np.cumsum(count))
        known, leads = (np.append(0, np.cumsum(column)) for column in (is_known, is_next))
        leads_on = (known[ends[1:]] - known[ends[:-1]] == count) & (leads[ends[1:]] > leads[ends[:-1]])
        leads_on &= self.parent[following] == -1
        return leads_on.reshape(rows[1:].shape)

    def ends_back(self) -> tuple[Any, Any]:
        """Return the blocks not found that a link back from a found one leads to, and those that it leads from."""
        np = import_numpy()
        graph = self.graph
        targets, sources = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for begin in range(0, graph.blocks, _ROWS):
            end = min(begin + _ROWS, graph.blocks)
            here = slice(int(graph.first[begin]), int(graph.first[end]))
            back = np.flatnonzero(graph.to[here] < 0)
            target = ~graph.to[here][back]
            back = back[self.parent[target] == -1]
            target = ~graph.to[here][back]
            counts = np.diff(graph.first[begin : end + 1])
            source = np.repeat(np.arange(begin, end, dtype=np.int32), counts)[back]
            held = self.parent[source] >= 0
            targets.append(target[held])
            sources.append(source[held])
        return np.concatenate(targets), np.concatenate(sources)

    def ends_of_texts(self) -> tuple[Any, Any]:
        """Return the same for words that may be the ends of texts."""
        sources, targets = self.graph.text_ends
        held = (self.parent[sources] >= 0) & (self.parent[targets] == -1)
        return targets[held], sources[held]


def _true_rows(cells: Any) -> int:
    """Return how many of the first rows of *cells* are true in all columns."""
    rows = cells.all(axis=1)
    return len(rows) if rows.all() else int(rows.argmin())


@dataclass
class Numbered:
    """The nodes that a search found, numbered in its order from 1 on, and the edges that decide who holds what."""

    number: Any  # of each node, 0: not reached
    nodes: Any  # the node of each number; -1 for 0
    tree: Any  # from which number the search came
    sources: Any  # of the edges to blocks that have another one than that of the search
    targets: Any


def numbered(graph: Graph, reached: Reached) -> Numbered:
    """Return what decides; the parents of *reached* go into its tree. Afterwards the edges of *graph* may go."""
    np = import_numpy()
    count = len(reached.order)
    number = np.zeros(graph.nodes + 1, np.int32)
    number[reached.order] = np.arange(1, count + 1, dtype=np.int32)
    tree = np.zeros(count + 1, np.int32)
    for begin in range(0, count, _ROWS):
        some = reached.order[begin : begin + _ROWS]
        tree[begin + 1 : begin + 1 + len(some)] = number[reached.parent[some]]
    nodes = np.empty(count + 1, np.int32)
    nodes[0], nodes[1:] = -1, reached.order
    reached.order = nodes[1:]  # the same memory
    reached.parent = reached.parent[:0].copy()
    return Numbered(number[:-1], nodes, tree, *_arcs(graph, reached, number, tree))


@dataclass
class Held:
    """Dominators and retained sizes. All columns but *number* are in the order of finding; 0 is above all."""

    number: Any  # as in Numbered
    nodes: Any
    tree: Any
    dominator: Any
    shared: tuple[
        Any, Any, Any
    ]  # numbers of blocks that several places hold; sources and targets of edges to them
    retained: Any  # bytes
    blocks: Any  # that are retained

    def add_up(self, graph: Graph) -> None:
        """Fill in what each number retains."""
        np = import_numpy()
        self.retained = np.empty(len(self.nodes), np.int64)
        self.blocks = np.empty(len(self.nodes), np.int32)
        for begin in range(0, len(self.nodes), _ROWS):
            nodes = self.nodes[begin : begin + _ROWS]
            self.retained[begin : begin + _ROWS] = graph.sizes_of(nodes)
            self.blocks[begin : begin + _ROWS] = (nodes < graph.blocks) & (nodes >= 0)
        retain(self.dominator, self.retained, self.blocks)


def hold(graph: Graph, found: Numbered) -> Held:
    """Return who holds what was *found*, whose edges go."""
    np = import_numpy()
    t = dominators(found.tree, found.sources, found.targets)
    release_freed_memory()
    first = np.flatnonzero(t == 0)[1:]
    numbers = first[found.nodes[first] < graph.blocks]
    is_shared = np.zeros(len(t), bool)
    is_shared[numbers] = True
    some = is_shared[found.targets]
    shared = numbers, found.sources[some], found.targets[some]
    none = found.nodes[:0]
    held = Held(found.number, found.nodes, found.tree, t, shared, none, none)
    found.sources = found.targets = none  # they took much memory
    held.add_up(graph)
    return held


def _arcs(graph: Graph, reached: Reached, number: Any, tree: Any) -> tuple[Any, Any]:
    """Return the edges, as numbers, to blocks that have another one than that of the search: these decide."""
    np = import_numpy()
    ends = np.array(reached.phase_ends[:-1])
    several = np.zeros(len(tree), bool)
    sources, targets = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for source, target in _not_searched(graph, number, ends, tree):
        several[target] = True
        sources.append(source)
        targets.append(target)
    also = np.flatnonzero(several).astype(np.int32)
    sources.append(tree[also])
    targets.append(also)
    return joined(sources), joined(targets)


def _not_searched(graph: Graph, number: Any, ends: Any, tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the edges that hold something and that the search didn't go, piece by piece."""
    np = import_numpy()
    for begin in range(0, graph.nodes, _ROWS):
        end = min(begin + _ROWS, graph.nodes)
        to = graph.to[int(graph.first[begin]) : int(graph.first[end])]
        source = np.repeat(number[begin:end], np.diff(graph.first[begin : end + 1]))
        is_back = to < 0
        target = number[np.where(is_back, ~to, to)]
        keep = (source > 0) & (target > 0)
        keep &= tree.take(target) != source
        # A link to the block that led here holds nothing, nor does one that is weaker than what holds the block.
        keep &= tree.take(source) != target
        keep = np.flatnonzero(keep)
        source, target, is_back = source[keep], target[keep], is_back[keep]
        phase = np.searchsorted(ends, target - 1, "right")
        keep = (np.searchsorted(ends, source - 1, "right") <= phase) & (
            ~is_back | (phase == VARIABLE_BACK - 1) | (phase >= len(ends) - 1)
        )
        keep = np.flatnonzero(keep)
        yield source[keep], target[keep]


# The blocks that nothing reaches, by the first block of each lost structure; cycles have one, too.


class Lost(NamedTuple):
    """Lost structures: columns of one length."""

    heads: Any  # blocks from which the others of each structure are reached
    blocks: Any  # that each has
    bytes: Any


def lost_blocks(graph: Graph, reached: Reached) -> tuple[Any, Any]:
    """Return for each block whether no word leads to it, and whether only the end of a text may."""
    np = import_numpy()
    phases = reached.phases[: graph.blocks]
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
    sizes = graph.sizes_of(numbers)
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
    to = graph.to[runs_of(begin, graph.first[numbers + 1] - begin)]
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
