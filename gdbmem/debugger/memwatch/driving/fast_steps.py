"""Fast path for `memwatch next N`: one reading per step and no other work.

Python code between two steps runs with cold caches and costs ten times as much as in a tight loop.
So ordinary steps are taken here, by one function; any other step is returned to the caller.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Optional

import gdb

from gdbmem.debugger.location import gdb_setting
from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.memwatch.driving.locking import Wait, Watcher
from gdbmem.debugger.memwatch.driving.loop_lines import loop_lines
from gdbmem.debugger.memwatch.driving.stop_recorder import recorder
from gdbmem.debugger.terminal import gdb_text, source_file

if TYPE_CHECKING:
    from gdbmem.debugger.memwatch.gauges.gauge import Gauge

Place = tuple[Optional[str], Optional[str], Optional[int]]  # function, file, line


class StopPlaces:
    """The function and line at each address where the program has stopped, cached because gdb is slow to find them."""

    def __init__(self) -> None:
        self._known: dict[int, Place] = {}

    def at(self, frame: gdb.Frame) -> Place:
        """Return the location of *frame*, the newest one."""
        pc = frame.pc()
        found = self._known.get(pc)
        # At one address gdb may be before a function inlined there, or in it.
        if found is None or frame.type() != gdb.NORMAL_FRAME:
            found = _place(frame)
            if frame.type() == gdb.NORMAL_FRAME:
                self._known[pc] = found
        return found


def _place(frame: gdb.Frame) -> Place:
    position = frame.find_sal()
    file = source_file(position.symtab)
    return frame.name(), file, position.line if file is not None else None


class FinishedStep(NamedTuple):
    """A step that ended normally."""

    place: Place  # where it started
    reading: Optional[int]
    exact: bool  # the reading
    note: str  # about it
    seconds: float


class Odd(NamedTuple):
    """A step that did not end normally, or that gdb refused."""

    frame: gdb.Frame  # where it started
    place: Place
    began: float  # perf_counter
    wait: Optional[Wait]
    error: Optional[gdb.error]


class Strides:
    """Takes consecutive steps of one thread."""

    def __init__(
        self, command: str, gauge: Gauge, watcher: Watcher, capture: Capture, places: StopPlaces
    ) -> None:
        self.taken: list[FinishedStep] = []
        self.frame: Optional[gdb.Frame] = None  # where the last one started
        self._command, self._gauge = command, gauge
        self._watcher, self._capture, self._places = watcher, capture, places
        self._loops = loop_lines.for_command(command)

    def take(self, most: int, thread: gdb.InferiorThread) -> Optional[Odd]:
        """Add up to *most* steps of *thread* to `taken`; return the first step that did not end normally, or None.

        It also returns before a line that loops, because breakpoints get over it faster.
        """
        with contextlib.ExitStack() as stack:
            if self._capture.holds_back and not _others_speak():
                stack.enter_context(_terse())
            return self._take(most, thread)

    def _take(self, most: int, thread: gdb.InferiorThread) -> Optional[Odd]:
        clock, gauge, loops = time.perf_counter, self._gauge, self._loops
        tid = thread.ptid[1] or thread.ptid[0]
        for _ in range(most):
            frame = gdb.newest_frame()
            if loops is not None and loops(frame) is not None:
                return None
            place, began, error = self._places.at(frame), clock(), None
            self._capture.forget()
            recorder.arm()
            self._watcher.begin(tid, place)
            try:
                gdb.execute(self._command)
            except gdb.error as failure:
                error = failure
            finally:
                wait = self._watcher.end()
            odd = error is not None or wait is not None or self._watcher.interrupter.by_user
            if odd or not recorder.is_plain(thread):
                return Odd(frame, place, began, wait, error)
            self.frame = frame
            self.taken.append(FinishedStep(place, recorder.reading, gauge.exact, gauge.note, clock() - began))
        return None


def _others_speak() -> bool:
    """Return whether the user has commands that run at stops: their output must be unchanged."""
    if any(one.commands for one in gdb.breakpoints() or ()):
        return True
    try:
        return bool(gdb.execute("show user hook-stop", to_string=True))
    except gdb.error:  # no such hook
        return False


@contextlib.contextmanager
def _terse() -> Iterator[None]:
    """Make gdb print little at each stop: a function's arguments and the source line take a tenth of a step."""
    with gdb_setting("print frame-info", "short-location"), gdb_setting("print frame-arguments", "presence"):
        yield


def in_full(said: str) -> str:
    """Return *said*, gdb's terse output about the last stop, with the complete frame."""
    try:
        with _terse():
            short = _frame()
        return said.replace(short, _frame(), 1) if short else said
    except gdb.error:  # nothing runs any more
        return said


def _frame() -> str:
    return gdb_text("frame").partition("#0  ")[2]
