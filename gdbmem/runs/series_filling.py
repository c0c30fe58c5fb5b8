"""The total of a tree between two reads of PSS, for recordings too short to hold many of them.

PSS is read as often as a budget allows, RSS at each look. Where the same processes live on from one read to
the next, and RSS tells of the same change as PSS does, the looks between follow RSS and meet both reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from gdbmem.model.series import TREE
from gdbmem.runs.series_store import Recording

_ENOUGH = 60  # reads of PSS: with so many there is nothing to fill
_MOST_APART_BYTES = 1 << 20  # RSS and PSS may differ by this in how much they changed,
_MOST_APART = 0.25  # or by this share of the change

_Look = tuple[float, dict[int, float]]  # time, and the RSS of each line


def total_points(recording: Recording) -> tuple[list[tuple[float, float]], int]:
    """Return the times and sizes of the tree's total, and how many of them follow RSS."""
    read = list(recording.points(TREE, recording.total_metric))
    if recording.total_metric != "pss_bytes" or not 2 <= len(read) < _ENOUGH:
        return read, 0
    looks = [
        (t, {line: rss for _, line, rss in rows})
        for t, rows in groupby(recording.sizes_by_time(), key=itemgetter(0))
    ]
    filled = [read[0]]
    for before, after in zip(read, read[1:]):
        between = [look for look in looks if before[0] <= look[0] <= after[0]]
        filled += [*_between(before, after, between), after]
    return filled, len(filled) - len(read)


def _between(
    before: tuple[float, float], after: tuple[float, float], looks: Sequence[_Look]
) -> Iterator[tuple[float, float]]:
    begin, end = before[0], after[0]
    if len(looks) < 3 or (looks[0][0], looks[-1][0]) != (begin, end):
        return
    lines = looks[0][1].keys()
    if any(sizes.keys() != lines for _, sizes in looks):
        return  # one that is born or dies brings or takes pages that others share
    first, last = (sum(looks[place][1].values()) for place in (0, -1))
    apart = (after[1] - before[1]) - (last - first)
    if abs(apart) > max(_MOST_APART_BYTES, _MOST_APART * abs(last - first)):
        return
    for t, sizes in looks[1:-1]:
        yield t, before[1] + sum(sizes.values()) - first + apart * (t - begin) / (end - begin)
