"""The answer: the holders of most memory, what they hold, and what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Protocol, Union

from gdbmem.arrays import distinct, import_numpy, joined, places_of, release_freed_memory, runs_of
from gdbmem.errors import TargetError
from gdbmem.heap.dominators import chain_ends, highest, retain, sums_above
from gdbmem.heap.graph import (
    PHASES,
    STACK_BACK,
    VARIABLE,
    VARIABLE_BACK,
    Graph,
    Held,
    Place,
    hold,
    lost_blocks,
    lost_structures,
    make_graph,
    numbered,
    search,
)
from gdbmem.heap.graph import STACK as BY_STACK
from gdbmem.heap.links import classify
from gdbmem.heap.places import grouped
from gdbmem.heap.words import FAR
from gdbmem.model.heap_graph import (
    BLOCK,
    BY_OBJECT,
    BY_ROOT,
    BY_THREAD,
    BY_TYPE,
    DATA,
    OBJECT,
    SEVERAL,
    STACK,
    THREAD,
    THREAD_LOCAL,
    TYPE,
    UNREAD,
    Allocations,
    BlockHolders,
    GivenBack,
    HeapQuery,
    HeapView,
    HiddenPointers,
    Holder,
    Leaks,
    LostStructures,
    OneType,
    Part,
    Pools,
    SizeCount,
    Word,
)

if TYPE_CHECKING:
    from gdbmem.errors import Notice
    from gdbmem.heap.allocated import BlockPaths
    from gdbmem.heap.blocks import Blocks
    from gdbmem.heap.giving_back import PageLedger
    from gdbmem.heap.graph import Place
    from gdbmem.heap.places import Outside
    from gdbmem.heap.words import Edges

_PARTS = 3
_ROWS = 1 << 16  # blocks that are looked at together
_ROUNDS = 40  # in which holders of what several hold are searched
_MOST_WORDS, _LONGEST_PATH = 20, 40
_REACHED = ("nothing", "variables", "variables", "stacks", "stacks", "remainders")
_SMALL = 1 << 20  # kinds of blocks that are looked up in a table
_CELLS = 1 << 16  # of rows and kinds, that are counted at once
_GROUPS = 3  # below each holder
_LEAST_SHARE = 0.05  # of the heap, that a group below a holder retains


class Size(NamedTuple):
    """The blocks of a size, of nodes only if these are asked for."""

    bytes: int  # usable
    structure: str = ""  # tree, list; "": any


Kind = Union[Size, Sequence[str]]  # or the mangled names of a class


class DebugInformation(Protocol):
    """Looks up what symbols and debug information say of variables."""

    @property
    def hidden(self) -> Sequence[HiddenPointers]:
        """Types that hide pointers, by symbols."""

    def types(self, places: Iterable[Place]) -> Mapping[Place, tuple[str, int]]:
        """Return the types of the variables at *places*, in words, and the sizes of their elements."""


@dataclass
class HeapGraph:
    """The blocks and edges of a heap as they were read, and what names them."""

    program: str
    pid: Optional[int]
    blocks: Blocks
    edges: Edges
    outside: Outside
    classes: dict[int, str]  # vtable → mangled name of the class
    notices: list[Notice]
    allocator: str = "glibc"
    pools: Optional[Pools] = None  # None: not looked for
    paths: Optional[BlockPaths] = None  # None: nothing has recorded who allocated the blocks
    pages: Optional[PageLedger] = None  # None: which pages are resident is unknown
    gaps: str = ""  # which memory was not read; "": none
    hidden: dict[int, int] = field(default_factory=dict)  # size of chunks → most that unread tcaches may have
    execution: str = ""  # what tells this execution of the program from all others; "": unknown
    time: Optional[float] = None  # when it was read, or the core was written; seconds since 1970
    pause_seconds: Optional[float] = None
    asked: Optional[int] = None  # an address in the block to which the expression of the query leads
    debug: Optional[DebugInformation] = None  # None: names were not asked for

    def graph(self) -> Graph:
        """Return the graph of the blocks and of what leads to them, to be called once: the edges go into it."""
        if self.paths is not None:
            from gdbmem.heap.allocated import settle  # where something knows more than words tell

            graph = settle(self)
        else:
            graph = self.make_graph()
        self.edges = replace(self.edges, first=graph.first, to=graph.to, weak=None)
        return graph

    def make_graph(self) -> Graph:
        """Return the graph by the words alone."""
        links = classify(self.edges, self.blocks.sizes()) if self.edges.weak is not None else None
        release_freed_memory()
        outside = self.outside
        words = (outside.numbers, outside.blocks)
        return make_graph(self.edges, links, self.blocks.live, self.blocks.unit, outside.places, words)


class Answers:
    """Makes the rows of a graph that was searched and whose dominators are known."""

    def __init__(
        self,
        found: HeapGraph,
        whole: Graph,
        without: Sequence[int] = (),
        *,
        by: str = BY_ROOT,
        for_one_view: bool = False,
    ) -> None:
        """Search the graph, whose places are joined *by* object file or thread if these are the rows.

        *for_one_view* drops what is no longer needed on the way to its rows.
        """
        self.found, self.whole, self._is_lean = found, whole, for_one_view
        self.graph = whole.without(without) if without else whole
        if by in (BY_OBJECT, BY_THREAD):
            groups = grouped(whole.places, by)
            self.graph = self.graph.merged(*groups)
            self.whole = whole.merged(*groups) if without else self.graph
        self.reached = search(self.graph)
        self._held: Optional[Held] = None

    @property
    def held(self) -> Held:
        """Who holds what, which is computed when it is first asked for."""
        if self._held is None:
            found = numbered(self.graph, self.reached)
            if self._is_lean:
                _ = self._lost  # which needs them
                self._forget_edges()
            self._held = hold(self.graph, found)
        return self._held

    def _forget_edges(self) -> None:
        for graph in (self.graph, self.whole):
            graph.forget_edges()
        none = self.graph.to
        edges = self.found.edges
        self.found.edges = replace(edges, first=none, to=none, offsets=none, text_ends=(none, none))
        release_freed_memory()

    # -- what blocks are ----------------------------------------------------------------------------------

    @cached_property
    def class_of(self) -> Any:
        """For each block the index of its class among `class_names`; 0: none is known."""
        np = import_numpy()
        blocks, vtables = self.found.edges.objects
        index = {name: number for number, name in enumerate(self.class_names)}
        known = {vtable: index[name] for vtable, name in self.found.classes.items()}
        found = np.zeros(self.graph.blocks, np.min_scalar_type(len(self.class_names)))
        values, which = places_of(vtables)
        numbers = np.array([known.get(vtable, 0) for vtable in values.tolist()], np.int32)
        found[blocks] = numbers[which] if len(values) else 0
        return found

    @cached_property
    def kinds(self) -> Kinds:
        """The sizes and classes that blocks have."""
        np = import_numpy()
        unit, many = self.graph.unit, len(self.class_names)
        is_small, large = np.zeros(_SMALL, bool), [np.zeros(0, np.int64)]

        def keys(begin: int) -> tuple[Any, Any]:
            key = np.diff(unit[begin : begin + _ROWS + 1]).astype(np.int64) * many
            key += self.class_of[begin : begin + _ROWS]
            return key, np.flatnonzero(key >= _SMALL)

        for begin in range(0, self.graph.blocks, _ROWS):
            key, at = keys(begin)
            large.append(key[at])
            key[at] = 0  # no block has that
            is_small[key] = True
        is_small[0] = False
        found = np.concatenate((np.flatnonzero(is_small), distinct(joined(large))))
        place = np.zeros(_SMALL, np.min_scalar_type(len(found)))
        place[found[found < _SMALL]] = np.arange(np.count_nonzero(is_small))
        of = np.empty(self.graph.blocks, place.dtype)
        for begin in range(0, len(of), _ROWS):
            key, at = keys(begin)
            of[begin : begin + _ROWS] = place.take(key, mode="clip")
            of[begin + at] = np.searchsorted(found, key[at])
        return Kinds(found, of)

    def _parts_of(self, rows: Sequence[Row]) -> list[list[Part]]:
        """Return what the blocks that each of *rows* retains are, by size and class, those with most bytes first."""
        np = import_numpy()
        kinds, graph, row_of = self.kinds, self.graph, self._row_of(rows)
        many, found = len(kinds.numbers), list[list[Part]]()
        at_once = max(_CELLS // max(many, 1), 1)
        for begin in range(0, len(rows), at_once):
            sums = np.zeros((3, min(at_once, len(rows) - begin) * many), np.int64)
            for first in range(0, len(row_of), _ROWS):
                row, nodes = (column[first : first + _ROWS] for column in (row_of, self.held.nodes))
                some = np.flatnonzero((row >= begin) & (row < begin + at_once) & (nodes < graph.blocks))
                nodes = nodes[some]
                key = (row[some].astype(np.int64) - begin) * many + kinds.of[nodes]
                sums[0] += np.bincount(key, minlength=sums.shape[1])
                for total, is_one in zip(sums[1:], (graph.trees, graph.lists)):
                    total += np.bincount(key[np.flatnonzero(is_one[nodes])], minlength=sums.shape[1])
            found += map(self._largest, np.swapaxes(sums.reshape(3, -1, many), 0, 1))
        return found

    def _largest(self, sums: Any) -> list[Part]:
        """Return the largest kinds, by how many blocks of each there are, how many of trees, and how many of lists."""
        np = import_numpy()
        found = []
        for kind in np.flatnonzero(sums[0]).tolist():
            count, trees, lists = sums[:, kind].tolist()
            structure = next(
                (name for name, nodes in (("tree", trees), ("list", lists)) if 2 * nodes > count > 1), ""
            )
            found.append(self._part(int(self.kinds.numbers[kind]), count, structure))
        return sorted(found, key=lambda part: (-part.bytes, part.block_bytes, part.class_name))[:_PARTS]

    def _part(self, kind: int, count: int, structure: str = "") -> Part:
        units, number = divmod(kind, len(self.class_names))
        usable = (units << 4) - self.found.blocks.header_bytes
        return Part(count, (count * units) << 4, usable, self.class_names[number], structure)

    @cached_property
    def class_names(self) -> Sequence[str]:
        """The mangled names of the classes, by the index that `class_of` has."""
        return ["", *sorted(set(self.found.classes.values()))]

    # -- who holds them -----------------------------------------------------------------------------------

    @cached_property
    def tops(self) -> Any:
        """For each number its dominator just below what is above all."""
        return highest(self.held.dominator)

    def _own_numbers(self) -> Any:
        np = import_numpy()
        return np.arange(len(self.held.nodes), dtype=np.int32)

    def _own_bytes(self, numbers: Any) -> Any:
        return self.graph.sizes_of(self.held.nodes[numbers])

    @cached_property
    def by_root(self) -> list[Row]:
        """The places outside, and what several of them hold, those that retain most first."""
        np = import_numpy()
        held = self.held
        first = np.flatnonzero(held.dominator == 0)[1:]
        is_place = held.nodes[first] >= self.graph.blocks
        rows = [Row(self._place(n), np.array([n])) for n in first[is_place].tolist() if held.retained[n]]
        rows += self._shared()
        return sorted(rows, key=lambda row: -row.holder.retained_bytes)

    def by_group(self, by: str) -> list[Row]:
        """Return the same of joined places: one row for an object file, or a thread."""
        np = import_numpy()
        kinds = {BY_OBJECT: ((DATA, OBJECT),), BY_THREAD: ((THREAD_LOCAL, THREAD), (STACK, THREAD))}
        renamed, rows = dict(kinds[by]), dict[tuple[str, ...], Row]()
        for holder, numbers in self.by_root:
            key = (holder.name, renamed.get(holder.kind, holder.kind), *holder.holders)
            one = rows.get(key)
            size, blocks, held = (
                (one.holder.retained_bytes, one.holder.retained_blocks, [one.numbers]) if one else (0, 0, [])
            )
            rows[key] = Row(
                holder._replace(
                    kind=key[1],
                    retained_bytes=size + holder.retained_bytes,
                    retained_blocks=blocks + holder.retained_blocks,
                ),
                np.concatenate((*held, numbers)),
            )
        return sorted(rows.values(), key=lambda row: -row.holder.retained_bytes)

    # -- of one type --------------------------------------------------------------------------------------

    def of_type(self, rows: Sequence[Row], nodes: Any) -> list[Row]:
        """Return those of *rows* that hold some of the blocks *nodes*, with these alone."""
        np = import_numpy()
        nodes = nodes[self.held.number[nodes] > 0]
        row_of = self._row_of(rows)[self.held.number[nodes]]
        of_row, sizes = row_of[row_of >= 0], self.graph.sizes_of(nodes[row_of >= 0])
        counts = np.bincount(of_row, minlength=len(rows)).tolist()
        sums = np.bincount(of_row, weights=sizes, minlength=len(rows)).astype(np.int64).tolist()
        found = [
            Row(row.holder._replace(retained_bytes=size, retained_blocks=count, own_bytes=0), row.numbers)
            for row, size, count in zip(rows, sums, counts)
            if count
        ]
        return sorted(found, key=lambda row: -row.holder.retained_bytes)

    def blocks_of(self, kind: Kind) -> Any:
        """Return the numbers of the live blocks of *kind*."""
        np = import_numpy()
        if isinstance(kind, Size):
            size = kind.bytes + self.found.blocks.header_bytes
            is_one = self.graph.live & (np.diff(self.graph.unit).astype(np.int64) << 4 == size)
            if kind.structure:
                is_one &= self.graph.trees if kind.structure == "tree" else self.graph.lists
            return np.flatnonzero(is_one)
        wanted = np.array([name in kind for name in self.class_names])
        return np.flatnonzero(self.graph.live & wanted[self.class_of])

    def _sizes(self) -> list[SizeCount]:
        """Return how many live blocks of each size there are."""
        np = import_numpy()
        units = np.diff(self.graph.unit)[self.graph.live].astype(np.int64)
        found, which = places_of(units)
        counts = np.bincount(which, minlength=len(found)).tolist()
        header = self.found.blocks.header_bytes
        return [
            SizeCount((size << 4) - header, count, (size << 4) * count)
            for size, count in zip(found.tolist(), counts)
        ]

    def _place(self, number: int) -> Holder:
        place = self.graph.places[int(self.held.nodes[number]) - self.graph.blocks]
        retained, blocks = (int(column[number]) for column in (self.held.retained, self.held.blocks))
        return Holder(
            place.name, place.kind, place.address or None, place.object, retained, blocks, 0,
            frame=place.frame, type=place.type,
        )  # fmt: skip

    def _shared(self) -> list[Row]:
        """Return the blocks that several places hold, by two of these places."""
        np = import_numpy()
        numbers, sources, targets = self.held.shared
        if not len(numbers):
            return []
        low, high = self._two_holders(numbers, sources, targets)
        key, which = places_of(low.astype(np.int64) * self.graph.nodes + high)
        first = _first_of_each(which, len(key))
        columns = (self.held.retained[numbers], self.held.blocks[numbers], self._own_bytes(numbers))
        sums = [np.bincount(which, weights=column).astype(np.int64) for column in columns]
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(key) + 1))
        addresses = self.found.blocks.addresses(self.held.nodes[numbers[first]])
        rows = []
        for n in range(len(key)):
            holders = sorted({int(low[first[n]]), int(high[first[n]])})
            names = [self.graph.places[node - self.graph.blocks].name for node in holders]
            size, blocks, own = (int(column[n]) for column in sums)
            holder = Holder("", SEVERAL, int(addresses[n]), "", size, blocks, own, (), names)
            rows.append(Row(holder, numbers[order[ends[n] : ends[n + 1]]]))
        return rows

    def _two_holders(self, numbers: Any, sources: Any, targets: Any) -> tuple[Any, Any]:
        """Return two of the places (nodes) that lead to each of *numbers*, equal ones if one is known.

        The edges that hold them come from *sources* to *targets*.
        """
        np = import_numpy()
        root = self.held.nodes[highest(self.held.tree)]
        low, high = root.copy(), root.copy()
        tops = self.tops
        for _ in range(_ROUNDS):
            # What leads to it may itself be held by several.
            above = tops[sources]
            before = int(low[numbers].sum()), int(high[numbers].sum())
            np.minimum.at(low, targets, np.minimum(low[above], root[sources]))
            np.maximum.at(high, targets, np.maximum(high[above], root[sources]))
            if before == (int(low[numbers].sum()), int(high[numbers].sum())):
                break
        return low[numbers], high[numbers]

    def with_parts(self, rows: Sequence[Row], depth: int) -> list[Holder]:
        """Return the holders of *rows* with what they retain, and to *depth* what is below each."""
        found = []
        for row, parts in zip(rows, self._parts_of(rows)):
            below = self.inside(row, depth)
            if len(below) == 1 and below[0].parts[0].blocks == row.holder.retained_blocks:
                below = []  # it says the same as the parts
            found.append(row.holder._replace(parts=parts, below=below))
        return found

    def _row_of(self, rows: Sequence[Row]) -> Any:
        """Return for each number which of *rows* retains it; -1: none of them."""
        np = import_numpy()
        row_of_top = np.full(len(self.held.nodes), -1, np.min_scalar_type(-max(len(rows), 1)))
        for place, row in enumerate(rows):
            row_of_top[row.numbers] = place
        return row_of_top[self.tops]

    # -- what would come back ------------------------------------------------------------------------------

    def given_back(self, rows: Sequence[Row]) -> list[Optional[GivenBack]]:
        """Return what would come back if all that each of *rows* retains were freed, then if all lost blocks were."""
        np = import_numpy()
        pages, graph, count = self.found.pages, self.graph, len(rows)
        if pages is None:
            return [None] * (count + 1)
        row_of = np.full(graph.blocks, -1, np.int32)
        if rows:
            row_of[:] = self._row_of(rows)[self.held.number[: graph.blocks]]
        row_of[self._lost[0]] = count
        return [*pages.given_back(row_of, count + 1)]

    def _allocations(self, rows: Sequence[Row], asked: Optional[int]) -> Optional[Allocations]:
        """Return who allocated what each of *rows* retains, and the block at the address *asked*."""
        np = import_numpy()
        paths, graph, count = self.found.paths, self.graph, len(rows)
        if paths is None:
            return None
        block = self.found.blocks.find_one(asked) if asked is not None else None
        row_of = np.full(graph.blocks, count, np.int32)
        if rows:
            found = self._row_of(rows)[self.held.number[: graph.blocks]]
            np.copyto(row_of, found, where=found >= 0, casting="unsafe")
        row_of[self._lost[0]] = count + 1
        return paths.sums(row_of, count, block)

    @cached_property
    def _lost(self) -> tuple[Any, Any]:
        """For each block whether no word leads to it, and whether only the end of a text may.

        What only a holder leads to that doesn't count is not lost.
        """
        reached = self.reached if self.graph is self.whole else search(self.whole)
        return lost_blocks(self.graph, reached)

    def _given_back_with(self, block: int) -> Optional[GivenBack]:
        """Return what would come back if *block* were freed with all that it retains."""
        np = import_numpy()
        pages, number = self.found.pages, int(self.held.number[block])
        if pages is None:
            return None
        row_of = np.full(self.graph.blocks, -1, np.int32)
        row_of[block] = 0
        if number:
            t = self.held.dominator
            first = chain_ends(np.where(t >= number, t, self._own_numbers()))
            row_of[self._blocks_of(np.flatnonzero(first == number))] = 0
        return pages.given_back(row_of, 1)[0]

    # -- what is below ------------------------------------------------------------------------------------

    def inside(
        self, row: Row, depth: int, *, least: float = _LEAST_SHARE, most: int = _GROUPS
    ) -> list[Holder]:
        """Return what the holder of *row* retains, in groups as below()."""
        of = self._groups_of if row.holder.kind == SEVERAL else self.below
        return of(row.numbers, depth, least=least, most=most)

    def below(
        self, numbers: Any, depth: int, *, least: float = _LEAST_SHARE, most: int = _GROUPS
    ) -> list[Holder]:
        """Return what *numbers* dominate, in groups of one size and class, and to *depth* what these do.

        A block below one of its own kind counts with that one: a tree, or a list, is one group. Groups that retain less
        than *least* of the heap are left out, and all but the *most* largest below each.
        """
        np = import_numpy()
        folds = self._folds
        found = [np.zeros(0, np.int32)]
        for first in range(0, len(numbers), _ROWS):
            # Another type would have the column copied.
            wanted = np.asarray(numbers[first : first + _ROWS], np.int32)
            begin, end = (np.searchsorted(folds.above, wanted, side) for side in ("left", "right"))
            found.append(folds.order[runs_of(begin, end - begin)])
        if len(found) > 2:
            release_freed_memory()
        return self._groups_of(joined(found), depth, least=least, most=most)

    def _groups_of(self, numbers: Any, depth: int, *, least: float, most: int) -> list[Holder]:
        """Return *numbers*, each the first of its fold, in groups."""
        np = import_numpy()
        if depth <= 0 or not len(numbers):
            return []
        folds, held, kinds = self._folds, self.held, self.kinds
        pieces = [numbers[begin : begin + _ROWS] for begin in range(0, len(numbers), _ROWS)]
        sums = np.zeros(len(kinds.numbers))
        for piece in pieces:
            of_kind = kinds.of[held.nodes[piece]]
            sums += np.bincount(of_kind, weights=held.retained[piece], minlength=len(sums))
        found = []
        for kind in np.argsort(-sums, kind="stable")[:most].tolist():
            size_below = int(sums[kind])
            if size_below < max(least * self.held.retained[0], 1):
                break
            mine = np.concatenate(
                [piece[np.flatnonzero(kinds.of[held.nodes[piece]] == kind)] for piece in pieces]
            )
            first = int(held.nodes[mine[np.argmax(held.retained[mine])]])
            blocks = int(folds.count[mine].sum())
            structure = "tree" if self.graph.trees[first] else "list" if self.graph.lists[first] else ""
            part = self._part(int(kinds.numbers[kind]), blocks, structure if blocks > 1 else "")
            address = int(self.found.blocks.addresses(np.array([first]))[0])
            found.append(
                Holder(
                    "", BLOCK, address, "", size_below, int(held.blocks[mine].sum()), part.bytes, [part],
                    (), self.below(mine, depth - 1, least=least, most=most),
                )
            )  # fmt: skip
        return found

    @cached_property
    def _folds(self) -> Folds:
        np = import_numpy()
        held, graph = self.held, self.graph
        no_block = len(self.kinds.numbers)
        kind = np.full(len(held.nodes), no_block, np.min_scalar_type(no_block))
        for begin in range(0, len(kind), _ROWS):
            nodes = held.nodes[begin : begin + _ROWS]
            inner = np.flatnonzero((nodes >= 0) & (nodes < graph.blocks))
            kind[begin + inner] = self.kinds.of[nodes[inner]]
        t = held.dominator
        first = self._own_numbers()
        for begin in range(0, len(t), _ROWS):
            here = slice(begin, begin + _ROWS)
            np.copyto(first[here], t[here], where=(kind[here] < no_block) & (kind[here] == kind[t[here]]))
        first = chain_ends(first)
        heads, count = [np.zeros(0, np.int32)], np.ones(len(t), np.int32)
        for begin in range(0, len(t), _ROWS):
            here = slice(begin, begin + _ROWS)
            is_first = first[here] == np.arange(begin, begin + len(first[here]))
            heads.append((begin + np.flatnonzero(is_first & (kind[here] < no_block))).astype(np.int32))
            # A plain 1 would have another type, with which add.at() takes forty times as long.
            np.add.at(count, first[here][np.flatnonzero(~is_first)], np.int32(1))
        del kind
        heads = joined(heads)
        above = first[t[heads]]
        del first
        by = np.argsort(above, kind="stable")
        found = Folds(heads[by], above[by], count)
        del by, heads, above
        release_freed_memory()
        return found

    def _blocks_of(self, numbers: Any) -> Any:
        nodes = self.held.nodes[numbers]
        return nodes[(nodes >= 0) & (nodes < self.graph.blocks)]

    # -- by type ------------------------------------------------------------------------------------------

    def by_kind(self, *, classes: bool) -> list[Row]:
        """Return what all blocks of a class, or of a size where none is known (or asked for), retain together.

        A block below another one of its kind counts with that one.
        """
        np = import_numpy()
        held, graph = self.held, self.graph
        numbers = np.flatnonzero((held.nodes >= 0) & (held.nodes < graph.blocks))
        nodes = held.nodes[numbers]
        of_class = self.class_of[nodes] if classes else np.zeros(len(nodes), np.int64)
        key = np.where(of_class > 0, of_class, -graph.sizes_of(nodes))
        kinds, which = np.unique(key, return_inverse=True)
        outer = self._outermost(numbers, which)
        count = len(kinds)
        retained = np.bincount(which, weights=held.retained[numbers] * outer, minlength=count).astype(
            np.int64
        )
        below = np.bincount(which, weights=held.blocks[numbers] * outer, minlength=count).astype(np.int64)
        own = np.bincount(which, weights=self._own_bytes(numbers), minlength=count).astype(np.int64)
        blocks = np.bincount(which, minlength=count)
        rows = []
        for n in range(count):
            kind = int(kinds[n])
            name = self.class_names[kind] if kind > 0 else ""
            part = Part(
                int(blocks[n]), int(own[n]), 0 if kind > 0 else -kind - self.found.blocks.header_bytes, name
            )
            holder = Holder(name, TYPE, None, "", int(retained[n]), int(below[n]), int(own[n]), [part])
            rows.append(Row(holder, numbers[:0]))
        return sorted(rows, key=lambda row: -row.holder.retained_bytes)

    def _outermost(self, numbers: Any, which: Any) -> Any:
        """Return for each of *numbers* whether no dominator of it is of its kind, *which*."""
        np = import_numpy()
        begin = _preorder(self.held)
        end = begin + _below(self.held)
        order = np.lexsort((begin[numbers], which))
        count = np.int64(len(begin) + 1)
        ends = end[numbers][order] + which[order] * count  # each kind beyond the one before
        begins = begin[numbers][order] + which[order] * count
        before = np.concatenate(([0], np.maximum.accumulate(ends)[:-1]))
        outer = np.empty(len(numbers), bool)
        outer[order] = begins >= before
        return outer

    # -- what nothing holds -------------------------------------------------------------------------------

    def leaks(self, most: int) -> Leaks:
        """Return the blocks that nothing reaches, and the *most* largest groups of them."""
        np = import_numpy()
        graph, hidden, doubt = self.graph, self.found.hidden, self.found.gaps
        lost, text = self._lost
        structures = lost_structures(graph, lost | (text & graph.live))
        least, maybe = (
            (int(graph.sizes_of(some).sum()), len(some)) for some in map(np.flatnonzero, (lost, text))
        )
        if doubt:
            maybe, least = (maybe[0] + least[0], maybe[1] + least[1]), (0, 0)
        elif hidden:
            unsure = self._in_hidden_tcaches(lost)
            least = least[0] - unsure[0], least[1] - unsure[1]
            maybe = maybe[0] + unsure[0], maybe[1] + unsure[1]
        found = Leaks(*least, least[0] + maybe[0], least[1] + maybe[1], self._groups(structures, most), doubt)
        return found if doubt not in UNREAD else found.of_a_part()

    def lost_groups(self) -> list[LostStructures]:
        """Return all groups of the blocks to which no word leads."""
        return self._groups(lost_structures(self.graph, self._lost[0]), self.graph.blocks)

    def _in_hidden_tcaches(self, lost: Any) -> tuple[int, int]:
        """Return bytes and number of the lost blocks that tcaches which were not read may have."""
        np = import_numpy()
        if not self.found.hidden:
            return 0, 0
        found, which = places_of(self.graph.sizes_of(np.flatnonzero(lost)))
        counts = np.bincount(which, minlength=len(found))
        taken = [
            (size, min(count, self.found.hidden.get(size, 0)))
            for size, count in zip(found.tolist(), counts.tolist())
        ]
        return sum(size * count for size, count in taken), sum(count for _, count in taken)

    def _groups(self, lost: Any, most: int) -> list[LostStructures]:
        np = import_numpy()
        if not len(lost.heads):
            return []
        units = (self.graph.unit[lost.heads + 1] - self.graph.unit[lost.heads]).astype(np.int64)
        kinds, which = places_of(units * len(self.class_names) + self.class_of[lost.heads])
        first = _first_of_each(which, len(kinds))
        sums = np.bincount(which, weights=lost.bytes)
        blocks, counts = np.bincount(which, weights=lost.blocks), np.bincount(which)
        addresses = self.found.blocks.addresses(lost.heads[first])
        found = []
        for n in np.argsort(-sums, kind="stable")[:most].tolist():
            part = self._part(int(kinds[n]), int(counts[n]))
            found.append(
                LostStructures(
                    part.blocks,
                    int(blocks[n]),
                    int(sums[n]),
                    part.block_bytes,
                    part.class_name,
                    int(addresses[n]),
                )
            )
        return found

    # -- one block ----------------------------------------------------------------------------------------

    def block(self, address: int, depth: int) -> BlockHolders:
        """Return what holds the block at *address* and what it holds. Raises TargetError if there is none."""
        block = self.found.blocks.find_one(address)
        if block < 0 or not self.graph.live[block]:
            what = "the block there is free" if block >= 0 else "no block of malloc lies there"
            raise TargetError(
                f"0x{address:x} can't be looked up: {what}",
                slug="no-block-there",
                hint="'gdbmem explain --chunk ADDRESS' shows what is there",
            )
        number = int(self.held.number[block])
        sources, offsets = self._words_to(block)
        words = [
            Word(self._node(node), offset)
            for node, offset in zip(sources[:_MOST_WORDS].tolist(), offsets[:_MOST_WORDS])
        ]
        phase = int(self.reached.phases[block])
        above: list[Holder] = []
        path: list[Holder] = []
        way = int(self.held.tree[number])
        while number and len(above) < _MOST_WORDS and (number := int(self.held.dominator[number])):
            above.append(self._node(int(self.held.nodes[number])))
        while way and len(path) < _LONGEST_PATH:
            path.append(self._node(int(self.held.nodes[way])))
            way = int(self.held.tree[way])
        numbers = self.held.number[block : block + 1]
        below = self.below(numbers, depth, least=0) if numbers[0] else []
        found = self._node(block)._replace(below=below, given_back=self._given_back_with(block))
        return BlockHolders(address, found, _REACHED[phase], words, len(sources), path[::-1], above)

    def _words_to(self, block: int) -> tuple[Any, list[Optional[int]]]:
        """Return the nodes whose words lead to *block*, places first, and the offset of each."""
        np = import_numpy()
        graph = self.graph
        at = np.flatnonzero((graph.to == block) | (graph.to == ~block))
        nodes = np.searchsorted(graph.first, at.astype(graph.first.dtype), "right") - 1
        at, nodes = at[nodes != block], nodes[nodes != block]
        order = np.argsort(nodes < graph.blocks, kind="stable")
        known = self.found.edges.offsets
        offsets = [
            8 * int(known[edge]) if edge < len(known) and known[edge] < FAR else None
            for edge in at[order][:_MOST_WORDS].tolist()
        ]
        sources, targets = graph.text_ends
        more = sources[targets == block]
        return np.concatenate((nodes[order], more)), [*offsets, *[None] * len(more)]

    def _node(self, node: int) -> Holder:
        """Return *node* as a holder; one that nothing reaches retains 0 bytes but its own."""
        number = int(self.held.number[node])
        if node >= self.graph.blocks:
            return self._place(number)
        part = self._part(int(self.kinds.numbers[self.kinds.of[node]]), 1)
        size = part.bytes
        address = int(self.found.blocks.addresses(import_numpy().array([node]))[0])
        retained, blocks = (
            (int(self.held.retained[number]), int(self.held.blocks[number])) if number else (size, 1)
        )
        return Holder("", BLOCK, address, "", retained, blocks, size, [part])

    # -- the whole ----------------------------------------------------------------------------------------

    def view(self, query: HeapQuery, kind: Kind = (), *, rows: Optional[Sequence[Row]] = None) -> HeapView:
        """Return the holders that *query* asks for, and what is lost.

        *kind* is its type, or *rows* are those of the variables of its type.
        """
        np = import_numpy()
        graph, found = self.graph, self.found
        leaks = self.leaks(query.top)
        with_more = rows is not None or not (query.is_of_kinds or query.type)
        of_type: Optional[OneType] = None
        if rows is None:
            rows, of_type = ([], None) if query.only_leaks else self._rows_of(query, kind)
        listed = rows[: query.top]
        *back, lost_back = self.given_back(listed if with_more else ())
        allocations = self._allocations(listed if with_more else (), query.block)
        if self._is_lean and self._held is not None:
            self._held.number = self._held.tree = self._held.nodes[:0]
            release_freed_memory()
        holders = [row.holder for row in listed]
        if listed and with_more:
            whole = self.with_parts(listed, query.depth)
            holders = [holder._replace(given_back=one) for holder, one in zip(whole, back)]
        if leaks.least_blocks and leaks.least_blocks == int(np.count_nonzero(self._lost[0])):
            leaks = replace(leaks, given_back=lost_back)
        sizes = graph.bytes_by(self.reached.phases[: graph.blocks], PHASES).tolist()
        free = graph.sizes_of(np.flatnonzero(~graph.live))
        return HeapView(
            program=found.program,
            pid=found.pid,
            allocator=found.allocator,
            live_blocks=int(np.count_nonzero(graph.live)),
            live_bytes=sum(sizes) - int(free.sum()),
            variables_bytes=sizes[VARIABLE] + sizes[VARIABLE_BACK],
            stacks_bytes=sizes[BY_STACK] + sizes[STACK_BACK],
            other_bytes=found.outside.memory_bytes,
            by=query.by,
            holders=holders,
            holder_count=len(rows) if not query.only_leaks else None,
            leaks=leaks,
            without=query.without,
            of_type=of_type,
            block=self.block(query.block, query.depth) if query.block is not None else None,
            trimmed_bytes=found.pages.trimmed_now() if found.pages is not None else None,
            pause_seconds=found.pause_seconds,
            pools=found.pools,
            allocations=allocations,
            sizes=self._sizes() if query.sizes else None,
            notices=found.notices,
        )

    def _rows_of(self, query: HeapQuery, kind: Kind) -> tuple[list[Row], Optional[OneType]]:
        """Return all rows of *query*, and the blocks of its type, *kind*, if it has one."""
        of_type: Optional[OneType] = None
        if query.is_of_kinds:
            rows = self.by_kind(classes=query.by == BY_TYPE)
        else:
            rows = self.by_root if query.by == BY_ROOT else self.by_group(query.by)
        if query.type:
            nodes = self.blocks_of(kind)
            of_type = OneType(query.type, len(nodes), int(self.graph.sizes_of(nodes).sum()))
            rows = self.of_type(rows, nodes)
        return [row for row in rows if row.holder.retained_bytes >= query.min_bytes], of_type


class Folds(NamedTuple):
    """Blocks that dominate blocks of their own kind, of one size and class, folded into the first one."""

    order: Any  # numbers of the first ones, sorted by *above*
    above: Any  # the first one of what dominates each of these
    count: Any  # for each number: blocks of the fold that it is the first of


class Kinds(NamedTuple):
    """The kinds of blocks: sizes in units of 16 bytes, times the number of classes, plus that of the class."""

    numbers: Any  # int64, in order
    of: Any  # for each block the place of its kind in them


class Row(NamedTuple):
    """A row, and the numbers just below what is above all that it stands for."""

    holder: Holder
    numbers: Any


def _first_of_each(which: Any, count: int) -> Any:
    """Return where each of *count* numbers is first in *which*."""
    np = import_numpy()
    first = np.empty(count, np.int64)
    first[which[::-1]] = np.arange(len(which))[::-1]
    return first


def _below(held: Held) -> Any:
    """Return how many nodes each dominates, itself included."""
    np = import_numpy()
    count = np.ones(len(held.nodes), np.int64)
    retain(held.dominator, count)
    return count


def _preorder(held: Held) -> Any:
    """Return a number for each node so that those which it dominates follow it."""
    np = import_numpy()
    t = held.dominator
    below = _below(held)
    order = np.argsort(t, kind="stable")  # by dominator: siblings together
    sums = np.concatenate(([0], np.cumsum(below[order])))
    before = np.empty(len(t), np.int64)
    first = np.searchsorted(t[order], t[order])
    before[order] = sums[:-1] - sums[first]
    place = before + 1
    place[0] = 0
    return sums_above(t, place)
