"""The resources that a tree of processes has used, ended ones included: page faults, processor time, threads.

The kernel adds what a process used to its parent when that has waited for it. So a child that came and went between
two looks is not lost, but for one whose parent has gone before it, or ignores the ends of its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gdbmem.linux.monitoring.sampling import Counts, Stat

_NOTHING = Counts(0, 0, 0.0)


class ExitedUsage:
    """Adds up what the processes of a tree have used."""

    def __init__(self, *, counts_children: bool = True) -> None:
        """Begin at nothing; with *counts_children* what the kernel says of the children that were waited for counts."""
        self._counts_children = counts_children
        self._dead = _NOTHING
        self._seen: dict[int, Counts] = {}  # pid → of what its dead children used, the part that is in _dead
        self._most = _NOTHING
        self.dead_threads = 0  # that the dead had started

    def bury(self, pid: int, stat: Stat, *, threads_started: int, parent_is_followed: bool) -> None:
        """Keep what *pid* had used by its last *stat*."""
        self._dead = _sum(self._dead, self._of(pid, stat))
        self.dead_threads += threads_started
        self._seen.pop(pid, None)
        if parent_is_followed:
            self._seen[stat.parent] = _sum(self._seen.get(stat.parent, _NOTHING), stat.own, stat.waited)

    def total(self, alive: Iterable[tuple[int, Stat]]) -> Counts:
        """Return the counts of the dead and of those *alive*; they never fall."""
        now = _sum(self._dead, *(self._of(pid, stat) for pid, stat in alive))
        # Of one that has died and not been waited for yet, a part is missing for a while.
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
