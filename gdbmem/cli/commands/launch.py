"""Run a program under a heap profiler with your gdb attached, or run a recipe on it.

Options before '--' are for gdbmem; after it come the program's arguments, or the program and its arguments.

  gdbmem launch --massif ./decoder -- config.yaml      your gdb, stopped before main
  gdbmem launch --recipe leak.yaml                     take snapshots and diffs automatically
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.arguments import (
    ArgumentParser,
    add_gdb_commands,
    add_output_options,
    add_run_options,
    gdb_words,
    split_program,
)
from gdbmem.engines.engine import NAMES, options_of
from gdbmem.engines.massif import TIME_UNITS
from gdbmem.errors import ExitStatus, GdbmemError, UsageError
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.runs.run import Run


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `gdbmem launch`."""
    parser.usage = (
        "%(prog)s [OPTIONS] PROGRAM [OPTIONS] [-- ARGUMENTS]\n"
        "       %(prog)s [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
        "       %(prog)s --recipe FILE [OPTIONS] [-- ARGUMENTS]"
    )
    parser.add_argument("program", metavar="PROGRAM", nargs="?", help="the program to run")
    parser.add_argument(
        "--massif", action="store_true", help="valgrind's massif takes the snapshots (the default)"
    )
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help=f"the engine that takes the snapshots: {', '.join(NAMES)}; auto"
        " chooses one by the program's libraries, and prints the reason",
    )
    parser.add_argument("--recipe", metavar="FILE", help="run this recipe, unattended")
    _add_massif_options(parser)
    _add_native_options(parser)
    _add_program_options(parser)
    _add_gdb_options(parser)
    _add_recipe_options(parser)
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write FILE at the end, the page that 'gdbmem report' makes of the run",
    )


def _add_massif_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("massif")
    group.add_argument(
        "--threshold", metavar="PERCENT", help="merge paths smaller than this (default 0: none)"
    )
    group.add_argument(
        "--pages-as-heap", action="store_true", help="count pages (mmap, brk) instead of malloc"
    )
    group.add_argument("--stacks", action="store_true", help="count stacks too (slow)")
    group.add_argument("--time-unit", metavar="UNIT", choices=TIME_UNITS, help="i (instructions), ms or B")
    group.add_argument(
        "--alloc-fn", metavar="NAME", action="append", help="treat function NAME as an allocation function"
    )
    group.add_argument("--massif-opt", metavar="=OPT", action="append", help="pass OPT to massif")
    group = parser.add_argument_group("massif, memcheck and dhat")
    group.add_argument("--trace-children", action="store_true", help="follow programs that this one executes")
    group.add_argument("--valgrind-opt", metavar="=OPT", action="append", help="pass OPT to valgrind")


def _add_native_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("gperftools, jemalloc, tracemalloc, faults")
    group.add_argument(
        "--sample-rate", metavar="SIZE", help="jemalloc: one sample per SIZE (default 0: every allocation)"
    )
    group.add_argument(
        "--dump-interval", metavar="SIZE", help="also dump each time that SIZE more was allocated"
    )
    group.add_argument(
        "--frames", metavar="N", type=int, help="tracemalloc: keep N frames of each traceback (default 10)"
    )
    group.add_argument(
        "--period",
        metavar="N",
        type=int,
        help="faults: sample one in N page faults (default: every fault, fewer above 1000 per second)",
    )


def _add_program_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("program")
    group.add_argument(
        "--env", metavar="NAME=VALUE", action="append", help="set a variable in the program's environment"
    )
    group.add_argument("--stdin", metavar="FILE", help="the program's standard input")
    add_run_options(group)
    group.add_argument(
        "--own-terminal",
        action="store_true",
        help="run it on a separate pseudo-terminal, shown on this terminal",
    )


def _add_gdb_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("gdb")
    group.add_argument(
        "--gdb", metavar="PATH", help="the gdb to use (default: $GDBMEM_GDB, or the one in PATH)"
    )
    add_gdb_commands(group)
    group.add_argument(
        "--on-quit",
        choices=("end", "finish"),
        default="end",
        help="end the program with gdb, or let it finish",
    )


def _add_recipe_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("recipe")
    group.add_argument(
        "--junit", metavar="FILE", help="write the expectations and their outcomes as JUnit XML"
    )
    group.add_argument(
        "--known", metavar="FILE", help="paths that are known and accepted, one regex per line"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print no progress on the standard error")
    add_output_options(parser)


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Launch; statuses are those of timeout(1), or of the recipe's expectations."""
    own, program_arguments = split_program(argv)
    args = _parse(own, parser)
    if args.recipe is None and args.program is None:
        if not program_arguments:
            raise UsageError("name a program", hint="gdbmem launch --massif ./program [-- arguments]")
        args.program, *program_arguments = program_arguments
    command = ["gdbmem", "launch", *argv]
    try:
        if args.report is None:
            return _run(args, program_arguments, [], command=command)
        from gdbmem.cli.launch_job import page_at_end  # 40 ms
        from gdbmem.profiles.query import Query, read_known  # 4 ms

        query = Query(known=tuple(read_known(args.known)) if args.known else ())
        with page_at_end(args.report, query, force=args.force) as awaited:
            status = _run(args, program_arguments, awaited.runs, command=command)
        return status or (ExitStatus.FAILED if awaited.failed else status)
    except UsageError:
        raise
    except GdbmemError as error:
        from gdbmem.cli.launch_job import launch_status  # 40 ms: what starts processes

        print(f"gdbmem: {printable(error.sentence)}", file=sys.stderr)
        return launch_status(error)


def _run(
    args: argparse.Namespace, program_arguments: Optional[list[str]], runs: list[Run], *, command: list[str]
) -> int:
    """Launch according to *args*; the recorded run is added to *runs*."""
    if args.recipe is not None:
        from gdbmem.cli.recipe_play import run_recipe  # 25 ms

        return run_recipe(args, program_arguments, runs, command=command)
    return _run_interactive(args, program_arguments or [], runs, command=command)


def _parse(own: list[str], parser: ArgumentParser) -> argparse.Namespace:
    args, unknown = parser.parse_known_args(own)
    if unknown:
        raise parser.unknown(unknown[0], hint="the program's own arguments and options go after '--'")
    if args.recipe is None:
        for option, given in (("--junit", args.junit), ("--json", args.json), ("-o", args.output)):
            if given:
                raise UsageError(f"{option} needs --recipe", hint="inside gdb, massif-diff has --json and -o")
    elif args.program is not None:
        raise UsageError("a recipe names its program itself", hint="leave out either --recipe or the program")
    return args


def _run_interactive(
    args: argparse.Namespace, program_arguments: list[str], runs: list[Run], *, command: list[str]
) -> int:
    from gdbmem.cli.launch_job import engine_options, make_job, resolve_engine
    from gdbmem.launch.interactive import run_interactive  # 40 ms
    from gdbmem.launch.program import find_program  # with it

    program = find_program(args.program)
    engine, automatic = resolve_engine(args, program)
    options = options_of(engine, {**automatic, **engine_options(args)})
    job = make_job(args, program, program_arguments, options, engine)
    finish = args.on_quit == "finish"
    return run_interactive(job, gdb_arguments=gdb_words(args), finish=finish, command=command, runs=runs)
