"""Summaries of recordings on disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.series import (
    TREE,
    CgroupSummary,
    Component,
    LineSummary,
    Mark,
    SeriesLine,
    SeriesSummary,
    Spike,
    Verdict,
)
from gdbmem.series.filling import (
    FAMILY,
    HUGETLB,
    Filled,
    judged_metric,
    total_points,
    with_beside,
    without_others,
)
from gdbmem.series.gate import outside_of
from gdbmem.series.levelling import beside_heap, heap_bytes, left_by_each
from gdbmem.series.statistics import thinned, without_teardown
from gdbmem.series.store import Recording
from gdbmem.series.verdict import judge
from gdbmem.text import format_delta, format_duration, plural

_COMPONENTS = {
    "anonymous": "anonymous_bytes",
    "file": "file_bytes",
    "shared memory": "shmem_bytes",
    "[heap]": "heap_bytes",
    "swap": "swap_bytes",
}
_LEAST_SPIKE_BYTES, _LEAST_SPIKE = 4 << 20, 0.1
_TICKS = 100  # a second, of the kernel's clock for start times
_GAP = 5  # intervals without a sample
_LEAST_BY_OTHERS = 0.01  # of the total, to be reported
_MOST_NAMED = 5  # processes in a command to type
_MOST_LINES = 200  # that get a separate row


def summarize(recording: Recording) -> SeriesSummary:
    """Return the summary of *recording*."""
    metric = judged_metric(recording)
    looks, gaps = _looks(recording)
    filled = judged_points(recording)
    times, values = thinned(filled.points)
    verdict = _judged(filled, metric, recording.marks)
    if not recording.lines:
        verdict = verdict._replace(evidence="there was no process to watch")
    begin = filled.points[0][0] if filled.points else -math.inf
    end = filled.points[-1][0] if filled.points and _has_ended(recording) else math.inf
    lines = [_line(recording, one, begin, end) for one in recording.lines[:_MOST_LINES]]
    verdict = _with_heap(verdict, recording, lines)
    cgroup = _cgroup(recording)
    outside = outside_of(recording)
    beside = [name for name, _ in filled.beside]
    last = values[-1] if values else None
    return SeriesSummary(
        facts=recording.facts,
        metric=metric,
        seconds=looks[-1] - looks[0] if looks else 0.0,
        samples=len(looks),
        beside=beside,
        outside=outside,
        looks_by_rss=filled.by_rss,
        looks_by_cgroup=filled.by_cgroup,
        reads_of_pss=len(recording.values(TREE, "pss_bytes")),
        first_bytes=values[0] if values else None,
        last_bytes=values[-1] if values else None,
        peak_bytes=_peak(recording, metric, values),
        spikes=_spikes(recording) if len(recording.lines) > 1 else (),
        verdict=verdict,
        lines=lines,
        components=_components(recording, end),
        threads_started=_threads_started(recording, lines),
        copied_bytes=_counter(recording, "copied_bytes"),
        copiers=_counter(recording, "copiers"),
        torn_rounds=_counter(recording, "torn_rounds") or 0,
        gaps=gaps,
        # The pool of hugetlb pages has a limit of its own.
        seconds_to_limit=None if HUGETLB in beside else _time_left(recording, verdict, cgroup, last),
        notices=_notices(recording, gaps),
        cgroup=cgroup,
        left_by_thread_bytes=left_by_each(
            list(zip(times, values)), list(recording.points(TREE, "threads_started"))
        ),
        cpu_seconds=_used(recording, "cpu_seconds"),
        gpu_peak_bytes=max(recording.values(TREE, "gpu_bytes"), default=None),
    )


def _judged(filled: Filled, metric: str, marks: Sequence[Mark]) -> Verdict:
    """Return the verdict on what the processes themselves did."""
    times, values = thinned(without_others(filled.points, filled.by_others))
    verdict = judge(times, values, metric=metric, marks=marks)
    if filled.beside:
        counted = " and ".join(f"{name} {format_delta(change)}" for name, change in filled.beside)
        verdict = verdict._replace(evidence=f"{verdict.evidence}; this includes {counted}, which RSS lacks")
    change = filled.by_others[-1][1] if filled.by_others else 0.0
    if not values or abs(change) < _LEAST_BY_OTHERS * values[-1]:
        return verdict
    others = (
        f"not counted: {format_delta(change)} of PSS beyond what RSS and page faults can have changed, because other"
        " programs share these pages"
    )
    return verdict._replace(evidence=f"{verdict.evidence}; {others}")


def _with_heap(verdict: Verdict, recording: Recording, lines: Sequence[LineSummary]) -> Verdict:
    """Return *verdict* with the process that has grown most, and a note if it is a JVM."""
    known = [
        (line.last_bytes - line.first_bytes, line.last_bytes, line.line)
        for line in lines
        if line.first_bytes is not None and line.last_bytes is not None
    ]
    if not known:
        return verdict
    change, last, line = max(known, key=lambda one: one[0])
    heap = heap_bytes(line.command, recording.facts.limit_bytes)
    return beside_heap(verdict, name=line.name, heap=heap, change_bytes=change, last_bytes=last)


def _peak(recording: Recording, metric: str, values: Sequence[float]) -> Optional[float]:
    """Return the highest value: for a single process the kernel's own count, which misses no spike."""
    peaks = list(values)
    if metric == "rss_bytes" and len(recording.lines) == 1 and values:
        for line in (TREE, recording.lines[0].number):
            peaks += recording.values(line, "peak_rss_bytes")
    return max(peaks, default=None)


def _spikes(recording: Recording) -> list[Spike]:
    """Return the processes whose RSS was, for less than a look, well above all that was read of it."""
    found = []
    for line in recording.lines[:_MOST_LINES]:
        seen = max(recording.values(line.number, "rss_bytes"), default=None)
        peak = max(recording.values(line.number, "peak_rss_bytes"), default=0.0)
        if seen is not None and peak - seen > max(_LEAST_SPIKE_BYTES, _LEAST_SPIKE * seen):
            found.append(Spike(line, peak))
    highest = max(recording.values(TREE, "peak_rss_bytes"), default=0.0)
    metrics = ("peak_rss_bytes", "rss_bytes")
    known = [v for line in recording.lines for name in metrics for v in recording.values(line.number, name)]
    if highest - max(known, default=0.0) > max(_LEAST_SPIKE_BYTES, _LEAST_SPIKE * highest):
        found.append(Spike(None, highest))
    return sorted(found, key=lambda spike: -spike.rss_bytes)


def judged_points(recording: Recording) -> Filled:
    """Return the times and sizes that the verdict is about.

    The last samples of what has ended, while it was being torn down, are not part of its life.
    """
    line = judged_line(recording)
    filled = total_points(recording) if line == TREE else Filled(list(recording.points(line, "rss_bytes")))
    filled = with_beside(filled, recording, line)
    return filled._replace(points=without_teardown(filled.points)) if _has_ended(recording) else filled


def _has_ended(recording: Recording) -> bool:
    return bool(recording.lines) and all(known.gone is not None for known in recording.lines)


def judged_line(recording: Recording) -> int:
    """Return the line to judge: the tree's; where PSS can't be read, that of the process with the highest peak."""
    if len(recording.lines) <= 1 or judged_metric(recording) != "rss_bytes":
        return TREE
    peaks = {n.number: max(recording.values(n.number, "rss_bytes"), default=0.0) for n in recording.lines}
    return max(peaks, key=peaks.__getitem__)


def _looks(recording: Recording) -> tuple[list[float], list[tuple[float, float]]]:
    looks = recording.looks()
    longest = _GAP * recording.facts.interval_seconds
    last = looks[-1] if looks else 0.0
    # Old rows have been thinned on purpose: a minute is no longer a gap.
    gaps = [
        (a, b) for a, b in zip(looks, looks[1:]) if b - a > max(longest, 0.5, 30.0 if last - a > 3600 else 0.0)
        and b - a > (150.0 if last - a > 86400 else 0.0)
    ]  # fmt: skip
    return looks, gaps


def _threads_started(recording: Recording, lines: Sequence[LineSummary]) -> int:
    # The tree's counter has those of all lines, except the last data of those that died at the end.
    counter = max(recording.values(TREE, "threads_started"), default=0)
    return max(sum(line.threads_started for line in lines), int(counter))


def _line(recording: Recording, line: SeriesLine, begin: float, end: float) -> LineSummary:
    """Return the summary of *line* from *begin* to *end* of the total: the rows add up to what that changed by."""
    metric = recording.total_metric
    values = recording.values(line.number, metric, end)
    peaks = recording.values(line.number, "peak_rss_bytes") if metric == "rss_bytes" and values else []
    first, last = _ends(values, line, begin, end)
    dirty_first, dirty_last = _ends(
        recording.values(line.number, "private_dirty_bytes", end), line, begin, end
    )
    return LineSummary(
        line=line,
        metric=metric,
        first_bytes=first,
        last_bytes=last,
        peak_bytes=max([*values, *peaks], default=None),
        private_dirty_change_bytes=None
        if dirty_first is None or dirty_last is None
        else dirty_last - dirty_first,
        threads_started=int(counted(recording.values(line.number, "threads_started"))),
        most_threads=int(max(recording.values(line.number, "threads"), default=0)),
    )


def _ends(
    values: Sequence[float], line: SeriesLine, begin: float, end: float
) -> tuple[Optional[float], Optional[float]]:
    """Return what the process had at *begin* and *end*: nothing before it was born, nor when it had gone."""
    if not values:
        return None, None
    has_gone = line.gone is not None and line.gone <= end
    return 0.0 if line.born > begin else values[0], 0.0 if has_gone else values[-1]


def counted(values: Iterable[float]) -> float:
    """Return the increase of a counter; a fall means that another process restarted it on its line."""
    total, before = 0.0, 0.0
    for value in values:
        total += value - before if value >= before else value
        before = value
    return total


def _components(recording: Recording, end: float) -> Sequence[Component]:
    found = []
    for name, metric in _COMPONENTS.items():
        _, values = thinned([point for point in recording.points(TREE, metric) if point[0] <= end])
        if len(values) >= 2:
            found.append(Component(name, values[-1] - values[0]))
    return sorted(found, key=lambda component: -abs(component.change_bytes))


def _counter(recording: Recording, metric: str) -> Optional[int]:
    """Return by how much a counter of the tree rose; None if it was not recorded."""
    values = recording.values(TREE, metric)
    return int(counted(values)) if values else None


def _cgroup(recording: Recording) -> Optional[CgroupSummary]:
    used = recording.values(TREE, "cgroup_bytes")
    if not used:
        return None
    peaks = recording.values(TREE, "cgroup_peak_bytes")
    limit, hits = _last(recording, "cgroup_limit_bytes"), _rise(recording, "cgroup_limit_hits")
    known = [*used, *([peaks[-1]] if peaks and peaks[-1] > peaks[0] else [])]  # else it was reached before
    return CgroupSummary(
        last_bytes=used[-1],
        peak_bytes=max([*known, limit] if limit is not None and hits else known),
        cache_bytes=_last(recording, "cgroup_cache_bytes"),
        limit_bytes=limit,
        limit_hits=hits,
        kills=_rise(recording, "cgroup_kills"),
        shmem_bytes=_last(recording, "cgroup_shmem_bytes"),
        slope=_slope_of_cgroup(recording) if limit is not None else None,
    )


def _slope_of_cgroup(recording: Recording) -> Optional[float]:
    """Return how fast the cgroup grows, without what the kernel can drop; None if it doesn't grow steadily."""
    cache = dict(recording.points(TREE, "cgroup_cache_bytes"))
    sizes = [(t, size - cache.get(t, 0.0)) for t, size in recording.points(TREE, "cgroup_bytes")]
    verdict = judge(*thinned(sizes), metric="cgroup_bytes")
    return verdict.slope.value if verdict.grows and verdict.slope is not None else None


def _last(recording: Recording, metric: str) -> Optional[float]:
    values = recording.values(TREE, metric)
    return values[-1] if values else None


def _rise(recording: Recording, metric: str) -> Optional[int]:
    values = recording.values(TREE, metric)
    return int(values[-1] - values[0]) if values else None


def _used(recording: Recording, metric: str) -> Optional[float]:
    # Not the last: with --resume a counter restarts, and its loss is unknown.
    values = recording.values(TREE, metric)
    if not values:
        return None
    return max(values) - (0 if _saw_all_births(recording) else values[0])


def _saw_all_births(recording: Recording) -> bool:
    """Return whether no process is older than the recording, so that counters begin at 0."""
    began = recording.facts.boot_seconds * _TICKS - 1  # the kernel's are whole ticks
    return all(line.start_ticks >= began for line in recording.lines if not line.parent)


def _time_left(
    recording: Recording, verdict: Verdict, cgroup: Optional[CgroupSummary], last: Optional[float]
) -> Optional[float]:
    if cgroup is not None and cgroup.kills:
        return None  # it has been reached
    free, limit = cgroup.free_bytes if cgroup else None, recording.facts.limit_bytes
    if not verdict.grows or verdict.slope is None or verdict.slope.value <= 0 or last is None:
        # Files in memory, or other processes, may fill the cgroup.
        return free / cgroup.slope if cgroup is not None and cgroup.slope and free is not None else None
    if free is None or recording.facts.limit_of == "the machine":
        free = max(limit - last, 0.0) if limit else None
    return None if free is None else free / verdict.slope.value


def _as_root(recording: Recording) -> str:
    """Return the command for the PSS of other users' processes, if they still run."""
    tops = [line.pid for line in recording.lines if not line.parent and line.gone is None]
    if not tops:
        return "run gdbmem as root or as their user"
    more = f" {' '.join(map(str, tops))}" if len(tops) <= _MOST_NAMED else " PID"
    return f"root can read all of it: sudo gdbmem monitor{more}"


def _without_pss(recording: Recording) -> str:
    """Return the sentence on a tree whose PSS is unknown: why, what is judged instead, and what to do."""
    is_torn = bool(max(recording.values(TREE, "torn_rounds"), default=0))
    if not recording.facts.reads_pss:
        why, cure = "was not read", "leave out --pss-budget 0"
    elif is_torn:
        why = "could not be read: processes started or ended during each attempt"
        cure = "'gdbmem monitor -- PROGRAM' measures it in a cgroup of its own, where one may be made"
    else:
        why, cure = "could not be read", _as_root(recording)
    if judged_metric(recording) == FAMILY:
        return f"the PSS of these processes {why}; the anonymous and shared memory of their cgroup is judged"
    return (
        f"the PSS of these processes {why}, so their total memory is unknown "
        f"(shared pages would count several times): the largest process is judged; {cure}"
    )


def _notices(recording: Recording, gaps: Sequence[tuple[float, float]]) -> list[Notice]:
    found = []
    if len(recording.lines) > 1 and recording.total_metric == "rss_bytes":
        found.append(Notice("no-pss", _without_pss(recording)))
    unknown = recording.facts.unknown_samples
    if unknown:
        found.append(Notice("no-number", f"{plural(unknown, 'sample')} without a number left out"))
    if gaps and recording.lines:
        longest = max(b - a for a, b in gaps)
        found.append(
            Notice(
                "series-gap",
                f"nothing was recorded for {format_duration(longest)}"
                if len(gaps) == 1
                else f"nothing was recorded {len(gaps)} times, for {format_duration(longest)} at the longest",
            )
        )
    if len(recording.lines) > _MOST_LINES:
        found.append(
            Notice(
                "many-lines", f"only the first {_MOST_LINES} of {len(recording.lines)} lines are summed up"
            )
        )
    return found
