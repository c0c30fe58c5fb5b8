"""Making the job of a launch from the options of `gdbmem launch`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from gdbmem.engines.engine import AUTO, EngineOptions, table
from gdbmem.errors import UsageError
from gdbmem.launch.job import Job
from gdbmem.launch.program import Program
from gdbmem.runs.ranks import expanded, own_rank
from gdbmem.setup.gdb_python import find_gdb
from gdbmem.text import parse_size, printable


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
    from gdbmem.launch.engine_choice import choose_engine  # slow to import, and seldom needed

    choice = choose_engine(program)
    print(f"gdbmem: {printable(choice.sentence)}", file=sys.stderr)
    return choice.engine, choice.options


def make_job(
    args: argparse.Namespace, program: Program, arguments: Sequence[str], options: EngineOptions, engine: str
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
        run_folder=Path(expanded(args.run, own_rank(), os.getpid())) if args.run else None,
        gdb=find_gdb(args.gdb),
        engine=engine,
    )
