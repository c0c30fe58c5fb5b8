"""Monitor commands for the program's valgrind."""

from __future__ import annotations

from typing import Callable

import gdb

from gdbmem.debugger.gdb_text import piped_text
from gdbmem.debugger.location import program_runs
from gdbmem.debugger.session import not_under_massif, require_program
from gdbmem.errors import TargetError


def monitor(command: str) -> str:
    """Run *command* in valgrind's gdbserver and return its output, "" on success.

    Raises TargetError, with what to type instead, if there is no valgrind.
    """
    return _monitored(lambda: str(gdb.execute(f"monitor {command}", to_string=True)))


def monitor_text(command: str) -> str:
    """Return the same as monitor(), also if names in it are not UTF-8."""
    return _monitored(lambda: piped_text(f"monitor {command}"))


def _monitored(ask: Callable[[], str]) -> str:
    require_program()
    try:
        return ask().strip()
    except gdb.error as error:
        if not program_runs():
            raise TargetError(
                f"the program ended during this command ({error})",
                slug="connection-lost",
                hint="earlier snapshots are in the run folder",
            ) from None
        raise not_under_massif() from None
