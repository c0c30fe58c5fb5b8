"""`run` and `start` in a gdb that 'gdbmem launch' has started: each starts a fresh valgrind."""

from __future__ import annotations

import gdb

from gdbmem.debugger.command import Command, say
from gdbmem.debugger.location import entry
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.breakpoints import rearm_all
from gdbmem.errors import TargetError, UsageError
from gdbmem.launch.conversation.messages import AskTarget, ValgrindTarget


class _Restarting(Command):
    def carry_out(self, argument: str) -> None:
        arguments = _arguments(argument.strip() or gdb.parameter("args") or "")
        session.restart(arguments)
        session.arguments.show(arguments)
        rearm_all()
        say(f"A new valgrind runs the program (process {session.ask(AskTarget(), ValgrindTarget).pid}).")


class RunCommand(_Restarting):
    """`run`: a fresh valgrind, from the beginning."""

    def carry_out(self, argument: str) -> None:
        super().carry_out(argument)
        gdb.execute("continue")


class StartCommand(_Restarting):
    """`start`: the same, stopped at main."""

    def carry_out(self, argument: str) -> None:
        if entry() != "main":
            raise TargetError(
                "the program has no symbol 'main': it is stripped",
                slug="no-main",
                hint=f"'break {entry()}' and 'run' stop where libc is about to call it",
            )
        super().carry_out(argument)
        gdb.execute("tbreak main")
        gdb.execute("continue")


def _arguments(text: str) -> list[str]:
    try:
        words = session.arguments.read(text)
    except ValueError as error:
        raise UsageError(f"these arguments can't be read: {error}", hint="close the quotation") from None
    if any(word[0] in "<>|&" for word in words if word):
        raise UsageError(
            "input and output can't be redirected here",
            hint="quit gdb and launch with --stdin FILE or --stdout FILE",
        )
    return words
