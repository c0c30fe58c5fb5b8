"""`memwatch step|next|stepi|nexti|until|advance|finish`: gdb's own command, then the change of memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Optional, TextIO

import gdb

from gdbmem.arguments import add_output_options
from gdbmem.debugger.command import Command, say
from gdbmem.debugger.memwatch.commands.auto import auto
from gdbmem.debugger.memwatch.commands.settings import LOCKS, SOURCES, patience, setting
from gdbmem.debugger.memwatch.commands.showing import show_steps, source_lines
from gdbmem.debugger.memwatch.commands.sources import describe_sources
from gdbmem.debugger.memwatch.driving.stepping import Orders, Stepper
from gdbmem.debugger.memwatch.driving.stop_recorder import require_live_thread
from gdbmem.debugger.memwatch.gauges.account import accounts
from gdbmem.debugger.memwatch.registry import MEMWATCH_COMMANDS
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError, UsageError
from gdbmem.patterns import lazy_pattern
from gdbmem.steps.steps import GROUPINGS, print_sums, steps_json, sum_steps
from gdbmem.terminal.console import open_output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gdbmem.arguments import ArgumentParser

_MOST_STEPS = 10_000_000
# The options surround gdb's own argument, which is kept as typed.
LEADING_OPTION = lazy_pattern(
    r"\s*(--(?:lock|source|timeout|output|calls|every|above|for|until|top|profile)(?:=|\s+)(?:\"[^\"]*\"|'[^']*'|\S+)|-o\s+(?:\"[^\"]*\"|'[^']*'|\S+)"
    r"|--\w[\w-]*|-h)(?=\s|$)"
)
_LATER_OPTIONS = lazy_pattern(r"\s(?=--[a-z]|-o\s)")


class MemwatchCommand(Command):
    """`memwatch` alone, or with an unknown word."""

    def words(self, argument: str) -> list[str]:
        return ["--", argument] if argument.strip() else []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("subcommand", nargs="*")

    def run(self, args: argparse.Namespace) -> None:
        if not args.subcommand:
            gdb.execute("help memwatch")
            return
        import difflib  # 1 ms

        word = args.subcommand[0].split()[0]
        known = [name.split()[1] for one in MEMWATCH_COMMANDS for name in one.names if " " in name]
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean 'memwatch {close[0]}'?" if close else "see 'help memwatch'"
        raise UsageError(f"there is no 'memwatch {word}'", hint=hint)


class Driving(Command):
    """The base of the commands that resume the program."""

    def words(self, argument: str) -> Sequence[str]:  # type: ignore[override]
        options, rest = _leading_options(argument)
        later = _LATER_OPTIONS.search(rest)
        if later is not None:
            more, behind = _leading_options(rest[later.end() :])
            options, rest = [*options, *more], f"{rest[: later.start()]} {behind}".strip()
        return [*options, "--", rest] if rest else options

    has_source = True  # takes --source
    has_output = True  # takes --json, -o and --force

    def add_arguments(self, parser: ArgumentParser) -> None:
        if self.has_source:
            parser.add_argument("--source", choices=SOURCES, help="the source of the numbers")
        if self.has_output:
            add_output_options(parser)
        else:
            parser.set_defaults(output=None, force=False)
        parser.add_argument(
            "argument", metavar="ARG", nargs="?", default="", help="as gdb's own command takes it"
        )

    def run(self, args: argparse.Namespace) -> None:
        refuse_non_stop()
        require_live_thread()
        with open_output(args.output, force=args.force) as stream:
            try:
                self.act(args, stream)
            finally:
                auto.stand_here()

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        """Run the program and write the outcome to *stream*."""
        raise NotImplementedError


def _leading_options(text: str) -> tuple[list[str], str]:
    """Return the words of the options that *text* begins with, and the rest."""
    options: list[str] = []
    at = 0
    while match := LEADING_OPTION.match(text, at):
        options += gdb.string_to_argv(match[1])
        at = match.end()
    return options, text[at:].strip()


class Stepping(Driving):
    """The base of the commands that step."""

    takes_count = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--lock", choices=LOCKS, help="lock the other threads")
        parser.add_argument("--timeout", metavar="TIME", help="release the other threads after TIME")
        if self.takes_count:
            parser.add_argument(
                "--top", metavar="N", type=int, help="only the N largest changes of the table"
            )
        else:
            parser.set_defaults(top=None)
        super().add_arguments(parser)

    def orders(self, args: argparse.Namespace) -> Orders:
        command = self.name.split()[1]
        lock = args.lock or setting("lock")
        common = {"lock": lock, "timeout_seconds": patience(args.timeout), "source": args.source}
        if self.takes_count:
            return Orders(command, count=_count(args.argument), **common)
        return Orders(command, args.argument, **common)

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        check_top(args.top)
        stepper = Stepper(self.orders(args))
        try:
            with stepper.prepared():
                stepper.run()
        finally:
            if stepper.steps:
                show_steps(stepper, json=args.json, top=args.top, stream=stream)


def _count(text: str) -> int:
    if not text:
        return 1
    try:
        count = int(gdb.parse_and_eval(text))
    except gdb.error as error:
        raise UsageError(
            f"'{text}' is not a number of steps ({error})", hint="as in: memwatch next 20"
        ) from None
    if not 1 <= count <= _MOST_STEPS:
        raise UsageError(f"{count} is not a number of steps", hint=f"a number from 1 to {_MOST_STEPS:,}")
    return count


def check_top(top: Optional[int]) -> None:
    """Raise UsageError if --top selects no row at all."""
    if top is not None and top < 1:
        raise UsageError("--top takes a number from 1", hint="as in --top 5")


def refuse_non_stop() -> None:
    """Raise TargetError in gdb's non-stop mode, in which the other threads are never stopped."""
    if gdb.parameter("non-stop"):
        raise TargetError(
            "memwatch needs gdb's all-stop mode, in which the other threads are stopped while one is measured",
            slug="non-stop",
            hint="type 'set non-stop off' before the program starts",
        )


class StepCommand(Stepping):
    """`memwatch next`, `step`, `nexti`, `stepi`."""

    takes_count = True


class ResumeCommand(Stepping):
    """`memwatch until`, `advance`, `finish`."""


class ClearCommand(Command):
    """`memwatch clear`."""

    def run(self, args: argparse.Namespace) -> None:
        accounts.forget()
        say("memwatch starts a new recording.")


class ReportCommand(Command):
    """`memwatch report`."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--by", choices=GROUPINGS, default="line", help="one row per line, function, file or thread"
        )
        parser.add_argument("--top", metavar="N", type=int, help="only the N largest changes")
        parser.add_argument(
            "--since",
            metavar="NAME",
            help="compare with the steps that were saved as NAME, or with a file of them",
        )
        add_output_options(parser)

    def saved_names(self) -> list[str]:
        from gdbmem.debugger.memwatch.commands.saving import saved_names  # 40 ms

        return saved_names()

    def run(self, args: argparse.Namespace) -> None:
        check_top(args.top)
        steps = accounts.recorded().steps
        if args.since is not None:
            from gdbmem.debugger.memwatch.commands.saving import report_since  # 40 ms

            report_since(args, steps)
            return
        sums = sum_steps(steps, args.by)[: args.top]
        with open_output(args.output, force=args.force) as stream:
            if args.json:
                stream.write(steps_json(steps, sums, by=args.by))
            else:
                print_sums(sums, steps, console_on(stream), source_lines())


class SourcesCommand(Command):
    """`memwatch sources`."""

    def run(self, args: argparse.Namespace) -> None:
        for line in describe_sources():
            sys.stdout.write(line + "\n")
