"""A thread of gdb that stops the running program when a condition becomes true. It never calls gdb."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable, Optional

import gdb

from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.program import start_thread
from gdbmem.debugger.stopping.ctrlc import interruptible
from gdbmem.debugger.stopping.interrupting import Interrupter, without_announcement


class Alarm:
    """Polls *is_due* during the `with`, and interrupts process *pid* when it is true.

    Ctrl-C interrupts it, too.
    """

    def __init__(
        self, pid: int, is_due: Callable[[], bool], *, every_seconds: float, captured: bool = False
    ) -> None:
        """*captured*: a Capture holds back gdb's output about the stop."""
        self.captured = captured
        self._capture = None if captured else Capture()  # of gdb's output about our own stop
        self._interrupter = Interrupter(pid, at_first=self._hold)
        self._is_due = is_due
        self._every = every_seconds
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._stack = contextlib.ExitStack()

    def _hold(self) -> None:
        if self._capture is not None and not self.captured:
            self._capture.hold()

    @property
    def stopped(self) -> bool:
        """True if this alarm stopped the program."""
        return self._interrupter.stopped

    @property
    def by_user(self) -> bool:
        """True if it was for Ctrl-C."""
        return self._interrupter.by_user

    def __enter__(self) -> Alarm:
        if self._capture is not None:
            self._capture.prepare()
        self._stack.enter_context(interruptible(self._interrupter))
        self._thread = start_thread(self._wait, "gdbmem-alarm")
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._capture is not None:
            self._capture.finish()
            self._capture.__exit__()
            gdb.write(without_announcement(self._capture.final_text))
        self._stack.close()

    def _wait(self) -> None:
        while not self._over.wait(self._every):
            if self._is_due():
                self._interrupter.interrupt()
                return
