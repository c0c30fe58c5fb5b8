"""What is known of processes from outside of them: their memory on GPUs, the cgroup they are in."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.cgroup import cgroup_reading
from gdbmem.linux.gpu import GpuMemory

_EVERY_SECONDS = 1.0


class Around(NamedTuple):
    """What was found."""

    gpu: dict[int, int]  # pid → bytes
    cgroup: dict[str, Optional[int]]  # by the names that a reading has for it


class Surroundings:
    """Looks around, once a second at most."""

    def __init__(self, *, cgroup: Optional[Path] = None, gpu: Optional[GpuMemory] = None) -> None:
        self._cgroup = cgroup
        self._gpu = gpu
        self._next = 0.0

    def read(self, t: float) -> Optional[Around]:
        """Return what there is at time *t*; None when it isn't time yet."""
        if t < self._next:
            return None
        self._next = t + _EVERY_SECONDS
        return Around(self._gpu.by_process() if self._gpu else {}, self.read_cgroup())

    def read_cgroup(self) -> dict[str, Optional[int]]:
        """Return what the cgroup says now: after a death it may say who did it."""
        return cgroup_reading(self._cgroup) if self._cgroup else {}
