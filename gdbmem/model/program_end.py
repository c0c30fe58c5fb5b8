"""How a program ended, and whether it was meant to end so."""

from __future__ import annotations

import contextlib
import signal
from typing import Optional

from gdbmem.model.judgement import Unseen

_SIGNALLED = 128  # and the number of the signal: a status as in a shell


def describe_end(status: int) -> str:
    """Return how a program with *status*, as in a shell, ended: ``was ended by SIGKILL (status 137)``."""
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(status - _SIGNALLED).name} (status {status})"
    return f"ended with status {status}"


def name_status(status: int) -> str:
    """Return the word that a recipe's `ends:` has for *status*: a number, or the name of a signal."""
    with contextlib.suppress(ValueError):
        return signal.Signals(status - _SIGNALLED).name
    return str(status)


def unseen_end(
    status: Optional[int], meant: Optional[int] = 0, *, what: str = "", remedy: str = ""
) -> Optional[Unseen]:
    """Return why a program that ended with *status* hides what it would have done; None if it was *meant* to end so.

    Both are as in a shell: 128+N for signal N. *meant* None: any end; *status* None: unknown. *what* is known beside
    the status, a clause with the program as its subject; *remedy* is what to do if the program is meant to end so.
    """
    if meant is None or status == meant:
        return None
    if status is None:
        text = what or "how the program ended is unknown"
    else:
        text = f"{what} and {describe_end(status)}" if what else f"the program {describe_end(status)}"
    if meant:
        text += f", not {name_status(meant)} as expected"
    elif status is not None and remedy:
        text += f"; {remedy}"
    return Unseen("program-failed", text)
