"""`run` and `start` in a gdb that 'gdbmem launch' has started: each starts a fresh valgrind."""

from __future__ import annotations

import shlex
from typing import Optional

import gdb

from gdbmem.debugger.command import Command, say
from gdbmem.debugger.session import session
from gdbmem.errors import UsageError


class _Restarting(Command):
    category = gdb.COMMAND_RUNNING
    completer = gdb.COMPLETE_FILENAME

    def invoke(self, argument: str, from_tty: bool) -> None:
        self._argument = argument
        super().invoke("", from_tty)

    def restart(self) -> None:
        session.restart(_arguments(self._argument))
        say(f"A fresh valgrind runs the program (process {session.ask('target')['pid']}).")


class RunCommand(_Restarting):
    """Start the program again, under a fresh valgrind. Breakpoints are kept, the old history is saved.
    Usage: run [ARGUMENTS]

    Without ARGUMENTS the program gets those it had.
    """

    names = ("run",)

    def run(self, args: object) -> None:
        self.restart()
        gdb.execute("continue")


class StartCommand(_Restarting):
    """Start the program again, under a fresh valgrind, and stop at main.
    Usage: start [ARGUMENTS]
    """

    names = ("start",)

    def run(self, args: object) -> None:
        self.restart()
        gdb.execute("tbreak main")
        gdb.execute("continue")


def _arguments(text: str) -> Optional[list[str]]:
    if not text.strip():
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"these arguments can't be read: {error}", hint="close the quotation") from None
    if any(word[0] in "<>|&" for word in words if word):
        raise UsageError(
            "input and output can't be redirected here",
            hint="leave gdb and launch with --stdin FILE or --stdout FILE",
        )
    return words
