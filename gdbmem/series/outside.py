"""Growth that no process's RSS or PSS has: files in memory, System V segments, pipes, memory on GPUs.

Only the kernel's cgroups count the first ones, and NVML the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.series.statistics import thinned
from gdbmem.analysis.series.verdict import judge
from gdbmem.model.series.series import TREE
from gdbmem.model.series.series_summary import Outside
from gdbmem.series.filling import FAMILY
from gdbmem.series.store import Recording

_AT_AN_END = 3  # samples at either end


def outside_of(recording: Recording) -> Outside:
    """Return what *recording* shows of it."""
    rest = _beside_processes(recording)
    times, values = thinned(rest)
    limited = recording.facts.limit_of == "the cgroup"
    shmem = [value for _, value in recording.points(TREE, "cgroup_shmem_bytes")] if limited else []
    own = recording.values(TREE, "shmem_bytes")
    shmem_growth = _growth(shmem)
    on_gpus = list(recording.points(TREE, "gpu_bytes"))
    return Outside(
        _growth([value for _, value in rest]),
        judge(times, values, metric=FAMILY) if rest else None,
        _growth(recording.values(TREE, "family_kernel_bytes")),
        None if shmem_growth is None else shmem_growth - (_growth(own) or 0.0),
        _growth([value for _, value in on_gpus]),
        judge(*thinned(on_gpus), metric="gpu_bytes") if on_gpus else None,
        _in_place_of_files(recording),
    )


def _in_place_of_files(recording: Recording) -> Optional[float]:
    """Return by how much anonymous memory grew in the place of pages of files, as under memory pressure."""
    grown = _growth(recording.values(TREE, "anonymous_bytes"))
    left = _growth([-value for value in recording.values(TREE, "file_bytes")])
    return None if grown is None or left is None else max(min(grown, left), 0.0)


def _beside_processes(recording: Recording) -> list[tuple[float, float]]:
    """Return what the program's own cgroup held beside the anonymous and shared memory of its processes, over time."""
    anonymous, shared = (dict(recording.points(TREE, name)) for name in ("anonymous_bytes", "shmem_bytes"))
    return [
        (t, held - anonymous[t] - shared[t])
        for t, held in recording.points(TREE, FAMILY)
        if t in anonymous and t in shared
    ]


def _growth(values: Sequence[float]) -> Optional[float]:
    """Return the most by which the end may exceed the beginning; None with fewer than two values."""
    if len(values) < 2:
        return None
    count = min(_AT_AN_END, len(values) // 2)
    return max(values[-count:]) - min(values[:count])
