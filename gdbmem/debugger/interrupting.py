"""Stopping the running program from any thread of gdb's, without giving the program a signal.

gdb's own way is SIGINT: lost in a program that blocks it, taken by one that waits for it (sigwait, signalfd), and
stopped at, passed on or ignored as the user's `handle SIGINT` says. SIGSTOP can't be blocked, waited for or
handled. A traced thread that is about to take one stops for gdb first, and `queue-signal 0` there discards it: the
program never gets it. So gdb itself stops a thread beside the one that it reports.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.scheduler import scheduler_locking
from gdbmem.linux.holding.pending_signals import blocks, threads_it_waits_for, was_stopped_by_us

_MOST_TRIES = 5
_ANNOUNCEMENT = re.compile(r"\n?^(?:Program|Thread .*) received signal SIGSTOP, Stopped \(signal\)\.\n", re.M)


class Interrupter:
    """Stops the program that the selected inferior runs."""

    def __init__(self, pid: Optional[int], *, at_first: Callable[[], None] = lambda: None) -> None:
        """*pid* is the process, where it is one of this machine and gdb itself traces it; else None.

        *at_first* is called before the program is interrupted.
        """
        self.pid = pid
        self.by_user = False  # Ctrl-C was the reason
        self._at_first = at_first
        self._mutex = threading.Lock()
        # gdb's remote protocol knows one interrupt, which gdbserver makes a SIGINT of.
        self._name = "SIGSTOP" if pid is not None else "SIGINT"
        self._sent = self._closed = False
        self.stopped = False  # the latest interrupt did stop the program

    @contextlib.contextmanager
    def ready(self) -> Iterator[Interrupter]:
        """Make gdb stop at an interrupt, whatever `handle` said, until the `with` ends at a stop."""
        with stopping_at(self._name):
            gdb.events.stop.connect(self._on_stop)
            try:
                yield self
            finally:
                with self._mutex:
                    self._closed = True
                try:
                    self.settle()
                finally:
                    gdb.events.stop.disconnect(self._on_stop)

    def interrupt(self) -> None:
        """Stop the program; call it from any thread."""
        with self._mutex:
            if self._closed or (self._sent and self.pid is not None):
                return  # the command has ended; or the same stop answers both
            self._at_first()
            self._sent, self.stopped = True, False
            with contextlib.suppress(ProcessLookupError):
                self._send()

    def _send(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGSTOP)
        elif hasattr(gdb, "interrupt"):
            gdb.interrupt()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    def settle(self) -> bool:
        """At a stop: take back an interrupt that came too late. Return False where it may still come."""
        with self._mutex:  # what another thread says was sent has been
            if not self._sent or self.stopped:
                return True
        if self.pid is None:
            return False
        if gdb.selected_inferior().pid == self.pid:
            self._take_back(self.pid)
        self._sent = False
        return True

    def _take_back(self, pid: int) -> None:
        selected = gdb.selected_thread()
        with scheduler_locking("on"), Capture():
            for _ in range(_MOST_TRIES):
                thread = _late_for(pid) if not self.stopped else None
                if thread is None:
                    break
                # It takes a signal that waits, or that gdb holds for it, before it executes anything.
                thread.switch()
                gdb.execute("stepi", to_string=True)
            if selected is not None and selected.is_valid():
                selected.switch()

    def _on_stop(self, event: gdb.Event) -> None:
        if self._sent and getattr(event, "stop_signal", None) == self._name:
            self._sent, self.stopped = False, True
            gdb.execute("queue-signal 0", to_string=True)


def _late_for(pid: int) -> Optional[gdb.InferiorThread]:
    """Return the thread of *pid* that a late SIGSTOP of ours is to stop; None where there is none."""
    threads = {thread.ptid[1]: thread for thread in gdb.selected_inferior().threads()}
    selected = gdb.selected_thread()
    waiting = [threads[tid] for tid in threads_it_waits_for(pid, signal.SIGSTOP) if tid in threads]
    if selected in waiting:
        return selected
    # A thread other than the one that gdb reports may have stopped for it: gdb keeps that for later.
    held = (thread for tid, thread in threads.items() if was_stopped_by_us(tid, signal.SIGSTOP))
    return next(iter(waiting), None) or next(held, None)


def remote_blocks_interrupts() -> bool:
    """Tell whether the selected thread, behind gdbserver, blocks SIGINT; False where that can't be read."""
    pid, tid = gdb.selected_thread().ptid[:2]
    with tempfile.TemporaryDirectory(prefix="gdbmem-", dir="/tmp") as folder:
        answer = Path(folder) / "status"  # `remote get` takes no blank in a name
        try:
            gdb.execute(f"remote get /proc/{pid}/task/{tid or pid}/status {answer}", to_string=True)
            return blocks(answer.read_text(errors="replace"), signal.SIGINT)
        except (gdb.error, OSError):
            return False


def without_announcement(said: str) -> str:
    """Return what gdb *said* about a stop without the line that names the interrupt's signal."""
    return _ANNOUNCEMENT.sub("", said)


@contextlib.contextmanager
def without_pages() -> Iterator[None]:
    """Have gdb never ask for a key after a page of words: nobody reads them in the middle of a command of ours."""
    if not gdb.parameter("pagination"):
        yield
        return
    gdb.execute("set pagination off")
    try:
        yield
    finally:
        gdb.execute("set pagination on")


class _Handling(NamedTuple):
    """gdb's settings for a signal: stop, print, pass."""

    stop: bool
    print: bool
    passed: bool

    def words(self) -> str:
        names = (("stop", self.stop), ("print", self.print), ("pass", self.passed))
        return " ".join(name if wanted else f"no{name}" for name, wanted in names)


@contextlib.contextmanager
def stopping_at(name: str) -> Iterator[None]:
    """Have gdb stop at the signal *name*, and put back what the user's `handle` said."""
    before = _handling(name)
    if before.stop:
        yield
        return
    _handle(name, "stop print")
    try:
        yield
    finally:
        _handle(name, before.words())


def stops_at(name: str) -> bool:
    """Tell whether gdb stops at the signal *name*, as the user's `handle` says."""
    return _handling(name).stop


def _handling(name: str) -> _Handling:
    text = str(gdb.execute(f"info signals {name}", to_string=True))
    words = re.findall(rf"^{name}\s+(Yes|No)\s+(Yes|No)\s+(Yes|No)", text, re.M)
    return _Handling(*(word == "Yes" for word in words[0])) if words else _Handling(True, True, True)


def _handle(name: str, words: str) -> None:
    confirm = bool(gdb.parameter("confirm"))
    if confirm:  # gdb asks before it changes what SIGINT does
        gdb.execute("set confirm off")
    try:
        gdb.execute(f"handle {name} {words}", to_string=True)
    finally:
        if confirm:
            gdb.execute("set confirm on")
