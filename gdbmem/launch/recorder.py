"""The loop of a monitor: looks at a tree in step with the clock, keeps what it sees, ends as it should."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Callable, Optional, Protocol

from gdbmem.launch.watched import WatchedProgram
from gdbmem.linux.glance import Glance
from gdbmem.linux.tree import Look, Tree
from gdbmem.model.series import Mark, SeriesFacts
from gdbmem.runs.series_store import SeriesWriter

_THIN_EVERY_SECONDS = 60.0
_GRACE_SECONDS = 10.0  # that a program gets between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Plan:
    """How long to look, and how often."""

    interval_seconds: float
    duration_seconds: float = math.inf
    stays: bool = False  # go on when nothing is left: more may come


class View(Protocol):
    """Whoever shows what is going on."""

    def show(self, look: Look) -> None: ...

    def wants(self, glance: Glance) -> bool:
        """Tell whether *glance* is worth being decoded and shown as a look."""

    def note(self, text: str) -> None: ...

    def marked(self, mark: Mark) -> None: ...

    def keyboard(self) -> Optional[int]:
        """Return a descriptor with keys to read, if there is one."""

    def key(self) -> str:
        """Return what the key that waits asks for: "quit", "mark", "pause" or ""."""


class Recorder:
    """Looks at a tree until it is told to end, or nothing is left to look at."""

    def __init__(
        self,
        tree: Tree,
        writer: SeriesWriter,
        plan: Plan,
        view: View,
        *,
        clock: Callable[[], float],
        program: Optional[WatchedProgram] = None,
    ) -> None:
        """*clock* returns the seconds since the series began."""
        self._tree = tree
        self._writer = writer
        self._plan = plan
        self._view = view
        self._clock = clock
        self._program = program
        self._ending = ""
        self._wake = -1
        self._watched: list[int] = []
        self._kill_at: Optional[float] = None
        self._paused = False
        self._marks_seen = len(writer.marks_since(0))
        self._next_thin = clock() + _THIN_EVERY_SECONDS
        self._must_check = True  # whether something may have ended
        self._troubled = False
        self._denied_said = False

    def run(self) -> str:
        """Record; return what ended it: "exit", "time", "signal" or "quit"."""
        interval, duration = self._plan.interval_seconds, self._plan.duration_seconds
        with self._signals():
            begin = next_look = self._clock()
            while not self._ending:
                now = self._clock()
                if now >= next_look:
                    if self._looks_on and not self._glance(now):
                        self._look(now)
                        self._must_check = True
                    # In step with the clock; after a stall or a sleep with the next whole step.
                    next_look += max(int((now - next_look) / interval) + 1, 1) * interval
                if self._must_check or now - begin >= duration:
                    self._check_end(now - begin)
                if not self._ending:
                    self._sleep(max(next_look - self._clock(), 0.0))
            self._look_last()
        return self._ending

    @property
    def _looks_on(self) -> bool:
        # What a program does while it is being ended says nothing about the time before.
        return not self._paused and self._kill_at is None

    def _look_last(self) -> None:
        if self._looks_on and self._tree.alive:
            self._look(self._clock(), sweep=self._tree.reads_pss)

    def mark(self, text: str) -> None:
        """Set a mark here and now; may be called from another thread's loop step."""
        self._trouble(self._writer.mark(Mark(self._clock(), text)))

    def _glance(self, now: float) -> bool:
        """Read RSS only and tell so; False when it is time for a whole look."""
        glance = self._tree.glance(now)
        if glance is None:
            return False
        self._writer.glance(glance)
        self._take_marks()
        if self._view.wants(glance):
            self._view.show(Look(glance.t, glance.readings(), (), False, self._tree.alive, 0))
        return True

    def _look(self, now: float, *, sweep: Optional[bool] = None) -> None:
        look = self._tree.look(now, sweep=sweep)
        if look.readings or look.changed_lines:
            self._trouble(self._writer.append(look.t, look.readings, look.changed_lines))
        self._take_marks()
        for mark in self._writer.marks_since(self._marks_seen):
            self._marks_seen += 1
            self._view.marked(mark)
        if now >= self._next_thin:
            self._writer.thin(now)
            self._next_thin = now + _THIN_EVERY_SECONDS
        if self._tree.denied and not self._denied_said:
            self._denied_said = True
            self._view.note("some processes belong to other users: their PSS and USS can't be read, only RSS")
        self._view.show(look)

    def _take_marks(self) -> None:
        if self._program is not None:
            for line in self._program.take_marks():
                self.mark(line)

    def _trouble(self, reason: str) -> None:
        if reason and not self._troubled:
            self._view.note(
                f"the series can't be written now ({reason}); samples are kept in memory and tried again"
            )
        elif self._troubled and not reason:
            lost = self._writer.lost_looks
            self._view.note(f"the series is being written again; {lost or 'no'} writes were lost")
        self._troubled = bool(reason)

    def _check_end(self, elapsed: float) -> None:
        if self._program is not None:
            if self._program.poll() is not None:
                self._ending = self._ending or "exit"
            elif self._kill_at is not None and self._clock() >= self._kill_at:
                self._program.signal(signal.SIGKILL)
        elif not self._tree.alive and not self._plan.stays:
            self._ending = "exit"
        self._must_check = self._kill_at is not None
        if elapsed >= self._plan.duration_seconds:
            self._end_program("time")

    def _end_program(self, reason: str) -> None:
        if self._program is None or self._program.poll() is not None:
            self._ending = reason
        elif self._kill_at is None:
            self._look_last()
            self._program.signal(signal.SIGTERM)
            self._kill_at = self._clock() + _GRACE_SECONDS

    def _sleep(self, seconds: float) -> None:
        if self._kill_at is not None:
            seconds = min(seconds, 0.1)
        ready, _, _ = select.select(self._watched, [], [], seconds)
        if not ready:
            return
        self._must_check = True
        if self._wake in ready:
            for number in os.read(self._wake, 512):
                self._obey(number)
        if len(ready) > 1 or self._wake not in ready:
            self._press(self._view.key())

    def _obey(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self.mark("SIGUSR1")
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._end_program("signal")
        elif number == signal.SIGINT and self._program is None:
            self._ending = "signal"  # a program of ours has got it from the terminal too: its end is ours

    def _press(self, wish: str) -> None:
        if wish == "quit":
            self._end_program("quit")
        elif wish == "mark":
            self.mark(time.strftime("key %H:%M:%S"))
        elif wish == "pause":
            self._paused = not self._paused

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        self._wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers: Sequence[signal.Signals] = (
            signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH,
        )  # fmt: skip
        keyboard = self._view.keyboard()
        self._watched = [self._wake] if keyboard is None else [self._wake, keyboard]
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        old_wake = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_wake)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wake)
            os.close(write_end)


class SeriesClock:
    """Seconds since a series began; goes on through a suspended machine, not with clocks that are set."""

    def __init__(self, boot_seconds: float) -> None:
        self._begin = boot_seconds

    def __call__(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._begin


def clock_of(facts: SeriesFacts) -> SeriesClock:
    """Return the clock of a series that has begun already, also when the machine was started anew since."""
    if facts.boot_id == boot_id():
        return SeriesClock(facts.boot_seconds)
    return SeriesClock(time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - facts.began))


def boot_id() -> str:
    """Return what names this boot of this machine: the clock's zero."""
    with open("/proc/sys/kernel/random/boot_id") as stream:  # noqa: PTH123
        return stream.read().strip()
