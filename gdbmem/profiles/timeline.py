"""The history of a series of totals, in the columns of a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.model.calltree import Totals


class Column(NamedTuple):
    """A chart's value at one place of the time axis: the largest snapshot there."""

    heap_bytes: int
    total_bytes: int
    has_tree: bool


def columns_of(snapshots: Sequence[Totals], count: int) -> list[Column]:
    """Return the history of *snapshots* in *count* columns of equal time.

    A column without a snapshot repeats the size of the last one before it.
    """
    if not snapshots:
        return []
    start = snapshots[0].time
    span = max(snapshots[-1].time - start, 0)
    largest: list[Optional[Totals]] = [None] * count
    trees = bytearray(count)
    for totals in snapshots:
        column = min(int((totals.time - start) / span * count), count - 1) if span else 0
        held = largest[max(column, 0)]
        if held is None or totals.total_bytes > held.total_bytes:
            largest[max(column, 0)] = totals
        trees[max(column, 0)] |= totals.has_tree
    columns: list[Column] = []
    last = snapshots[0]
    for number, held in enumerate(largest):
        last = held or last
        columns.append(Column(last.heap_bytes, last.total_bytes, bool(trees[number])))
    return columns


def outline(course: Sequence[int], count: int) -> list[int]:
    """Return about *count* indices of *course*: both ends, and the minimum and maximum of each interval.

    Without the extremes of an interval, a spike or a drop would be missing in the picture.
    """
    if len(course) <= count:
        return list(range(len(course)))
    stretches = max(count // 2, 1)
    chosen = {0, len(course) - 1}
    for number in range(stretches):
        stretch = range(number * len(course) // stretches, (number + 1) * len(course) // stretches)
        chosen.add(max(stretch, key=course.__getitem__))
        chosen.add(min(stretch, key=course.__getitem__))
    return sorted(chosen)


# The trend of a path: new or grown between two snapshots; steadily or at once in a series.


# Between two snapshots.
APPEARED, VANISHED, GREW, SHRANK, UNCHANGED = "appeared", "vanished", "grew", "shrank", "unchanged"
# In a series, what matters most first.
STEADY, UNEVEN, AT_ONCE, SETTLED, WENT_BACK, UNCERTAIN = (
    "steady",
    "uneven",
    "at-once",
    "settled",
    "went-back",
    "uncertain",
)
TRENDS = (STEADY, UNEVEN, AT_ONCE, SETTLED, SHRANK, WENT_BACK, UNCERTAIN, UNCHANGED)

_EVEN = 0.4  # of 1: the value for two equal steps of five
_EVEN_OF_TWO = 0.6  # two steps of which one is zero reach a half already
_STILL = 0.5  # of the mean step: how fast it must still grow at the end
_KEPT = 0.2  # fraction of all added bytes: keeping less counts as went-back
_ONE_STEP = 0.8  # of what is kept
_SURE = 3  # standard errors


class Trend(NamedTuple):
    """The verdict on one course."""

    kind: str  # one of TRENDS
    kept_bytes: int  # bytes added and not released up to the last snapshot


def change_of(
    before_bytes: int, after_bytes: int, *, hidden_bytes: int, error_bytes: int, is_relative: bool = False
) -> str:
    """Return the change between two snapshots, one of the five words.

    A path that one side may only hide, or may not have sampled, neither appeared nor vanished; nor did any path if the
    earlier bytes are unknown (*is_relative*).
    """
    delta = after_bytes - before_bytes
    sure = not is_relative and not hidden_bytes and _SURE * error_bytes <= abs(delta)
    if delta == 0:
        return UNCHANGED
    if delta > 0:
        return APPEARED if before_bytes == 0 and sure else GREW
    return VANISHED if after_bytes == 0 and sure else SHRANK


def judge(course: Sequence[int], *, uncertain_bytes: int = 0) -> Trend:
    """Return the trend of *course*, the bytes at three or more snapshots, oldest first.

    The kept bytes are judged: at each snapshot, the minimum from there to the end. The trend is steady if their steps
    are similar and they still grow at the end; the time between the snapshots is unknown.
    """
    floor = floor_of(course)
    steps = [after - before for before, after in zip(floor, floor[1:])]
    kept, gain = floor[-1] - floor[0], course[-1] - course[0]
    added = sum(max(after - before, 0) for before, after in zip(course, course[1:]))
    if min(course) == max(course):
        kind = UNCHANGED
    elif uncertain_bytes and uncertain_bytes >= abs(gain):
        kind = UNCERTAIN
    elif gain < 0 and -gain >= _KEPT * added:
        kind = SHRANK
    elif gain <= 0 or (kept < _KEPT * added and not _is_steady(steps, kept)):
        kind = WENT_BACK
    else:
        kind = _growth(steps, kept)
    return Trend(kind, kept)


def floor_of(course: Sequence[int]) -> list[int]:
    """Return the kept bytes at each place of *course*: the minimum from there to the end."""
    least = course[-1]
    floor = []
    for size in reversed(course):
        least = min(least, size)
        floor.append(least)
    return floor[::-1]


def _growth(steps: Sequence[int], kept: int) -> str:
    if _is_steady(steps, kept):
        return STEADY
    if max(steps) >= _ONE_STEP * kept:
        return AT_ONCE
    return UNEVEN if _still_grows(steps, kept) else SETTLED


def _is_steady(steps: Sequence[int], kept: int) -> bool:
    squares = sum(step * step for step in steps)
    if not squares or not _still_grows(steps, kept):
        return False
    evenness = kept * kept / (len(steps) * squares)  # 1 if all steps are equal
    return evenness >= (_EVEN_OF_TWO if len(steps) == 2 else _EVEN)


def _still_grows(steps: Sequence[int], kept: int) -> bool:
    last = steps[-max(len(steps) // 3, 2 if len(steps) > 3 else 1) :]
    return sum(last) * len(steps) >= _STILL * kept * len(last) and sum(last) > 0
