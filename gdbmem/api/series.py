"""Recordings of memory over time: the verdict on one, the comparison of two groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Union

from gdbmem.errors import InputError, Notice
from gdbmem.linux.process.processes import stat_of
from gdbmem.model.series import TREE, Comparison, SeriesLine, SeriesSummary
from gdbmem.recording.triggers import trigger_text, triggers_of
from gdbmem.runs.ordering import SeriesMoment, SeriesOrder, order_of
from gdbmem.runs.run import open_run
from gdbmem.series import comparison
from gdbmem.series.comparison import Figures, difference_of, levels_of
from gdbmem.series.gate import judge_recordings
from gdbmem.series.imported import is_series_file, recorded
from gdbmem.series.statistics import thinned
from gdbmem.series.store import Recording
from gdbmem.series.summary import judged_points
from gdbmem.series.summary import summarize as summary_of
from gdbmem.text import printable

__all__ = [
    "Recording",
    "compare",
    "compare_recordings",
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
