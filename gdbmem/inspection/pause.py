"""The pause of a process during its inspection, and the memory that can be read only during it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.process.process import ProcessFacts
from gdbmem.model.memory import Buffer, Memory
from gdbmem.units import format_duration

SILENT_SECONDS = 0.05  # a process is never stopped longer without an announcement
_TRIED_SECONDS = 0.035  # of that, before the first look is given up: what goes on is not interrupted at once
_GIB, _MIB = 1 << 30, 1 << 20
_TABLE_BYTES = 4096

# Measured on Linux 6.18 in a virtual machine; upper ends of the measurements.
_COPY, _HOLD = 0.002, 0.01  # independent of size
_COPY_OF_GIB = 0.05
_COPY_OF_TABLE = 0.00002  # per page of page tables
_OF_MAPPING = 0.000003
_OF_THREAD = 0.0001
_BUSY = 2  # slowdown to expect, at least, on a machine with other load
_READ_OF_MIB = 0.0025
_READ_OF_MAPPING = 0.00005


class HeldTooLong(Exception):  # noqa: N818  (nothing is wrong: the look is made another way)
    """The process has been stopped as long as is allowed without an announcement."""


class TimedMemory:
    """A `Memory` that can be read for a limited time; afterwards HeldTooLong is raised."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._end = time.monotonic() + _TRIED_SECONDS

    def read(self, address: int, size: int) -> bytes:
        self.check()
        return self._memory.read(address, size)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self.check()
        self._memory.read_into(address, buffer)

    def check(self) -> None:
        """Raise HeldTooLong if the time is over."""
        if time.monotonic() > self._end:
            raise HeldTooLong


def expected_copy(facts: ProcessFacts, mappings: Sequence[Mapping], threads: int) -> float:
    """Return the expected seconds of the stop while a copy is made."""
    return (
        _COPY
        + facts.anonymous_bytes / _GIB * _COPY_OF_GIB
        + facts.page_table_bytes / _TABLE_BYTES * _COPY_OF_TABLE
        + len(mappings) * _OF_MAPPING
        + threads * _OF_THREAD
    )


def expected_hold(facts: ProcessFacts, mappings: Sequence[Mapping], threads: int) -> float:
    """Return the expected seconds of the stop while the process itself is read."""
    return (
        _HOLD
        + facts.anonymous_bytes / _MIB * _READ_OF_MIB
        + len(mappings) * _READ_OF_MAPPING
        + threads * _OF_THREAD
    )


def is_long(expected_seconds: float) -> bool:
    """Return whether a stop has to be announced because it may be noticeable."""
    return expected_seconds * max(_BUSY, _waiting()) > SILENT_SECONDS


def wait_text(expected_seconds: float) -> str:
    """Return the announced duration of a stop; on a busy machine also the least that the current load makes of it.

    How long a stopped process waits there has no upper end: 2.6 s were seen where the load made 1.0 s of 0.14 s.
    """
    least, most = expected_seconds, expected_seconds * _waiting()
    text = f"about {format_duration(least)}"
    return f"{text} (on this busy machine {format_duration(most)} or longer)" if most > 1.5 * least else text


def _waiting() -> float:
    """Return the number of running or waiting threads per processor."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
