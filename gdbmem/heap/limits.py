"""Gates on a heap, or on what changed in it: on all live blocks, on what is lost, on what one holder retains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from gdbmem.errors import Notice
from gdbmem.heap.growth import key_anywhere, key_here
from gdbmem.model.diff import LEAKED
from gdbmem.model.heap_graph import SEVERAL, HeapGrowth, HeapLimit, HeapSum, HeapView, SavedHeap
from gdbmem.model.judgement import Judgement, Unseen
from gdbmem.text import format_delta, format_size, printable

# Notices on a heap of which blocks may be missing, so that its sums are no bounds.
_DOUBTS = (
    "heap-corrupt",
    "heap-changing",
    "heap-pieces-missing",
    "swapped-unread",
    "core-cut",
    "arena-locked",
)
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
    unseen = _unseen(view.notices)
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
    unseen = (*_unseen(growth.notices), *_unseen_between(growth))
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


def _interval(low: int, high: int, form: Callable[[int], str]) -> str:
    return form(low) if low == high else f"{form(low)} to {form(high)}"


def _unseen(notices: Iterable[Notice]) -> tuple[Unseen, ...]:
    return tuple(Unseen(one.slug, printable(one.message)) for one in notices if one.slug in _DOUBTS)


def _unseen_between(growth: HeapGrowth) -> tuple[Unseen, ...]:
    return tuple(Unseen(one.slug, one.message) for one in growth.notices if one.slug in _NO_MOMENTS)
