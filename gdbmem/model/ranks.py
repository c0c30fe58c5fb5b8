"""The ranks of a parallel job, compared: frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame
from gdbmem.model.judgement import Judgement

HEAP, RESIDENT = "heap", "resident"


class RankState(NamedTuple):
    """One rank: its run, how its program ended, and what it grew by."""

    rank: int
    host: str
    run: str  # the run's folder
    status: Optional[int]  # of its program, as in a shell; None: unknown, or it still runs
    before_bytes: Optional[float]  # None in this and the next: not recorded
    after_bytes: Optional[float]
    verdict: Optional[str] = None  # on a series: growing, plateau, …
    judgements: tuple[Judgement, ...] = ()

    @property
    def change_bytes(self) -> Optional[float]:
        """The growth; None if it is unknown."""
        if self.before_bytes is None or self.after_bytes is None:
            return None
        return self.after_bytes - self.before_bytes


class RankRow(NamedTuple):
    """The growth of all ranks at one place: a line, a function or a call path."""

    frames: Sequence[
        Frame
    ]  # the call path of the rank with the largest change, from the user's own frame outward
    min_bytes: float  # over all ranks: one that has nothing there counts as 0
    mean_bytes: float
    max_bytes: float
    rank_of_max: int
    ranks: int  # the number of them that have something there
    sum_bytes: float


class OddRank(NamedTuple):
    """A rank that grew by another amount than the others did."""

    rank: int
    change_bytes: float
    others_bytes: float  # the median of the others
    since: Optional[str] = None  # the name of the first snapshot from which it differs, or a time ("12.3 s")


class Ranks(NamedTuple):
    """The ranks of one job, judged together."""

    launcher: str
    job: str
    size: Optional[int]  # of the job; None: the launcher does not tell
    metric: str  # HEAP or RESIDENT, by which the ranks are compared
    between: tuple[str, str]  # the names of the compared snapshots; "" for a series
    ranks: Sequence[RankState]
    missing: Sequence[int]  # ranks of the job that have no run here
    total: Optional[RankRow]  # of all places; None if no rank has a change
    rows: Sequence[RankRow]  # the largest first
    elsewhere_bytes: float  # in the rows that are left out, of all ranks
    odd: Sequence[OddRank]
    can_differ: bool  # False: too few ranks to call one odd
    judgements: Sequence[Judgement]
    notices: Annotated[Sequence[Notice], Key("warnings")] = ()
