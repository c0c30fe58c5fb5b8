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

START_UP = 1 / 3  # of the time, in which a program builds up what it needs, as page tables
_FEWEST = 6  # with fewer points the start-up counts too
_LEAST_BYTES = 256 << 10  # of growth, to be judged
_AT_AN_END = 3  # samples at either end


def outside_of(recording: Recording) -> Outside:
    """Return what *recording* shows of it."""
    rest = _beside_processes(recording)
    growth = _growth(rest)
    limited = recording.facts.limit_of == "the cgroup"
    shmem_growth = _growth(list(recording.points(TREE, "cgroup_shmem_bytes"))) if limited else None
    own_growth = _growth(list(recording.points(TREE, "shmem_bytes"))) or 0.0
    on_gpus = list(recording.points(TREE, "gpu_bytes"))
    return Outside(
        growth,
        judge(*thinned(rest), metric=FAMILY) if (growth or 0.0) > _LEAST_BYTES else None,
        _growth(list(recording.points(TREE, "family_kernel_bytes"))),
        None if shmem_growth is None else shmem_growth - own_growth,
        _growth(on_gpus),
        judge(*thinned(on_gpus), metric="gpu_bytes") if on_gpus else None,
        _in_place_of_files(recording),
    )


def _in_place_of_files(recording: Recording) -> Optional[float]:
    """Return by how much anonymous memory grew in the place of pages of files, as under memory pressure."""
    grown = _growth(list(recording.points(TREE, "anonymous_bytes")))
    left = _growth([(t, -value) for t, value in recording.points(TREE, "file_bytes")])
    return None if grown is None or left is None else max(min(grown, left), 0.0)


def _beside_processes(recording: Recording) -> list[tuple[float, float]]:
    """Return what the program's own cgroup held beside the anonymous and shared memory of its processes, over time."""
    held_over_time = list(recording.points(TREE, FAMILY))
    if not held_over_time:
        return []
    anonymous, shared, files, resident = (
        dict(recording.points(TREE, name))
        for name in ("anonymous_bytes", "shmem_bytes", "file_bytes", "rss_bytes")
    )
    found = []
    last_files: Optional[float] = None
    for t, held in held_over_time:
        last_files = files.get(t, last_files)
        if t in anonymous and t in shared:
            found.append((t, held - anonymous[t] - shared[t]))
        elif t in resident and last_files is not None:  # of a single process: the rest of its RSS is of files
            found.append((t, held - max(resident[t] - last_files, 0.0)))
    return found


def _growth(points: Sequence[tuple[float, float]]) -> Optional[float]:
    """Return the most by which the end may exceed the level after the start-up; None with fewer than two points."""
    if len(points) < 2:
        return None
    begin = points[0][0] + START_UP * (points[-1][0] - points[0][0])
    values = [value for t, value in points if t >= begin or len(points) < _FEWEST]
    count = max(min(_AT_AN_END, len(values) // 2), 1)
    return max(values[-count:]) - min(values[:count])
