"""Monitor commands for the program's valgrind, and output of gdb that may contain any bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Callable

import gdb

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
    return _monitored(lambda: gdb_text(f"monitor {command}"))


def _monitored(ask: Callable[[], str]) -> str:
    require_program()
    try:
        return ask().strip()
    except gdb.error as error:
        if not program_runs():
            raise TargetError(
                f"the program ended during this command ({error})",
                slug="connection-lost",
                hint="what was captured before is in the run folder",
            ) from None
        raise not_under_massif() from None


def gdb_text(command: str) -> str:
    """Return the output of gdb's *command*; bytes that are not UTF-8 are lone surrogates.

    gdb's Python can't take them; gdb's `pipe` can.
    """
    # The name goes through a shell: TMPDIR may hold anything.
    with tempfile.TemporaryDirectory(prefix="gdbmem-", dir="/tmp") as folder:
        answer = Path(folder) / "answer"
        gdb.execute(f"pipe {command} | cat >{answer}", to_string=True)
        return answer.read_bytes().decode("utf-8", "surrogateescape")
