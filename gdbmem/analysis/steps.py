"""Steps, summed by line, function, file or thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from gdbmem.model.steps.step import SHARED, Step
from gdbmem.records import dataclass

GROUPINGS = ("line", "function", "file", "thread")


@dataclass
class StepSum:
    """The sum of the steps of one line (function, file, thread)."""

    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    thread: Optional[int]
    hits: int = 0
    own_bytes: int = 0  # in steps during which no other thread ran
    shared_bytes: int = 0
    shared_hits: int = 0
    others_bytes: int = 0  # changes by other threads meanwhile; not part of the other sums
    doubtful_hits: int = 0  # steps whose change may include that of other threads
    heap_bytes: Optional[int] = None
    inexact_hits: int = 0  # steps whose delta is known but not exact
    unknown_hits: int = 0  # steps whose delta is unknown

    @property
    def delta_bytes(self) -> int:
        """The sum of the known changes."""
        return self.own_bytes + self.shared_bytes

    @property
    def is_unknown(self) -> bool:
        """True if the changes of all steps are unknown."""
        return self.hits == self.unknown_hits

    @property
    def changed_anything(self) -> bool:
        """True if it changed something, or its change is unknown."""
        return bool(self.delta_bytes or self.heap_bytes or self.others_bytes or self.unknown_hits)


def sum_steps(steps: Iterable[Step], by: str = "line") -> list[StepSum]:
    """Return the sums of *steps* by line, function, file or thread, largest change first.

    Their deltas add up to the sum over *steps*.
    """
    sums: dict[object, StepSum] = {}
    for step in steps:
        found = sums.get(_KEYS[by](step))
        if found is None:
            found = sums[_KEYS[by](step)] = _new_sum(step, by)
        _add(found, step)
    return sorted(sums.values(), key=lambda one: (-abs(one.delta_bytes), -abs(one.heap_bytes or 0)))


_KEYS: dict[str, Callable[[Step], object]] = {
    "line": lambda step: (step.file, step.line, None if step.file else step.function),
    "function": lambda step: (step.file, step.function),
    "file": lambda step: step.file,
    "thread": lambda step: step.thread,
}


def _new_sum(step: Step, by: str) -> StepSum:
    return StepSum(
        function=step.function if by in ("line", "function") else None,
        file=step.file if by != "thread" else None,
        line=step.line if by == "line" else None,
        thread=step.thread if by == "thread" else None,
    )


def _add(found: StepSum, step: Step) -> None:
    found.hits += 1
    if step.heap_delta_bytes is not None:
        found.heap_bytes = (found.heap_bytes or 0) + step.heap_delta_bytes
    if step.delta_bytes is None:
        found.unknown_hits += 1
        return
    found.inexact_hits += not step.exact
    found.doubtful_hits += step.is_doubtful
    found.others_bytes += step.others_bytes or 0
    if step.lock == SHARED:
        found.shared_bytes += step.delta_bytes
        found.shared_hits += 1
    else:
        found.own_bytes += step.delta_bytes


def total_bytes(steps: Sequence[Step]) -> int:
    """Return the sum of the known deltas of *steps*."""
    return sum(step.delta_bytes or 0 for step in steps)
