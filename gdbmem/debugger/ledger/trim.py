"""memtrim: malloc_trim(0) in the stopped process; the bytes returned beside the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.arguments import add_output_options
from gdbmem.debugger.command import Command
from gdbmem.debugger.ledger.here import core_path, read_ledger_here
from gdbmem.debugger.ledger.malloc_calls import call_malloc, check_callable
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError
from gdbmem.report.ledger.ledger_json import returned_bytes, trim_json
from gdbmem.report.ledger.ledger_text import print_growth
from gdbmem.report.output import open_output
from gdbmem.units import format_size

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser


class TrimCommand(Command):
    """Predict, call, measure."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        if core_path() is not None:
            raise TargetError(
                "a core can't run malloc_trim",
                slug="trim-refused",
                hint="use 'memexplain' for what it would have returned",
            )
        with open_output(args.output, force=args.force) as stream:
            before = read_ledger_here()
            check_callable(before, "malloc_trim")
            call_malloc("malloc_trim", [0])
            after = read_ledger_here()
            if args.json:
                stream.write(trim_json(before, after))
                return

            stream.write(
                f"malloc_trim(0) returned {format_size(returned_bytes(before, after))};"
                f" {format_size(before.releasable_bytes or 0)} were predicted\n"
            )
            stream.flush()
            print_growth(before, after, console_on(stream), ("before", "after"))
