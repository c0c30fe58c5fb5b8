"""The loop of a monitor: samples a tree at regular times, stores the samples, and handles its end."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.monitoring.sampling import Glance, family_row
from gdbmem.linux.monitoring.tree import Look, Tree
from gdbmem.model.series import TREE, Mark, ProcessSample
from gdbmem.recording.watched_program import WatchedProgram
from gdbmem.series.store import SeriesWriter
from gdbmem.series.watching import View

_THIN_EVERY_SECONDS = 60.0
_GRACE_SECONDS = 10.0  # time for a program to end after a signal
_DEAF_SECONDS = 0.1  # after the births of other programs: a child that lives for longer is seen


class SamplingPlan(NamedTuple):
    """The duration and the interval of a recording."""

    interval_seconds: float
    duration_seconds: float = math.inf
    stays: bool = False  # continue when no process is left: more may start


class SeriesRecorder:
    """Samples a tree until a signal, a key or the end of all processes."""

    def __init__(
        self,
        tree: Tree,
        writer: SeriesWriter,
        plan: SamplingPlan,
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
        self._poll = select.poll()  # signals and keys
        self._listening = select.poll()  # and births
        self._kill_at: Optional[float] = None
        self._passed_on = 0  # the signal that was received, and passed on to the program
        self._paused = False
        self._marks_seen = len(writer.marks_since(0))
        self._reports = None if program is None else program.reports
        self._last_mark = self._sampled_mark = -math.inf  # the last one, and the last that had a sample
        self._next_thin = clock() + _THIN_EVERY_SECONDS
        self._must_check = True  # whether something may have ended
        self._troubled = False
        self._noted: set[str] = set()

    def run(self) -> str:
        """Record; return the reason for the end: "exit", "time", "signal" or "quit"."""
        with self._signals():
            begin = next_look = self._clock()
            end = begin + self._plan.duration_seconds
            while not self._ending:
                now = self._clock()
                if now >= next_look:
                    if self._looks_on:
                        self._look(now)
                        self._must_check = True
                    next_look = self._after(next_look, now)
                    if self._last_mark > now and self._is_due_for_a_mark(now):
                        next_look = self._clock()  # the sample began before the mark
                if self._must_check or now >= end:
                    self._check_end(now - begin)
                if self._looks_on and not self._ending:
                    next_look = self._glance(next_look, end)
                if not self._ending:
                    next_look = self._sleep(next_look, end)
            self._look_last()
        if self._program is not None:
            self._program.finish()
            self._take_marks()
            peak = self._program.peak_bytes
            if peak is not None:
                self._trouble(
                    self._writer.append(self._clock(), [(TREE, ProcessSample(peak_rss_bytes=peak))])
                )
        return self._ending

    def _after(self, look: float, now: float) -> float:
        """Return the time of the sample after *look*: a multiple of the interval, also after a stall."""
        interval = self._plan.interval_seconds
        return look + max(int((now - look) / interval) + 1, 1) * interval

    def _glance(self, next_look: float, end: float) -> float:
        """Read RSS only, repeatedly from *next_look* on, until other work is due; return when that is.

        After each sleep the processor's caches are cold: the cost depends on the memory touched here.
        """
        until, lines, read, read_family = self._tree.glances
        clock, keep, interval = self._clock, self._writer.glance, self._plan.interval_seconds
        searches = self._tree.events is None
        tells = self._program is not None or self._view.shows_glances
        listen = wait = self._listening.poll
        now, last = clock(), min(until, end)
        while True:
            due = min(next_look, end)
            until_heard = due if wait is listen else min(due, now + _DEAF_SECONDS)
            ready = wait(1000 * max(until_heard - now, 0.0))
            now = clock()
            if ready:
                if self._hears_a_mark(ready, now):
                    return now
                if not self._is_only_of_births(ready) or self._tree.has_grown(now):
                    break
                wait = self._poll.poll  # a machine on which many programs start must not keep this loop awake
                continue
            if now < due:
                wait = listen
                continue
            if now >= last or (searches and self._tree.has_grown(now)) or not (statm := read()):
                break
            glance = Glance(now, lines, statm, family_row(read_family()) if read_family is not None else b"")
            keep(glance)
            if tells:
                self._tell(glance)
            wait = listen
            next_look += interval
            if next_look <= now:
                next_look = self._after(next_look, now)
        return next_look

    def _hears_a_mark(self, ready: Sequence[tuple[int, int]], now: float) -> bool:
        """Take new marks if *ready* has their descriptor; return whether to take a sample at once."""
        events = dict(ready).get(self._reports or -1, 0)
        if events & select.POLLHUP and self._reports is not None:  # it would stay ready forever
            self._listening.unregister(self._reports)
            self._poll.unregister(self._reports)
            self._reports = None
        if events:
            self._take_marks()
        return bool(events) and self._is_due_for_a_mark(now)

    def _is_due_for_a_mark(self, now: float) -> bool:
        """Return whether to take a sample at once for a mark, at most one in an interval.

        Memory is often lowest at a mark, for a time that the interval misses.
        """
        is_due = now - self._sampled_mark >= self._plan.interval_seconds
        self._sampled_mark = now if is_due else self._sampled_mark
        return is_due

    def _is_only_of_births(self, ready: Sequence[tuple[int, int]]) -> bool:
        births = self._tree.events
        heard = {descriptor for descriptor, _ in ready} - {self._reports}
        return not heard or (births is not None and heard == {births.fileno()})

    def _tell(self, glance: Glance) -> None:
        self._take_marks()
        if self._view.shows_glances:
            self._view.show(Look(glance.t, glance.readings(), (), False, self._tree.alive))

    @property
    def _looks_on(self) -> bool:
        # Changes while a program is being ended do not count for the time before.
        return not self._paused and self._kill_at is None

    def _look_last(self) -> None:
        if self._looks_on and self._tree.alive:
            self._look(self._clock(), sweep=self._tree.reads_pss)

    def _mark(self, text: str) -> None:
        self._trouble(self._writer.mark(Mark(self._clock(), text)))

    def _look(self, now: float, *, sweep: Optional[bool] = None) -> None:
        look = self._tree.look(now, sweep=sweep)
        limit = self._tree.limit
        if limit is not None:
            self._writer.limit(limit.size_bytes, limit.whose)
        if look.readings or look.changed_lines:
            self._trouble(self._writer.append(look.t, look.readings, look.changed_lines))
        self._take_marks()
        for mark in self._writer.marks_since(self._marks_seen):
            self._marks_seen += 1
            self._view.marked(mark)
        if now >= self._next_thin:
            self._writer.thin(now)
            self._next_thin = now + _THIN_EVERY_SECONDS
        self._warn()
        self._view.show(look)

    def _warn(self) -> None:
        """Report, once each, facts that the numbers don't show."""
        if self._writer.has_gone:
            self._note_once(
                "the run folder has been removed, renamed or replaced; the recording is lost if it was removed"
            )
        if self._tree.denied:
            self._note_once("some processes belong to other users: their PSS and USS can't be read, only RSS")
        if self._tree.events_lost:
            self._writer.doubt_threads()
            self._note_once("the kernel has dropped process events: threads started are a lower bound")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._view.note(text)

    def _take_marks(self) -> None:
        if self._program is not None:
            for boottime, line in self._program.take_marks():
                ago = time.clock_gettime(time.CLOCK_BOOTTIME) - boottime
                self._last_mark = self._clock() - ago
                self._trouble(self._writer.mark(Mark(self._last_mark, line)))

    def _trouble(self, reason: str) -> None:
        if reason and not self._troubled:
            self._view.note(
                f"the series can't be written at present ({reason}); samples are kept in memory until it can be"
            )
        elif self._troubled and not reason:
            lost = self._writer.lost_writes
            self._view.note(f"the series is being written again; {lost or 'no'} writes were lost")
        self._troubled = bool(reason)

    def _check_end(self, elapsed: float) -> None:
        if self._program is not None:
            if self._program.poll() is not None:
                self._ending = self._ending or "exit"
            elif self._kill_at is not None and self._clock() >= self._kill_at:
                self._end_or_leave(self._program)
        elif not self._tree.alive and not self._plan.stays:
            self._ending = "exit"
        self._must_check = self._kill_at is not None
        if elapsed >= self._plan.duration_seconds:
            self._end_program("time")

    def _end_program(self, reason: str, number: signal.Signals = signal.SIGTERM) -> None:
        if self._program is None or self._program.poll() is not None:
            self._ending = reason
        elif self._kill_at is None:
            self._look_last()
            self._program.signal(number)
            self._kill_at = self._clock() + _GRACE_SECONDS
            self._passed_on = number if reason == "signal" else 0

    def _end_or_leave(self, program: WatchedProgram) -> None:
        if not self._passed_on:
            program.signal(signal.SIGKILL)
            return
        name = signal.Signals(self._passed_on).name
        self._view.note(f"the program, pid {program.pid}, did not end on {name} and is left running")
        program.leave(128 + self._passed_on)
        self._ending = "signal"

    def _sleep(self, next_look: float, end: float) -> float:
        """Wait until *next_look*, *end*, a signal, a key or a mark; return the time of the next sample."""
        seconds = max(min(next_look, end) - self._clock(), 0.0)
        if self._kill_at is not None:
            seconds = min(seconds, 0.1)
        events = self._poll.poll(1000 * seconds)
        ready = {descriptor for descriptor, _ in events} - {self._reports}
        now = self._clock()
        if self._hears_a_mark(events, now):
            next_look = now
        if not ready:
            return next_look
        self._must_check = True
        if self._wake in ready:
            for number in os.read(self._wake, 512):
                self._obey(number)
        if ready != {self._wake}:
            self._press(self._view.key())
        return next_look

    def _obey(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._mark("SIGUSR1")
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._end_program("signal", signal.Signals(number))
        elif number == signal.SIGINT and self._program is None:
            self._ending = "signal"  # a started program gets it from the terminal, too: its end ends us

    def _press(self, wish: str) -> None:
        if wish == "quit":
            self._end_program("quit")
        elif wish == "mark":
            self._mark(time.strftime("key %H:%M:%S"))
        elif wish == "pause":
            self._paused = not self._paused

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        self._wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers: Sequence[signal.Signals] = (
            signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH,
        )  # fmt: skip
        for descriptor in (self._wake, self._view.keyboard(), self._reports):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
                self._listening.register(descriptor, select.POLLIN)
        if self._tree.events is not None:
            self._listening.register(self._tree.events, select.POLLIN)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
            numbers = [number for number in numbers if number != signal.SIGHUP]
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
