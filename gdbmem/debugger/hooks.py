"""gdb commands with hooks of other extensions, which may fail after the command itself has succeeded."""

from __future__ import annotations

from typing import Callable

import gdb

from gdbmem.debugger.command import warn


def execute_despite_hooks(command: str, *, happened: Callable[[], bool]) -> None:
    """Run gdb's *command*; if it *happened* nevertheless, the error of an extension's hook is only a warning."""
    try:
        gdb.execute(command, to_string=True)
    except gdb.error as error:
        if not happened():
            raise
        words = " ".join(command.split()[:2])
        warn(
            f"'{words}' succeeded, but a hook of another gdb extension failed after it: {error}",
            slug="foreign-hook",
        )
