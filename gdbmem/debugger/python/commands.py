"""mempython: objects, arenas, traces and stacks of the Python process or core in gdb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.api.python_reports import ReportWords
from gdbmem.arguments import add_output_options
from gdbmem.debugger.command import Command
from gdbmem.debugger.python.asking import ask_worker
from gdbmem.debugger.python.stacks import stacks_here
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import UsageError
from gdbmem.report.output import open_output
from gdbmem.report.python.mixed_stacks import mixed_json, print_mixed

if TYPE_CHECKING:
    import argparse
    from typing import TextIO

    from gdbmem.arguments import ArgumentParser
    from gdbmem.report.console import Console

_STACK, _OBJECTS, _TRACES = "stack", "objects", "traces"
_ACTIONS = (_STACK, _OBJECTS, "arenas", _TRACES)


class PythonCommand(Command):
    """Read, and print."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=_ACTIONS, metavar="|".join(_ACTIONS), help="what to show")
        parser.add_argument("--all", action="store_true", help="of all threads")
        parser.add_argument("--native", action="store_true", help="the interpreter's own frames one by one")
        parser.add_argument("--holders", metavar="TYPE", help="show references to the objects of TYPE")
        parser.add_argument("--since", metavar="FILE", help="the change since FILE")
        parser.add_argument("--profile", metavar="FILE", help="write the traces into FILE (pprof)")
        parser.add_argument("--top", metavar="N", type=int, default=20, help="list N rows (default 20)")
        parser.add_argument("--swapped", action="store_true", help="read swapped-out pages too")
        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        _check(args)
        with open_output(args.output, force=args.force) as stream:
            if args.action == _STACK:
                stacks = stacks_here(every=args.all, fold=not args.native, swapped=args.swapped)
                if args.json:
                    stream.write(mixed_json(stacks))
                else:
                    print_mixed(stacks, console_on(stream))
            else:
                _write_by_worker(args, stream, console_on(stream))


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that this action does not take."""
    if args.top < 1:
        raise UsageError("--top takes a number of lines from 1 on")
    belongs = {
        "all": _STACK, "native": _STACK, "holders": _OBJECTS, "since": _OBJECTS, "profile": _TRACES,
    }  # fmt: skip
    if args.holders and args.since:
        raise UsageError("--holders and --since exclude each other: type one of them")
    for name, action in belongs.items():
        if getattr(args, name) and args.action != action:
            raise UsageError(f"--{name} belongs to 'mempython {action}'")


def _write_by_worker(args: argparse.Namespace, stream: TextIO, console: Console) -> None:
    wanted = ReportWords(
        json=args.json,
        top=args.top,
        since=_absolute(args.since),
        profile=_absolute(args.profile),
        force=args.force,
        holders=args.holders,
    )
    report = ask_worker(
        args.action, wanted, width=console.width, color=console.has_colors, swapped=args.swapped
    )
    stream.write(report)


def _absolute(name: Optional[str]) -> Optional[str]:
    """Return *name* as an absolute path for a worker, which runs in another folder."""
    return None if name is None else str(Path(name).absolute())
