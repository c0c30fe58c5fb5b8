"""For how long the processes of a tree were stopped: memory that stays the same meanwhile proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

_STOPPED = "Tt"  # states in /proc/PID/stat: by a signal, by a debugger


class StoppedTime:
    """Adds up the time during which all processes were stopped, as far as complete samples show it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: Optional[float] = None

    def add(self, t: float, states: Sequence[str]) -> None:
        """Take the *states* of all processes at time *t*: stopped twice in a row, they were so in between."""
        if not states or any(state not in _STOPPED for state in states):
            self._since = None
            return
        if self._since is not None:
            self.seconds += t - self._since
        self._since = t
