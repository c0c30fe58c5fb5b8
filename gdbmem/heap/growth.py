"""Two moments of a heap, compared: which holders and types grew, and which blocks are lost since."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.heap.saved import unpacked
from gdbmem.model.heap_graph import (
    LOST,
    HeapChange,
    HeapGrowth,
    HeapSide,
    HeapSum,
    HeapView,
    Leaks,
    LostGrowth,
    NewlyLost,
    SavedHeap,
)
from gdbmem.text import printable

_THREAD = re.compile(r"\bthread \d+")

Columns = tuple[Any, Any, Any]


def compared(before: SavedHeap, after: SavedHeap, names: tuple[str, str]) -> HeapGrowth:
    """Return what changed from *before* to *after*, which are called *names*. Raises InputError if one is damaged."""
    try:
        return _compare(before, after, names)
    except ValueError as error:
        raise InputError(
            f"the blocks of {printable(names[0])} or {printable(names[1])} can't be read: {error}",
            slug="bad-heap",
            hint="save them again with 'gdbmem heap PID --save FILE'",
        ) from None


def _compare(before: SavedHeap, after: SavedHeap, names: tuple[str, str]) -> HeapGrowth:
    one_process = bool(before.execution) and before.execution == after.execution
    notices = [*before.view.notices, *after.view.notices, *_of_moments(before, after, names)]
    is_columned = one_process and before.blocks is not None and after.blocks is not None
    return HeapGrowth(
        _side(names[0], before.view),
        _side(names[1], after.view),
        one_process,
        _changes(before.holders, after.holders, key_here if one_process else key_anywhere),
        _changes(before.types, after.types, key_here),
        _lost_blocks(before, after) if is_columned else _lost_bounds(before.view.leaks, after.view.leaks),
        list(dict.fromkeys(notices)),
    )


def _of_moments(before: SavedHeap, after: SavedHeap, names: tuple[str, str]) -> list[Notice]:
    """Return what makes *before* and *after* no moments of one process, the earlier one first."""
    if not before.execution or before.execution != after.execution:
        text = "the heaps are not known to be of one process: holders are compared by name, those of threads together"
        return [Notice("two-processes", f"{text}, and which blocks are lost since is unknown")]
    first, second = map(printable, names)
    if before.time is None or after.time is None:
        return []
    if before.time == after.time:
        return [Notice("recorded-once", f"{first} and {second} are the same moment")]
    # The time of a core is that of its file, which may be a copy.
    if before.view.pid is not None and after.view.pid is not None and before.time > after.time:
        return [Notice("recorded-later", f"{first} was recorded later than {second}")]
    return []


def _side(name: str, view: HeapView) -> HeapSide:
    leaks = view.leaks
    return HeapSide(
        name, view.program, view.pid, view.live_bytes, view.live_blocks, leaks.least_bytes, leaks.most_bytes
    )


# -- holders and types ------------------------------------------------------------------------------------

Key = tuple[str, str, str, tuple[str, ...], int]


def key_here(one: HeapSum) -> Key:
    return (one.kind, one.name, one.object, tuple(one.holders), one.block_bytes)


def key_anywhere(one: HeapSum) -> Key:
    """Return the same for another process, whose threads have other numbers."""
    name, file, *holders = (_THREAD.sub("any thread", text) for text in (one.name, one.object, *one.holders))
    return (one.kind, name, file, tuple(holders), one.block_bytes)


def _changes(
    before: Iterable[HeapSum], after: Iterable[HeapSum], key_of: Callable[[HeapSum], Key]
) -> list[HeapChange]:
    """Return the sums that changed, the largest change first."""
    sums: dict[Key, list[int]] = {}
    for at, side in enumerate((before, after)):
        for one in side:
            values = sums.setdefault(key_of(one), [0, 0, 0, 0])
            values[at] += one.bytes
            values[2 + at] += one.blocks
    changed = [
        HeapChange(name, kind, file, holders, size, *values)
        for (kind, name, file, holders, size), values in sums.items()
        if values[0] != values[1] or values[2] != values[3]
    ]
    return sorted(changed, key=lambda one: (-abs(one.delta_bytes), one.name))


# -- what is lost since -----------------------------------------------------------------------------------


def _lost_bounds(before: Leaks, after: Leaks) -> LostGrowth:
    return LostGrowth(after.least_bytes - before.most_bytes, after.most_bytes - before.least_bytes, None)


def _lost_blocks(before: SavedHeap, after: SavedHeap) -> LostGrowth:
    """Return the blocks of one process that are lost and were not, by what held them."""
    np = import_numpy()
    old, new = unpacked(before), unpacked(after)
    lost = np.flatnonzero(new[2] < 0)
    certain = new[2][lost] == LOST
    at, same = _find(old, new, lost)
    held = np.where(same, old[2][at] if len(old[2]) else at, 0)  # of blocks that were not there: by none
    sizes = new[1][lost]
    was_lost = same & (held < 0)
    was_certain = same & (held == LOST)
    # Where less is known, what seems lost for certain is not: the bounds of the whole say how much.
    unsure_before, unsure_after = (_unsure(one, side) for one, side in ((before, old), (after, new)))
    least = int(sizes[certain & ~was_lost].sum()) - unsure_after
    most = int(sizes[~was_certain].sum()) + min(unsure_before, int(sizes[was_certain].sum()))
    fresh = np.flatnonzero(certain & ~was_lost)
    groups = _groups(before, new, lost[fresh], np.where(same, held, -1)[fresh])
    return LostGrowth(max(least, 0), most, len(fresh), groups)


def _unsure(saved: SavedHeap, columns: Columns) -> int:
    """Return how many bytes seem lost, but may be reached by words that were not read, or be free."""
    return max(int(columns[1][columns[2] == LOST].sum()) - saved.view.leaks.least_bytes, 0)


def _find(old: Columns, new: Columns, numbers: Any) -> tuple[Any, Any]:
    """Return for each of the blocks *numbers* of *new* its place in *old*, and whether it was the same there."""
    np = import_numpy()
    addresses = new[0][numbers]
    at = np.searchsorted(old[0], addresses)
    if not len(old[0]):
        return at, np.zeros(len(at), bool)
    at[at == len(old[0])] = 0
    return at, (old[0][at] == addresses) & (old[1][at] == new[1][numbers])


def _groups(before: SavedHeap, new: Columns, numbers: Any, holders: Any) -> list[NewlyLost]:
    """Return the blocks *numbers* by their former *holders* (-1: none), most bytes first."""
    np = import_numpy()
    if not len(numbers):
        return []
    kinds, which = np.unique(holders, return_inverse=True)
    sizes = new[1][numbers]
    sums, counts = np.bincount(which, weights=sizes), np.bincount(which)
    order = np.argsort(sizes, kind="stable")  # the last one that is written is the largest
    largest = np.empty(len(kinds), np.int64)
    largest[which[order]] = numbers[order]
    return [
        NewlyLost(
            before.holders[kind] if kind >= 0 else None,
            int(sums[n]), int(counts[n]), int(new[0][largest[n]]),
        )
        for n, kind in sorted(enumerate(kinds.tolist()), key=lambda pair: -sums[pair[0]])
    ]  # fmt: skip
