"""Checks that processes that were read one after the other were one family all the time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone, Stat
from gdbmem.linux.process.processes import stat_of
from gdbmem.model.series.series import ProcessSample

_PAUSE_SECONDS = 0.001
_LEAST_BYTES, _LEAST_SHARE = 1 << 20, 0.05  # a total may be off by this, or by this share of it


def has_ended(files: ProcessFiles) -> bool:
    """Tell whether a process has given up its memory, or is about to."""
    try:
        return files.statm().rss_bytes == 0
    except ProcessGone:
        return True


class RoundEnding:
    """Processes that have lost their memory: until all of it is torn down, others share it with nobody."""

    def __init__(self) -> None:
        self._processes: set[tuple[int, int]] = set()

    def add(self, pid: int, stat: Stat) -> None:
        """Take in *pid*, known by its *stat*."""
        self._processes.add((pid, stat.start_ticks))

    def wait(self, seconds: float) -> bool:
        """Wait until the pages of all have been given back, up to *seconds*; return whether they have been."""
        deadline = time.monotonic() + seconds
        while self._processes:
            pid, start_ticks = next(iter(self._processes))
            stat = stat_of(pid)
            if stat is None or stat.start_ticks != start_ticks or stat.has_ended:
                self._processes.remove((pid, start_ticks))
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(_PAUSE_SECONDS)
        return True


def matters(readings: Sequence[ProcessSample]) -> bool:
    """Tell whether the total of *readings* may be off by much, since a process was born or died between two of them.

    Only what is shared counts otherwise then; shared files' pages are small beside what a fork shares.
    """
    shared = sum(reading.shared_dirty_bytes or 0 for reading in readings)
    total = sum(reading.pss_bytes or 0 for reading in readings)
    return shared > max(_LEAST_BYTES, _LEAST_SHARE * total)
