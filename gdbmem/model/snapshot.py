"""Snapshots: the heap at one moment, and files that hold a series of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, Optional, Protocol

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import CallTree

HEAP_BYTES = "bytes of heap"
PAGE_BYTES = "bytes of pages"
ALLOCATED_BYTES = "bytes allocated"  # since the start, freed ones too
FREED_BYTES = "bytes freed"  # since the start
LOST_BYTES = "bytes lost"  # that no pointer reaches
PEAK = "peak"  # the metric, and the name of its snapshot
GROWN_BYTES = "bytes grown"  # that became resident in a recording, and stayed
FAULTED_BYTES = "bytes made resident"  # in a recording, those that left again too
OWN_PEAK_BYTES = "bytes of peaks"  # each path's own, which have no common moment

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
}


def memory_noun(unit: str) -> str:
    """Return what to call memory that is counted in *unit*."""
    return _NOUNS.get(unit, "heap")


def holds(unit: str) -> bool:
    """Return whether a process holds what is counted in *unit* at one moment; else it is a sum over time."""
    return unit in (HEAP_BYTES, PAGE_BYTES)


@dataclass(frozen=True)
class Totals:
    """One snapshot of a file without its tree."""

    index: int  # position in the file, from 0
    time: float  # in the profile's time_unit
    heap_bytes: int
    extra_bytes: int  # the allocator's own headers and padding
    stacks_bytes: int
    has_tree: bool
    name: Annotated[str, Key(or_null=True)] = ""
    beside: Mapping[str, int] = field(default_factory=dict)  # bytes that are in no total and no tree

    @property
    def total_bytes(self) -> int:
        return self.heap_bytes + self.extra_bytes + self.stacks_bytes


class Profile(Protocol):
    """The result of a reader of any format: totals at once, a tree on request."""

    source: str  # the path, for messages
    source_format: str  # massif, gperftools, …
    command: str  # the command line that was profiled; "" if unknown
    time_unit: str  # i (instructions), ms, B (bytes allocated), s
    marked_peak_index: Optional[int]  # the snapshot that the tool itself calls the peak

    @property
    def unit(self) -> str:
        """The quantity that the trees count: HEAP_BYTES, PAGE_BYTES or another of this module's."""
        ...

    @property
    def notices(self) -> Sequence[Notice]:
        """Notices for the reader of the result; making a tree may add some."""
        ...

    @property
    def snapshots(self) -> Sequence[Totals]:
        """Every snapshot's totals, in the order of the file."""
        ...

    @property
    def peak_index(self) -> int:
        """The snapshot with the largest total; of several one with a tree, then the first."""
        ...

    @property
    def peak_tree_index(self) -> Optional[int]:
        """The snapshot with the largest total of those that have a tree; None when none has."""
        ...

    def tree(self, index: int) -> Optional[CallTree]:
        """Return the call tree of snapshot *index*, parsed now; None when it has none."""
        ...


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
