"""The resources that a tree of processes has used, including ended ones: page faults, CPU time, threads.

The kernel adds the usage of a process to its parent when the parent has waited for it. So a child that lived between
two samples is counted, unless its parent ended before it, or ignores the ends of its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from gdbmem.linux.monitoring.sampling import Counts, Stat

_NOTHING = Counts(0, 0, 0.0)


class ExitedUsage:
    """Sums the usage of the processes of a tree."""

    def __init__(self, *, counts_children: bool = True) -> None:
        """Start at zero; with *counts_children* include the kernel's counts of collected children."""
        self._counts_children = counts_children
        self._dead = _NOTHING
        self._seen: dict[int, Counts] = {}  # pid → the part of its ended children's usage that is in _dead
        self._most = _NOTHING
        self.dead_threads = 0  # started by ended processes

    def bury(self, pid: int, stat: Stat, *, threads_started: int, parent_is_followed: bool) -> None:
        """Keep the usage of *pid* according to its last *stat*."""
        self._dead = _sum(self._dead, self._of(pid, stat))
        self.dead_threads += threads_started
        self._seen.pop(pid, None)
        if parent_is_followed:
            self._seen[stat.parent] = _sum(self._seen.get(stat.parent, _NOTHING), stat.own, stat.waited)

    def total(self, alive: Iterable[tuple[int, Stat]]) -> Counts:
        """Return the counts of ended processes and of those *alive*; they never fall."""
        now = _sum(self._dead, *(self._of(pid, stat) for pid, stat in alive))
        # A part of the usage of a process that has not been collected yet is missing for a while.
        self._most = _each(max, self._most, now)
        return self._most

    def _of(self, pid: int, stat: Stat) -> Counts:
        if not self._counts_children:
            return stat.own
        unseen = _each(lambda used, seen: max(used - seen, 0), stat.waited, self._seen.get(pid, _NOTHING))
        return _sum(stat.own, unseen)


def _sum(*counts: Counts) -> Counts:
    return Counts(*(sum(column) for column in zip(*counts)))


def _each(of_two: Callable[[float, float], float], left: Counts, right: Counts) -> Counts:
    return Counts(*map(of_two, left, right))  # type: ignore[arg-type]  # of two ints an int


# For how long the processes of a tree were stopped: memory that stays the same meanwhile proves nothing.


_STOPPED = "Tt"  # states in /proc/PID/stat: by a signal, by a debugger
_FROZEN = "D"  # as in a frozen cgroup; also of a process that waits for a disk, which runs from time to time


class StoppedTime:
    """Adds up the time during which all processes were stopped, as far as complete samples show it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: Optional[float] = None
        self._done: object = None

    def add(self, t: float, states: Sequence[str], done: object) -> None:
        """Take the *states* of all processes at time *t*, and what they have *done* until then: CPU time, faults.

        Stopped twice in a row, or frozen without having done anything, they were so in between.
        """
        moved, self._done = done != self._done, done
        if not states or any(state not in _STOPPED + _FROZEN for state in states):
            self._since = None
            return
        if self._since is not None and not (moved and _FROZEN in states):
            self.seconds += t - self._since
        self._since = t
