"""The reporting half of `gdbmem monitor`: text, JSON, plots, the exit status."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Optional, TextIO

from gdbmem.api import series
from gdbmem.gates.reports import Gate, Judged, measured_peaks
from gdbmem.model.judgement import MET, NOT_MET, Judgement, exit_status
from gdbmem.model.series import SeriesLine, SeriesSummary
from gdbmem.series import charts
from gdbmem.series.black_box import black_box_document, black_box_of, black_box_sentences
from gdbmem.series.document import write_series_json
from gdbmem.series.filling import HUGETLB
from gdbmem.series.text import print_course, print_summary
from gdbmem.terminal.console import Outputs, make_console, picture_kind, prepare_outputs, print_sentence
from gdbmem.terminal.document import judgement_line
from gdbmem.text import printable

# The exit status of a monitor, from its judgements and the program's own status.


def judged_status(judgements: Sequence[Judgement], status: int) -> int:
    """Return the exit status: of a gate that of *judgements*, with the reason on the standard error; else *status*."""
    if not judgements:
        return status
    for one in judgements:
        if one.judged != MET:
            outcome = "not met" if one.judged == NOT_MET else "not judged"
            print(f"gdbmem: {outcome}: {one.sentence}", file=sys.stderr)
    return exit_status(judgements)


_STEP_WORTH_BYTES = 1 << 20  # to find its cause


def report(folders: Sequence[Path], args: argparse.Namespace, gate: Gate) -> int:
    """Judge the runs in *folders* again, into *gate*; return the exit status."""
    with prepare_outputs(args) as outputs:
        recordings = [series.Recording(folder) for folder in folders]
        return _report(recordings, args, outputs, gate, status=0)


def show_series(folder: Path, args: argparse.Namespace, stream: TextIO) -> None:
    """Print the series in *folder* according to *args*, those of `gdbmem show`."""
    _report(
        [series.Recording(folder)],
        argparse.Namespace(**{**vars(args), "fail_on": None, "resolve": None}),
        Outputs(stream, None),
        Gate("show"),
        status=0,
    )


def report_recorded(
    folder: Path,
    args: argparse.Namespace,
    outputs: Outputs,
    gate: Gate,
    *,
    status: int,
    program: Optional[Sequence[str]],
) -> int:
    """Report the recording just made in *folder*, and judge it into *gate*; return the exit status."""
    return _report([series.Recording(folder)], args, outputs, gate, status=status, program=program)


def _report(
    recordings: Sequence[series.Recording],
    args: argparse.Namespace,
    outputs: Outputs,
    gate: Gate,
    *,
    status: int,
    program: Optional[Sequence[str]] = None,
) -> int:
    summaries = [
        series.summary_of(recording)._replace(resolve_bytes_per_second=args.resolve)
        for recording in recordings
    ]
    if outputs.plot is not None:
        outputs.plot.write(_drawn(recordings, summaries, picture_kind(args.plot, "--plot")))
    judgements = series.judge_recordings(recordings, summaries, args.fail_on, status=status)
    gate.judged += [*map(Judged, chain(*judgements)), *measured_peaks(summaries)]
    several = args.json and len(recordings) > 1  # as an array: two consecutive documents are not valid JSON
    outputs.text.write("[\n" * several)
    for number, (recording, summary, own) in enumerate(zip(recordings, summaries, judgements)):
        commands = next_commands(recording, summary, program)
        if args.json:
            outputs.text.write(",\n" * (number > 0))
            write_series_json(
                outputs.text,
                summary,
                recording.samples(),
                recording.marks,
                recording.lines,
                next_commands=commands,
                triggers=series.triggers_of(recording.folder),
                black_box=black_box_document(black_box_of(recording.folder)),
                judgements=own,
            )
        else:
            _print(recording, summary, args, outputs.text, commands, own)
    outputs.text.write("]\n" * several)
    return judged_status(list(chain(*judgements)), status)


def _drawn(recordings: Sequence[series.Recording], summaries: Sequence[SeriesSummary], kind: str) -> str:
    if kind == "svg":
        return charts.svg(series.picture_of(recordings, summaries))
    from gdbmem.cli.report_documents import recorded_page  # with the page's own
    from gdbmem.page.page import render  # with it

    return render(recorded_page(recordings, summaries))


def _print(
    recording: series.Recording,
    summary: SeriesSummary,
    args: argparse.Namespace,
    stream: TextIO,
    commands: Sequence[str],
    judgements: Sequence[Judgement],
) -> None:
    console = make_console(stream, color=args.color)
    times, values = series.thinned(series.judged_points(recording)[0], 1000)
    print_course(times, values, console, marks=recording.marks)
    print_summary(summary, console, next_commands=commands)
    for trigger in series.triggers_of(recording.folder):
        print_sentence(console, series.trigger_text(trigger))
    box = black_box_of(recording.folder)
    for sentence in black_box_sentences(box) if box is not None else ():
        print_sentence(console, sentence)
    for judgement in judgements:
        print_sentence(console, judgement_line(judgement), "bold")
    print_sentence(console, f"recorded in {printable(recording.folder.name)}", "dim")


def next_commands(
    recording: series.Recording, summary: SeriesSummary, program: Optional[Sequence[str]] = None
) -> list[str]:
    """Return suggested commands: if memory grows, chosen by the component that grew; if troughs were missed, marks."""
    words = [shlex.quote(word) for word in program or ()]
    if program and summary.verdict.floor == "unclear" and not recording.marks:
        return [f"gdbmem monitor --mark REGEX -- {' '.join(words)}"]  # a sample at the end of each tooth
    stepped_up = (summary.verdict.step_bytes or 0) >= _STEP_WORTH_BYTES
    if not (summary.verdict.grows or stepped_up):
        return []
    lines = [row for row in summary.lines if row.last_bytes is not None and row.first_bytes is not None]
    if not lines:
        return []
    line = max(lines, key=lambda row: (row.last_bytes or 0) - (row.first_bytes or 0)).line
    is_python = line.name.startswith("python")
    if series.still_runs(line):
        python = [f"gdbmem python objects {line.pid}"] if is_python else []
        return [*python, f"gdbmem explain {line.pid}"]
    if not program:
        return []
    if own := _words_of(line, program):
        launcher = words[: len(words) - own]
        return [" ".join([*launcher, "gdbmem grow --", *words[len(launcher) :]])]
    if is_python or HUGETLB in summary.beside:  # massif sees neither objects in Python's arenas nor these
        return [" ".join(["gdbmem grow --", *words])]
    arguments = f" -- {' '.join(words[1:])}" if words[1:] else ""
    return [f"gdbmem launch --massif {words[0]}{arguments}"]


def _words_of(line: SeriesLine, program: Sequence[str]) -> int:
    """Return how many words at the end of *program*, such as mpirun, are the command of *line*, a child; 0: none."""
    own = line.command.split(" ")
    ends = list(program[-len(own) :])
    is_same = ends[1:] == own[1:] and ends[0].rpartition("/")[2] == own[0].rpartition("/")[2]
    return len(own) if line.parent and len(own) < len(program) and is_same else 0
