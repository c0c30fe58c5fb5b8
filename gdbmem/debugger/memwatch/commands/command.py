"""`memwatch step|next|stepi|nexti|until|advance|finish`: gdb's own command, then the change of memory."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

import gdb

from gdbmem.commands.in_gdb import GDB_COMMANDS
from gdbmem.debugger.command import Command, say
from gdbmem.debugger.memwatch.commands.auto import auto
from gdbmem.debugger.memwatch.commands.settings import patience, setting
from gdbmem.debugger.memwatch.commands.showing import show_steps, source_lines
from gdbmem.debugger.memwatch.driving.stop_recorder import require_live_thread
from gdbmem.debugger.memwatch.gauges.gauge import accounts
from gdbmem.debugger.program import NATIVE, NOTHING, VALGRIND, target_kind
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import GdbmemError, TargetError, UsageError
from gdbmem.linux.memory.resident import known_exactness
from gdbmem.steps.steps import print_sums, steps_json, sum_steps
from gdbmem.terminal.console import open_output
from gdbmem.text import plural

if TYPE_CHECKING:
    from gdbmem.debugger.memwatch.driving.stepping import StepRequest

_MOST_STEPS = 10_000_000
# The options surround gdb's own argument, which is kept as typed.
_LATER_OPTIONS = re.compile(r"\s(?=--[a-z]|-o\s)")


class MemwatchCommand(Command):
    """`memwatch` alone, or with an unknown word."""

    def words(self, argument: str) -> list[str]:
        return ["--", argument] if argument.strip() else []

    def run(self, args: argparse.Namespace) -> None:
        if not args.subcommand:
            gdb.execute("help memwatch")
            return
        import difflib  # not always needed

        word = args.subcommand[0].split()[0]
        known = [
            name.split()[1] for one in GDB_COMMANDS for name in one.names if name.startswith("memwatch ")
        ]
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean 'memwatch {close[0]}'?" if close else "see 'help memwatch'"
        raise UsageError(f"there is no 'memwatch {word}'", hint=hint)


class Driving(Command):
    """The base of the commands that resume the program."""

    def words(self, argument: str) -> Sequence[str]:  # type: ignore[override]
        options, rest = self.leading_options(argument)
        later = _LATER_OPTIONS.search(rest)
        if later is not None:
            more, behind = self.leading_options(rest[later.end() :])
            options, rest = [*options, *more], f"{rest[: later.start()]} {behind}".strip()
        return [*options, "--", rest] if rest else options

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


class StepCommand(Driving):
    """`memwatch next`, `step`, `nexti`, `stepi`, `until`, `advance`, `finish`."""

    def request(self, args: argparse.Namespace) -> StepRequest:
        from gdbmem.debugger.memwatch.driving.stepping import StepRequest  # slow to import

        command = self.name.split()[1]
        lock = args.lock or setting("lock")
        common = {"lock": lock, "timeout_seconds": patience(args.timeout), "source": args.source}
        if command in ("next", "step", "nexti", "stepi"):
            return StepRequest(command, count=_count(args.argument), **common)
        return StepRequest(command, args.argument, **common)

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        from gdbmem.debugger.memwatch.driving.stepping import Stepper  # slow to import

        stepper = Stepper(self.request(args))
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


def refuse_non_stop() -> None:
    """Raise TargetError in gdb's non-stop mode, in which the other threads are never stopped."""
    if gdb.parameter("non-stop"):
        raise TargetError(
            "memwatch needs gdb's all-stop mode, in which the other threads are stopped while one is measured",
            slug="non-stop",
            hint="type 'set non-stop off' before the program starts",
        )


class ClearCommand(Command):
    """`memwatch clear`."""

    def run(self, args: argparse.Namespace) -> None:
        accounts.forget()
        say("memwatch starts a new recording.")


class ReportCommand(Command):
    """`memwatch report`."""

    def saved_names(self) -> list[str]:
        from gdbmem.debugger.memwatch.commands.saving import saved_names  # slow to import

        return saved_names()

    def run(self, args: argparse.Namespace) -> None:
        steps = accounts.recorded().steps
        if args.since is not None:
            from gdbmem.debugger.memwatch.commands.saving import report_since  # slow to import

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


def describe_sources() -> Iterator[str]:
    """Yield the lines of the explanation."""
    kind = target_kind()
    if kind == VALGRIND:
        yield "Under valgrind statm and smaps would measure valgrind itself; massif's own count is exact to the byte."
        yield "Threads run in turns there: gdb's scheduler-locking is accepted and has no effect."
    elif kind in (NATIVE, NOTHING):
        yield from _local()
    else:
        yield "smaps    exact, read through gdb's remote file access, about 2 ms per reading"
        yield "statm    as fast; whether it is exact depends on the other machine's kernel"
    if kind != VALGRIND:
        yield "heap     bytes in use by glibc's malloc, headers included: malloc(40) is 48"
    try:
        gauge = accounts.current().gauge
    except GdbmemError as error:
        yield f"Nothing is measured now: {error}."
        return
    yield f"memwatch uses {gauge.source} here, {'exact' if gauge.exact else 'which is not exact'}."


def _local() -> Iterator[str]:
    found = known_exactness()
    if found.statm_is_exact:
        yield "statm    exact on this kernel (tested page by page), under 10 µs per reading"
    elif found.statm_error_pages < 0:
        yield "statm    could not be tested on this kernel, and counts as not exact"
    else:
        off = plural(found.statm_error_pages, "page")
        yield f"statm    not exact on this kernel: off by up to {off}; under 10 µs per reading"
    yield "smaps    exact on every kernel; about 50 µs for a small process, 10 ms more per resident GiB"
    extra = ", and also counts pages that were only read" if found.zero_pages_counted else ""
    yield f"pagemap  pages present, one by one{extra}"
