"""The gdb commands, as data: registration, help, documentation and tests read this one list."""

from __future__ import annotations

import gdb

from gdbmem.debugger.breakpoints import BreakCommand
from gdbmem.debugger.command import Command
from gdbmem.debugger.snapshots import AllCommand, DiffCommand, ListCommand, SnapCommand

COMMANDS: tuple[type[Command], ...] = (SnapCommand, DiffCommand, ListCommand, BreakCommand, AllCommand)


class OverviewCommand(Command):
    """gdbmem: which line makes this program grow, and why does it not get smaller again?

    massif-snap [NAME]        take a heap snapshot here               (also: memsnap)
    massif-diff [A [B]]       what grew between two snapshots         (also: memdiff)
    massif-list               the snapshots of this run               (also: memlist)
    massif-break LOCATION     take one whenever the program gets there (also: membreak)
    massif-all                massif's own history of the whole run

    They need a program under massif: leave gdb and type  gdbmem launch --massif PROGRAM
    'help massif-snap' and so on explain each, with an example.
    """

    names = ("gdbmem",)
    category = gdb.COMMAND_DATA

    def run(self, args: object) -> None:
        gdb.execute("help gdbmem")


def register() -> None:
    """Register every command under each of its names."""
    commands: tuple[type[Command], ...] = (*COMMANDS, OverviewCommand)
    for command in commands:
        for name in command.names:
            command(name)
