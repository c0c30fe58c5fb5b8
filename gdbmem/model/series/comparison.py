"""Two groups of recordings, set against each other. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.records import dataclass


@dataclass(frozen=True)
class Difference:
    """One number, the second group's minus the first's, with its interval if one is known.

    The intervals of all differences of a comparison leave out zero by chance once in twenty comparisons, not rows.
    """

    metric: str
    unit: str  # "B", "B/s", "1/s", "s", or "" for a count
    first: float
    second: float
    value: float
    low: Optional[float] = None
    high: Optional[float] = None
    chance: Optional[float] = None  # how probable so large a difference is between runs of the same thing
    dof: Optional[float] = None  # degrees of freedom of the interval

    @property
    def is_shown(self) -> bool:
        """True if the runs show a difference at all: its interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Comparison:
    """The differences between two groups of runs."""

    first: Sequence[str]  # names of the runs
    second: Sequence[str]
    differences: Sequence[Difference]
    notices: Sequence[Notice] = ()
