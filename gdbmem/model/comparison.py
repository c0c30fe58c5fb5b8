"""Two groups of recordings, set against each other. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Difference:
    """One number, the second group's minus the first's, with its 95 % interval where one is known."""

    metric: str
    unit: str  # "B", "B/s", "1/s", or "" for a count
    first: float
    second: float
    value: float
    low: Optional[float] = None
    high: Optional[float] = None

    @property
    def is_shown(self) -> bool:
        """Whether the runs show a difference at all: its interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Comparison:
    """The differences between two groups of runs."""

    first: Sequence[str]  # names of the runs
    second: Sequence[str]
    differences: Sequence[Difference]
