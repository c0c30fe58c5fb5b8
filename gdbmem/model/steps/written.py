"""Pages that the program wrote in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional


class WrittenRange(NamedTuple):
    """Adjacent pages of one mapping that were written."""

    start: int
    end: int
    mapping: str  # the kernel's name, "" for anonymous memory
    is_certain: bool = True  # False: shared pages that came into memory, read or written
    where: str = ""  # what they belong to, in words

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class WrittenMemory(NamedTuple):
    """The pages that one run of the program wrote, and what could not be watched; sizes are bytes."""

    command: str  # gdb's, that ran the program
    function: str
    file: Optional[str]
    line: Optional[int]  # where it began
    page_bytes: int
    ranges: Sequence[WrittenRange]
    huge_bytes: int  # in huge pages, which are left out
    unwatched_bytes: int  # of mappings that the kernel could not watch
    threads: int  # that ran
    ended: str = ""  # why nothing is known; the ranges are empty then

    @property
    def written(self) -> Sequence[WrittenRange]:
        return [one for one in self.ranges if one.is_certain]

    @property
    def written_bytes(self) -> int:
        return sum(one.size_bytes for one in self.written)

    @property
    def came_bytes(self) -> int:
        """Shared pages that came into memory: read or written."""
        return sum(one.size_bytes for one in self.ranges if not one.is_certain)
