"""Recordings of memory over time: the verdict on one, the comparison of two groups."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Union

from gdbmem.errors import InputError, Notice
from gdbmem.files import location
from gdbmem.formats.series import RecordedSeries, read_series, series_tool
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

# Series of other tools, converted to temporary recordings.


_NO_PROCESS = 0


@contextlib.contextmanager
def recorded(operands: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the run folders of *operands*, runs or files of other tools; raises InputError for a damaged one."""
    with contextlib.ExitStack() as stack:
        yield [
            _run_of(path, stack) if not is_run(path) and is_series_file(path) else path for path in operands
        ]


def is_series_file(path: Path) -> bool:
    """Return whether the file at *path* is a series that another tool recorded."""
    return location(path).is_file() and series_tool(path) is not None


def _run_of(path: Path, stack: contextlib.ExitStack) -> Path:
    series = read_series(path)
    above = stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbmem-"))
    run = Run.create(series.target, parent=Path(above), pid=0, folder=Path(above) / path.name)
    run.update()  # now it is a run
    _write(run.folder, series)
    return run.folder


def _write(folder: Path, series: RecordedSeries) -> None:
    times = [t for t, _ in series.points]
    spacing = median(b - a for a, b in zip(times, times[1:])) if len(times) > 1 else 1.0
    facts = SeriesFacts(
        f"{series.target} ({series.tool})", spacing, series.began, "", 0.0, unknown_samples=series.unknown
    )
    writer = SeriesWriter(folder, facts)
    try:
        line = SeriesLine(1, _NO_PROCESS, 0, series.target, "", TREE, 0.0)
        writer.extend([(t, round(size)) for t, size in series.points], line)
    finally:
        writer.close()


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
