"""Walks of the pools of one process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.bfc.pool_diff import PoolDiff
from gdbmem.model.bfc.pools import Allocator, Decision
from gdbmem.records import dataclass


@dataclass(frozen=True)
class PoolSample:
    """The sums of one pool at one moment, in bytes; what isn't known is None."""

    at_seconds: float  # since the first walk
    name: str
    address: Optional[int]  # of the allocator
    pool_bytes: int
    in_use_bytes: int
    requested_bytes: Optional[int]
    free_bytes: int
    free_chunks: int
    largest_free_bytes: int
    fragmentation: Optional[float]  # None if nothing is free
    outcome: str = ""  # of the request, where one is asked for
    cause: str = ""


@dataclass(frozen=True)
class PoolSeries:
    """The course of a process's pools over time."""

    source: str
    samples: Sequence[PoolSample]  # by time; of each pool one a walk
    diffs: Sequence[PoolDiff]  # of each pool that the first and the last walk have
    walks: int
    longest_pause_seconds: float
    notices: Sequence[Notice] = ()

    def of(self, address: Optional[int]) -> list[PoolSample]:
        """Return the samples of the pool whose allocator is at *address*."""
        return [one for one in self.samples if one.address == address]


def sample_of(allocator: Allocator, at_seconds: float, decision: Optional[Decision]) -> PoolSample:
    """Return the sums of *allocator*, which was walked at *at_seconds*."""
    return PoolSample(
        at_seconds=at_seconds,
        name=allocator.name,
        address=allocator.address,
        pool_bytes=allocator.pool_bytes,
        in_use_bytes=allocator.in_use_bytes,
        requested_bytes=allocator.requested_bytes,
        free_bytes=allocator.free_bytes,
        free_chunks=allocator.free_count,
        largest_free_bytes=allocator.largest_free_bytes,
        fragmentation=allocator.fragmentation,
        outcome=decision.outcome if decision is not None else "",
        cause=decision.cause if decision is not None else "",
    )
