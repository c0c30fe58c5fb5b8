"""Run `gdbmem compare`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from gdbmem.api.series import (
    Recording,
    compare_recordings,
    current_folder,
    in_order,
    judge_recordings,
    picture_of,
    recorded,
    summary_of,
)
from gdbmem.cli.monitor_recording import record_by
from gdbmem.cli.monitor_reporting import judged_status
from gdbmem.commands.arguments import ArgumentParser, split_program
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import Notice, UsageError
from gdbmem.files import spool_operands
from gdbmem.gates.reports import Gate, Judged, ci_files, ci_reports, measured_difference
from gdbmem.series.charts import svg
from gdbmem.series.comparison import comparison_json, print_comparison
from gdbmem.terminal.console import Outputs, make_console, picture_kind, prepare_outputs
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Record if necessary, compare, print."""
    own, commands = split_program(argv)
    args = parser.parse_args(own)
    if args.runs is None:
        args.runs = 5 if args.remedies else 3
    if args.runs < 1:
        raise UsageError("--runs has to be at least 1")
    if args.remedies:
        from gdbmem.cli.compare_remedies import run_remedies  # slow to import

        return run_remedies(args, commands)
    if args.plot:
        picture_kind(args.plot, "--plot")
    args.first = spool_operands(args.first)
    args.second = args.second and spool_operands(args.second)
    with ci_reports(ci_files(args, needs="--fail-on"), "compare") as gate, prepare_outputs(args) as outputs:
        first, second = _given(args) if commands is None else _record(args, commands)
        with recorded([*first, *second]) as folders:
            return _compare(folders[: len(first)], folders[len(first) :], args, outputs, gate)


def _given(args: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    first = [Path(operand) for operand in args.first]
    if args.second is not None and first:
        return first, [Path(operand) for operand in args.second]
    if len(first) < 2:
        raise UsageError("gdbmem compare needs at least two runs", hint="gdbmem compare RUN1 RUN2")
    return first[:1], first[1:]


def _record(args: argparse.Namespace, words: list[str]) -> tuple[list[Path], list[Path]]:
    if len(words) != 3 or words[1] != "--vs" or args.first or args.second:
        raise UsageError(
            "gdbmem compare takes two commands, each as one quoted word",
            hint="gdbmem compare --runs 3 -- './program 8' --vs './program 4'",
        )
    commands = [_words_of(words[0]), _words_of(words[2])]
    folders: tuple[list[Path], list[Path]] = ([], [])
    parser = SHELL_COMMANDS["monitor"].parser()
    for number in range(args.runs):
        # In turn, alternating the order: a slow drift of the machine affects both equally.
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            options = ["--quiet", "--interval", f"{args.interval}s", "--stdout", "/dev/null"]
            options += ["--for", f"{args.duration}s"] if args.duration else []
            folder = _fresh(current_folder() / f"gdbmem.compare.{'ab'[which]}{number + 1}")
            monitor = parser.parse_args([*options, "--run", str(folder).replace("%", "%%")])
            recorded = record_by(monitor, commands[which])
            if recorded.status and not args.duration:
                print(
                    f"gdbmem: {printable(words[2 * which])} ended with status {recorded.status}",
                    file=sys.stderr,
                )
            if not args.quiet:
                print(f"{folder.name}: {printable(words[2 * which])}", file=sys.stderr)
            folders[which].append(folder)
    return folders


def _words_of(command: str) -> list[str]:
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"'{printable(command)}' can't be split into words: {error}",
            hint="check its quotes and backslashes",
        ) from None
    if not found:
        raise UsageError("a command to compare is empty", hint="-- './program 8' --vs './program 4'")
    return found


def _fresh(folder: Path) -> Path:
    number, wanted = 1, folder
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}.{number}")
    return folder


def _compare(
    first: Sequence[Path], second: Sequence[Path], args: argparse.Namespace, outputs: Outputs, gate: Gate
) -> int:
    recordings = [Recording(folder) for folder in (*first, *second)]
    said: Sequence[Notice] = ()
    if len(args.first) > 1 and args.second is None:
        order = in_order(args.first, recordings)
        recordings, said = [recordings[at] for at in order.positions], order.notices
    summaries = [summary_of(recording) for recording in recordings]
    cut = len(first)
    comparison = compare_recordings(recordings, summaries, first=cut, notices=said)
    judged = [(recording.folder.name, summary.verdict) for recording, summary in zip(recordings, summaries)]
    if outputs.plot is not None and picture_kind(args.plot, "--plot") == "svg":
        outputs.plot.write(svg(picture_of(recordings, summaries, first_group=cut)))
    elif outputs.plot is not None:
        from gdbmem.cli.report_documents import compared_page  # for pages only, as the next
        from gdbmem.page.page import render  # slow to import

        outputs.plot.write(render(compared_page(recordings, summaries, first=cut)))
    judgements = list(chain(*judge_recordings(recordings[cut:], summaries[cut:], args.fail_on)))
    gate.judged += [*map(Judged, judgements), *map(measured_difference, comparison.differences)]
    if args.json:
        outputs.text.write(comparison_json(comparison, judged, judgements))
    else:
        print_comparison(comparison, judged, make_console(outputs.text, color=args.color), judgements)
    return judged_status(judgements, 0)
