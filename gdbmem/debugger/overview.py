"""`gdbmem`: an overview of the other commands, and the explanation of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gdb

from gdbmem.debugger.command import Command
from gdbmem.report.messages import explain_message

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser


class OverviewCommand(Command):
    """Print the overview that `help gdbmem` prints, or the explanation of a message."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", nargs="?", choices=("help",), metavar="help")
        parser.add_argument("name", nargs="?", metavar="NAME")

    def run(self, args: argparse.Namespace) -> None:
        if args.name is None:
            gdb.execute("help gdbmem")
            return

        gdb.write(explain_message(args.name))
