"""Information on processes from other sources than /proc/PID: GPUs and cgroups."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gdbmem.linux.monitoring.cgroup import (
    Family,
    Limit,
    cgroup_of,
    cgroup_reading,
    cgroup_usage,
    tightest_over,
)

# The memory of processes on NVIDIA's GPUs, where NVML answers. Source: NVML API reference, device queries.
#
# Its Python package (nvidia-ml-py, module pynvml) is optional, and imported only where the kernel has the driver.


_DRIVER = Path("/proc/driver/nvidia/version")


class GpuMemory:
    """Queries NVML; disables itself permanently after a failure, for example after an update of the driver."""

    def __init__(self, nvml: Any) -> None:
        """Use *nvml*, the initialised module; raises its NVMLError if there is no device."""
        self._nvml = nvml
        self._devices = [
            nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())
        ]

    def by_process(self) -> dict[int, int]:
        """Return pid → bytes on all GPUs; processes that NVML doesn't list, or whose size is unknown, are omitted."""
        found: dict[int, int] = {}
        try:
            for device in self._devices:
                for pid, size in self._on(device).items():
                    found[pid] = found.get(pid, 0) + size
        except self._nvml.NVMLError:
            self._devices = []
            return {}
        return found

    def _on(self, device: Any) -> dict[int, int]:
        found: dict[int, int] = {}
        listed = [
            *self._nvml.nvmlDeviceGetComputeRunningProcesses(device),
            *self._nvml.nvmlDeviceGetGraphicsRunningProcesses(device),
        ]
        for process in listed:  # a process that computes and draws is in both lists, with all its memory
            if process.usedGpuMemory is not None:
                found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory)
        return found


def find_gpus() -> Optional[GpuMemory]:
    """Return a GpuMemory; None without the driver, the package, or a device that answers."""
    if not _DRIVER.exists():
        return None
    try:
        import pynvml  # slow to import
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return GpuMemory(pynvml)
    except pynvml.NVMLError:
        return None


_EVERY_SECONDS, _AT_LEAST_EVERY = 0.95, 9.95
_EVENTS = ("cgroup_limit_hits", "cgroup_kills")
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
        program: Optional[int] = None,
    ) -> None:
        """Sample *cgroup*, and once the process *program* enters another one with a limit, that one."""
        self._cgroup = cgroup
        self.program = program
        self._home = family.folder if family is not None else cgroup_of(os.getpid())  # where it was started
        self._counted: dict[str, int] = {}  # events at the last sample
        self._before: dict[str, int] = {}  # what a sample lacks of events in an earlier cgroup
        self.limit: Optional[Limit] = None  # of the cgroup that the program has entered
        self._gpu = gpu
        self._family = family
        self._next = self._next_follow = 0.0

    def read(self, t: float) -> Optional[Around]:
        """Return the values at time *t*; None if the next sample isn't due yet."""
        # Whatever samples cost: of a program that ends before the next one, another cgroup's limit would be told.
        if t >= self._next_follow:
            self._next_follow = t + _EVERY_SECONDS
            if self._follow():
                self._next = t
        if t < self._next:
            return None
        begin = time.thread_time()
        around = Around(self._gpu.by_process() if self._gpu else {}, self.read_cgroup())
        seconds = time.thread_time() - begin
        self._next = t + min(max(_EVERY_SECONDS, seconds / _BUDGET), _AT_LEAST_EVERY)
        return around

    def cgroup_usage(self) -> Optional[int]:
        """Return the usage of the cgroup now: one small file; None if there is none."""
        return None if self._cgroup is None else cgroup_usage(self._cgroup)

    def read_cgroup(self) -> dict[str, Optional[int]]:
        """Return the cgroup's current values, which may explain the end of a process."""
        if self._cgroup is None:
            return {}
        found = cgroup_reading(self._cgroup)
        found = found if self._family is None else self._family.with_events(found, self._cgroup)
        for name in _EVENTS:
            count = found.get(name)
            if count is not None:
                found[name] = self._counted[name] = count + self._before.get(name, 0)
        if self.limit is not None:
            found["cgroup_peak_bytes"] = None  # perhaps of earlier programs
        return found

    def _follow(self) -> bool:
        """Sample the cgroup that the program has entered since, if that one has a limit; return whether it has."""
        home = None if self.program is None else cgroup_of(self.program)
        if home is None or home == self._home:
            return False
        self._home, limit = home, tightest_over(home)
        if limit.whose != "the cgroup" or limit.folder is None or limit.folder == self._cgroup:
            return False
        new = cgroup_reading(limit.folder)
        self._before = {name: self._counted.get(name, 0) - (new.get(name) or 0) for name in _EVENTS}
        self._cgroup, self.limit = limit.folder, limit
        return True
