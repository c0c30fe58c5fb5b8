"""The total of a tree between two reads of PSS.

PSS is read as often as a budget allows. At the samples in between, the total follows the usage of the program's own
cgroup, if it has one. Else it follows the private memory of each process: a change of RSS is what the process took or
released, page faults without a change of RSS are what it copied, and a process that ends releases its private memory.
Either way the total agrees with each read of PSS.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import PAGE
from gdbmem.model.series import TREE
from gdbmem.series.store import Recording

FAMILY = "family_bytes"
HUGETLB = "hugetlb pages"
_BESIDE = {"swap": "swap_bytes", HUGETLB: "hugetlb_bytes"}
_LEAST_BESIDE = 64 << 10  # bytes
_ENOUGH = 60  # reads of PSS; the total keeps to them if the samples in between lack page faults
_MOST_LOOKS = 50_000  # of a longer recording the reads of PSS are enough
_MOST_APART_BYTES = 1 << 20  # RSS and PSS may differ by this in how much they changed,
_MOST_APART = 0.25  # or by this share of the change

_Sizes = dict[int, tuple[float, Optional[float]]]  # line → RSS, faults
_Look = tuple[float, _Sizes]
_Point = tuple[float, float]


class Filled(NamedTuple):
    """The points of a total, and how many of them are not PSS as it was read."""

    points: list[_Point]
    by_rss: int = 0  # RSS and page faults
    by_cgroup: int = 0
    # How much PSS had changed up to a time because of programs that share pages.
    by_others: Sequence[_Point] = ()
    beside: Sequence[tuple[str, float]] = ()  # what is counted beside RSS and PSS, and how much it changed


def judged_metric(recording: Recording) -> str:
    """Return what is judged: RSS of a single process, PSS of a tree or, without it, what its own cgroup holds."""
    metric = recording.total_metric
    if metric == "rss_bytes" and len(recording.lines) > 1 and next(recording.points(TREE, FAMILY), None):
        return FAMILY
    return metric


def total_points(recording: Recording) -> Filled:
    """Return the times and sizes of the tree's total."""
    metric = judged_metric(recording)
    read = list(recording.points(TREE, metric))
    if metric != "pss_bytes":
        return Filled(read, by_cgroup=len(read) if metric == FAMILY else 0)
    held = list(recording.points(TREE, FAMILY))
    follows_family = len(held) > len(read)
    points = _by_cgroup(read, held) if follows_family else read
    if len(read) < 2:
        return Filled(points, by_cgroup=len(points) - len(read))
    looks = _looks(recording)
    counts_faults = any(faults is not None for _, sizes in looks[-50:] for _, faults in sizes.values())
    if len(looks) > _MOST_LOOKS or (len(read) >= _ENOUGH and not counts_faults):
        return Filled(points, by_cgroup=len(points) - len(read))
    times = [t for t, _ in looks]
    private = {} if follows_family else _private(recording)
    filled = [read[0]]
    by_others = [(read[0][0], 0.0)]
    for before, after in zip(read, read[1:]):
        between = looks[bisect.bisect_left(times, before[0]) : bisect.bisect_right(times, after[0])]
        if not follows_family:
            filled += [*_between(before, after, between, private.get(before[0], {})), after]
        changed = by_others[-1][1] * _surviving_share(between) + _by_others(between, before, after)
        by_others.append((after[0], changed))
    if follows_family:
        return Filled(points, by_cgroup=len(points) - len(read), by_others=by_others)
    return Filled(filled, by_rss=len(filled) - len(read), by_others=by_others)


def with_beside(filled: Filled, recording: Recording, line: int) -> Filled:
    """Return *filled* with what *line* has swapped out and in hugetlb pages, if that changed: RSS and PSS lack both."""
    found = []
    points = filled.points
    for name, metric in _BESIDE.items():
        sizes = list(recording.points(line, metric))
        values = [size for _, size in sizes]
        if not points or not values or max(values) - min(values) < _LEAST_BESIDE:
            continue
        times = [t for t, _ in sizes]
        points = [(t, value + _at(t, times, values)) for t, value in points]
        found.append((name, values[-1] - values[0]))
    return filled._replace(points=points, beside=found)


def _at(t: float, times: Sequence[float], values: Sequence[float]) -> float:
    """Return the value at time *t*: on the line between two of *values*, outside that of the nearest."""
    place = bisect.bisect_right(times, t)
    if place in (0, len(times)):
        return values[max(place - 1, 0)]
    part = (t - times[place - 1]) / (times[place] - times[place - 1])
    return values[place - 1] + (values[place] - values[place - 1]) * part


def without_others(points: Sequence[_Point], by_others: Sequence[_Point]) -> list[_Point]:
    """Return *points* less what other programs have changed in them by sharing pages, or no longer sharing them."""
    if not any(change for _, change in by_others):
        return list(points)
    times = [t for t, _ in by_others]
    found = []
    for t, value in points:
        place = min(max(bisect.bisect_right(times, t), 1), len(times) - 1)
        (begin, first), (end, last) = by_others[place - 1], by_others[place]
        part = min(max((t - begin) / (end - begin), 0.0), 1.0)
        found.append((t, value - first - (last - first) * part))
    return found


def _surviving_share(looks: Sequence[_Look]) -> float:
    """Return the share of the memory at the first of *looks* whose processes live at the last one."""
    if not looks:
        return 1.0
    first, last = looks[0][1], looks[-1][1]
    resident = sum(rss for rss, _ in first.values())
    return sum(rss for line, (rss, _) in first.items() if line in last) / resident if resident else 1.0


def _by_others(looks: Sequence[_Look], before: _Point, after: _Point) -> float:
    """Return the change of PSS from one read to the next that the processes can't have made: in the samples *looks*.

    They can't have grown by more than RSS has, or than the pages at which they had a fault; where samples lack faults,
    not by more than both together. If they neither took nor released memory all is the others' doing.
    """
    if len(looks) < 2 or (looks[0][0], looks[-1][0]) != (before[0], after[0]):
        return 0.0
    own, is_still = 0.0, True
    for line in looks[-1][1]:
        course = [sizes.get(line) for _, sizes in looks]
        grown = _grown(course)
        if grown is None:
            return 0.0
        own += grown
        is_still &= len({None if size is None else size[0] for size in course}) == 1
    is_still &= looks[0][1].keys() == looks[-1][1].keys()
    change = after[1] - before[1]
    return change if is_still and not own else max(change - own, 0.0)


def _grown(course: Sequence[Optional[tuple[float, Optional[float]]]]) -> Optional[float]:
    """Return the most bytes by which a process can have grown, by its RSS and faults at each sample since it lives.

    It is None if no faults are known at the first or the last sample.
    """
    living = [size for size in course if size is not None]
    last, faults = (0.0, 0.0) if course[0] is None else living[0]
    if faults is None or living[-1][1] is None:
        return None
    most, risen, steps = 0.0, 0.0, 0
    for rss, count in living:
        risen += max(rss - last, 0.0)
        last, steps = rss, steps + 1
        if count is None:
            continue
        if count < faults:  # another process on the same line
            risen, faults = risen + rss, 0.0
        had = (count - faults) * PAGE
        most += max(risen, had) if steps == 1 else risen + had
        faults, risen, steps = count, 0.0, 0
    return most


def _by_cgroup(read: Sequence[_Point], held: Sequence[_Point]) -> list[_Point]:
    """Return the points of *read*, and those of *held* between, moved by how far *read* is from it there."""
    sizes = dict(held)
    offsets = [(t, value - sizes[t]) for t, value in read if t in sizes]
    if not offsets:
        return list(read)
    times, known = [t for t, _ in offsets], dict(read)
    points = list(read)
    for t, size in held:
        if t in known or t < times[0]:
            continue
        place = bisect.bisect_right(times, t)
        begin, first = offsets[place - 1]
        end, last = offsets[min(place, len(offsets) - 1)]
        part = (t - begin) / (end - begin) if end > begin else 0.0
        total = size + first + (last - first) * part
        if total > 0:  # else the processes changed while they were read: the amount is unknown
            points.append((t, total))
    return sorted(points)


def _looks(recording: Recording) -> list[_Look]:
    return [
        (t, {line: (rss, faults) for _, line, rss, faults in rows})
        for t, rows in groupby(recording.sizes_by_time(), key=itemgetter(0))
    ]


def _private(recording: Recording) -> dict[float, dict[int, float]]:
    """Return the private bytes of each line at each read of PSS."""
    found: dict[float, dict[int, float]] = {}
    for line in recording.lines:
        for t, size in recording.points(line.number, "uss_bytes"):
            found.setdefault(t, {})[line.number] = size
    return found


def _between(
    before: _Point, after: _Point, looks: Sequence[_Look], private: dict[int, float]
) -> Iterator[_Point]:
    begin, end = before[0], after[0]
    if len(looks) < 3 or (looks[0][0], looks[-1][0]) != (begin, end):
        return
    course = _course(looks, private)
    if course is None:
        return
    apart = (after[1] - before[1]) - course[-1]
    moved = sum(abs(b - a) for a, b in zip(course, course[1:]))
    if abs(apart) > max(_MOST_APART_BYTES, _MOST_APART * moved):
        return
    for (t, _), change in zip(looks[1:-1], course[1:]):
        yield t, before[1] + change + apart * (t - begin) / (end - begin)


def _course(looks: Sequence[_Look], private: dict[int, float]) -> Optional[list[float]]:
    """Return the change of the total at each of *looks*; None if unknown.

    A process that starts or ends changes the sharing of pages. Its private memory was read with PSS (*private*), or is
    derived from its faults.
    """
    total, course = 0.0, [0.0]
    own = dict(private)
    for (_, before), (_, after) in zip(looks, looks[1:]):
        for line in before.keys() | after.keys():
            change = _change(before.get(line), after.get(line), own.get(line))
            if change is None:
                return None
            total += change
            if line not in after:
                own.pop(line, None)
            elif line in own or line not in before:
                own[line] = own.get(line, 0.0) + change
        course.append(total)
    return course


def _change(
    before: Optional[tuple[float, Optional[float]]],
    after: Optional[tuple[float, Optional[float]]],
    own: Optional[float],
) -> Optional[float]:
    """Return the change of the private bytes of the process on a line: *own* before, None if unknown."""
    if after is None:
        return None if own is None else -own
    born = None if after[1] is None else min(after[1] * PAGE, after[0])
    if before is None:
        return born
    if before[1] is None or after[1] is None:
        return after[0] - before[0]
    if after[1] < before[1]:  # another process on the same line
        return None if own is None or born is None else born - own
    grown = after[0] - before[0]
    return grown + max((after[1] - before[1]) * PAGE - max(grown, 0.0), 0.0)
