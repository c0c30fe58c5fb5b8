"""Settings of malloc that may give memory back, and how much each would. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gdbmem.records import dataclass

TRIM = "malloc_trim(0)"
_WORTH = 0.01  # of the resident set: less is not worth a setting, nor a difference between two
_WORTH_BYTES = 256 << 10
_NEAR = 0.1
# The cheapest first: a call now and then; more system calls as the heap shrinks, for large blocks, for each page;
# threads that wait for each other.
_BY_COST = (TRIM, "trim_threshold", "mmap_threshold", "top_pad", "arena_max", "tcache_count")


@dataclass(frozen=True)
class Remedy:
    """One setting, in the form that GLIBC_TUNABLES= takes, or a call."""

    setting: str
    predicted_bytes: Optional[int]  # None: unknown until measured
    low_bytes: int  # the interval of the prediction
    high_bytes: int  # without a prediction: no more than this
    cost: str

    @property
    def is_call(self) -> bool:
        """True if the program has to call it; the others are set in its environment."""
        return self.setting == TRIM


def best_remedy(remedies: tuple[Remedy, ...]) -> Optional[Remedy]:
    """Return the one that is predicted to give most back; None if none gives anything."""
    return next((remedy for remedy in in_order(remedies) if remedy.predicted_bytes), None)


def in_order(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """Return *remedies*, the best first; of those that may return as much as the best one left, the cheapest first."""
    rest = sorted(remedies, key=lambda one: (-(one.predicted_bytes or 0), -one.high_bytes))
    ordered: list[Remedy] = []
    while rest:
        best = rest[0]
        least = best.low_bytes if best.predicted_bytes else 0
        equal = [one for one in rest if one is best or (least and least <= (one.predicted_bytes or 0))]
        ordered += sorted(equal, key=_cost_rank)
        rest = [one for one in rest if one not in equal]
    return tuple(ordered)


def _cost_rank(remedy: Remedy) -> int:
    return next((rank for rank, name in enumerate(_BY_COST) if name in remedy.setting), len(_BY_COST))


@dataclass(frozen=True)
class MeasuredRemedy:
    """The memory that one remedy returned, compared with runs without it; None: not measured."""

    remedy: Remedy
    gained_bytes: Optional[int] = None  # the difference of the medians
    low_bytes: Optional[int] = None  # its 95 % interval, from the spread between runs
    high_bytes: Optional[int] = None
    why_not: str = ""  # measured

    @property
    def is_as_predicted(self) -> Optional[bool]:
        """True if the gain is in the interval of the prediction, or within a tenth of it; None if unknown."""
        predicted = self.remedy.predicted_bytes
        if predicted is None or self.gained_bytes is None:
            return None
        near = abs(self.gained_bytes - predicted) <= _NEAR * predicted
        return near or self.remedy.low_bytes <= self.gained_bytes <= self.remedy.high_bytes


@dataclass(frozen=True)
class MeasuredRemedies:
    """The measured remedies of a program, the most effective first."""

    command: tuple[str, ...]
    moment: str  # when it was measured: AT_REST, AT_END, or after a time
    rss_bytes: int  # the median of the runs without
    runs: int
    remedies: tuple[MeasuredRemedy, ...]
    children: int = 0  # processes that the program had started by then: not measured

    @property
    def equals_of_best(self) -> tuple[MeasuredRemedy, ...]:
        """Return the other remedies that returned as much as the first one."""
        rows = self.remedies
        return tuple(row for row in rows[1:] if _as_much(row, rows[0], worth_bytes(self.rss_bytes)))


def worth_bytes(rss_bytes: int) -> int:
    """Return the fewest bytes that matter in a process of *rss_bytes*, for a gain or a difference of two gains."""
    return max(_WORTH_BYTES, round(_WORTH * rss_bytes))


def best_first(rows: Iterable[MeasuredRemedy], rss_bytes: int) -> tuple[MeasuredRemedy, ...]:
    """Return *rows* by the memory returned; those equal to the best one are sorted by prediction.

    Several remedies often return the same memory; differences of a few pages are chance.
    """
    found = sorted(rows, key=lambda row: -(row.gained_bytes if row.gained_bytes is not None else -1 << 62))
    if not found:
        return ()
    best, worth = found[0], worth_bytes(rss_bytes)
    equal = [row for row in found if _as_much(row, best, worth)]
    equal.sort(key=lambda row: (not row.is_as_predicted, -(row.remedy.predicted_bytes or 0)))
    return (*equal, *(row for row in found if row not in equal))


def _as_much(row: MeasuredRemedy, best: MeasuredRemedy, worth: int) -> bool:
    """Return whether *row* returned as much as *best*, within the scatter of the runs."""
    if row is best or row.gained_bytes is None or best.gained_bytes is None:
        return row is best
    if abs(best.gained_bytes - row.gained_bytes) <= worth:
        return True
    near = row.gained_bytes >= (1 - _NEAR) * best.gained_bytes
    return near and row.high_bytes is not None and row.high_bytes >= best.gained_bytes


AT_REST, AT_END, AFTER_TIME = "at rest", "at its end", "after the time given"
