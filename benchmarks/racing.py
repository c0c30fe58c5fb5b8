"""Shared by all races: paired timing, and the row that a race reports."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

Action = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: our figure, the peer's, and the bar.

    *value* is what the bar speaks of, in the bar's own unit: seconds for a difference, MiB for
    memory, and the ratio ours ÷ peer where it is left out. The bar is met where
    *at_least* <= value <= *at_most*.
    """

    name: str
    ours_seconds: float
    peer_seconds: float
    bar: str = ""  # the bar in words
    at_most: Optional[float] = None
    at_least: Optional[float] = None
    value: Optional[float] = None
    unit: str = "s"  # of ours and the peer's, independent of their names

    @property
    def ratio(self) -> float:
        """Ours ÷ peer; below 1 is faster than the peer."""
        return self.ours_seconds / self.peer_seconds if self.peer_seconds else float("inf")

    @property
    def met(self) -> Optional[bool]:
        """True if the bar is met; None if the row has no bar."""
        if self.at_most is None and self.at_least is None:
            return None
        value = self.ratio if self.value is None else self.value
        above = self.at_least is None or value >= self.at_least
        below = self.at_most is None or value <= self.at_most
        return above and below


def seconds_of(action: Action) -> float:
    """Return the wall time of one call of *action*."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Pair:
    """The outcome of a paired race, seconds."""

    ours: Sequence[float]
    peer: Sequence[float]

    @property
    def ours_median(self) -> float:
        return statistics.median(self.ours)

    @property
    def peer_median(self) -> float:
        return statistics.median(self.peer)

    @property
    def median_difference(self) -> float:
        """Median over the rounds of ours − peer: a slow moment of the machine hits both."""
        return statistics.median(a - b for a, b in zip(self.ours, self.peer))

    @property
    def median_ratio(self) -> float:
        """Median over the rounds of ours ÷ peer."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer))


def race_pair(ours: Action, peer: Action, *, rounds: int, warmups: int = 1) -> Pair:
    """Time *ours* and *peer* in turn, *rounds* times, who goes first alternating."""
    for _ in range(warmups):
        ours()
        peer()
    ours_seconds: list[float] = []
    peer_seconds: list[float] = []
    for number in range(rounds):
        if number % 2:
            peer_seconds.append(seconds_of(peer))
            ours_seconds.append(seconds_of(ours))
        else:
            ours_seconds.append(seconds_of(ours))
            peer_seconds.append(seconds_of(peer))
    return Pair(ours_seconds, peer_seconds)
