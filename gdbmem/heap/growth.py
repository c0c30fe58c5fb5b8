"""Two moments of a heap, compared: which holders and types grew, which blocks are lost since, and gates on both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.heap.saved import unpacked
from gdbmem.heap.text import unread
from gdbmem.model.diff import LEAKED
from gdbmem.model.heap_graph import (
    LOST,
    SEVERAL,
    HeapChange,
    HeapGrowth,
    HeapLimit,
    HeapSide,
    HeapSum,
    HeapView,
    Leaks,
    LostGrowth,
    NewlyLost,
    SavedHeap,
)
from gdbmem.model.judgement import Judgement, Unseen
from gdbmem.text import format_delta, format_size, printable

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
    least = after.least_bytes - before.most_bytes if before.most_bytes is not None else None
    most = after.most_bytes - before.least_bytes if after.most_bytes is not None else None
    return LostGrowth(least, most, None)


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
    if before.view.leaks.are_of_a_part:
        least = 0  # any of these may have been lost before
    return LostGrowth(max(least, 0), None if after.view.leaks.are_of_a_part else most, len(fresh), groups)


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


# -- gates: on all live blocks, on what is lost, on what one holder retains ---------------------------------

# Notices on a heap of which blocks may be missing, so that its sums are no bounds.
_NO_MOMENTS = ("recorded-later", "recorded-once")  # of which nothing can have grown


def judge_heap(view: HeapView, holders: Sequence[HeapSum], limits: Sequence[HeapLimit]) -> list[Judgement]:
    """Judge one heap by *limits* on its sizes; *holders* are all of them."""
    return [_judge_size(view, holders, limit) for limit in limits]


def judge_growth(
    growth: HeapGrowth, before: SavedHeap, after: SavedHeap, limits: Sequence[HeapLimit]
) -> list[Judgement]:
    """Judge *growth*, from *before* to *after*, by *limits*."""
    holders = [
        key_anywhere(one) if not growth.is_one_process else key_here(one)
        for one in (*before.holders, *after.holders)
    ]
    known = {name for _, name, _, several, _ in holders for name in (name, *several)}
    return [_judge_change(growth, limit, known) for limit in limits]


def _judge_size(view: HeapView, holders: Sequence[HeapSum], limit: HeapLimit) -> Judgement:
    unseen = unread(view.notices)
    if limit.subject == LEAKED:
        leaks = view.leaks
        low, high = leaks.least_bytes, leaks.most_bytes
        return _judged(limit, f"{_interval(low, high, format_size)} of blocks are lost", low, high, unseen)
    if not limit.subject:
        size = view.live_bytes
        return _judged(limit, f"{format_size(size)} of blocks are live", size, size, unseen)
    mine = [one for one in holders if limit.subject in (one.name, *one.holders)]
    if not mine:
        return _judged(limit, _of_holder(limit), None, None, (_no_holder(limit), *unseen))
    own = sum(one.bytes for one in mine if one.kind != SEVERAL)
    shared = sum(one.bytes for one in holders if one.kind == SEVERAL)
    text = f"{format_size(own)} are retained by {printable(limit.subject)}"
    return _judged(limit, _with_shared(text, shared), own, own + shared, unseen)


def _judge_change(growth: HeapGrowth, limit: HeapLimit, known: set[str]) -> Judgement:
    unseen = (*unread(growth.notices), *_unseen_between(growth))
    if limit.subject == LEAKED:
        low, high = growth.lost.least_bytes, growth.lost.most_bytes
        text = f"{_interval(low, high, format_delta)} of blocks are lost since"
        return _judged(limit, text, low, high, unseen)
    if not limit.subject:
        grown = growth.delta_bytes
        return _judged(limit, f"the live blocks grew by {format_delta(grown)}", grown, grown, unseen)
    if limit.subject not in known:
        return _judged(limit, _of_holder(limit), None, None, (_no_holder(limit), *unseen))
    own = sum(one.delta_bytes for one in growth.holders if one.name == limit.subject)
    shared = [one.delta_bytes for one in growth.holders if one.kind == SEVERAL]
    more, less = sum(one for one in shared if one > 0), sum(one for one in shared if one < 0)
    text = f"what {printable(limit.subject)} retains changed by {format_delta(own)}"
    return _judged(limit, _with_shared(text, more), own + less, own + more, unseen)


def _judged(
    limit: HeapLimit, text: str, low: Optional[int], high: Optional[int], unseen: Sequence[Unseen]
) -> Judgement:
    name = limit.subject or "live"
    return Judgement(name, text, limit.bytes, low, low, high, tuple(unseen))


def _of_holder(limit: HeapLimit) -> str:
    return f"what {printable(limit.subject)} retains"


def _no_holder(limit: HeapLimit) -> Unseen:
    return Unseen("no-such-holder", f"no holder of this heap is called '{printable(limit.subject)}'")


def _with_shared(text: str, shared: int) -> str:
    return f"{text}, and it may have a part in {format_size(shared)} that several hold" if shared else text


def _interval(low: Optional[int], high: Optional[int], form: Callable[[int], str]) -> str:
    least, most = (form(one) if one is not None else "an unknown amount" for one in (low, high))
    return least if least == most else f"{least} to {most}"


def _unseen_between(growth: HeapGrowth) -> tuple[Unseen, ...]:
    return tuple(Unseen(one.slug, one.message) for one in growth.notices if one.slug in _NO_MOMENTS)
