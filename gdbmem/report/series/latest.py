"""The latest values of each process: a value missing in a sample is kept from the previous one."""

from __future__ import annotations

from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series.series import TREE, ProcessSample, SeriesLine

_SWEPT = (
    "pss_bytes", "uss_bytes", "swap_bytes", "anonymous_bytes", "file_bytes", "shmem_bytes", "private_dirty_bytes",
    "shared_dirty_bytes", "hugetlb_bytes",
)  # fmt: skip
_UNKNOWN_OF_SEVERAL = ("rss_bytes", "shared_bytes")  # a sum would count shared pages several times


class Latest:
    """The lines of a tree and their last readings."""

    def __init__(self) -> None:
        self.lines: dict[int, SeriesLine] = {}
        self.readings: dict[int, ProcessSample] = {}  # of living processes, and of the tree

    def take(self, look: Look) -> None:
        """Add the sample *look*."""
        for line in look.changed_lines:
            before = self.lines.get(line.number, line)
            if (before.pid, before.start_ticks) != (line.pid, line.start_ticks):
                # The values of the previous process don't apply to its successor.
                self.readings.pop(line.number, None)
            self.lines[line.number] = line
        found = {number: self._filled(number, reading, look) for number, reading in look.readings}
        self.readings = {n: r for n, r in found.items() if n == TREE or not self._has_gone(n)}

    def _has_gone(self, number: int) -> bool:
        line = self.lines.get(number)
        return line is not None and line.gone is not None

    def _filled(self, number: int, reading: ProcessSample, look: Look) -> ProcessSample:
        before = self.readings.get(number)
        if before is not None:
            if look.swept:  # values that this sample could not read are unknown
                before = before._replace(**dict.fromkeys(_SWEPT))
            reading = reading.filled_from(before)
        if number == TREE and look.alive > 1:
            reading = reading._replace(**dict.fromkeys(_UNKNOWN_OF_SEVERAL))
        return reading
