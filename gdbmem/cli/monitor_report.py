"""The reporting half of `gdbmem monitor`: text, JSON, plots, the exit status."""

from __future__ import annotations

import argparse
import platform
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, TextIO

from gdbmem.cli.monitor import plot_kind
from gdbmem.cli.monitor_outputs import Outputs, prepare_outputs
from gdbmem.exit_status import ExitStatus
from gdbmem.model.series import TREE, Mark
from gdbmem.model.series_summary import LineSummary, SeriesSummary
from gdbmem.model.verdict import Verdict
from gdbmem.monitoring.triggers import trigger_text, triggers_of
from gdbmem.series.store import Recording
from gdbmem.series.summary import judged_points, summarize
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.report.series.series_plot import Curve, Picture
    from gdbmem.runs.run import Run

_OUR_ENDINGS = ("time", "quit", None)  # after which we end the program; a run of before says nothing of it
_OUR_STATUSES = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
_MOST_CURVES = 7
_MOST_ABOVE = 3
_THINNED_FROM_SECONDS = 3600.0
_MOST_CPU_POINTS, _LEAST_CPU_SECONDS = 150, 1.0
_LEAST_CPU_PERCENT = 10.0  # less of a difference is worth no panel
_STEP_WORTH_BYTES = 1 << 20  # to look for its cause


def report(folders: Sequence[Path], args: argparse.Namespace) -> int:
    """Judge the runs in *folders* again; return the exit status."""
    with prepare_outputs(args) as outputs:
        recordings = [Recording(folder) for folder in folders]
        return _report(recordings, args, outputs, status=0)


def show_series(folder: Path, args: argparse.Namespace, stream: TextIO) -> None:
    """Print the series in *folder* as *args*, those of `gdbmem show`, say."""
    _report(
        [Recording(folder)],
        argparse.Namespace(**{**vars(args), "fail_on": None, "resolve": None}),
        Outputs(stream, None),
        status=0,
    )


def report_recorded(
    run: Run,
    args: argparse.Namespace,
    outputs: Outputs,
    *,
    status: int,
    program: Optional[Sequence[str]] = None,
) -> int:
    """Report what has just been recorded in *run*; return the exit status."""
    return _report([Recording(run.folder)], args, outputs, status=status, program=program)


def _report(
    recordings: Sequence[Recording],
    args: argparse.Namespace,
    outputs: Outputs,
    *,
    status: int,
    program: Optional[Sequence[str]] = None,
) -> int:
    summaries = [
        replace(summarize(recording), resolve_bytes_per_second=args.resolve) for recording in recordings
    ]
    if outputs.plot is not None:
        from gdbmem.report.series import series_plot

        picture = picture_of(recordings, summaries)
        draw = series_plot.svg if plot_kind(args.plot) == "svg" else series_plot.html
        outputs.plot.write(draw(picture))
    several = (
        args.json and len(recordings) > 1
    )  # then an array of documents: two after each other are no JSON
    outputs.text.write("[\n" * several)
    for number, (recording, summary) in enumerate(zip(recordings, summaries)):
        commands = next_commands(recording, summary, program)
        if args.json:
            from gdbmem.report.series.series_json import write_series_json

            outputs.text.write(",\n" * (number > 0))
            write_series_json(
                outputs.text,
                summary,
                recording.samples(),
                recording.marks,
                recording.lines,
                next_commands=commands,
                triggers=triggers_of(recording.folder),
            )
        else:
            _print(recording, summary, args, outputs.text, commands)
    outputs.text.write("]\n" * several)
    return judged_status(recordings, summaries, args.fail_on, status)


def _print(
    recording: Recording,
    summary: SeriesSummary,
    args: argparse.Namespace,
    stream: TextIO,
    commands: Sequence[str],
) -> None:
    from gdbmem.analysis.series.statistics import thinned
    from gdbmem.report.console import make_console, print_sentence
    from gdbmem.report.series.series_text import print_course, print_summary

    console = make_console(stream, color=False if args.no_color else None)
    times, values = thinned(judged_points(recording)[0], 1000)
    print_course(times, values, console, marks=recording.marks)
    print_summary(summary, console, next_commands=commands)
    for trigger in triggers_of(recording.folder):
        print_sentence(console, trigger_text(trigger))
    print_sentence(console, f"recorded in {printable(recording.folder.name)}", "dim")


def judged_status(
    recordings: Sequence[Recording],
    summaries: Sequence[SeriesSummary],
    fail_on: Optional[tuple[str, float]],
    status: int,
) -> int:
    """Return the exit status for what was recorded; of a program that failed it is said on the standard error."""
    from gdbmem.runs.run import open_run

    known = {"status": status}  # where the run could not be written to
    failures = [failure_of({**known, **open_run(recording.folder).facts}) for recording in recordings]
    failure = next((failure for failure in failures if failure), 0)
    result = exit_status([summary.verdict for summary in summaries], fail_on, status, failure=failure)
    if fail_on is not None and failure:
        name = printable(recordings[failures.index(failure)].facts.target)
        print(f"gdbmem: {name} failed: it ended with status {failure}", file=sys.stderr)
    return result


def failure_of(facts: Mapping[str, Any]) -> int:
    """Return the status of the program of a run, by the *facts* of that, where it failed by itself, else 0."""
    status = facts.get("status")
    if not isinstance(status, int) or (facts.get("ending") in _OUR_ENDINGS and status in _OUR_STATUSES):
        return 0
    return status


def exit_status(
    verdicts: Sequence[Verdict], fail_on: Optional[tuple[str, float]], status: int, *, failure: int = 0
) -> int:
    """Return 4 where *fail_on* is met, else *failure*, else 125 where no verdict could be reached, else 0.

    Without *fail_on* it is *status*.
    """
    if fail_on is None:
        return status
    if any(is_met(verdict, *fail_on) for verdict in verdicts):
        return ExitStatus.NOT_MET
    if failure:
        return failure
    if fail_on[0] != "inconclusive" and any(_leaves_open(verdict, fail_on[0]) for verdict in verdicts):
        return ExitStatus.FAILED
    return 0


def _leaves_open(verdict: Verdict, kind: str) -> bool:
    return verdict.kind == "inconclusive" or (kind == "growing" and verdict.floor == "unclear")


def is_met(verdict: Verdict, kind: str, least: float) -> bool:
    """Tell whether *verdict* is of *kind* and at least *least* bytes per second steep."""
    hit = verdict.grows if kind == "growing" else verdict.kind == kind
    steep = abs(verdict.slope.value) >= least if verdict.slope is not None else least == 0
    return hit and steep


def picture_of(
    recordings: Sequence[Recording], summaries: Sequence[SeriesSummary], *, first_group: int = 0
) -> Picture:
    """Return the picture of one recording with its processes, or of several, overlaid.

    With *first_group* the first so many recordings are one group, the others another one.
    """
    from gdbmem.analysis.series.statistics import thinned
    from gdbmem.report.series.series_plot import Curve, Panel, Picture
    from gdbmem.report.series.series_text import METRIC_NAMES, headline

    curves, threads, cpu = [], [], []
    for number, (recording, summary) in enumerate(zip(recordings, summaries)):
        name = METRIC_NAMES[summary.metric] if len(recordings) == 1 else recording.folder.name
        group = int(number >= first_group) if first_group else None
        if group is not None:
            name = summary.facts.target
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
    marks = [*recordings[0].marks, *_marks_of(triggers)] if len(recordings) == 1 else []
    interval = max(summary.facts.interval_seconds for summary in summaries)
    gaps = any(summary.gaps for summary in summaries)
    gap = max(5 * interval, 0.5, *_spacing(curves)) if gaps else 1e18
    panels = [Panel("threads", threads, gap)] if _range_of(threads) else []
    panels += [Panel("CPU, % of one", cpu)] if _range_of(cpu) >= _LEAST_CPU_PERCENT else []
    return Picture(
        title, curves, sorted(marks, key=lambda m: m.t), sentences, gap, _origin(summaries), panels
    )


def _marks_of(triggers: Sequence[Mapping[str, Any]]) -> list[Mark]:
    return [Mark(trigger["t"], f"{trigger['when']}: {trigger['do']}") for trigger in triggers]


def _range_of(curves: Sequence[Curve]) -> float:
    """Return how far apart the counts of all *curves* are: what never changes, in no run, is worth no panel."""
    counts = [count for curve in curves for count in curve.values]
    return max(counts) - min(counts) if counts else 0.0


def _cpu_percent(recording: Recording) -> tuple[list[float], list[float]]:
    """Return how busy the tree was, percent of one CPU, over stretches for which the kernel's ticks are fine enough."""
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
    return times, percents


def _origin(summaries: Sequence[SeriesSummary]) -> str:
    """Return when the first was recorded, and where if that was since this machine started."""
    from gdbmem.linux.monitoring.clock import boot_id

    facts = summaries[0].facts
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.began))
    here = facts.boot_id and facts.boot_id == boot_id()
    machine = f"{platform.node()}, Linux {platform.release()}, " if here else ""
    return f"{machine}{when}"


def _spacing(curves: Sequence[Curve]) -> list[float]:
    # A thinned curve has longer ways from point to point: these are no gaps.
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
        _curve(recording, row.line.number, metric, f"{row.line.name} {row.line.pid}") for row in biggest
    ]
    absent = {
        f"{r.line.name} {r.line.pid}": _absences(recording, r.line.number) for r in biggest if r.line.respawns
    }
    return [
        replace(curve, absences=absent[curve.name]) if curve.name in absent else curve for curve in curves
    ]


def _workers(rows: Sequence[LineSummary]) -> list[LineSummary]:
    """Return the children of one process that have one name, where there are several: the largest such group."""
    groups: dict[tuple[int, str], list[LineSummary]] = {}
    for row in rows:
        if row.line.parent != TREE:
            groups.setdefault((row.line.parent, row.line.name), []).append(row)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def _band(recording: Recording, workers: Sequence[LineSummary], metric: str) -> Curve:
    """Return what *workers* hold of their own together; nothing where there is none of them."""
    from gdbmem.analysis.series.statistics import thinned
    from gdbmem.report.series.series_plot import Curve

    sizes = {t: 0.0 for t, _ in recording.points(TREE, "pss_bytes" if metric == "uss_bytes" else "threads")}
    there: Counter[float] = Counter()  # how many at each look
    for row in workers:
        for t, size in recording.points(row.line.number, metric):
            if t in sizes:
                sizes[t] += size
                there[t] += 1
    # One that is born before another has gone begins a line of its own: there may be more lines than workers.
    most = max(there.values(), default=0)
    comes_and_goes = most < len(workers) or any(row.line.respawns for row in workers)
    name = (
        f"{workers[0].line.name}, {most} at a time"
        if comes_and_goes
        else f"{workers[0].line.name}, {len(workers)}"
    )
    return Curve(name, *thinned(sorted(sizes.items()), 2000), is_thin=True)


def _absences(recording: Recording, line: int) -> list[float]:
    """Return when the tree was looked at, and no process was on *line*."""
    looks = recording.looks()
    present = {t for t, _ in recording.points(line, "rss_bytes")}
    # Of older looks each line keeps others (they are thinned): there, a missing one says nothing.
    return [t for t in looks if t not in present and looks[-1] - t < _THINNED_FROM_SECONDS]


def _curves_of_cgroup(recording: Recording, summary: SeriesSummary) -> list[Curve]:
    cgroup, peak = summary.cgroup, summary.peak_bytes
    if cgroup is None or peak is None:
        return []
    near = _MOST_ABOVE * peak  # what is far above would press the course itself flat
    curves = []
    if cgroup.peak_bytes <= near:
        curves.append(_curve(recording, TREE, "cgroup_bytes", "cgroup"))
    if cgroup.limit_bytes is not None and cgroup.limit_bytes <= near:
        curves.append(_curve(recording, TREE, "cgroup_limit_bytes", "its limit"))
    return curves


def _curve(recording: Recording, line: int, metric: str, name: str) -> Curve:
    from gdbmem.analysis.series.statistics import thinned
    from gdbmem.report.series.series_plot import Curve

    times, values = thinned(recording.points(line, metric), 2000)
    return Curve(name, times, values, is_thin=True)


def next_commands(
    recording: Recording, summary: SeriesSummary, program: Optional[Sequence[str]] = None
) -> list[str]:
    """Return what to type next where memory grows, chosen by what grew; only commands that exist."""
    from gdbmem.cli.main import SUBCOMMANDS
    from gdbmem.linux.processes import stat_of

    stepped_up = (summary.verdict.step_bytes or 0) >= _STEP_WORTH_BYTES
    if not (summary.verdict.grows or stepped_up):
        return []
    lines = [row for row in summary.lines if row.last_bytes is not None and row.first_bytes is not None]
    if not lines:
        return []
    line = max(lines, key=lambda row: (row.last_bytes or 0) - (row.first_bytes or 0)).line
    stat = stat_of(line.pid)
    alive = stat is not None and stat.start_ticks == line.start_ticks
    if alive:
        python = [f"gdbmem python {line.pid}"] if "python" in SUBCOMMANDS else []
        return [*python * line.name.startswith("python"), f"gdbmem explain {line.pid}"]
    if not program:
        return []
    words = [shlex.quote(word) for word in program]
    arguments = f" -- {' '.join(words[1:])}" if words[1:] else ""
    return [f"gdbmem launch --massif {words[0]}{arguments}"]
