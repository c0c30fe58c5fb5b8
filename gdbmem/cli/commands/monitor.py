"""Watch the memory of a process tree, and judge whether it grows.

  gdbmem monitor 4711                     until it ends, or until Ctrl-C
  gdbmem monitor --for 20m -- ./server    start it, watch it, pass its exit status on
  gdbmem monitor --name '^worker' --fail-on growing:1MiB/h
  gdbmem monitor --plot memory.svg gdbmem.server.123    draw and judge a recording again

While a chart is shown: q ends, m sets a mark, p pauses, s sorts by the next column.
SIGUSR1 and 'gdbmem mark' set marks too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.arguments import (
    ArgumentParser,
    add_color_option,
    add_output_options,
    add_run_options,
    split_program,
    value,
)
from gdbmem.cli.series_options import parse_fail_on, parse_slope
from gdbmem.errors import GdbmemError, InputError, UsageError
from gdbmem.terminal.console import picture_kind
from gdbmem.text import parse_duration, printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.recording.triggers import Condition


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `gdbmem monitor`."""
    parser.usage = (
        "%(prog)s [OPTIONS] PID… | --name PATTERN | --user USER | --cgroup PATH\n"
        "       %(prog)s [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
        "       %(prog)s [OPTIONS] RUN…"
    )
    parser.add_argument(
        "targets", metavar="PID|RUN", nargs="*", help="processes to watch, or runs to judge again"
    )
    _add_target_options(parser)
    _add_time_options(parser)
    _add_run_options(parser)
    _add_trigger_options(parser)
    _add_result_options(parser)
    add_output_options(parser)


def _add_target_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("target")
    group.add_argument(
        "--name",
        metavar="PATTERN",
        type=value(_pattern, "regex"),
        help="watch processes whose name or command line matches this regular expression",
    )
    group.add_argument("--user", metavar="USER", help="watch the processes of USER")
    group.add_argument(
        "--cgroup", metavar="PATH", help="watch the processes in a cgroup, by its folder under /sys/fs/cgroup"
    )
    group.add_argument(
        "--grow",
        action="store_true",
        help="also record which lines make the processes bigger, as grow does (in the run: grown.faults)",
    )
    group.add_argument("--no-children", action="store_true", help="don't follow their children")


def _add_time_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("time")
    duration = value(parse_duration, "duration")
    group.add_argument(
        "--interval",
        metavar="TIME",
        type=duration,
        default=0.2,
        help="time between two samples (default: 200ms)",
    )
    group.add_argument("--for", dest="duration", metavar="TIME", type=duration, help="end after TIME")
    group.add_argument(
        "--until-exit",
        action="store_true",
        help="end when no watched process is left (by default --name, --user and --cgroup wait for more)",
    )
    group.add_argument(
        "--pss-budget",
        metavar="PERCENT",
        type=value(_percent, "percent"),
        default=1.0,
        help="the largest share of one CPU to spend on reading PSS and USS (default: 1; 0 reads RSS only); a quarter is"
        " enough for a single process",
    )


def _add_run_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    add_run_options(group)
    group.add_argument("--resume", metavar="RUN", help="continue the series in RUN")
    group.add_argument(
        "--mark",
        metavar="REGEX",
        type=value(_pattern, "regex"),
        help="set a mark at each line of the program's output that matches",
    )


def _add_trigger_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("triggers")
    group.add_argument(
        "--when",
        metavar="CONDITION",
        action="append",
        default=[],
        type=value(_condition, "condition"),
        help="act once when CONDITION becomes true, and again after it was false: 'growing', or a comparison as in "
        "'rss > 2GiB' (rss, uss of one process; pss, swap, cgroup, threads, files of the tree); may be repeated",
    )
    group.add_argument(
        "--do",
        metavar="ACTION",
        action="append",
        default=[],
        choices=("snap", "explain", "bundle"),
        help="the action, once per --when: snap, explain, or bundle (default; explain, smaps, stacks, the series)",
    )


def _add_result_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("result")
    group.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the series into FILE.svg, or make FILE.html, a page with all results",
    )
    group.add_argument(
        "--fail-on",
        metavar="VERDICT[:SLOPE]",
        type=value(parse_fail_on, "verdict"),
        help="exit 4 on this verdict, 125 if it can't be judged (the program failed, too short, memory not seen); "
        "'growing' includes a sawtooth whose floor rises; SLOPE (as in 1MiB/h) is the smallest slope that counts",
    )
    group.add_argument(
        "--resolve",
        metavar="SLOPE",
        type=value(parse_slope, "slope"),
        help="print how long to watch until a slope of this size (1MiB/h) would be called growing, given the noise",
    )
    group.add_argument("--plain", action="store_true", help="print lines instead of a chart while it runs")
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing while it runs")
    add_color_option(group)
    group.add_argument(
        "--prometheus",
        metavar=":PORT",
        type=value(_port, "port"),
        help="serve the numbers to Prometheus (needs the package prometheus_client)",
    )
    group.add_argument(
        "--tree-only",
        action="store_true",
        help="serve the numbers of the whole tree only, not of each process",
    )


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Record and judge, or judge again."""
    own, program = split_program(argv)
    args = parser.parse_args(own)
    runs = [target for target in args.targets if not (target.isascii() and target.isdigit())]
    try:
        if runs:
            return _judge_again(args, runs, program)
        _check(args, program)

        from gdbmem.cli.series_recording import record  # 60 ms, not needed for --help

        return record(args, program)
    except UsageError:
        raise
    except GdbmemError as error:
        if program is None and args.fail_on is None:
            raise
        from gdbmem.cli.launch_job import launch_status  # with the engines' options: 4 ms of CPU

        print(f"gdbmem: {printable(error.sentence)}", file=sys.stderr)
        return launch_status(error)


def _judge_again(args: argparse.Namespace, runs: Sequence[str], program: Optional[list[str]]) -> int:
    from gdbmem.runs.run import is_run  # 20 ms, not needed for a recording
    from gdbmem.series.imported import is_series_file, recorded  # 20 ms

    for operand in runs:
        if not is_run(operand) and not is_series_file(Path(operand)):
            raise UsageError(
                f"'{printable(operand)}' is neither a process id nor a run folder nor a series of another tool",
                hint="to watch by name: --name; to start a program: gdbmem monitor -- PROGRAM",
            )
    if program is not None or len(runs) < len(args.targets):
        raise UsageError("recorded runs and processes cannot be combined", hint="give one or the other")
    if len(runs) > 1 and args.plot is None:
        raise UsageError("several runs are overlaid with --plot", hint="to compare them: gdbmem compare")
    with recorded([Path(operand) for operand in runs]) as folders:
        from gdbmem.cli.series_reporting import report  # 20 ms

        return report(folders, args)


def _check(args: argparse.Namespace, program: Optional[list[str]]) -> None:
    given = [
        bool(args.targets),
        args.name is not None,
        args.user is not None,
        args.cgroup is not None,
        program is not None,
    ]
    if args.resume is not None:
        if any(given) or args.run:
            raise UsageError("--resume continues with the target of that run", hint="leave the target out")
    elif sum(given) != 1 or program == []:
        raise UsageError(
            "name one thing to watch", hint="process ids, --name, --user, --cgroup, or '-- PROGRAM ARGUMENTS'"
        )
    if len(args.do) > max(len(args.when), 1) or (args.do and not args.when):
        raise UsageError("each --do needs a --when", hint="--when 'rss > 2GiB' --do explain")
    if args.interval <= 0:
        raise UsageError("--interval has to be longer than 0", hint="--interval 200ms")
    if args.mark is not None and program is None:
        raise UsageError(
            "--mark needs a program whose output it reads", hint="gdbmem monitor --mark REGEX -- PROGRAM"
        )
    if args.plot is not None:
        picture_kind(args.plot, "--plot")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InputError(
            f"'{printable(text)}' is not a regular expression: {error}", slug="bad-regex"
        ) from None


def _condition(text: str) -> Condition:
    from gdbmem.recording.triggers import parse_condition  # 15 ms

    return parse_condition(text)


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise InputError(
            f"'{printable(text)}' is not a percentage", slug="bad-percent", hint="a number from 0 to 100"
        )
    return percent


def _port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InputError(
            f"'{printable(text)}' is not a port", slug="bad-port", hint="write it as in :9877 or 0.0.0.0:9877"
        )
    return host or "127.0.0.1", int(port)
