"""A thread of gdb's that stops the running program when a test comes true. gdb itself is never touched from it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Callable, Optional


class Alarm:
    """Tries *is_due* again and again while the `with` lasts, and interrupts process *pid* when it is true."""

    def __init__(self, pid: int, is_due: Callable[[], bool], *, every_seconds: float) -> None:
        self.rang = False
        self._pid = pid
        self._is_due = is_due
        self._every = every_seconds
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> Alarm:
        self._thread = threading.Thread(target=self._wait, name="gdbmem-alarm", daemon=True)
        # gdb's signals must go on reaching gdb's own thread.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _wait(self) -> None:
        while not self._over.wait(self._every):
            if self._is_due():
                self.rang = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGINT)
                return
