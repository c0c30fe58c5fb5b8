"""What the lines of one function did to memory, over some calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional


class LineProfile(NamedTuple):
    """One line of the function; sizes are sums over its hits."""

    line: int
    hits: int
    delta_bytes: int
    total_bytes: Optional[int]  # of the process when the line was last left; None: it was never left
    shared_hits: int  # hits during which other threads existed


@dataclass(frozen=True)
class FunctionProfile:
    """The lines of *function*, in the order of the source; lines without code are absent."""

    function: str
    file: Optional[str]
    calls: int  # that have returned
    lines: Sequence[LineProfile]
    source: str  # statm, smaps, heap, massif, …
    own_only: bool  # what the calls made by a line did is left out
    abandoned_calls: int = 0  # left by an exception or longjmp
    recursive_calls: int = 0
    has_inlined: bool = False  # other functions are inlined into it: their lines count for the line before
    outside_bytes: int = 0  # with own_only: what the calls made by the lines did

    @property
    def delta_bytes(self) -> int:
        """What all lines did together."""
        return sum(line.delta_bytes for line in self.lines)
