"""For how long the processes of a tree were stopped: memory that stays the same meanwhile proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

_STOPPED = "Tt"  # states in /proc/PID/stat: by a signal, by a debugger
_FROZEN = "D"  # as in a frozen cgroup; also of a process that waits for a disk, which runs from time to time


class StoppedTime:
    """Adds up the time during which all processes were stopped, as far as complete samples show it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: Optional[float] = None
        self._done: object = None

    def add(self, t: float, states: Sequence[str], done: object) -> None:
        """Take the *states* of all processes at time *t*, and what they have *done* until then: CPU time, faults.

        Stopped twice in a row, or frozen without having done anything, they were so in between.
        """
        moved, self._done = done != self._done, done
        if not states or any(state not in _STOPPED + _FROZEN for state in states):
            self._since = None
            return
        if self._since is not None and not (moved and _FROZEN in states):
            self.seconds += t - self._since
        self._since = t
