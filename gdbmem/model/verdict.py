"""What a series shows: whether it grows, and how small a growth it could have shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

KINDS = ("growing", "plateau", "sawtooth", "step", "shrinking", "inconclusive")


@dataclass(frozen=True)
class Slope:
    """A rate with its 95 % confidence interval, bytes per second (or per mark)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """The judgement on one series."""

    kind: str  # one of KINDS
    metric: str
    evidence: str  # one sentence that can be checked against the plot
    samples: int
    slope: Optional[Slope] = None  # bytes per second; of a sawtooth: of its floor
    resolution: Optional[float] = None  # the smallest slope this window could have shown, bytes per second
    warmup_seconds: float = 0.0  # left out at the beginning
    floor: str = ""  # of a sawtooth: rising, flat, falling, or unclear
    period_seconds: Optional[float] = None
    amplitude_bytes: Optional[float] = None
    step_bytes: Optional[float] = None
    step_at: Optional[float] = None  # seconds since the series began
    per_mark: Optional[Slope] = None  # bytes from one mark to the next
    first_bytes: Optional[float] = None
    last_bytes: Optional[float] = None

    @property
    def grows(self) -> bool:
        """Whether memory is lost over time: it grows, or the floor of its sawtooth rises."""
        return self.kind == "growing" or self.floor == "rising"
