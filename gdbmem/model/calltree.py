"""A heap at one moment as a tree of call paths, parallel columns over one table of frames; files of several."""

import contextlib
import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, NamedTuple, Optional, Protocol, Union, overload

from gdbmem.errors import InputError, Notice
from gdbmem.json_values import Key
from gdbmem.text import parse_duration, parse_size, printable

ROOT = -1  # frame number of node 0, which stands for the whole heap
PRUNED = -2  # frame number of a node in which the tool merged paths too small to list
NO_LINE = -1  # in a column of lines
_LAST_LINE = (1 << 63) - 1  # a damaged file may name a later one: that is unknown
SIZE_CLASS = "size class"  # the object of a frame whose line is the largest size of a block, in bytes
THREAD = "allocating thread"  # the object of a frame that stands for the thread which allocated


class Frame(NamedTuple):
    """One function on a call path; absent parts are None. Frames are equal across runs: no address.

    A function without a name is identified by its address in the program or library, ``0x39161B``, if a file has it.
    """

    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    object: Optional[str] = None  # the library or program file; many tools give it only instead of a file
    inlined: bool = False

    @property
    def key(self) -> tuple[Optional[str], Optional[str], Optional[int], Optional[str]]:
        """The key by which two frames are the same place: an inlined copy of a line is still that line.

        If the source is known the library does not count: only some tools report it then.
        """
        return (self.function, self.file, self.line, None if self.file else self.object)

    @property
    def is_size_class(self) -> bool:
        """True if it is not a function, but represents the size of the blocks at the allocation site."""
        return self.object == SIZE_CLASS

    @property
    def is_thread(self) -> bool:
        """True if it is not a function, but represents the thread that allocated."""
        return self.object == THREAD

    @property
    def is_nameless(self) -> bool:
        """Only its program or library is known, and perhaps where in that it is."""
        return (
            self.file is None
            and (self.function is None or self.function.startswith("0x"))
            and not self.is_thread
        )


def line_column(line: Optional[int]) -> int:
    """Return *line* as a column of lines has it."""
    return line if line is not None and 0 <= line <= _LAST_LINE else NO_LINE


class Names(Sequence[Optional[str]]):
    """Different names in which no line ends, as one text: of hundreds of thousands only a few are read."""

    def __init__(self, names: Collection[str]) -> None:
        self.text = "\n".join(names)
        self._starts = array("i", accumulate(map(len, names), initial=0))  # without the ends of lines

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[Optional[str]]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[str, list[Optional[str]]]:
        if isinstance(index, slice):
            return list(self)[index]
        at = range(len(self))[index]
        return self.text[self._starts[at] + at : self._starts[at + 1] + at]

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.split("\n") if len(self) else ())


def lines_of(names: Sequence[Optional[str]]) -> str:
    """Return *names* as one text, the end of a line before each; "" stands for one that is not known."""
    if isinstance(names, Names):
        return f"\n{names.text}"
    return "\n".join(["", *[name or "" for name in names]])


class Frames(Sequence[Frame]):
    """Frames as columns: a file may name hundreds of thousands, of which only a few are used."""

    def __init__(
        self,
        functions: Sequence[Optional[str]],
        files: Sequence[Optional[str]],
        lines: Sequence[int],  # NO_LINE: unknown
        objects: Sequence[Optional[str]],
        inlined: Sequence[int],
        *,
        distinct: bool = False,
    ) -> None:
        self.functions, self.files, self.lines = functions, files, lines
        self.objects, self.inlined = objects, inlined
        self.distinct = distinct  # no two have the same Frame.key
        self._made: dict[int, Frame] = {}  # those asked for, so that a frame of a table is one object

    @classmethod
    def of(cls, frames: Iterable[Frame]) -> "Frames":
        """Return *frames* as columns."""
        if isinstance(frames, Frames):
            return frames
        columns = tuple(zip(*frames)) or ((), (), (), (), ())
        functions, files, lines, objects, inlined = columns
        numbers = array("q", map(line_column, lines))
        return cls(functions, files, numbers, objects, bytes(inlined))

    def chosen(self, numbers: Iterable[int], *others: Frame) -> "Frames":
        """Return the frames of *numbers*, in their order, and *others* behind them."""
        at, more = tuple(numbers), Frames.of(others)
        return Frames(
            [*map(self.functions.__getitem__, at), *more.functions],
            [*map(self.files.__getitem__, at), *more.files],
            array("q", [*map(self.lines.__getitem__, at), *more.lines]),
            [*map(self.objects.__getitem__, at), *more.objects],
            bytes([*map(self.inlined.__getitem__, at), *more.inlined]),
        )

    def __len__(self) -> int:
        return len(self.functions)

    @overload
    def __getitem__(self, index: int) -> Frame: ...

    @overload
    def __getitem__(self, index: slice) -> "Frames": ...

    def __getitem__(self, index: Union[int, slice]) -> "Union[Frame, Frames]":
        if isinstance(index, slice):
            names = self.functions[index], self.files[index]
            return Frames(*names, self.lines[index], self.objects[index], self.inlined[index])
        if index not in self._made:
            self._made[index] = self._make(
                self.functions[index],
                self.files[index],
                self.lines[index],
                self.objects[index],
                self.inlined[index],
            )
        return self._made[index]

    def __iter__(self) -> Iterator[Frame]:
        return map(self._make, self.functions, self.files, self.lines, self.objects, self.inlined)

    @staticmethod
    def _make(
        function: Optional[str], file: Optional[str], line: int, place: Optional[str], inlined: int
    ) -> Frame:
        return Frame(function, file, None if line == NO_LINE else line, place, bool(inlined))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's


class _TreeColumns(NamedTuple):
    frames: Sequence[Frame]
    parent: Sequence[int]  # node numbers; parent[0] is -1
    frame: Sequence[int]  # index into frames, or ROOT, or PRUNED
    bytes: Sequence[int]  # bytes, inclusive
    blocks: Optional[Sequence[int]] = None  # blocks, inclusive; None: the source doesn't count them
    places: Sequence[int] = ()  # how many places each PRUNED node merges, in node order
    threshold_bytes: int = 0  # every place merged in a PRUNED node is smaller than this
    scattered: bool = False  # what is merged in a PRUNED node may lie under any node, not only beside it
    variance: Optional[Sequence[float]] = None  # bytes², of each node's own bytes; None: nothing is sampled
    # bytes², beyond that: paths from the same site may have some of another's. The site, and the total, are certain.
    path_variance: Optional[Sequence[float]] = None
    # Trees of one recording share their samples, and their variances only grow: that of a difference is the difference.
    recording: str = ""
    # Where each node's call is in memory; 0: unknown; None: of none known.
    address: Optional[Sequence[int]] = None
    # All nodes at which a path ends, in order; no two siblings have the same frame then. None: any may.
    ends: Optional[Sequence[int]] = None


class CallTree(_TreeColumns):
    """Nodes in pre-order (a parent precedes its children); node 0 is the root.

    The allocation site is at the top (the root's children), ``main`` at the leaves. A node's bytes
    include its descendants'.
    """

    def __len__(self) -> int:
        return len(self.parent)

    def with_columns(self, **columns: Any) -> "CallTree":
        """Return this tree with other *columns*; `_replace` would compare its length with the number of its fields."""
        return CallTree(**{**self._asdict(), **columns})

    def frame_of(self, node: int) -> Optional[Frame]:
        """Return the frame of *node*; None for the root and for pruned nodes."""
        number = self.frame[node]
        return self.frames[number] if number >= 0 else None

    def path(self, node: int) -> list[int]:
        """Return the nodes from the allocation site down to *node*, root left out."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parent[node]
        nodes.reverse()
        return nodes

    def self_bytes(self) -> "array[int]":
        """Return, for each node, the bytes that none of its children accounts for."""
        own = array("q", self.bytes)
        parent = self.parent
        for node in range(1, len(parent)):
            own[parent[node]] -= self.bytes[node]
        return own

    def check(self) -> None:
        """Raise ValueError unless the columns fit together and no node's children exceed it."""
        columns = [self.parent, self.frame, self.bytes] + ([self.blocks] if self.blocks is not None else [])
        columns += [one for one in (self.variance, self.path_variance) if one is not None]  # type: ignore[misc]
        if len({len(column) for column in columns}) != 1 or not self.parent or self.parent[0] != -1:
            raise ValueError("the columns of a call tree differ in length or lack a root")
        for node, parent in enumerate(self.parent):
            if not -1 <= parent < node or (parent == -1) != (node == 0):
                raise ValueError(f"node {node} has parent {parent}")
        if any(not PRUNED <= number < len(self.frames) for number in self.frame):
            raise ValueError("a frame number is outside the table")
        for node, own in enumerate(self.self_bytes()):
            if own < 0:
                raise ValueError(f"the children of node {node} hold {-own} bytes more than it")

    def walk(self) -> Iterator[tuple[int, int]]:
        """Yield (node, depth) in pre-order; the root has depth 0."""
        depth = array("q", [0]) * len(self)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                depth[node] = depth[parent] + 1
            yield node, depth[node]


# Snapshots: the heap at one moment, and files that hold a series of them.


HEAP_BYTES = "bytes of heap"
PAGE_BYTES = "bytes of pages"
ALLOCATED_BYTES = "bytes allocated"  # since the start, freed ones too
FREED_BYTES = "bytes freed"  # since the start
LOST_BYTES = "bytes lost"  # that no pointer reaches
RESIDENT_BYTES = "bytes resident"
PSS_BYTES = "bytes of PSS"  # resident, a shared page divided among those who share it
DIRTY_BYTES = "bytes dirty"
SWAPPED_BYTES = "bytes swapped"
COMMITTED_BYTES = "bytes committed"  # may be used without asking the system again
RESERVED_BYTES = "bytes reserved"  # of addresses
FREE_BYTES = "bytes free"
PEAK = "peak"  # the metric, and the name of its snapshot
GROWN_BYTES = "bytes grown"  # that became resident in a recording, and stayed
FAULTED_BYTES = "bytes made resident"  # in a recording, those that left again too
KEPT_BYTES = "bytes allocated and kept"  # in a stretch of time, until its end
TEMPORARY_BYTES = "bytes of temporary blocks"  # freed by what their program asks of malloc next
READ_BYTES, WRITTEN_BYTES = "bytes read", "bytes written"  # each access counts, also of the same byte
# Of paths none of whose blocks was.
UNREAD_BYTES, UNWRITTEN_BYTES = "bytes of blocks never read", "bytes of blocks never written"
SHORT_LIVED_BYTES = (
    "bytes of short-lived blocks"  # of paths whose blocks live for up to 500 instructions, on average
)
OWN_PEAK_BYTES = "bytes of peaks"  # each path's own, which have no common moment

# The kinds of blocks that a leak search distinguishes.
DEFINITELY, INDIRECTLY, POSSIBLY = "definitely-lost", "indirectly-lost", "possibly-lost"
REACHABLE, SUPPRESSED = "reachable", "suppressed"
LOST = (DEFINITELY, INDIRECTLY, POSSIBLY)
WITH_INDIRECT = "lost"  # the metric: definitely lost, with what only these blocks point to
LEAK_KINDS = (*LOST, REACHABLE, SUPPRESSED)

# Notice of a file that lacks an unknown number of the bytes that it should count.
BYTES_MISSING = "bytes-missing"

# Counted by Totals outside the heap: memory of the process that tracemalloc doesn't trace, and how much more the last
# snapshot of a file holds than the last one with a call tree.
LATER = "in later snapshots, without a call tree"
TRACING, UNTRACED = "tracemalloc's own tables", "untraced resident memory"

_NOUNS = {
    PAGE_BYTES: "mapped memory",
    ALLOCATED_BYTES: "allocated memory",
    FREED_BYTES: "freed memory",
    LOST_BYTES: "lost memory",
    GROWN_BYTES: "resident growth",
    FAULTED_BYTES: "memory made resident",
    OWN_PEAK_BYTES: "each path's own peak",
    KEPT_BYTES: "memory allocated and not freed",
    TEMPORARY_BYTES: "temporary memory",
    READ_BYTES: "memory read",
    WRITTEN_BYTES: "memory written",
    UNREAD_BYTES: "memory that was never read",
    UNWRITTEN_BYTES: "memory that was never written",
    SHORT_LIVED_BYTES: "short-lived memory",
    RESIDENT_BYTES: "resident memory",
    PSS_BYTES: "proportional resident memory",
    DIRTY_BYTES: "dirty memory",
    SWAPPED_BYTES: "swapped memory",
    COMMITTED_BYTES: "committed memory",
    RESERVED_BYTES: "reserved memory",
    FREE_BYTES: "free memory",
}


def memory_noun(unit: str) -> str:
    """Return what to call memory that is counted in *unit*."""
    return _NOUNS.get(unit, "heap")


def holds(unit: str) -> bool:
    """Return whether a process holds what is counted in *unit* at one moment; else it is a sum over time."""
    flows = (ALLOCATED_BYTES, FREED_BYTES, LOST_BYTES, GROWN_BYTES, FAULTED_BYTES, OWN_PEAK_BYTES, KEPT_BYTES)
    uses = (TEMPORARY_BYTES, READ_BYTES, WRITTEN_BYTES, UNREAD_BYTES, UNWRITTEN_BYTES, SHORT_LIVED_BYTES)
    return unit not in (*flows, *uses)


class Moment(NamedTuple):
    """A time since the start of a recording: in s, or as massif may count it, i (instructions) or B (allocated)."""

    value: float
    unit: str

    @classmethod
    def read(cls, text: str) -> "Moment":
        """Return the moment of ``1.5s``, ``5000000i``, ``10MiB`` and the like. Raises InputError."""
        if text[-1:] == "i" and text[:-1].isdecimal():
            return cls(float(text[:-1]), "i")
        for read, unit in ((parse_duration, "s"), (parse_size, "B")):
            with contextlib.suppress(InputError, OverflowError):
                value = round(read(text), 6)  # 141 ms are 0.141 s, not a bit more
                if value >= 0:
                    return cls(value, unit)
        raise InputError(
            f"'{printable(text)}' is not a moment of a recording",
            slug="bad-moment",
            hint="write it as in 1.5s, 200ms, 5000000i (instructions) or 10MiB (allocated)",
        )


class Stretch(NamedTuple):
    """A part of a recording; None: from its start, to its end."""

    begin: Optional[Moment] = None
    end: Optional[Moment] = None

    @classmethod
    def read(cls, begin: Optional[str], end: Optional[str]) -> "Optional[Stretch]":
        """Return the stretch between two moments as texts; None without them. Raises InputError."""
        if begin is None and end is None:
            return None
        found = cls(*(None if text is None else Moment.read(text) for text in (begin, end)))
        first, last = found
        if last is not None and (last.value <= 0 or (first is not None and _is_not_before(first, last))):
            raise InputError(
                f"nothing is between {printable(begin or 'the start')} and {printable(end or '')}",
                slug="empty-stretch",
                hint="--until has to be later than --from",
            )
        return found

    def values_in(self, unit: str, source: str) -> tuple[float, float]:
        """Return both in *unit*, which *source* counts in; the end may be infinite.

        Raises InputError if they are in another one.
        """
        begin, end = (_value_in(one, unit, source) for one in self)
        return begin or 0.0, math.inf if end is None else end

    def too_short(self, source: str, next_moment: str) -> InputError:
        """Return the error for a stretch within which *source* notes no time; *next_moment* is the next."""
        return InputError(
            f"{printable(source)} notes no time between --from and --until",
            slug="empty-stretch",
            hint=f"the next is {next_moment}; there is one about every 10 ms, on a busy machine fewer",
        )

    def cut_by(self, source: str, at: str) -> Notice:
        """Return the notice for a stretch that ends after the end of *source*, *at*."""
        return Notice("stretch-cut", f"the recording in {printable(source)} ends at {at}, before --until")

    def after_end(self, source: str, at: str) -> InputError:
        """Return the error for a stretch that begins at or after the end of *source*, *at*."""
        return InputError(
            f"the recording in {printable(source)} ends at {at}: nothing of it is in this stretch",
            slug="empty-stretch",
            hint="name an earlier moment",
        )


def _is_not_before(first: Moment, last: Moment) -> bool:
    return first.value >= last.value and first.unit == last.unit


def _value_in(moment: Optional[Moment], unit: str, source: str) -> Optional[float]:
    if moment is None or moment.unit == unit or not moment.value:
        return moment and moment.value
    if (moment.unit, unit) == ("s", "ms"):
        return round(moment.value * 1000, 3)
    units = {"i": "instructions", "B": "bytes allocated"}
    example = {"i": "5000000i", "B": "10MiB"}.get(unit, "1.5s")
    raise InputError(
        f"{printable(source)} counts its time in {units.get(unit, 'seconds')}",
        slug="bad-moment",
        hint=f"write it as in --from {example}",
    )


class Totals(NamedTuple):
    """One snapshot of a file without its tree."""

    index: int  # type: ignore[assignment]  # position in the file, from 0
    time: float  # in the profile's time_unit
    heap_bytes: int
    extra_bytes: int  # the allocator's own headers and padding
    stacks_bytes: int
    has_tree: bool
    name: Annotated[str, Key(or_null=True)] = ""
    beside: Mapping[str, int] = {}  # bytes that are in no total and no tree

    @property
    def total_bytes(self) -> int:
        return self.heap_bytes + self.extra_bytes + self.stacks_bytes


class Profile(Protocol):
    """The result of a reader of any format: totals at once, a tree on request."""

    @property
    def source(self) -> str:
        """The path, for messages."""

    @property
    def source_format(self) -> str:
        """The format: massif, gperftools, …"""

    @property
    def command(self) -> str:
        """The command line that was profiled; "" if unknown."""

    @property
    def time_unit(self) -> str:
        """The unit of time: i (instructions), ms, B (bytes allocated), s."""

    @property
    def marked_peak_index(self) -> Optional[int]:
        """The snapshot that the tool itself calls the peak."""

    @property
    def unit(self) -> str:
        """The quantity that the trees count: HEAP_BYTES, PAGE_BYTES or another of this module's."""

    @property
    def notices(self) -> Sequence[Notice]:
        """Notices for the reader of the result; making a tree may add some."""

    @property
    def snapshots(self) -> Sequence[Totals]:
        """Every snapshot's totals, in the order of the file."""

    @property
    def peak_index(self) -> int:
        """The snapshot with the largest total; of several one with a tree, then the first."""

    @property
    def peak_tree_index(self) -> Optional[int]:
        """The snapshot with the largest total of those that have a tree; None when none has."""

    def tree(self, index: int) -> Optional[CallTree]:
        """Return the call tree of snapshot *index*, parsed now; None when it has none."""


class Snapshot(NamedTuple):
    """A named moment with its tree: one side of a diff."""

    source: str  # the file or RUN:NAME it came from
    name: str
    totals: Totals
    tree: CallTree
    unit: str = HEAP_BYTES
    source_format: str = ""
    command: str = ""  # that was profiled


def peak_index(snapshots: Sequence[Totals]) -> int:
    """Return the index of the snapshot with the largest total; of several one with a tree, then the first."""
    return max(
        range(len(snapshots)), key=lambda index: (snapshots[index].total_bytes, snapshots[index].has_tree)
    )


def peak_tree_index(snapshots: Sequence[Totals]) -> Optional[int]:
    """Return the index of the largest snapshot that has a tree; None when none has.

    If several have that size, it is the one nearest to the peak.
    """
    peak = peak_index(snapshots)
    with_tree = [index for index, totals in enumerate(snapshots) if totals.has_tree]
    return max(with_tree, key=lambda index: (snapshots[index].total_bytes, -abs(index - peak)), default=None)


def as_nothing(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* as it was before anything was allocated."""
    blocks = None if snapshot.tree.blocks is None else [0]
    empty = CallTree(frames=(), parent=[-1], frame=[ROOT], bytes=[0], blocks=blocks, ends=())
    beside = dict.fromkeys(snapshot.totals.beside, 0)
    nothing = snapshot.totals._replace(heap_bytes=0, extra_bytes=0, stacks_bytes=0, beside=beside)
    return snapshot._replace(name="nothing", totals=nothing, tree=empty)


def no_threads(source: str, source_format: str) -> InputError:
    """Return the error for a file that does not record which thread made an allocation."""
    return InputError(
        f"{printable(source)} does not record threads, as no file of {source_format} does",
        slug="no-threads",
        hint="memray's files do; leave --by thread out",
    )


def no_block_sizes(source: str) -> InputError:
    """Return the error for a file without the sizes of blocks."""
    return InputError(
        f"{printable(source)} has no block sizes",
        slug="no-block-sizes",
        hint="heaptrack, gperftools, jemalloc, DHAT, execution trees and pprof do; leave --by size out",
    )
