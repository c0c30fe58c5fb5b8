"""Signals that come as fast as gdb passes them on to the program, which then gets on slowly or not at all."""

from __future__ import annotations

import time
from typing import Callable, Optional

import gdb

from gdbmem.debugger.program import start_thread
from gdbmem.linux.process.process import text_of

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
