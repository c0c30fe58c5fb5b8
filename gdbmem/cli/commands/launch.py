"""Run `gdbmem launch`, `attach` and `snap`: gdb with a program or a running process, or a snapshot of one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.commands.arguments import ArgumentParser, check_pid, gdb_words, split_program
from gdbmem.engines.engine import options_of
from gdbmem.errors import ExitStatus, UsageError, failing
from gdbmem.runs.ranks import is_chosen, own_rank
from gdbmem.terminal.console import open_output, say
from gdbmem.text import format_delta, format_size, printable

if TYPE_CHECKING:
    from gdbmem.launch.attached import TakenSnapshot
    from gdbmem.runs.run import Run


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Launch; statuses are those of timeout(1), or of the recipe's expectations."""
    own, program_arguments = split_program(argv)
    args = _parse(own, parser)
    if args.recipe is None and args.program is None:
        if not program_arguments:
            raise UsageError("name a program", hint="gdbmem launch --massif ./program [-- arguments]")
        args.program, *program_arguments = program_arguments
    command = ["gdbmem", "launch", *argv]
    with failing(launch=True):
        if args.report is None:
            return _run(args, program_arguments, [], command=command)
        from gdbmem.cli.report_pages import page_at_end  # slow to import
        from gdbmem.profiles.paths import Query, read_known  # not always needed

        query = Query(known=tuple(read_known(args.known)) if args.known else ())
        with page_at_end(args.report, query, force=args.force) as awaited:
            status = _run(args, program_arguments, awaited.runs, command=command)
        return status or (ExitStatus.FAILED if awaited.failed and own_rank() is None else status)


def _run(
    args: argparse.Namespace, program_arguments: Optional[list[str]], runs: list[Run], *, command: list[str]
) -> int:
    """Launch according to *args*; the recorded run is added to *runs*."""
    if args.recipe is not None:
        from gdbmem.cli.launch_recipe import run_recipe  # slow to import

        return run_recipe(args, program_arguments, runs, command=command)
    return _run_interactive(args, program_arguments or [], runs, command=command)


def _parse(own: list[str], parser: ArgumentParser) -> argparse.Namespace:
    args, unknown = parser.parse_known_args(own)
    if unknown:
        raise parser.unknown(unknown[0], hint="the program's own arguments and options go after '--'")
    if args.recipe is None:
        for option, given in (
            ("--junit", args.junit),
            ("--ci", args.ci),
            ("--json", args.json),
            ("-o", args.output),
        ):
            if given:
                raise UsageError(f"{option} needs --recipe", hint="inside gdb, massif-diff has --json and -o")
    elif args.program is not None:
        raise UsageError("a recipe names its program itself", hint="leave out either --recipe or the program")
    return args


def _run_interactive(
    args: argparse.Namespace, program_arguments: list[str], runs: list[Run], *, command: list[str]
) -> int:
    from gdbmem.cli.launch_job import engine_options, environment, make_job, resolve_engine
    from gdbmem.launch.interactive import run_interactive  # slow to import
    from gdbmem.launch.program import execute, find_program  # with it

    if not is_chosen(args.on_ranks):
        execute(args.program, program_arguments, environment(args.env))
    program = find_program(args.program)
    engine, automatic = resolve_engine(args, program)
    options = options_of(engine, {**automatic, **engine_options(args)})
    job = make_job(args, program, program_arguments, options, engine)
    finish = args.on_quit == "finish"
    return run_interactive(job, gdb_arguments=gdb_words(args), finish=finish, command=command, runs=runs)


def run_attach(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)

    from gdbmem.launch.attached import find_target, run_attached  # not needed for --help
    from gdbmem.setup.gdb_python import find_gdb  # with it

    return run_attached(
        find_target(check_pid(args.pid)),
        gdb=find_gdb(args.gdb),
        folder=Path(args.run) if args.run else None,
        gdb_arguments=gdb_words(args),
        command=["gdbmem", "attach", *argv],
        engine=args.engine or "",
    )


def run_snap(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_mixed(argv)

    from gdbmem.launch.attached import find_target, take_one  # not needed for --help
    from gdbmem.runs.distrust import check_name  # with it
    from gdbmem.runs.listing import snap_json  # with it
    from gdbmem.setup.gdb_python import find_gdb  # with it

    if args.name is not None:
        check_name(args.name)
    with open_output(args.output, force=args.force) as stream:
        taken = take_one(
            find_target(check_pid(args.pid)),
            args.name,
            gdb=find_gdb(args.gdb),
            folder=Path(args.run) if args.run else None,
            command=["gdbmem", "snap", *argv],
            say=say,
        )
        for note in taken.notes:
            say(printable(note))
        if args.json:
            stream.write(snap_json(taken.record, taken.run.folder, taken.pause_seconds, taken.notes))
        else:
            stream.write(_snapshot_line(taken) + "\n")
            _say_next(taken)
    return 0


def _snapshot_line(taken: TakenSnapshot) -> str:
    record, before = taken.record, taken.before
    text = f"snapshot {printable(record.label)}: "
    if record.heap_bytes is None:
        text += f"kept in {printable(record.file)}"
    else:
        text += f"heap {format_size(record.heap_bytes)}"
        if before is not None and before.heap_bytes is not None:
            delta = format_delta(record.heap_bytes - before.heap_bytes)
            text += f", {delta} since {printable(before.label)}"
    return f"{text}; the process was stopped for {taken.pause_seconds:.2f} s"


def _say_next(taken: TakenSnapshot) -> None:
    from gdbmem.launch.interactive import shown  # slow to import

    folder = printable(shlex.quote(shown(taken.run.folder)))
    way = "see it with  gdbmem show" if taken.before is None else "compare the last two with  gdbmem diff"
    print(f"gdbmem: kept in {folder}/; {way} {folder}", file=sys.stderr)
