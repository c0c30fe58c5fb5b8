"""Checks that the set of processes did not change while they were read one after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone, Stat
from gdbmem.linux.process.processes import stat_of
from gdbmem.linux.process.status import status_fields
from gdbmem.model.series.series import ProcessSample

_PAUSE_SECONDS = 0.001
_LEAST_BYTES, _LEAST_SHARE = 1 << 20, 0.05  # tolerated error of a total, in bytes or as a fraction of it


def has_ended(files: ProcessFiles) -> bool:
    """Return whether a process has given up its memory, or is about to."""
    try:
        return files.statm().rss_bytes == 0
    except ProcessGone:
        return True


class Copies:
    """Copies of processes that gdbmem makes to inspect them: not part of the program, but they share its pages."""

    def __init__(self) -> None:
        self._copies: list[ProcessFiles] = []

    def take(self, files: ProcessFiles) -> bool:
        """Return whether a new process is such a copy, and keep its *files* if so; raises ProcessGone."""
        # It never runs: it is traced from its birth on, and its parent gets no signal when it ends.
        is_copy = not files.exit_signal() and status_fields(files.pid).get("TracerPid", "0") != "0"
        if is_copy and files.pid in {copy.pid for copy in self._copies}:
            files.close()
        elif is_copy:
            self._copies.append(files)
        return is_copy

    def are_there(self) -> bool:
        """Return whether one exists now: until it ends, PSS and USS of its parent are too low."""
        for files in [copy for copy in self._copies if has_ended(copy)]:
            self._copies.remove(files)
            files.close()
        return bool(self._copies)


class RoundEnding:
    """Ending processes, whose shared pages are counted inconsistently until all of their memory is released."""

    def __init__(self) -> None:
        self._processes: set[tuple[int, int]] = set()

    def add(self, pid: int, stat: Stat) -> None:
        """Add *pid*, identified by its *stat*."""
        self._processes.add((pid, stat.start_ticks))

    def wait(self, seconds: float) -> bool:
        """Wait until the pages of all have been released, up to *seconds*; return whether they have been."""
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


def matters(readings: Mapping[int, ProcessSample], *, parents: Sequence[int] = (), changes: int = 0) -> bool:
    """Return whether the total of *readings*, by pid, may have a large error, as processes started or ended meanwhile.

    *parents* are those that forked, each as often as it did; of *changes* more it isn't known whose they were. Each
    takes or gives back one share of the pages that the parent shares, and a fork half of those that were its alone.
    Pages of shared files are few compared with these.
    """
    total = sum(reading.pss_bytes or 0 for reading in readings.values())
    most = max(map(_at_stake, readings.values()), default=0)
    error = changes * most + sum(_at_stake(readings[p]) if p in readings else most for p in parents)
    return error > max(_LEAST_BYTES, _LEAST_SHARE * total)


def _at_stake(reading: ProcessSample) -> int:
    """Return the most that one fork or end of the process of *reading* changes in a total."""
    share = max((reading.pss_bytes or 0) - (reading.uss_bytes or 0), 0)
    return min(share, reading.shared_dirty_bytes or 0) + (reading.private_dirty_bytes or 0) // 2
