"""Run `gdbmem monitor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Optional

from gdbmem.commands.arguments import ArgumentParser, split_program
from gdbmem.errors import UsageError, failing
from gdbmem.gates.reports import Gate, ci_files, ci_reports
from gdbmem.runs.ranks import folder_of_host, is_chosen, own_rank
from gdbmem.runs.run import current_folder
from gdbmem.terminal.console import picture_kind
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Record and judge, or judge again."""
    own, program = split_program(argv)
    args = parser.parse_args(own)
    runs = [target for target in args.targets if not (target.isascii() and target.isdigit())]
    with (
        failing(launch=program is not None or args.fail_on is not None),
        ci_reports(ci_files(args, needs="--fail-on"), "monitor") as gate,
    ):
        if runs:
            return _judge_again(args, runs, program, gate)
        _check(args, program)
        return _record(args, program, gate)


def _record(args: argparse.Namespace, program: Optional[list[str]], gate: Gate) -> int:
    if program is not None and not is_chosen(args.on_ranks):
        from gdbmem.launch.program import execute  # not always needed

        execute(program[0], program[1:], {})
    if program is not None and args.one_per_node:
        _leave_to_one_monitor(args, program)
    from gdbmem.cli.monitor_recording import record  # not needed for --help

    return record(args, program, gate)


def _leave_to_one_monitor(args: argparse.Namespace, program: list[str]) -> NoReturn:
    """Execute *program*, after the monitor of all ranks of this host has been started, if it was not yet."""
    from gdbmem.launch.program import execute, find_program  # not always needed
    from gdbmem.recording.ranks_of_host import start_node_monitor  # as the one before

    rank = own_rank()
    if rank is None:
        raise UsageError(
            "--one-per-node: no launcher of several ranks has set its variables",
            slug="no-rank",
            hint="start gdbmem by mpirun, srun or torchrun",
        )
    if args.run and "%r" in args.run.replace("%%", ""):
        raise UsageError("--one-per-node records all ranks of a host in one run", hint="--run runs/%j.%h")
    find_program(program[0])
    folder = (current_folder() / folder_of_host(args.run, rank, program[0])).absolute()
    words = ["--interval", f"{args.interval}s", "--pss-budget", str(args.pss_budget)]
    words += ["--no-children"] if args.no_children else []
    if args.prometheus:
        words += ["--prometheus", ":".join(map(str, args.prometheus))]
        words += ["--tree-only"] if args.tree_only else []
    try:
        if start_node_monitor(rank, folder, words):
            print(
                f"gdbmem: the ranks of this host are recorded in {printable(str(folder))}: gdbmem ranks",
                file=sys.stderr,
            )
    except OSError as error:
        print(f"gdbmem: the ranks of this host are not recorded: {error.strerror}", file=sys.stderr)
    execute(program[0], program[1:], {"GDBMEM_RUN": str(folder)})


def _judge_again(
    args: argparse.Namespace, runs: Sequence[str], program: Optional[list[str]], gate: Gate
) -> int:
    from gdbmem.api.series import is_series_file, recorded  # slow to import
    from gdbmem.runs.run import is_run  # not needed for a recording

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
        from gdbmem.cli.monitor_reporting import report  # slow to import

        return report(folders, args, gate)


def _check(args: argparse.Namespace, program: Optional[list[str]]) -> None:
    given = [
        bool(args.targets),
        args.name is not None,
        args.user is not None,
        args.cgroup is not None,
        args.job is not None,
        program is not None,
    ]
    if args.resume is not None:
        if any(given) or args.run:
            raise UsageError("--resume continues with the target of that run", hint="leave the target out")
    elif sum(given) != 1 or program == []:
        raise UsageError(
            "name one thing to watch",
            hint="process ids, --name, --user, --cgroup, --job, or '-- PROGRAM ARGUMENTS'",
        )
    if len(args.do) > max(len(args.when), 1) or (args.do and not args.when):
        raise UsageError("each --do needs a --when", hint="--when 'rss > 2GiB' --do explain")
    if args.one_per_node:
        _check_one_per_node(args, program)
    if args.fork is False and not args.black_box:  # --hold, by the name that it has for explain
        raise UsageError("--hold needs --black-box", hint="gdbmem monitor --black-box --hold PID")
    if args.core and args.fork is not False:
        raise UsageError("--core needs --hold", hint="gdbmem monitor --black-box --hold --core PID")
    if args.interval <= 0:
        raise UsageError("--interval has to be longer than 0", hint="--interval 200ms")
    if args.mark is not None and program is None:
        raise UsageError(
            "--mark needs a program whose output it reads", hint="gdbmem monitor --mark REGEX -- PROGRAM"
        )
    if args.plot is not None:
        picture_kind(args.plot, "--plot")


# What is about one rank, or judges one: 'gdbmem ranks' judges all of them.
_OF_ONE_RANK = (
    "resume",
    "mark",
    "stdout",
    "plot",
    "fail_on",
    "resolve",
    "json",
    "output",
    "grow",
    "black_box",
    "when",
)


def _check_one_per_node(args: argparse.Namespace, program: Optional[list[str]]) -> None:
    if program is None:
        raise UsageError(
            "--one-per-node needs a program", hint="mpirun -n 64 gdbmem monitor --one-per-node -- ./solver"
        )
    for name in _OF_ONE_RANK:
        if getattr(args, name):
            raise UsageError(
                f"--{name.replace('_', '-')} can't be combined with --one-per-node",
                hint="'gdbmem ranks' judges all ranks",
            )
