"""`gdbmem`: what the other commands are for."""

from __future__ import annotations

import gdb

from gdbmem.debugger.command import Command


class OverviewCommand(Command):
    """Print the overview that `help gdbmem` prints."""

    def run(self, args: object) -> None:
        gdb.execute("help gdbmem")
