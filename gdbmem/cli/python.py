"""Read a Python process from outside: objects by type, arenas, tracemalloc's traces, what forked workers copy.

No code runs in the process and none of its memory is written. It waits while a copy of it is made, which is then read;
where none can be made, while it is read itself. CPython 3.8 to 3.14, with or without symbols.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gdbmem.analysis.profiles.query import Query
from gdbmem.api.profiles import load_from_profile
from gdbmem.api.python import (
    Target,
    encoded_traces,
    python_arenas,
    python_copies,
    python_objects,
    python_traces,
    traces_profile,
)
from gdbmem.arguments import ArgumentParser, add_output_options
from gdbmem.cli.process_operand import add_ways_to_read, checked_pid, unwind_when_ended
from gdbmem.errors import UsageError
from gdbmem.report.console import make_console
from gdbmem.report.notices import print_notices
from gdbmem.report.output import open_output
from gdbmem.report.profiles.profile_json import profile_json
from gdbmem.report.profiles.profile_text import print_sites
from gdbmem.report.python.arenas_text import print_arenas
from gdbmem.report.python.copies_text import print_copies
from gdbmem.report.python.objects_text import print_growth, print_objects
from gdbmem.report.python.python_json import arenas_json, copies_json, growth_json, objects_json, read_objects

if TYPE_CHECKING:
    import argparse
    from typing import TextIO

_TOP = 20


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="objects|arenas|traces|cow")
    objects = actions.add_parser(
        "objects",
        help="count its live objects by type",
        description="Count the live objects of a Python process by type, those in malloc's blocks included.",
        epilog=(
            "examples:\n  gdbmem python objects 4711\n"
            "  gdbmem python objects 4711 --json -o before.json; gdbmem python objects 4711 --since before.json\n"
        ),
    )
    objects.add_argument(
        "--since", metavar="FILE", help="what came and went since FILE, which --json -o FILE wrote"
    )
    arenas = actions.add_parser(
        "arenas",
        help="how full its arenas are, and what keeps them",
        description="Tell how full the arenas of Python's allocator are, and which types keep the emptiest.",
        epilog="example:\n  gdbmem python arenas 4711\n",
    )
    traces = actions.add_parser(
        "traces",
        help="which lines allocated what is live, by tracemalloc's own tables",
        description="Read what tracemalloc has recorded (the process may have been started with PYTHONTRACEMALLOC=1).",
        epilog=(
            "examples:\n  gdbmem python traces 4711\n"
            "  gdbmem python traces 4711 --profile a.pb.gz; sleep 60; gdbmem python traces 4711 --profile b.pb.gz\n"
            "  gdbmem diff a.pb.gz b.pb.gz\n"
        ),
    )
    traces.add_argument(
        "--profile",
        metavar="FILE",
        help="write the traces into FILE (pprof), which show, diff, report and export read",
    )
    copies = actions.add_parser(
        "cow",
        help="what its forked workers have copied, by type",
        description=(
            "Tell how much of a Python process's memory the processes that it has forked (a DataLoader's workers, say)"
            " have copied by writing to it, and objects of which types lie on those pages."
        ),
        epilog="example:\n  gdbmem python cow 4711\n",
    )
    for action in (objects, arenas, traces, copies):
        action.usage = "%(prog)s [OPTIONS] PID\n       %(prog)s [OPTIONS] --core CORE [PROGRAM]"
        add_ways_to_read(action)
        action.add_argument(
            "--top", metavar="N", type=int, default=_TOP, help=f"list the N largest (default {_TOP})"
        )
        add_output_options(action)


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    if args.top < 1:
        raise UsageError("--top takes a number of lines from 1 on")
    pid = checked_pid(args.target, core=args.core, command=f"python {args.action}")
    if args.core is not None and (args.fork is not None or args.swapped):
        raise UsageError("a core is a copy already", hint="leave out --fork, --hold and --swapped")
    unwind_when_ended()
    with open_output(args.output, force=args.force) as stream:
        target = Target(
            pid, core=args.core, program=args.target if args.core else None, copy=args.fork,
            swapped=args.swapped, progress=_say,
        )  # fmt: skip
        _ACTIONS[args.action](target, args, stream)
    return 0


def _say(sentence: str) -> None:
    print(f"gdbmem: {sentence}", file=sys.stderr, flush=True)


def _objects(target: Target, args: argparse.Namespace, stream: TextIO) -> None:
    before = read_objects(Path(args.since)) if args.since is not None else None
    objects = python_objects(target)
    if before is not None and args.json:
        stream.write(growth_json(before, objects))
    elif before is not None:
        print_growth(before, objects, make_console(stream), top=args.top, name=args.since)
    elif args.json:
        stream.write(objects_json(objects))
    else:
        print_objects(objects, make_console(stream), top=args.top)


def _arenas(target: Target, args: argparse.Namespace, stream: TextIO) -> None:
    use = python_arenas(target)
    if args.json:
        stream.write(arenas_json(use))
    else:
        print_arenas(use, make_console(stream), top=args.top)


def _traces(target: Target, args: argparse.Namespace, stream: TextIO) -> None:
    with open_output(args.profile, force=args.force) as file:
        profile = traces_profile(python_traces(target))
        snapshot = load_from_profile(profile, None).snapshot
        if args.profile is not None:
            file.flush()
            file.buffer.write(encoded_traces(snapshot))
    query = Query(top=args.top)
    if args.json:
        stream.write(profile_json(profile, query, snapshot=snapshot))
        return
    console = make_console(stream)
    print_sites(snapshot, query, console, moment=profile.source)
    print_notices(profile.notices, console)


def _copies(target: Target, args: argparse.Namespace, stream: TextIO) -> None:
    copies = python_copies(target)
    if args.json:
        stream.write(copies_json(copies))
    else:
        print_copies(copies, make_console(stream), top=args.top)


_ACTIONS = {"objects": _objects, "arenas": _arenas, "traces": _traces, "cow": _copies}
