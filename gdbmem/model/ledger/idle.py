"""Resident memory that was not touched for a while, by the entries of a ledger."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.records import dataclass


@dataclass(frozen=True)
class IdleEntry:
    """An entry of the ledger; sizes are bytes.

    Accessed bits are counted by mapping: where several entries share one, only bounds are known.
    """

    category: str
    label: str
    resident_bytes: int
    least_idle_bytes: int
    most_idle_bytes: int


@dataclass(frozen=True)
class IdleMemory:
    """Memory that was resident at the end of some time and was not touched in it; sizes are bytes."""

    seconds: float
    rss_bytes: int
    idle_bytes: int
    entries: Sequence[IdleEntry]
