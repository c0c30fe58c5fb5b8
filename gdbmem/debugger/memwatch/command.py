"""`memwatch step|next|stepi|nexti|until|advance|finish`: gdb's own command, then what it did to memory."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, TextIO

import gdb

from gdbmem.debugger.command import Command, say
from gdbmem.errors import TargetError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gdbmem.arguments import ArgumentParser
    from gdbmem.debugger.memwatch.stepping import Orders

_MOST_STEPS = 10_000_000
# The options stand in front of gdb's own argument, which is kept as typed.
LEADING_OPTION = re.compile(
    r"\s*(--(?:lock|source|timeout|output|calls|above|for|until|top)(?:=|\s+)(?:\"[^\"]*\"|'[^']*'|\S+)|-o\s+(?:\"[^\"]*\"|'[^']*'|\S+)"
    r"|--\w[\w-]*|-h)(?=\s|$)"
)


class MemwatchCommand(Command):
    """`memwatch` alone, or with a word that is no command."""

    def words(self, argument: str) -> list[str]:
        return ["--", argument] if argument.strip() else []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("subcommand", nargs="*")

    def run(self, args: argparse.Namespace) -> None:
        if not args.subcommand:
            gdb.execute("help memwatch")
            return
        import difflib

        from gdbmem.debugger.memwatch.registry import MEMWATCH_COMMANDS

        word = args.subcommand[0].split()[0]
        known = [name.split()[1] for one in MEMWATCH_COMMANDS for name in one.names if " " in name]
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean 'memwatch {close[0]}'?" if close else "see 'help memwatch'"
        raise UsageError(f"there is no 'memwatch {word}'", hint=hint)


class Driving(Command):
    """What the commands that move the program share."""

    def words(self, argument: str) -> Sequence[str]:  # type: ignore[override]
        options, at = [], 0
        while match := LEADING_OPTION.match(argument, at):
            options += gdb.string_to_argv(match[1])
            at = match.end()
        return [*options, "--", argument[at:].strip()] if argument[at:].strip() else options

    has_source = True  # takes --source
    has_output = True  # takes --json, -o and --force

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.arguments import add_output_options
        from gdbmem.debugger.memwatch.settings import SOURCES

        if self.has_source:
            parser.add_argument("--source", choices=SOURCES, help="where the number comes from")
        if self.has_output:
            add_output_options(parser)
        else:
            parser.set_defaults(output=None, force=False)
        parser.add_argument(
            "argument", metavar="ARG", nargs="?", default="", help="as gdb's own command takes it"
        )

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.debugger.memwatch.auto import auto
        from gdbmem.report.output import open_output

        refuse_non_stop()
        with open_output(args.output, force=args.force) as stream:
            try:
                self.act(args, stream)
            finally:
                auto.stand_here()

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        """Run the program and write what came of it to *stream*."""
        raise NotImplementedError


class Stepping(Driving):
    """What the commands that step share."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.debugger.memwatch.settings import LOCKS

        parser.add_argument("--lock", choices=LOCKS, help="whether the other threads stand still")
        parser.add_argument("--timeout", metavar="TIME", help="let the other threads go after this long")
        super().add_arguments(parser)

    def orders(self, args: argparse.Namespace) -> Orders:
        from gdbmem.debugger.memwatch.settings import patience, setting
        from gdbmem.debugger.memwatch.stepping import LINE_COMMANDS, Orders

        command = self.name.split()[1]
        lock = args.lock or setting("lock")
        common = {"lock": lock, "timeout_seconds": patience(args.timeout), "source": args.source}
        if command in LINE_COMMANDS:
            return Orders(command, count=_count(args.argument), **common)
        return Orders(command, args.argument, **common)

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        from gdbmem.debugger.memwatch.showing import show_steps
        from gdbmem.debugger.memwatch.stepping import Stepper

        stepper = Stepper(self.orders(args))
        try:
            with stepper.prepared():
                stepper.run()
        finally:
            if stepper.steps:
                show_steps(stepper, json=args.json, stream=stream)


def _count(text: str) -> int:
    if not text:
        return 1
    try:
        count = int(gdb.parse_and_eval(text))
    except gdb.error as error:
        raise UsageError(
            f"'{text}' is no number of steps ({error})", hint="as in: memwatch next 20"
        ) from None
    if not 1 <= count <= _MOST_STEPS:
        raise UsageError(f"{count} is no number of steps", hint=f"a number from 1 to {_MOST_STEPS:,}")
    return count


def refuse_non_stop() -> None:
    """Raise TargetError in gdb's non-stop mode: the other threads never stand still there."""
    if gdb.parameter("non-stop"):
        raise TargetError(
            "memwatch needs gdb's all-stop mode, in which the other threads stand still while one is measured",
            slug="non-stop",
            hint="'set non-stop off' before the program is started",
        )


class StepCommand(Stepping):
    """`memwatch next`, `step`, `nexti`, `stepi`."""


class RunCommand(Stepping):
    """`memwatch until`, `advance`, `finish`."""


class ClearCommand(Command):
    """`memwatch clear`."""

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.debugger.memwatch.account import accounts

        accounts.forget()
        say("memwatch starts a new account.")


class ReportCommand(Command):
    """`memwatch report`."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.analysis.steps import GROUPINGS
        from gdbmem.arguments import add_output_options

        parser.add_argument("--by", choices=GROUPINGS, default="line", help="what a row stands for")
        parser.add_argument("--top", metavar="N", type=int, help="only the N largest changes")
        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.analysis.steps import sum_steps
        from gdbmem.debugger.memwatch.account import accounts
        from gdbmem.debugger.memwatch.showing import source_lines
        from gdbmem.report.output import open_output
        from gdbmem.report.steps import print_sums, steps_json

        if args.top is not None and args.top < 1:
            raise UsageError("--top takes a number from 1", hint="as in --top 5")
        steps = accounts.recorded().steps
        sums = sum_steps(steps, args.by)[: args.top]
        with open_output(args.output, force=args.force) as stream:
            if args.json:
                stream.write(steps_json(steps, sums, by=args.by))
            else:
                from gdbmem.debugger.terminal import console_on

                print_sums(sums, steps, console_on(stream), source_lines(), by=args.by)


class SourcesCommand(Command):
    """`memwatch sources`."""

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.debugger.memwatch.sources import describe_sources

        for line in describe_sources():
            sys.stdout.write(line + "\n")
