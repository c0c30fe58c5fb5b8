"""valgrind's execution trees of memory in massif's format: one moment, counted several ways.

memcheck and massif write it (monitor xtmemory FILE.ms, --xtree-memory=full --xtree-memory-file=FILE.ms). Other
than callgrind's form of the same it names inlined functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.spooling import Data
from gdbmem.formats.stacks import (
    ALLOCATED,
    FREED,
    IN_USE,
    TRUNCATED,
    Content,
    Hidden,
    Stack,
    StackProfile,
    choose_metric,
)
from gdbmem.formats.valgrind.massif import MassifProfile, read_massif
from gdbmem.model.profiles.calltree import PRUNED, CallTree, Frame
from gdbmem.text import printable

# Count of bytes → (metric, count of blocks).
_COUNTS = {"curB": (IN_USE, "curBk"), "totB": (ALLOCATED, "totBk"), "totFdB": (FREED, "totFdBk")}


def read_xtree(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it counts no bytes, or the bytes' tree was truncated."""
    found = read_massif(data, source, counts=True)
    at = {found.counted(index): index for index in range(len(found.snapshots))}
    known = {name: (at[size], at.get(blocks)) for size, (name, blocks) in _COUNTS.items() if size in at}
    if not known:
        raise InputError(
            f"{printable(source)} is an execution tree that counts no bytes, or was truncated before them",
            slug="no-memory-counts",
            hint="record one with --xtree-memory=full --xtree-memory-file=FILE.ms",
        )
    chosen = choose_metric(metric, list(known), source)
    size_at, blocks_at = known[chosen]
    notices = list(found.notices)
    if blocks_at is None and not notices:  # valgrind writes both
        notices.append(Notice(TRUNCATED, f"{printable(source)} was truncated before its count of blocks"))
    return StackProfile(
        source=source,
        source_format="xtree",
        metric=chosen,
        metrics=list(known),
        total_bytes=found.snapshots[size_at].heap_bytes,
        load=lambda profile: _content(found, size_at, blocks_at),
        command=found.command,
        notices=notices,
    )


def _content(found: MassifProfile, size_at: int, blocks_at: Optional[int]) -> Content:
    numbers: dict[Frame, int] = {}
    tree = found.tree(size_at)
    assert tree is not None  # what has no tree counts nothing by name
    counts = found.tree(blocks_at) if blocks_at is not None else None
    stacks = [Stack(path, own) for path, own in _paths(tree, numbers)]
    if counts is not None:
        stacks += [Stack(path, 0, own) for path, own in _paths(counts, numbers)]
    hidden = _pruned(tree)
    return Content(
        stacks,
        [(frame,) for frame in numbers],
        has_blocks=counts is not None,
        hidden=Hidden(hidden, tree.threshold_bytes, 0 if counts is None else _pruned(counts))
        if hidden
        else None,
    )


def _pruned(tree: CallTree) -> int:
    return sum(tree.bytes[node] for node, number in enumerate(tree.frame) if number == PRUNED)


def _paths(tree: CallTree, numbers: dict[Frame, int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each listed path, as *numbers* number its frames, with what it alone counts."""
    shared = [numbers.setdefault(frame, len(numbers)) for frame in tree.frames]
    path: list[int] = []
    own = tree.self_bytes()
    for node, depth in tree.walk():
        number = tree.frame[node]
        del path[max(depth - 1, 0) :]
        path.append(shared[number] if number >= 0 else -1)
        if own[node] and number >= 0:
            yield tuple(path), own[node]
