"""An expectation of a recipe on a difference, and the verdict on it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from gdbmem.records import dataclass

LEDGER_METRICS = ("rss", "retained")  # measured by ledgers; the others by heap snapshots
UNTRACED = "untraced"  # of tracemalloc's snapshots: what is resident and not traced
OF_PROCESS = (*LEDGER_METRICS, UNTRACED)  # which have no paths
BLOCKS = "blocks"


class Position(NamedTuple):
    """A line and a column in the recipe's file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Expectation:
    """A limit on the difference of two snapshots: one of the two limits is set, the other is None.

    Limits are bytes; of the metric blocks a number of blocks.
    """

    before: str
    after: str
    position: Position
    # One of heap, blocks, untraced, rss (the resident set) and retained (freed memory that malloc keeps).
    metric: str = "heap"
    at_most: Optional[int] = None
    at_least: Optional[int] = None
    path: str = ""  # a regular expression; "": the whole heap

    @property
    def limit(self) -> int:
        """The one limit that is set."""
        return self.at_most if self.at_most is not None else self.at_least or 0


@dataclass(frozen=True)
class ExpectationVerdict:
    """The outcome of one expectation, in its unit; *met* None means that it could not be judged."""

    expectation: Expectation
    met: Optional[bool]
    measured: Optional[int]
    limit: int
    uncertain: int  # undecidable: the true value may be worse than the measured one by that much
    text: str  # one sentence, safe to print
