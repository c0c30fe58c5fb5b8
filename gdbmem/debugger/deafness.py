"""Ctrl-C while a process of this machine runs under gdb: kept from gdb itself.

gdb makes a SIGINT to the process of it, which waits for ever in one that blocks SIGINT, and is taken by one that waits
for it (sigwait, signalfd). So SIGINT is blocked in gdb's own thread from when the process goes on until it stops. It
is pending meanwhile, where every thread of gdb's sees it.
"""

from __future__ import annotations

import contextlib
import signal

import gdb

_KEY = (signal.SIGINT,)


class Deafness:
    """Whether gdb hears Ctrl-C; it hears it again at each stop and each prompt."""

    def __init__(self) -> None:
        self.is_on = self._listens = False

    def begin(self) -> None:
        """Keep Ctrl-C from gdb until the program stops."""
        if self.is_on:
            return
        if not self._listens:
            gdb.events.stop.connect(lambda event: self.end())
            gdb.events.exited.connect(lambda event: self.end())
            gdb.events.before_prompt.connect(self.end)
            self._listens = True
        self.is_on = True
        signal.pthread_sigmask(signal.SIG_BLOCK, _KEY)

    def take(self) -> bool:
        """Tell, once, whether Ctrl-C was pressed and gdb hasn't heard it; any thread may ask."""
        return self.is_on and signal.sigtimedwait(_KEY, 0) is not None

    def end(self) -> None:
        """Let gdb hear again, but not what was pressed meanwhile."""
        if self.is_on:
            self.take()
            self.is_on = False
            with contextlib.suppress(KeyboardInterrupt):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEY)


deafness = Deafness()
