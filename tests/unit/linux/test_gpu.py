"""Memory on GPUs: an NVML that answers, one that fails half way, and none."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from gdbmem.linux.monitoring import gpu_and_cgroup
from gdbmem.linux.monitoring.gpu_and_cgroup import Surroundings
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.model.series import TREE

GIB = 1 << 30


class Nvml:
    """The part of pynvml that is used, with two devices."""

    class NVMLError(Exception):
        """As pynvml's: every failure of NVML."""

    def __init__(self, failing: Optional[str] = None) -> None:
        self.failing = failing
        self.calls: list[str] = []
        self.compute: dict[int, list[tuple[int, Optional[int]]]] = {0: [], 1: []}
        self.graphics: dict[int, list[tuple[int, Optional[int]]]] = {0: [], 1: []}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.failing:
            raise self.NVMLError(name)

    def nvmlInit(self) -> None:  # noqa: N802
        self._called("init")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._called("count")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._called("handle")
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        self._called("compute")
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.compute[handle]]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        self._called("graphics")
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.graphics[handle]]


def installed(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Optional[gpu_and_cgroup.GpuMemory]:
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module\n")
    monkeypatch.setattr(gpu_and_cgroup, "_DRIVER", tmp_path / "version")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return gpu_and_cgroup.find_gpus()


def test_a_process_that_computes_and_draws_on_two_devices_is_counted_once_on_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvml = Nvml()
    nvml.compute = {0: [(10, 3 * GIB), (11, None)], 1: [(10, GIB)]}
    nvml.graphics = {0: [(10, 3 * GIB)], 1: [(12, 5)]}
    found = installed(nvml, monkeypatch, tmp_path)
    assert found is not None
    assert found.by_process() == {10: 4 * GIB, 12: 5}, "a size that NVML doesn't know is unknown, not 0"


@pytest.mark.parametrize("failing", ["init", "count", "handle"])
def test_an_nvml_that_does_not_start_is_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    assert installed(Nvml(failing), monkeypatch, tmp_path) is None


@pytest.mark.parametrize("failing", ["compute", "graphics"])
def test_an_nvml_that_fails_later_ends_the_numbers_not_the_monitor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    nvml = Nvml()
    nvml.compute[0] = [(10, GIB)]
    found = installed(nvml, monkeypatch, tmp_path)
    assert found is not None
    nvml.failing = failing
    assert found.by_process() == {}
    nvml.calls.clear()
    assert found.by_process() == {}
    assert nvml.calls == [], "it is not asked again and again"


def test_without_the_driver_the_package_is_not_even_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_and_cgroup, "_DRIVER", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import would raise
    assert gpu_and_cgroup.find_gpus() is None


def test_a_driver_without_the_package_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "version").write_text("NVRM\n")
    monkeypatch.setattr(gpu_and_cgroup, "_DRIVER", tmp_path / "version")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_and_cgroup.find_gpus() is None


def test_the_real_package_has_the_functions_that_are_called() -> None:
    pynvml = pytest.importorskip("pynvml")
    wanted = [name for name in dir(Nvml) if name.startswith(("nvml", "NVML"))]
    assert [name for name in wanted if not hasattr(pynvml, name)] == []


def test_a_look_holds_what_the_gpus_hold_for_each_process_and_for_the_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvml = Nvml()
    nvml.compute[0] = [(os.getpid(), GIB), (1 << 30, 7 * GIB)]
    around = Surroundings(gpu=installed(nvml, monkeypatch, tmp_path))
    tree = Tree(lambda: {os.getpid()}, events=None, follow=False, surroundings=around)
    readings = dict(tree.look(0.0).readings)
    assert readings[1].gpu_bytes == readings[TREE].gpu_bytes == GIB
    assert dict(tree.look(0.1).readings)[1].gpu_bytes is None, "it is asked for once a second"
    tree.close()
