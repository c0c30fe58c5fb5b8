"""Recording the page faults of one process in intervals, each between two moments at which it is stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Optional

from gdbmem.linux.faults.readings import Reading, read_resident
from gdbmem.linux.faults.records import SampleLayout, Turn
from gdbmem.linux.faults.watch import FaultWatch
from gdbmem.linux.memory.maps import maps_text
from gdbmem.linux.process.auxv import random_bytes
from gdbmem.linux.process.process import check_analysable, ended, has_ended, process_facts
from gdbmem.linux.process.threads import page_faults
from gdbmem.monitoring.turn_spool import TurnSpool
from gdbmem.records import dataclass

_TURN_SECONDS = 0.05


@dataclass(frozen=True)
class Interval:
    """The faults between two moments; the counts are those of this interval alone."""

    before: Reading
    after: Reading
    turns: Sequence[Turn]
    faults: int
    samples: int
    lost: int  # samples
    counted: Optional[int]  # faults by the kernel's count of the process, which includes those in kernel mode
    executed: bool  # another program was executed, or the same again


@dataclass(frozen=True)
class _Counts:
    faults: int
    samples: int
    lost: int
    of_process: Optional[int]


class IntervalRecorder:
    """Records from the start on; cut() ends an interval and begins the next. Leave with the context manager."""

    def __init__(self, pid: int, *, period: int = 0, requests: Optional[int] = None) -> None:
        """Begin with process *pid*. Data that comes on the descriptor *requests* ends a turn() early.

        *period*: the number of faults per sample; 0: automatic. Raises TargetError if the kernel refuses.
        """
        check_analysable(pid, may_be_traced=True)
        self.pid = pid
        self._watch = FaultWatch([pid], period=period)
        try:
            if requests is not None:
                self._watch.wake_by(requests)
            facts = process_facts(pid)
            self.name, self.uid = facts.name, facts.uid
            self._last = self._reading()
            self.maps = b""
            with contextlib.suppress(OSError):
                self.maps = maps_text(pid)
            self.spool = TurnSpool()
        except BaseException:
            self._watch.__exit__()
            raise
        self.first = self._last
        self._program = random_bytes(pid)
        self._before = self._counts()
        self._watch.start()

    def __enter__(self) -> IntervalRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()
        self.spool.close()

    @property
    def layout(self) -> SampleLayout:
        """Return the layout of the samples."""
        return self._watch.layout

    @property
    def periods(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Return the faults per sample, each with its start time, by the event's identifier; entries are added."""
        return self._watch.periods

    @property
    def sees_kernel_mode(self) -> bool:
        """Return whether faults in kernel mode are sampled, too."""
        return self._watch.wishes.kernel

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return has_ended(self.pid)

    def turn(self) -> None:
        """Take the samples, and wait a moment for more."""
        before = self._watch.counts
        self._take(is_last=False)
        # A stop in gdb has no bearing on the rate of its faults.
        if self._watch.counts != before:
            self._watch.adapt([self.pid])
        self._watch.wait(_TURN_SECONDS)

    def cut(self) -> Interval:
        """Return the recording since the last cut. Raises TargetError if the process has ended."""
        self._take(is_last=True)
        before, self._last = self._last, self._reading()
        # Its record may have been lost.
        program, self._program = self._program, random_bytes(self.pid)
        then, now = self._before, self._counts()
        self._before = now
        turns = list(self.spool.turns())
        self.spool.clear()
        counted = None
        if now.of_process is not None and then.of_process is not None:
            counted = now.of_process - then.of_process
        return Interval(
            before, self._last, turns, now.faults - then.faults, now.samples - then.samples, now.lost - then.lost,
            counted, program != self._program,
        )  # fmt: skip

    def _reading(self) -> Reading:
        found = read_resident(self.pid)
        if found is None:
            raise ended(self.pid)
        return found

    def _counts(self) -> _Counts:
        watch = self._watch
        return _Counts(sum(watch.counts.values()), watch.samples, watch.lost, page_faults(self.pid))

    def _take(self, *, is_last: bool) -> None:
        for _ in self.spool.take(self._watch, is_last=is_last):
            pass
