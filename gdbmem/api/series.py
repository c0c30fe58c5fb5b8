"""Recordings of memory over time: the verdict on one, the comparison of two groups, their pictures."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Optional, Union

from gdbmem.errors import InputError, Notice
from gdbmem.formats.series import is_series_file, read_series
from gdbmem.linux.process.process import stat_of
from gdbmem.model.series import TREE, Comparison, SeriesFacts, SeriesLine, SeriesSummary
from gdbmem.runs.run import Run, current_folder, is_run, open_run
from gdbmem.series import comparison
from gdbmem.series.comparison import Figures, difference_of, levels_of
from gdbmem.series.gate import judge_recordings
from gdbmem.series.statistics import thinned
from gdbmem.series.store import Recording, SeriesWriter, triggers_of
from gdbmem.series.summary import judged_points
from gdbmem.series.summary import summarize as summary_of
from gdbmem.series.text import trigger_text
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.runs.operand import SeriesOrder


import platform
import shlex
import time
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from gdbmem.linux.process.process import boot_id
from gdbmem.model.series import LineSummary, Mark
from gdbmem.series.black_box import black_box_of, black_box_sentences
from gdbmem.series.charts import Curve, Panel, Picture
from gdbmem.series.text import METRIC_NAMES, headline

# Series of other tools, converted to temporary recordings.


_NO_PROCESS = 0


@contextlib.contextmanager
def recorded(operands: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the run folders of *operands*, runs or files of other tools; raises InputError for a damaged one."""
    with contextlib.ExitStack() as stack:
        yield [
            _run_of(path, stack) if not is_run(path) and is_series_file(path) else path for path in operands
        ]


def _run_of(path: Path, stack: contextlib.ExitStack) -> Path:
    series = read_series(path)
    times = [t for t, _ in series.points]
    spacing = median(b - a for a, b in zip(times, times[1:])) if len(times) > 1 else 1.0
    facts = SeriesFacts(
        f"{series.target} ({series.tool})", spacing, series.began, "", 0.0, unknown_samples=series.unknown
    )
    return run_of_one(path.name, series.target, facts, series.points, stack)


def run_of_one(
    name: str,
    target: str,
    facts: SeriesFacts,
    points: Sequence[tuple[float, float]],
    stack: contextlib.ExitStack,
    *,
    gone: Optional[float] = None,
) -> Path:
    """Return a folder called *name* with the recording of one process, (time, bytes); it goes as *stack* is closed.

    *gone* is when the process was found to have ended.
    """
    above = stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbmem-"))
    run = Run.create(target, parent=Path(above), pid=0, folder=Path(above) / name)
    run.update()  # now it is a run
    writer = SeriesWriter(run.folder, facts)
    try:
        writer.extend(
            [(t, round(size)) for t, size in points],
            SeriesLine(1, _NO_PROCESS, 0, target, "", TREE, 0.0, gone),
        )
    finally:
        writer.close()
    return run.folder


__all__ = [
    "Recording",
    "compare",
    "compare_recordings",
    "current_folder",
    "difference_of",
    "in_order",
    "is_series_file",
    "judge_recordings",
    "judged_points",
    "open_run",
    "recorded",
    "still_runs",
    "summarize",
    "summary_of",
    "thinned",
    "trigger_text",
    "triggers_of",
]

Operand = Union[str, "os.PathLike[str]"]


def summarize(operand: Operand) -> SeriesSummary:
    """Return the summary of a recording: its verdict, processes, components and notices.

    *operand* is a run that `gdbmem monitor` recorded, or a file of mprof, psrecord, Prometheus, or a CSV.
    Raises InputError if it holds no series.
    """
    with recorded([Path(operand)]) as (folder,):
        return summary_of(Recording(folder))


def still_runs(line: SeriesLine) -> bool:
    """Return whether the process that was recorded as *line* still runs, under the same pid."""
    stat = stat_of(line.pid)
    return stat is not None and stat.start_ticks == line.start_ticks


def compare(first: Sequence[Operand], second: Sequence[Operand]) -> Comparison:
    """Return how the recordings *second* differ from *first*: peak, floor, slope, threads, each with its interval.

    One recording on each side is enough, but intervals of a difference need several. Raises InputError if a
    recording holds no sample.
    """
    with recorded([Path(operand) for operand in (*first, *second)]) as folders:
        recordings = [Recording(folder) for folder in folders]
        summaries = [summary_of(recording) for recording in recordings]
        return compare_recordings(recordings, summaries, first=len(first))


def in_order(names: Sequence[str], recordings: Sequence[Recording]) -> SeriesOrder:
    """Return the order of *recordings* that were given as *names*: by when they began, or by numbers in the names.

    Of two, the first is what the user compares with.
    """
    from gdbmem.runs.operand import SeriesMoment, SeriesOrder, order_of  # to compare several

    if len(names) < 3:
        return SeriesOrder(range(len(names)))
    began = [recording.facts.began for recording in recordings]
    return order_of(names, [SeriesMoment.of_epoch(seconds) if seconds else None for seconds in began])


def compare_recordings(
    recordings: Sequence[Recording],
    summaries: Sequence[SeriesSummary],
    *,
    first: int,
    notices: Sequence[Notice] = (),
) -> Comparison:
    """Return the Comparison of *recordings*[:first] with the others, given their *summaries*."""
    figures = [_figures(recording, summary) for recording, summary in zip(recordings, summaries)]
    names = [recording.folder.name for recording in recordings]
    found = comparison.compare(figures[:first], figures[first:])
    return Comparison(names[:first], names[first:], found, notices)


def _figures(recording: Recording, summary: SeriesSummary) -> Figures:
    _, values = thinned(judged_points(recording).points)
    if not values:
        raise InputError(
            f"{printable(recording.folder.name)} holds no sample: its program had ended before the first one",
            slug="no-series",
            hint="sample more often (--interval 10ms), or choose a program that runs longer",
        )
    threads = max(recording.values(TREE, "threads"), default=None)
    counts_starts = bool(recording.values(TREE, "threads_started"))
    return Figures(
        *levels_of(values, summary.known_peak_bytes or 0.0),
        summary.verdict.slope,
        most_threads=threads,
        threads_started=summary.threads_started if counts_starts else None,
        threads_per_second=summary.threads_per_second if counts_starts else None,
        wall_seconds=summary.seconds,
        cpu_seconds=summary.cpu_seconds,
        page_faults=max(recording.values(TREE, "minor_faults"), default=None),
        is_settled=summary.verdict.is_conclusive,
    )


# Recordings as curves: one with its processes, or several, overlaid.


_MOST_CURVES = 7
_MOST_ABOVE = 3
_THINNED_FROM_SECONDS = 3600.0
_MOST_CPU_POINTS, _LEAST_CPU_SECONDS = 150, 1.0
_LEAST_CPU_PERCENT = 10.0  # a smaller difference gets no panel


def picture_of(
    recordings: Sequence[Recording], summaries: Sequence[SeriesSummary], *, first_group: int = 0
) -> Picture:
    """Return the picture of one recording with its processes, or of several, overlaid.

    With *first_group* that number of recordings, the first ones, form a group, the others a second one.
    """
    curves, threads, cpu = [], [], []
    groups = _names_of_groups(recordings, summaries, first_group) if first_group else []
    for number, (recording, summary) in enumerate(zip(recordings, summaries)):
        name = METRIC_NAMES[summary.metric] if len(recordings) == 1 else recording.folder.name
        group = int(number >= first_group) if first_group else None
        if group is not None:
            name = groups[group]
        curves.append(Curve(name, *thinned(judged_points(recording)[0], 2000), group=group))
        counts = thinned(recording.points(TREE, "threads"), 2000)
        threads.append(Curve(name, *counts, is_thin=True, group=group))
        cpu.append(Curve(name, *_cpu_percent(recording), is_thin=True, group=group))
    if len(recordings) == 1:
        curves += _curves_of_processes(recordings[0], summaries[0])
        curves += _curves_of_cgroup(recordings[0], summaries[0])
    names = [f"{recording.folder.name}: " if len(recordings) > 1 else "" for recording in recordings]
    sentences = [f"{name}{headline(s.verdict)}: {s.verdict.evidence}" for name, s in zip(names, summaries)]
    title = " / ".join(dict.fromkeys(summary.facts.target for summary in summaries))
    triggers = [trigger for recording in recordings for trigger in triggers_of(recording.folder)]
    sentences += map(trigger_text, triggers)
    boxes = [box for recording in recordings if (box := black_box_of(recording.folder)) is not None]
    sentences += chain.from_iterable(map(black_box_sentences, boxes))
    marks = [*recordings[0].marks, *_marks_of(triggers)] if len(recordings) == 1 else []
    interval = max(summary.facts.interval_seconds for summary in summaries)
    gaps = any(summary.gaps for summary in summaries)
    gap = max(5 * interval, 0.5, *_intervals(curves)) if gaps else 1e18
    panels = [Panel("threads", threads, gap)] if _range_of(threads) else []
    panels += [Panel("CPU, % of one", cpu)] if _range_of(cpu) >= _LEAST_CPU_PERCENT else []
    return Picture(
        title, curves, sorted(marks, key=lambda m: m.t), sentences, gap, _origin(summaries), panels,
        regimes=summaries[0].verdict.regimes if len(summaries) == 1 else (),
    )  # fmt: skip


def _names_of_groups(
    recordings: Sequence[Recording], summaries: Sequence[SeriesSummary], first_group: int
) -> list[str]:
    """Return the names of the two groups: their commands."""
    names = [_command(recordings[at].folder) or summaries[at].facts.target for at in (0, first_group)]
    return (
        [f"{name} ({which})" for name, which in zip(names, ("first", "second"))]
        if names[0] == names[1]
        else names
    )


def _command(folder: Path) -> str:
    """Return the command that a monitor started, as it was typed; "" if it started none."""
    words = open_run(folder).facts.get("monitor") if is_run(folder) else None
    program = words.get("program") if isinstance(words, dict) else None
    return shlex.join(map(str, program)) if isinstance(program, list) else ""


def _marks_of(triggers: Sequence[Mapping[str, Any]]) -> list[Mark]:
    return [Mark(trigger["t"], f"{trigger['when']}: {trigger['do']}") for trigger in triggers]


def _range_of(curves: Sequence[Curve]) -> float:
    """Return the range of the counts of all *curves*: a count that is constant in all runs gets no panel."""
    counts = [count for curve in curves for count in curve.values]
    return max(counts) - min(counts) if counts else 0.0


def _cpu_percent(recording: Recording) -> tuple[list[float], list[float]]:
    """Return the CPU usage of the tree, percent of one CPU, over intervals long enough for the kernel's tick."""
    points = list(recording.points(TREE, "cpu_seconds"))
    times: list[float] = []
    percents: list[float] = []
    if not points:
        return times, percents
    least = max((points[-1][0] - points[0][0]) / _MOST_CPU_POINTS, _LEAST_CPU_SECONDS)
    begin, used = points[0]
    for t, now in points[1:]:
        if t - begin >= least:
            times.append(t)
            percents.append(max(100 * (now - used) / (t - begin), 0.0))
            begin, used = t, now
    return (times, percents) if len(times) > 1 else ([], [])  # one interval is no curve


def _origin(summaries: Sequence[SeriesSummary]) -> str:
    """Return when the first was recorded, and also where, if that was since this machine started."""
    facts = summaries[0].facts
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.began))
    here = facts.boot_id and facts.boot_id == boot_id()
    machine = f"{platform.node()}, Linux {platform.release()}, " if here else ""
    return f"{machine}{when}"


def _intervals(curves: Sequence[Curve]) -> list[float]:
    # The points of a thinned curve are further apart: these are not gaps.
    return [3 * (c.times[-1] - c.times[0]) / len(c.times) for c in curves if len(c.times) > 1]


def _curves_of_processes(recording: Recording, summary: SeriesSummary) -> list[Curve]:
    if len(summary.lines) <= 1:
        return [_curve(recording, TREE, "private_dirty_bytes", "private dirty")]
    metric = "uss_bytes" if summary.metric == "pss_bytes" else "rss_bytes"
    workers = _workers(summary.lines)
    alone = [row for row in summary.lines if row not in workers]
    biggest = sorted(alone, key=lambda row: -(row.peak_bytes or 0))[:_MOST_CURVES]
    curves = [_band(recording, workers, metric)] if workers else []
    curves += [
        _curve(recording, row.line.number, metric, f"{row.line.names} {row.line.pid}") for row in biggest
    ]
    absent = {
        f"{r.line.names} {r.line.pid}": _absences(recording, r.line.number)
        for r in biggest
        if r.line.respawns
    }
    return [
        curve._replace(absences=absent[curve.name]) if curve.name in absent else curve for curve in curves
    ]


def _workers(rows: Sequence[LineSummary]) -> list[LineSummary]:
    """Return the largest group of several children of one process with the same name."""
    groups: dict[tuple[int, str], list[LineSummary]] = {}
    for row in rows:
        if row.line.parent != TREE:
            groups.setdefault((row.line.parent, row.line.name), []).append(row)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def _band(recording: Recording, workers: Sequence[LineSummary], metric: str) -> Curve:
    """Return the sum of the private memory of *workers*; None at times without any of them."""
    sizes = {t: 0.0 for t, _ in recording.points(TREE, "pss_bytes" if metric == "uss_bytes" else "threads")}
    there: Counter[float] = Counter()  # how many at each sample
    for row in workers:
        for t, size in recording.points(row.line.number, metric):
            if t in sizes:
                sizes[t] += size
                there[t] += 1
    # A worker that starts before another has ended begins a new line: there may be more lines than workers.
    most = max(there.values(), default=0)
    comes_and_goes = most < len(workers) or any(row.line.respawns for row in workers)
    name = (
        f"{workers[0].line.name}, {most} at a time"
        if comes_and_goes
        else f"{workers[0].line.name}, {len(workers)}"
    )
    return Curve(name, *thinned(sorted(sizes.items()), 2000), is_thin=True)


def _absences(recording: Recording, line: int) -> list[float]:
    """Return the times of samples of the tree without a process on *line*."""
    looks = recording.looks()
    present = {t for t, _ in recording.points(line, "rss_bytes")}
    # Each line keeps different ones of the older, thinned samples: there, a missing one means nothing.
    return [t for t in looks if t not in present and looks[-1] - t < _THINNED_FROM_SECONDS]


def _curves_of_cgroup(recording: Recording, summary: SeriesSummary) -> list[Curve]:
    cgroup, peak = summary.cgroup, summary.peak_bytes
    if cgroup is None or peak is None:
        return []
    near = _MOST_ABOVE * peak  # a limit far above would flatten the curve itself
    curves = []
    if cgroup.peak_bytes <= near:
        curves.append(_curve(recording, TREE, "cgroup_bytes", "cgroup"))
    if cgroup.limit_bytes is not None and cgroup.limit_bytes <= near:
        curves.append(_curve(recording, TREE, "cgroup_limit_bytes", "its limit"))
    return curves


def _curve(recording: Recording, line: int, metric: str, name: str) -> Curve:
    times, values = thinned(recording.points(line, metric), 2000)
    return Curve(name, times, values, is_thin=True)
