"""Vectors that were found by their three pointers, without any type."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.errors import Notice
from gdbmem.records import dataclass

# Location of the three pointers.
HEAP, DATA, STACK = "heap", "data", "stack"


@dataclass(frozen=True)
class FoundVector:
    """One vector; addresses of its memory, which is one live block of the heap."""

    begin: int
    end: int
    limit: int
    owner: int  # the address of the three pointers
    place: str  # HEAP, DATA or STACK

    @property
    def used_bytes(self) -> int:
        return self.end - self.begin

    @property
    def capacity_bytes(self) -> int:
        return self.limit - self.begin

    @property
    def slack_bytes(self) -> int:
        return self.limit - self.end


@dataclass(frozen=True)
class FoundVectors:
    """All vectors of a heap, summed up, and the largest."""

    count: int
    capacity_bytes: int
    slack_bytes: int
    empty: int  # with capacity, but without an element
    empty_bytes: int
    largest: Sequence[FoundVector]  # by unused capacity
    notices: Sequence[Notice] = ()
