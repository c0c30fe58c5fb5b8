"""The sum of several paths, and their row in a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.profiles.trend import Trend, change_of, judge
from gdbmem.model.profiles.calltree import Frame
from gdbmem.records import dataclass


@dataclass(frozen=True)
class Amount:
    """The sum of several paths."""

    paths: int
    before_bytes: int
    after_bytes: int
    hidden_bytes: int = 0  # the part of delta_bytes that a threshold or a truncated file may hide
    error_bytes: int = 0  # the standard error of delta_bytes if it is sampled
    delta_blocks: Optional[int] = None
    is_relative: bool = False  # before_bytes and after_bytes are only the removed and the added bytes
    course: Sequence[int] = ()  # of a series: the bytes at each snapshot

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    @property
    def uncertain_bytes(self) -> int:
        """The error bound of delta_bytes."""
        return self.hidden_bytes + self.error_bytes

    @property
    def change(self) -> str:
        """The trend between the two: a word of analysis.profiles.trend."""
        return change_of(
            self.before_bytes,
            self.after_bytes,
            hidden_bytes=self.hidden_bytes,
            error_bytes=self.error_bytes,
            is_relative=self.is_relative,
        )

    @property
    def trend(self) -> Trend:
        """The trend in a series."""
        return judge(self.course, uncertain_bytes=self.uncertain_bytes)


@dataclass(frozen=True)
class Row:
    """Paths that count as one; *amount* is theirs together, the frames are the largest one's."""

    amount: Amount
    site: Optional[Frame]  # the user's own innermost frame; None: only known to be under the threshold
    call: Optional[Frame]  # the library's function that the site called, if it called one
    allocator: Optional[Frame]  # where the path's memory was allocated
    frames: Sequence[Frame]  # from the allocation site outward, folded unless the query wants all
    folded: int  # how many frames of the library are left out of frames
    is_pruned: bool  # stands for places that the tool did not list
    is_cut: bool = False  # … because the file is truncated, not because they are below a threshold
    via: Optional[Frame] = None  # the allocation wrapper that the site called for most of it
    via_bytes: int = 0  # the part of delta_bytes through that
    passed: Sequence[Frame] = ()  # inside the site: frames skipped by the own-code rules
