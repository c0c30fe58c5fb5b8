"""The history of a series of totals: in the columns of a chart, its trend, and the verdict on it in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.model.calltree import Profile, Totals
from gdbmem.profiles.own_code import share
from gdbmem.text import format_size, format_time


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


# The verdict on the history of a file's totals, up to its peak and to its end.


JUMPED, LEVELLED, ROSE, SPIKE, FLAT = "at-once", "settled", "rose", "spike", "flat"

_COURSE_COLUMNS = 60  # number of intervals of equal time into which a history is divided
_EARLY = 3  # columns: growth that begins there begins with the program
_FEWEST = 5  # snapshots: fewer are not judged
_FLAT_PART = 0.05  # of the peak: a smaller change is flat
_NARROW = 0.2  # of the time: larger than half of the peak for less time is a spike
_NEARLY = 0.9  # of the peak
_GONE = 0.5  # of the peak: an end below this has released it
_LINE = 0.2  # of the growth: the largest distance from a line
_FEWEST_STEPS = 4  # that make a line
_SHORTEST_LINE = 12  # columns
_LARGE_PART = 0.4  # of all growth: what is on the line
_OVERHEAD = 0.5  # of the heap: allocator overhead that is worth reporting

_KINDS = {STEADY: GREW, AT_ONCE: JUMPED, SETTLED: LEVELLED, UNEVEN: ROSE}


class ProfileCourse(NamedTuple):
    """The verdict on the totals of a file."""

    to_peak: str  # GREW (steadily), JUMPED, LEVELLED, ROSE (unevenly), SPIKE or FLAT
    kept: float  # fraction of the peak that is held in the last snapshot
    overhead: float  # the allocator's overhead at the peak as a fraction of the heap
    since: Optional[float] = None  # when it began to grow steadily; None: at the beginning, or it did not

    @property
    def has_overhead(self) -> bool:
        return self.overhead >= _OVERHEAD


def course_of(snapshots: Sequence[Totals]) -> Optional[ProfileCourse]:
    """Return the verdict on *snapshots*; None if they are too few, or empty."""
    if len(snapshots) < _FEWEST:
        return None
    peak = max(snapshots, key=lambda totals: totals.total_bytes)
    if not peak.total_bytes:
        return None
    kept = snapshots[-1].total_bytes / peak.total_bytes
    overhead = peak.extra_bytes / peak.heap_bytes if peak.heap_bytes else 0.0
    kind, since = _course_kind(snapshots, kept)
    late = _without_lead(snapshots, peak.total_bytes)
    if kind == ROSE and _FEWEST <= len(late) < len(snapshots):  # in few columns, after a long start
        of_late, late_since = _course_kind(late, kept)
        if of_late == GREW:
            kind, since = GREW, late[0].time if late_since is None else late_since
    return ProfileCourse(kind, kept, overhead, since)


def _without_lead(snapshots: Sequence[Totals], top: int) -> Sequence[Totals]:
    """Return *snapshots* from the first on that holds more than what is flat."""
    first = next(at for at, totals in enumerate(snapshots) if totals.total_bytes >= _FLAT_PART * top)
    return snapshots[first:]


def _course_kind(snapshots: Sequence[Totals], kept: float) -> tuple[str, Optional[float]]:
    """Return the kind of the course, and the time from which it grew steadily if that is not its beginning."""
    kind, start = _kind_of_columns(
        [column.total_bytes for column in columns_of(snapshots, _COURSE_COLUMNS)], kept
    )
    span = snapshots[-1].time - snapshots[0].time
    return kind, snapshots[0].time + start * span / _COURSE_COLUMNS if start else None


def _kind_of_columns(columns: Sequence[int], kept: float) -> tuple[str, int]:
    """Return the kind of the course, and the column from which it grew steadily; 0: the first, or it did not."""
    top = max(columns)
    at = columns.index(top)
    # Nothing is allocated before a program begins: if it starts with memory that it keeps, that is its level.
    if top - min(columns[: at + 1] or [0]) < _FLAT_PART * top:
        return FLAT, 0
    high = [number for number, size in enumerate(columns) if size > _GONE * top]
    if kept < _GONE and high[-1] - high[0] < _NARROW * len(columns) and high[-1] < len(columns) - 2:
        return SPIKE, 0
    to_peak = columns[: at + 1]
    if len(to_peak) < 3:
        return JUMPED, 0
    last = max(number for number, size in enumerate(columns) if size >= _NEARLY * top)
    held = columns[: last + 1]  # up to the release
    start = _start_of_line(floor_of(held))
    if start is not None:
        return GREW, start
    return _KINDS.get(judge(held).kind, _KINDS.get(judge(to_peak).kind, ROSE)), 0


def _start_of_line(floor: Sequence[int]) -> Optional[int]:
    """Return the column from which *floor* grows along a line up to its end; None if it does not."""
    for start in range(max(len(floor) - _SHORTEST_LINE, 0)):
        if floor[-1] - floor[start] < _LARGE_PART * (floor[-1] - floor[0]):
            break
        if _is_line(floor[start:]):
            start = max(at for at, size in enumerate(floor) if size == floor[start])
            step = (len(floor) - start) / _steps(floor[start:])
            return start if start > max(_EARLY, 1.5 * step) else 0
    return None


def _steps(floor: Sequence[int]) -> int:
    return sum(before < after for before, after in zip(floor, floor[1:]))


def _is_line(floor: Sequence[int]) -> bool:
    gain, last = floor[-1] - floor[0], len(floor) - 1
    steps = _steps(floor)
    # A line gains twice as much in its last third.
    if steps < _FEWEST_STEPS or floor[-1] - floor[-len(floor) // 3] < gain / 6:
        return False
    allowed = gain * max(_LINE, 1 / steps + 0.05)  # a staircase is off by a step
    return all(abs(size - floor[0] - gain * at / last) <= allowed for at, size in enumerate(floor))


# The history of a heap profile in sentences: its peak, and how it got there.


_SAME = "stayed about the same"
_COURSES = {
    GREW: "it grew steadily up to the peak",
    JUMPED: "most of it came at once",
    LEVELLED: "it grew and settled",
    ROSE: "it grew unevenly",
    SPIKE: "that is a spike",
    FLAT: f"it {_SAME}",
}


def peak_sentence(profile: Profile) -> str:
    """Return where the peak of *profile* is, the tree nearest to it, and the error of the tool's own mark."""
    if not profile.snapshots:
        return "the file holds no snapshot"
    peak = profile.snapshots[profile.peak_index]
    when = format_time(peak.time, profile.time_unit)
    text = f"peak: {format_size(peak.total_bytes)} in snapshot {peak.index}, at {when}"
    return f"{text}{_nearest_tree(profile, peak)}{_own_mark(profile, peak)}"


def course_sentence(profile: Profile) -> str:
    """Return how *profile* reached its peak, and the part left at the end; "" if it has too few snapshots."""
    course = course_of(profile.snapshots)
    if course is None:
        return ""
    peak = profile.snapshots[profile.peak_index]
    last = profile.snapshots[-1]
    left = "all" if course.kept == 1 else share(last.total_bytes, peak.total_bytes)
    how = _COURSES[course.to_peak]
    if course.since is not None:
        how = f"it grew steadily from {format_time(course.since, profile.time_unit)} on"
    if course.to_peak == FLAT and profile.snapshots[0].total_bytes * 2 < peak.total_bytes:
        how = f"it came at the beginning, and {_SAME}"
    # Massif takes no snapshot when the program ends: what that frees last is in none.
    text = f"history: {how}; {left} of the peak is held in its last snapshot"
    if course.has_overhead:
        size = f"{format_size(peak.extra_bytes)} beside {format_size(peak.heap_bytes)} of heap"
        text += f"; allocator overhead is large, {size} at the peak: very many small blocks"
    return text


def _nearest_tree(profile: Profile, peak: Totals) -> str:
    if profile.peak_tree_index is None:
        return "; no snapshot has a call tree"
    tree = profile.snapshots[profile.peak_tree_index]
    if tree.index == peak.index:
        return ", with a call tree"
    size = format_size(tree.total_bytes)
    part = share(tree.total_bytes, peak.total_bytes)
    return f"; the largest call tree is that of snapshot {tree.index}, with {size} ({part} of the peak)"


def _own_mark(profile: Profile, peak: Totals) -> str:
    if profile.marked_peak_index is None:
        return ""
    marked = profile.snapshots[profile.marked_peak_index]
    if marked.total_bytes == peak.total_bytes:
        return ""
    percent = 100 * (1 - marked.total_bytes / peak.total_bytes)
    return f"; {profile.source_format}'s own mark is on snapshot {marked.index}, which is {percent:.1f} % smaller"
