"""Information on processes from other sources than /proc/PID: GPUs and cgroups."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.monitoring.cgroup import cgroup_reading
from gdbmem.linux.monitoring.family_cgroup import Family
from gdbmem.linux.monitoring.gpu import GpuMemory

_EVERY_SECONDS, _AT_LEAST_EVERY = 0.95, 9.95
_BUDGET = 0.0001  # of a CPU: a cgroup's statistics cost as much as the sizes of many processes


class Around(NamedTuple):
    """The result."""

    gpu: dict[int, int]  # pid → bytes
    cgroup: dict[str, Optional[int]]  # by the names in a reading


class Surroundings:
    """Samples them, from once per second to once per ten seconds, depending on the cost."""

    def __init__(
        self,
        *,
        cgroup: Optional[Path] = None,
        gpu: Optional[GpuMemory] = None,
        family: Optional[Family] = None,
    ) -> None:
        self._cgroup = cgroup
        self._gpu = gpu
        self._family = family
        self._next = 0.0

    def read(self, t: float) -> Optional[Around]:
        """Return the values at time *t*; None if the next sample isn't due yet."""
        if t < self._next:
            return None
        begin = time.thread_time()
        around = Around(self._gpu.by_process() if self._gpu else {}, self.read_cgroup())
        seconds = time.thread_time() - begin
        self._next = t + min(max(_EVERY_SECONDS, seconds / _BUDGET), _AT_LEAST_EVERY)
        return around

    def read_cgroup(self) -> dict[str, Optional[int]]:
        """Return the cgroup's current values, which may explain the end of a process."""
        if self._cgroup is None:
            return {}
        found = cgroup_reading(self._cgroup)
        return found if self._family is None else self._family.with_events(found, self._cgroup)
