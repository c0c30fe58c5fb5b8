"""The history of a series of totals, in the columns of a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.model.profiles.snapshot import Totals
from gdbmem.records import dataclass


@dataclass(frozen=True)
class Column:
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
