"""gdb's settings for a signal, as `handle` makes them, and signals that come as fast as gdb passes them on."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.location import gdb_setting
from gdbmem.debugger.program import start_thread
from gdbmem.linux.process.process import text_of
from gdbmem.linux.process.threads import switch_counts


class Handling(NamedTuple):
    """True if gdb stops at a signal, prints it, and passes it to the program."""

    stop: bool
    print: bool
    passed: bool

    def words(self) -> str:
        names = (("stop", self.stop), ("print", self.print), ("pass", self.passed))
        return " ".join(name if wanted else f"no{name}" for name, wanted in names)


def handling(name: str) -> Handling:
    """Return gdb's settings for the signal *name*."""
    text = str(gdb.execute(f"info signals {name}", to_string=True))
    words = re.findall(rf"^{name}\s+(Yes|No)\s+(Yes|No)\s+(Yes|No)", text, re.M)
    return Handling(*(word == "Yes" for word in words[0])) if words else Handling(True, True, True)


def handle(name: str, words: str) -> None:
    """Make gdb handle the signal *name* as *words* specify."""
    with gdb_setting("confirm", "off"):  # gdb asks before it changes what SIGINT does
        gdb.execute(f"handle {name} {words}", to_string=True)


@contextlib.contextmanager
def stop_at_signal(name: str) -> Iterator[None]:
    """Make gdb stop at the signal *name*, and restore the user's `handle` setting afterwards."""
    before = handling(name)
    if before.stop:
        yield
        return
    handle(name, "stop print")
    try:
        yield
    finally:
        handle(name, before.words())


# gdb's handling of SIGSTOP while one of gdbmem's is on its way.
#
# gdb stops threads by SIGSTOPs, too, and mistakes gdbmem's for its own if both arrive at the same time. It then
# treats its own as a foreign signal, and may keep it for a thread until that thread resumes. The thread cannot be
# determined: all threads that gdb stopped look alike. So gdb discards SIGSTOP until each of them has resumed.


NAME = "SIGSTOP"
_STOPPING = Handling(stop=True, print=True, passed=False)
_DISCARDED = Handling(stop=False, print=False, passed=False)


class StopSignal:
    """gdb's settings for SIGSTOP; one object per gdb."""

    def __init__(self) -> None:
        self._users: Optional[Handling] = None  # while ours is another one
        self._ours = _STOPPING
        self._senders = 0
        self._pid = 0
        # Per thread for which gdb may keep one: how often it has given up its processor.
        self._switches: dict[int, int] = {}

    @property
    def is_owed(self) -> bool:
        """True if gdb keeps one for a thread."""
        return bool(self._switches)

    def stop(self) -> None:
        """Make gdb stop at one, until `rest`."""
        self._senders += 1
        self._set()

    def rest(self) -> None:
        """The one for which `stop` was called has stopped the program, or can't any more."""
        self._senders -= 1
        self._set()

    def owe(self, pid: int) -> None:
        """Make gdb discard one for any thread of *pid*, all of which are stopped; the reported thread has none."""
        selected = gdb.selected_thread()
        reported = selected.ptid[1] if selected is not None else 0
        others = {tid: count for tid, count in switch_counts(pid).items() if tid != reported}
        if others and not self._switches:
            gdb.events.stop.connect(self._look)
            gdb.events.exited.connect(self._forget)
        self._pid, self._switches = pid, others
        self._set()

    def came(self) -> None:
        """gdb has reported the one that it kept."""
        self._keep({})

    def _look(self, event: gdb.Event) -> None:
        # A thread for which gdb keeps an event does not resume before the event is reported.
        now = switch_counts(self._pid)
        self._keep({tid: count for tid, count in self._switches.items() if now.get(tid) == count})

    def _forget(self, event: gdb.Event) -> None:
        self._keep({})

    def _keep(self, switches: dict[int, int]) -> None:
        if self._switches and not switches:
            gdb.events.stop.disconnect(self._look)
            gdb.events.exited.disconnect(self._forget)
        self._switches = switches
        self._set()

    def _set(self) -> None:
        if not self._senders and not self._switches:
            if self._users is not None and handling(NAME) == self._ours:  # the user has not typed another one
                handle(NAME, self._users.words())
            self._users = None
            return
        if self._users is None:
            self._users = handling(NAME)
        self._ours = _STOPPING if self._senders else _DISCARDED
        handle(NAME, self._ours.words())


stop_signal = StopSignal()


# Ctrl-C in a long computation of ours: gdb aborts where it comes while Python asks gdb about symbols.


_KEY = (signal.SIGINT,)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Keep Ctrl-C from gdb; yield a function that raises KeyboardInterrupt once it was pressed.

    Where SIGINT is blocked already, whoever blocked it takes the key, and the function never raises.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _KEY)
    is_ours = signal.SIGINT not in before

    def check() -> None:
        if is_ours and signal.sigtimedwait(_KEY, 0) is not None:
            raise KeyboardInterrupt

    try:
        yield check
        check()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_SAMPLES, _PAUSE_SECONDS = 50, 0.1  # of one look
_MOST = 0.5  # of them, as a fraction, that may have a signal waiting
_STOPS = 100  # a second at least: otherwise gdb is at work, and the program waits for that


def watch_for_storm(pid: int, progress: Callable[[], int], tell: Callable[[], None]) -> None:
    """Call *tell* in gdb's own thread, once, when process *pid* does little but handle signals for some seconds.

    It gets on if *progress* returns another number.
    """

    def watch() -> None:
        while (found := _is_in_storm(pid, progress)) is not None:
            if found:
                gdb.post_event(tell)
                return

    start_thread(watch, "signals")


def _is_in_storm(pid: int, progress: Callable[[], int]) -> Optional[bool]:
    """Return whether signals alone keep the process busy, as far as can be seen; None if it has ended."""
    before, waiting, stops = progress(), 0, []
    for _ in range(_SAMPLES):
        time.sleep(_PAUSE_SECONDS)
        try:
            lines = text_of(f"/proc/{pid}/status").splitlines()
        except OSError:
            return None
        facts = dict(line.partition(":\t")[::2] for line in lines)
        pending = int(facts["SigPnd"], 16) | int(facts["ShdPnd"], 16)
        waiting += bool(pending & ~int(facts["SigBlk"], 16))
        stops.append(int(facts["voluntary_ctxt_switches"]))
    is_stopped_often = stops[-1] - stops[0] > _STOPS * _SAMPLES * _PAUSE_SECONDS
    return is_stopped_often and waiting > _MOST * _SAMPLES and progress() == before
