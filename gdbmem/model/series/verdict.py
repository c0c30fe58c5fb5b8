"""The verdict on a series: whether it grows, and the smallest growth that it could have shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.records import dataclass

KINDS = ("growing", "plateau", "sawtooth", "step", "shrinking", "inconclusive")


@dataclass(frozen=True)
class Slope:
    """A rate with its 95 % confidence interval, bytes per second (or per mark)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Regime:
    """A stretch of a series in which it did one thing; a step lasts from the sample before it to the one after."""

    begin: float  # seconds since the series began, as end
    end: float
    kind: str  # one of KINDS
    change_bytes: float
    slope: Optional[Slope] = None  # bytes per second; None of a step


@dataclass(frozen=True)
class Verdict:
    """The judgement on one series."""

    kind: str  # one of KINDS: what the last regime is, with a step where that came before a level
    metric: str
    evidence: str  # one sentence that can be checked against the plot
    samples: int
    slope: Optional[Slope] = None  # bytes per second, of the last regime; of a sawtooth: of its floor
    resolution: Optional[float] = None  # the smallest slope this window would have shown, bytes per second
    warmup_seconds: float = 0.0  # left out at the beginning
    floor: str = ""  # of a sawtooth: rising, flat, falling, or unclear
    period_seconds: Optional[float] = None
    amplitude_bytes: Optional[float] = None
    step_bytes: Optional[float] = None
    step_at: Optional[float] = None  # seconds since the series began
    per_mark: Optional[Slope] = None  # bytes from one mark to the next
    first_bytes: Optional[float] = None
    last_bytes: Optional[float] = None
    regimes: Sequence[Regime] = ()  # in order of time; the last one is judged
    needs_seconds: Optional[float] = None  # how much longer to watch until an open question is decided

    @property
    def grows(self) -> bool:
        """True if memory is lost over time: it grows, or the floor of its sawtooth rises."""
        return self.kind == "growing" or self.floor == "rising"

    @property
    def is_conclusive(self) -> bool:
        """True if the last regime is known, and for a sawtooth also whether its floor rises."""
        return self.kind != "inconclusive" and self.floor != "unclear"
