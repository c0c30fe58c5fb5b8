"""An expectation of a recipe on a difference, and the verdict on it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from gdbmem.model.judgement import MET, NOT_MET, Judgement
from gdbmem.records import dataclass

LEDGER_METRICS = ("rss", "retained")  # measured by ledgers; the others by heap snapshots
UNTRACED = "untraced"  # of tracemalloc's snapshots: what is resident and not traced
OF_PROCESS = (*LEDGER_METRICS, UNTRACED)  # which have no paths
HEAP, BLOCKS = "heap", "blocks"


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
    """The outcome of one expectation, in its unit: bytes, or blocks."""

    expectation: Expectation
    judgement: Judgement

    @property
    def met(self) -> Optional[bool]:
        """Whether it is met; None: it could not be judged."""
        return {MET: True, NOT_MET: False}.get(self.judgement.judged)

    @property
    def measured(self) -> Optional[int]:
        """What was seen; None: nothing."""
        return None if self.judgement.measured is None else int(self.judgement.measured)

    @property
    def limit(self) -> int:
        """The limit of the expectation."""
        return self.expectation.limit

    @property
    def text(self) -> str:
        """One sentence, safe to print: what was seen, and why it could not be judged."""
        return self.judgement.sentence
