"""Stopping the running program from any thread of gdb, without delivering a signal to the program.

gdb itself uses SIGINT: it is lost in a program that blocks it, consumed by one that waits for it (sigwait,
signalfd), and treated as the user's `handle SIGINT` specifies. SIGSTOP can't be blocked, waited for or
handled. A traced thread that is about to receive one stops for gdb first, and `queue-signal 0` then discards it: the
program never gets it. gdb itself stops all other threads in this way.

If a SIGSTOP arrives while gdb stops threads, gdb mistakes it for its own. So gdb's main thread sends gdbmem's SIGSTOP
between two events of the program, and continues when a thread has stopped for it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import gdb

from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.program import scheduler_locking, start_thread
from gdbmem.debugger.stopping.signals import stop_at_signal, stop_signal
from gdbmem.debugger.stopping.stops import is_quiet, quietly
from gdbmem.linux.holding.ptrace import blocks, pending_signals, send_marked, stop_mark, waits_for_process
from gdbmem.linux.process.process import parse_status, thread_ids

_MOST_TRIES = 5
_TAKEN_SECONDS, _POLL_SECONDS = 0.02, 0.0002  # a thread takes it at once, unless the kernel keeps it busy
_ANNOUNCEMENT = re.compile(r"\n?^(?:Program|Thread .*) received signal SIGSTOP, Stopped \(signal\)\.\n", re.M)
_LOST_SECONDS, _LOOKS = 0.1, 3  # three looks in a row: what is on its way has come by then
_marks = itertools.count(1)


class Interrupter:
    """Stops the program that the selected inferior runs."""

    def __init__(self, pid: Optional[int], *, at_first: Callable[[], None] = lambda: None) -> None:
        """*pid* is the process if it is on this machine and gdb itself traces it; else None.

        *at_first* is called before the program is interrupted.
        """
        self.pid = pid
        self.by_user = False  # Ctrl-C was the reason
        self._at_first = at_first
        # gdb's remote protocol knows one interrupt, which gdbserver makes a SIGINT of.
        self._name = "SIGSTOP" if pid is not None else "SIGINT"
        self._asked = self._sent = self._open = self._handled = False
        self._mark = 0  # of the one that was sent last
        self.stopped = False  # the latest interrupt did stop the program

    @contextlib.contextmanager
    def ready(self) -> Iterator[Interrupter]:
        """Let `interrupt` stop the program, whatever `handle` specifies, until the `with` ends at a stop."""
        gdb.events.stop.connect(self._on_stop)
        self._open = True
        try:
            with stop_at_signal(self._name) if self.pid is None else contextlib.nullcontext():
                yield self
        finally:
            self._open = False
            try:
                self._take_back()
            finally:
                gdb.events.stop.disconnect(self._on_stop)

    def interrupt(self) -> None:
        """Stop the program; call it from any thread."""
        if self._asked or not self._open:
            return  # the same stop answers both; or the command has ended
        if self.pid is not None:
            self._asked = True
            gdb.post_event(self._send)
            return
        self._at_first()
        self._sent = True
        interrupt_gdb()

    def _send(self) -> None:
        # gdb gets here when it waits for the program, also when that is another command's, or a step of settle()'s.
        if not self._asked or not self._open or self._sent or self.pid is None or is_quiet():
            return
        self._at_first()
        if not self._handled:
            self._handled = True
            stop_signal.stop()
        self._mark = next(_marks)
        with contextlib.suppress(ProcessLookupError):
            send_stop(self.pid, self._mark)
            self._sent = True
            self._wait_until_taken(self.pid)

    def _wait_until_taken(self, pid: int) -> None:
        deadline = time.monotonic() + _TAKEN_SECONDS
        while self._holder(pid) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def settle(self) -> bool:
        """Withdraw, at a stop, an interrupt that came too late, for the next stop.

        Return False if it may still come.
        """
        self._take_back()
        came = self.stopped or not self._sent
        self.stopped = False
        if self._asked and self.pid is not None:  # while it was withdrawn
            gdb.post_event(self._send)
        return came

    def _take_back(self) -> None:
        self._asked = False
        if self.pid is None:
            return
        owes = False
        if self._sent and gdb.selected_inferior().pid == self.pid:
            with _key_waiting(), quietly(), scheduler_locking("on"), Capture():
                owes = not self._stop_for_it(self.pid)
        self._sent = False
        if self._handled:
            self._handled = False
            stop_signal.rest()
        if owes:
            stop_signal.owe(self.pid)

    def _stop_for_it(self, pid: int) -> bool:
        """Stop the thread for which a late SIGSTOP is pending; return whether it was found."""
        selected = gdb.selected_thread()
        for _ in range(_MOST_TRIES):
            thread = self._late_thread(pid)
            if thread is None:
                break
            # It takes a signal that waits, or that gdb holds for it, before it executes anything.
            thread.switch()
            with _sent_again_where_lost(pid, thread.ptid[1], self._mark) as sent:
                gdb.execute("next" if _hides_calls() else "stepi", to_string=True)
            self._sent |= bool(sent) and waits_for_process(pid, signal.SIGSTOP)
            if not self._sent:
                break
        if selected is not None and selected.is_valid():
            selected.switch()
        return not self._sent

    def _late_thread(self, pid: int) -> Optional[gdb.InferiorThread]:
        holder = self._holder(pid)  # gdb keeps that for later; or took it for its own, which still waits
        if holder is not None:
            return next((one for one in gdb.selected_inferior().threads() if one.ptid[1] == holder), None)
        return gdb.selected_thread() if waits_for_process(pid, signal.SIGSTOP) else None

    def _holder(self, pid: int) -> Optional[int]:
        """Return the thread that is still where the last SIGSTOP stopped it."""
        return next((tid for tid in thread_ids(pid) if stop_mark(tid, signal.SIGSTOP) == self._mark), None)

    def _on_stop(self, event: gdb.Event) -> None:
        if not self._sent or getattr(event, "stop_signal", None) != self._name:
            return
        gdb.execute("queue-signal 0", to_string=True)
        self.stopped = self.stopped or not is_quiet()
        if self.pid is not None and stop_signal.is_owed and not self._is_at_ours():
            stop_signal.came()  # ours is still to come
        else:
            self._sent = self._asked = False

    def _is_at_ours(self) -> bool:
        thread = gdb.selected_thread()
        return thread is not None and stop_mark(thread.ptid[1], signal.SIGSTOP) == self._mark


def interrupt_gdb() -> None:
    """Do what Ctrl-C does in gdb; call it from any thread."""
    if hasattr(gdb, "interrupt"):
        gdb.interrupt()
    else:
        os.kill(os.getpid(), signal.SIGINT)


def _hides_calls() -> bool:
    """Return whether a function is inlined here that gdb shows as not yet called, as at the end of a step.

    After `stepi` gdb would show the program inside it, although nothing was executed.
    """
    try:
        position = gdb.newest_frame().find_sal()
    except gdb.error:
        return False
    return position.symtab is not None and not position.pc


def send_stop(pid: int, mark: int) -> None:
    """Send *pid* a SIGSTOP that the thread which takes it is known by."""
    send_marked(pid, signal.SIGSTOP, mark)


@contextlib.contextmanager
def _sent_again_where_lost(pid: int, tid: int, mark: int) -> Iterator[list[int]]:
    """Send *mark* repeatedly until the `with` ends, if thread *tid* sleeps in a call and nothing will wake it.

    gdb may mistake the signal for its own and resume the thread. Yields a list
    of the marks that were sent.
    """
    is_back, sent = threading.Event(), []

    def watch() -> None:
        looks = 0
        while not is_back.wait(_LOST_SECONDS):
            looks = looks + 1 if _sleeps(pid, tid) else 0
            if looks == _LOOKS:
                looks = 0
                with contextlib.suppress(OSError):
                    send_stop(pid, mark)
                    sent.append(mark)

    thread = start_thread(watch, "gdbmem-stop-again")
    try:
        yield sent
    finally:
        is_back.set()
        thread.join()


def _sleeps(pid: int, tid: int) -> bool:
    """Return whether thread *tid* runs, sleeps in a call, and no SIGSTOP waits for it."""
    try:
        state = Path(f"/proc/{pid}/task/{tid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "S" and signal.SIGSTOP not in pending_signals(pid)


@contextlib.contextmanager
def _key_waiting() -> Iterator[None]:
    """Make Ctrl-C wait until the `with` ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def remote_blocks_interrupts() -> bool:
    """Return whether the selected thread, behind gdbserver, blocks SIGINT; False if that can't be read."""
    pid, tid = gdb.selected_thread().ptid[:2]
    with tempfile.TemporaryDirectory(prefix="gdbmem-", dir="/tmp") as folder:
        answer = Path(folder) / "status"  # `remote get` takes no blank in a name
        try:
            gdb.execute(f"remote get /proc/{pid}/task/{tid or pid}/status {answer}", to_string=True)
            return blocks(parse_status(answer.read_text(errors="replace")), signal.SIGINT)
        except (gdb.error, OSError):
            return False


def without_announcement(text: str) -> str:
    """Return *text*, gdb's report of a stop, without the line that names the interrupt's signal."""
    return _ANNOUNCEMENT.sub("", text)


_EINTR, _RESTART = -4, -514  # the second is ERESTARTNOHAND: "restart it, unless a handler is called first"


def restart_call() -> None:
    """Have the kernel restart the system call of the thread that has stopped, if the stop has ended it by EINTR.

    That is so for epoll_wait, semop, … (signal(7)); others are restarted anyway. On x86-64 only: elsewhere gdb
    does not show which call it was.
    """
    with contextlib.suppress(gdb.error, ValueError):
        frame = gdb.newest_frame()
        if int(frame.read_register("orig_rax")) >= 0 and int(frame.read_register("rax")) == _EINTR:
            frame.select()
            gdb.execute(f"with language c -- set variable $rax = {_RESTART}", to_string=True)
