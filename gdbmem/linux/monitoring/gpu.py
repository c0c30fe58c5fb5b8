"""The memory of processes on NVIDIA's GPUs, where NVML answers. Source: NVML API reference, device queries.

Its Python package (nvidia-ml-py, module pynvml) is optional, and imported only where the kernel has the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

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
        import pynvml  # 28 ms
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return GpuMemory(pynvml)
    except pynvml.NVMLError:
        return None
