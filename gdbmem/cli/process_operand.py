"""The operand of commands that read a process or a core, and the options for how to read it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Optional

from gdbmem.errors import UsageError
from gdbmem.text import printable


def checked_pid(
    word: Optional[str], *, core: Optional[str], command: str, reads_cores: bool = True
) -> Optional[int]:
    """Return the process id; None for a core. Raises UsageError if *word* is not one."""
    if core is not None:
        return None
    if word is None:
        if not reads_cores:
            raise UsageError("name a process", hint=f"gdbmem {command} PID")
        raise UsageError(
            "name a process or a core", hint=f"gdbmem {command} PID, or gdbmem {command} --core CORE"
        )
    if not word.isdecimal() or int(word) == 0:
        hint = "a core is named with --core" if reads_cores and Path(word).is_file() else "'ps' lists them"
        raise UsageError(f"{printable(word)} is not a process id", hint=hint)
    return int(word)


def check_pid(pid: int) -> int:
    """Return *pid*; raises UsageError if it is not a valid process id."""
    if pid <= 0:
        raise UsageError(f"{pid} is not a process id", hint="'ps' lists them")
    return pid


def is_process(word: str) -> bool:
    """Return whether *word* is a process id and not the name of a file."""
    return word.isascii() and word.isdecimal() and int(word) > 0 and not Path(word).exists()


def unwind_when_ended() -> None:
    """Make SIGTERM and SIGHUP raise an exception, so that the copy is collected and does not remain a zombie child."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
