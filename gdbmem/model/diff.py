"""The difference of two call trees, path by path, with its uncertainty."""

from array import array
from collections.abc import Iterable, Sequence, Set
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import HEAP_BYTES, PRUNED, Frame, Stretch
from gdbmem.model.judgement import MET, NOT_MET, Judgement


class Side(NamedTuple):
    """One side of a diff: its source and its totals."""

    source: str
    name: str
    total_bytes: int
    source_format: str = ""
    command: str = ""  # that was profiled


class SideSites(NamedTuple):
    """The call sites that one snapshot of a series shows; how far its diff with any other may be off follows."""

    # Of each node: how many call sites it stands for, 0: it is not there; (): all are listed.
    sites: Sequence[int]
    # Of each frame: where its calls are in memory; None: of none known.
    addresses: Optional[Sequence[Set[int]]]
    threshold_bytes: int  # call sites that are not listed are smaller, each; 0: unknown
    is_cut: bool  # what is not listed may lie anywhere
    variance: Optional[Sequence[float]]  # bytes², of each node's own bytes; None: nothing is sampled
    recording: str  # snapshots of one share their samples; "": of none


class OutsideHeap(NamedTuple):
    """Memory that a file counts outside the heap, without call paths."""

    name: str  # as reports call it
    before_bytes: int
    after_bytes: int

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


class PathDoubts:
    """How far sums of paths may be off because paths from one instruction may have some of each other's bytes."""

    def __init__(self, parent: Sequence[int], is_inlined: Sequence[bool], variance: Sequence[float]) -> None:
        self._variance = variance
        # Of each node: the outermost frame of the instruction. Frames inlined there are inside that one.
        self._top = array("q", range(len(parent)))
        self._whole: dict[int, float] = {}  # variances by top
        for node, above in enumerate(parent):
            if above > 0 and not (self._top[above] == above and is_inlined[above]):
                self._top[node] = self._top[above]
            if variance[node]:
                top = self._top[node]
                self._whole[top] = self._whole.get(top, 0.0) + variance[node]

    def has(self, node: int) -> bool:
        """Return whether the path that ends at *node* may have more or less than it was given."""
        return self._variance[node] > 0

    def is_top(self, node: int) -> bool:
        """Return whether *node* is a frame of the instruction itself, not of a caller."""
        return node > 0 and self._top[node] == node

    def of(self, paths: Iterable[int], *, by_top: bool) -> float:
        """Return the variance of the sum of the *paths* that end at these nodes, bytes².

        What they have too much, the others from the same instruction have too little, or a path that was never seen.
        *by_top*: all paths from their instructions are meant, seen or not.
        """
        sums: dict[int, float] = {}
        most: dict[int, float] = {}
        for node in paths:
            top, variance = self._top[node], self._variance[node]
            sums[top] = sums.get(top, 0.0) + variance
            most[top] = max(most.get(top, 0.0), variance)
        found = 0.0
        for top, inside in sums.items():
            outside = max(self._whole.get(top, 0.0) - inside, 0.0)
            if outside > _ROUNDING * inside or not by_top:
                found += min(inside, max(most[top], outside))
        return found


_ROUNDING = 1e-9


class _DiffColumns(NamedTuple):
    before_side: Side
    after_side: Side
    frames: Sequence[Frame]
    parent: Sequence[int]
    frame: Sequence[int]  # index into frames, or calltree.ROOT, or calltree.PRUNED
    before: Sequence[int]  # bytes, inclusive
    after: Sequence[int]  # bytes, inclusive
    uncertain: Sequence[int]  # bytes
    before_blocks: Optional[Sequence[int]] = None
    after_blocks: Optional[Sequence[int]] = None
    notices: Sequence[Notice] = ()
    unit: str = HEAP_BYTES
    outside: Sequence[OutsideHeap] = ()  # in no path and not in the total
    has_addresses: bool = False  # whether two call sites are one is known
    is_relative: bool = False  # what was there before is not known, only what came and what went
    is_cut: bool = False  # what is PRUNED is what a side's file left out, not what lies under a threshold
    variance: Optional[Sequence[float]] = None  # bytes², of each node's own delta; None: nothing is sampled
    path_variance: Optional[Sequence[float]] = None  # bytes², beyond that, as calltree has it
    # In a series of more than two: the size of each node at each snapshot (inclusive bytes), the ends among them.
    course: Sequence[Sequence[int]] = ()
    sides: Sequence[Side] = ()  # of all snapshots, oldest first
    side_sites: Sequence[SideSites] = ()  # of all snapshots of a series; none if no pair of them is uncertain
    ends: Optional[Sequence[int]] = None  # all nodes at which a path ends, in order; None: any may
    # The part of one recording that lies between the sides; None: they are others.
    covered: Optional[Stretch] = None


class Diff(_DiffColumns):
    """Two call trees merged on (function, file, line): nodes in pre-order, node 0 the root.

    before and after are inclusive bytes; delta is after − before. uncertain_bytes[n] bounds how far
    the delta of node n itself may be off because a side hides small paths under its threshold.
    """

    def __len__(self) -> int:
        return len(self.parent)

    def with_columns(self, **columns: Any) -> "Diff":
        """Return this diff with other *columns*, as `CallTree.with_columns` does."""
        return Diff(**{**self._asdict(), **columns})

    @property
    def delta_bytes(self) -> int:
        return self.after[0] - self.before[0]

    @cached_property
    def hides_paths(self) -> bool:
        """Whether a node stands for paths that a tool did not list."""
        return PRUNED in self.frame

    @cached_property
    def own_before(self) -> "array[int]":
        """The bytes before that each node's children do not account for."""
        return self.own(self.before)

    @cached_property
    def own_after(self) -> "array[int]":
        """The bytes after that each node's children do not account for."""
        return self.own(self.after)

    @cached_property
    def own_course(self) -> "Sequence[array[int]]":
        """The same value for each snapshot of a series."""
        return [self.own(column) for column in self.course]

    @cached_property
    def own_delta_blocks(self) -> "Optional[array[int]]":
        """The change in blocks that each node's children do not account for; None: a side counts none."""
        if self.before_blocks is None or self.after_blocks is None:
            return None
        if not any(self.before_blocks):
            return self.own(self.after_blocks)
        return self.own([after - before for before, after in zip(self.before_blocks, self.after_blocks)])

    @cached_property
    def path_doubts(self) -> Optional[PathDoubts]:
        """The doubt about which paths have how much; None: there is none."""
        if self.path_variance is None:
            return None
        inlined = {number for number, frame in enumerate(self.frames) if frame.inlined}
        return PathDoubts(self.parent, [number in inlined for number in self.frame], self.path_variance)

    @cached_property
    def memo(self) -> dict[object, Any]:
        """Results that an analysis computes once and keeps."""
        return {}

    def own(self, column: Sequence[int]) -> "array[int]":
        """Return, for each node, the part of *column* that none of its children accounts for."""
        if not any(column):  # the nothing that a single snapshot is compared with
            return column if isinstance(column, array) else array("q", column)
        if self.ends is not None:
            return self._own_of(self.ends, column)
        result = array("q", column)
        rows = zip(self.parent, column)
        next(rows)
        for parent, size in rows:
            result[parent] -= size
        return result

    def _own_of(self, ends: Sequence[int], column: Sequence[int]) -> "array[int]":
        # Far fewer nodes than all, most of them leaves.
        result = array("q", bytes(8 * len(column)))
        for node in ends:
            result[node] = column[node]
        for node in self._under_ends:
            result[self.parent[node]] -= column[node]
        return result

    @cached_property
    def _under_ends(self) -> Sequence[int]:
        # The children of nodes at which a path ends though others go on.
        parent, count = self.parent, len(self.parent)
        inner = {node for node in self.ends or () if node + 1 < count and parent[node + 1] == node}
        return [node for node, above in enumerate(parent) if above in inner] if inner else ()

    def check(self) -> None:
        """Raise ValueError unless the paths' deltas add up to the difference of the two totals."""
        own_before, own_after = self.own_before, self.own_after
        if min(own_before) < 0 or min(own_after) < 0:
            raise ValueError("the children of a node hold more than it")
        if sum(own_after) - sum(own_before) != self.delta_bytes:
            raise ValueError("the paths do not add up to the total")
        if (self.before[0], self.after[0]) != (self.before_side.total_bytes, self.after_side.total_bytes):
            raise ValueError("the trees' totals are not the sides' totals")
        for side, column, own in zip(self.sides, self.course, self.own_course):
            if column[0] != side.total_bytes or min(own) < 0:
                raise ValueError("the paths do not add up to the total of each snapshot")


# An expectation of a recipe on a difference, and the verdict on it.


LEDGER_METRICS = ("rss", "retained")  # measured by ledgers
LEAKED, HELD = "leaked", "retained by a holder"
GRAPH_METRICS = (LEAKED, HELD)  # measured by heaps with their holders; all others by heap snapshots
UNTRACED = "untraced"  # of tracemalloc's snapshots: what is resident and not traced
OF_PROCESS = (*LEDGER_METRICS, *GRAPH_METRICS, UNTRACED)  # which have no paths
HEAP, BLOCKS = "heap", "blocks"


def metric_name(metric: str) -> str:
    """Return the word for *metric* in recipes and documents."""
    return "retained" if metric == HELD else metric


class Position(NamedTuple):
    """A line and a column in the recipe's file; both count from 1."""

    line: int
    column: int


class Expectation(NamedTuple):
    """A limit on the difference of two snapshots: one of the two limits is set, the other is None.

    Limits are bytes; of the metric blocks a number of blocks.
    """

    before: str
    after: str
    position: Annotated[Position, Key(rows=True)]
    # One of heap, blocks, untraced, rss (the resident set), retained (freed memory that malloc keeps), leaked (what no
    # word leads to) and HELD (what a holder retains).
    metric: str = "heap"
    at_most: Optional[int] = None
    at_least: Optional[int] = None
    path: str = ""  # a regular expression; "": the whole heap
    holder: str = ""  # of the metric HELD

    @property
    def limit(self) -> int:
        """The one limit that is set."""
        return self.at_most if self.at_most is not None else self.at_least or 0


class ExpectationVerdict(NamedTuple):
    """The outcome of one expectation, in its unit: bytes, or blocks."""

    expectation: Expectation
    judgement: Judgement

    @property
    def met(self) -> Optional[bool]:
        """Whether it is met; None: it could not be judged."""
        return {MET: True, NOT_MET: False}.get(self.judgement.judged)

    @property
    def measured(self) -> Optional[int]:
        """The measured change (bytes or blocks, as the metric counts); None: nothing was measured."""
        return None if self.judgement.measured is None else int(self.judgement.measured)

    @property
    def limit(self) -> int:
        """The limit of the expectation."""
        return self.expectation.limit

    @property
    def text(self) -> str:
        """One sentence, safe to print: what was seen, and why it could not be judged."""
        return self.judgement.sentence
