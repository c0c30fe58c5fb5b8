"""The clock of a series: seconds since it began, across suspends and clock changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from gdbmem.model.series.series import SeriesFacts


def series_clock(boot_seconds: float) -> Callable[[], float]:
    """Return the clock of a new series; it includes time in suspend and ignores changes of the system clock."""
    gettime, boottime = time.clock_gettime, time.CLOCK_BOOTTIME
    return lambda: gettime(boottime) - boot_seconds


def clock_of(facts: SeriesFacts) -> Callable[[], float]:
    """Return the clock of a series that has begun already, also if the machine was rebooted since."""
    if facts.boot_id == boot_id():
        return series_clock(facts.boot_seconds)
    return series_clock(time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - facts.began))


def boot_id() -> str:
    """Return the id of this boot: the clock's zero."""
    with open("/proc/sys/kernel/random/boot_id") as stream:  # noqa: PTH123
        return stream.read().strip()
