"""Making the job of a launch from the options of `gdbmem launch`; the exit status if that fails."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.api.profiles import ReadOptions, Run
from gdbmem.cli.pages import page_of
from gdbmem.engines.engine import table
from gdbmem.errors import ExitStatus, GdbmemError, UsageError
from gdbmem.launch.engine_choice import AUTO, choose_engine
from gdbmem.launch.job import Job
from gdbmem.launch.program import NotExecutableError, NotFoundError
from gdbmem.page.page import render
from gdbmem.profiles.query import Query
from gdbmem.records import dataclass, field
from gdbmem.setup.gdb_python import find_gdb
from gdbmem.terminal.console import open_output
from gdbmem.text import parse_size, printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.engines.engine import EngineOptions
    from gdbmem.launch.program import Program


def launch_status(error: GdbmemError) -> int:
    """Return the exit status, as in timeout(1), for a launch that *error* ended."""
    if isinstance(error, NotFoundError):
        return ExitStatus.NOT_FOUND
    if isinstance(error, NotExecutableError):
        return ExitStatus.NOT_EXECUTABLE
    return ExitStatus.FAILED


def engine_options(args: argparse.Namespace) -> dict[str, object]:
    """Return the options of engines given on the command line, by their names in the engines."""
    given = {
        "threshold": args.threshold,
        "pages_as_heap": args.pages_as_heap or None,
        "stacks": args.stacks or None,
        "time_unit": args.time_unit,
        "alloc_fns": args.alloc_fn,
        "trace_children": args.trace_children or None,
        "massif_opts": args.massif_opt,
        "valgrind_opts": args.valgrind_opt,
        "sample_rate": _size("sample-rate", args.sample_rate),
        "dump_interval": _size("dump-interval", args.dump_interval),
        "frames": args.frames,
        "period": args.period,
    }
    return {name: value for name, value in given.items() if value is not None}


def _size(option: str, text: Optional[str]) -> Optional[int]:
    if text is None:
        return None
    size_bytes = parse_size(text)
    if size_bytes < 0:
        raise UsageError(f"--{option} {printable(text)} is below 0", slug="bad-option")
    return size_bytes


def environment(settings: Optional[Sequence[str]]) -> dict[str, str]:
    """Return the ``NAME=VALUE`` *settings* as a mapping; raises UsageError for one without ``=``."""
    found = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise UsageError(f"--env {printable(setting)} is not a setting", hint="write --env NAME=VALUE")
        found[name] = value
    return found


def resolve_engine(
    args: argparse.Namespace, program: Program, default: str = "massif"
) -> tuple[str, Mapping[str, Any]]:
    """Return the engine for *program* and the options that it needs; the choice of auto is reported on stderr.

    *default* is the engine if *args* name none. Raises UsageError for an unknown one.
    """
    if args.massif and args.engine not in (None, "massif"):
        raise UsageError(
            f"--massif and --engine {printable(args.engine)} exclude each other", hint="leave one out"
        )
    named = args.engine if args.engine is not None else "massif" if args.massif else default
    if named != AUTO:
        return table(named).name, {}
    choice = choose_engine(program)
    print(f"gdbmem: {printable(choice.sentence)}", file=sys.stderr)
    return choice.engine, choice.options


def make_job(
    args: argparse.Namespace,
    program: Program,
    arguments: Sequence[str],
    options: EngineOptions,
    engine: str,
) -> Job:
    """Return the job that *args* describe."""
    return Job(
        program=program,
        arguments=list(arguments),
        options=options,
        environment=environment(args.env),
        stdin=args.stdin,
        stdout=args.stdout,
        own_terminal=args.own_terminal,
        run_folder=Path(args.run) if args.run else None,
        gdb=find_gdb(args.gdb),
        engine=engine,
    )


# The page of a run, written when the launch that made it has ended.


class _UnwrittenError(Exception):
    """No page was made: the file is not created."""


@dataclass
class AwaitedPage:
    """The run that a page is to show, once there is one, and whether the page could not be made."""

    runs: list[Run] = field(default_factory=list)
    failed: bool = False


@contextlib.contextmanager
def page_at_end(file: Optional[str], query: Query, *, force: bool) -> Iterator[AwaitedPage]:
    """Yield an AwaitedPage to receive the run; its page is written to *file* (None: nowhere) when the block ends.

    The file is opened now, so that an unwritable name fails before the run. A page that can't be made is reported.
    """
    awaited = AwaitedPage()
    if file is None:
        yield awaited
        return
    with contextlib.suppress(_UnwrittenError), open_output(file, force=force) as stream:
        yield awaited
        try:
            stream.write(_rendered(awaited, query))
        except GdbmemError as error:
            print(f"gdbmem: no page was made: {printable(error.sentence)}", file=sys.stderr)
            awaited.failed = True
            raise _UnwrittenError from error
        print(f"gdbmem: the report is {printable(file)}", file=sys.stderr)


def _rendered(awaited: AwaitedPage, query: Query) -> str:
    folders = [run.folder for run in awaited.runs if run.folder.is_dir()]
    if not folders:
        raise GdbmemError(
            "nothing was recorded", slug="no-snapshot", hint="take snapshots: memsnap, or points in a recipe"
        )
    return render(page_of([str(folders[-1].absolute())], query, ReadOptions()))
