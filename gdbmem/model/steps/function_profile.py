"""Changes of memory by line of one function, over some calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.records import dataclass


class LineProfile(NamedTuple):
    """One line of the function; sizes are sums over its hits."""

    line: int
    hits: int
    delta_bytes: int
    total_bytes: Optional[int]  # of the process when the line was last left; None: it was never left
    shared_hits: int  # changes that were divided among threads, and may be off


@dataclass(frozen=True)
class FunctionProfile:
    """The lines of *function*, in the order of the source; lines without code are absent."""

    function: str
    file: Optional[str]
    calls: int  # that are over
    lines: Sequence[LineProfile]
    source: str  # statm, smaps, heap, massif, …
    own_only: bool  # what the calls made by a line did is left out
    abandoned_calls: int = 0  # of the calls, recursive ones included, left by an exception or longjmp
    # Of the abandoned: it wasn't seen when, and what their last lines did is not counted.
    unseen_calls: int = 0
    recursive_calls: int = 0
    has_inlined: bool = False  # other functions are inlined into it: they count for the line that calls them
    outside_bytes: int = 0  # with own_only: what the calls made by the lines did
    is_outside_shared: bool = False
    under_way_from: Optional[int] = None  # the line that a call was on which had begun before
    # By which the process changed meanwhile, other code and threads included.
    process_bytes: Optional[int] = None

    @property
    def delta_bytes(self) -> int:
        """The sum over all lines."""
        return sum(line.delta_bytes for line in self.lines)

    @property
    def shared_hits(self) -> int:
        """The number of the lines' changes that were divided among threads."""
        return sum(line.shared_hits for line in self.lines)
