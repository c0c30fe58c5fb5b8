"""Converting data of /proc to a reading of a process, and the readings of a tree to its total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.linux.monitoring.sampling import ProcessFiles, Stat
from gdbmem.model.series.series import ProcessSample

_EACH_TIME = ("threads",)
_SUMMED = (
    "pss_bytes", "uss_bytes", "swap_bytes", "private_dirty_bytes", "shared_dirty_bytes", "open_files",
    "hugetlb_bytes",
)  # fmt: skip

_SHARED = ("pss_bytes", "uss_bytes", "private_dirty_bytes", "shared_dirty_bytes")


def quick_reading(files: ProcessFiles, stat: Stat, threads_started: int) -> ProcessSample:
    """Return the values that are cheap to read; raises ProcessGone."""
    statm = files.statm()
    has_memory = statm.rss_bytes > 0  # an ending process has released its memory: 0 is not its size
    return ProcessSample(
        rss_bytes=statm.rss_bytes if has_memory else None,
        shared_bytes=statm.shared_bytes if has_memory else None,
        threads=stat.threads,
        threads_started=threads_started,
        **stat.own._asdict(),
    )


def with_sizes(reading: ProcessSample, files: ProcessFiles) -> ProcessSample:
    """Return *reading* with the sizes in status, which every user may read."""
    sizes = files.status_sizes()
    return reading._replace(
        anonymous_bytes=sizes.get("RssAnon"),
        file_bytes=sizes.get("RssFile"),
        shmem_bytes=sizes.get("RssShmem"),
        swap_bytes=sizes.get("VmSwap"),
        peak_rss_bytes=sizes.get("VmHWM"),
        hugetlb_bytes=sizes.get("HugetlbPages"),
    )


class Shares(NamedTuple):
    """A process's part of the tree's kinds of memory, by PSS: shared pages count once; None is unknown."""

    anonymous_bytes: Optional[int] = None
    file_bytes: Optional[int] = None
    shmem_bytes: Optional[int] = None
    heap_bytes: Optional[int] = None
    stack_bytes: Optional[int] = None


def with_pss(reading: ProcessSample, files: ProcessFiles, *, mappings: bool) -> tuple[ProcessSample, Shares]:
    """Return *reading* with PSS and the like, with *mappings* [heap] and [stack] too, and its shares.

    Raises ProcessGone, and PermissionError for a process of another user.
    """
    rollup = files.rollup()
    named = files.named_mappings() if mappings else None
    heap = stack = (None, None) if named is None else (0, 0)
    if named is not None:
        heap, stack = named.get("[heap]", (0, 0)), named.get("[stack]", (0, 0))
    full = reading._replace(
        pss_bytes=rollup.pss_bytes,
        uss_bytes=rollup.uss_bytes,
        private_dirty_bytes=rollup.private_dirty_bytes,
        shared_dirty_bytes=rollup.shared_dirty_bytes,
        swap_bytes=rollup.swap_bytes,
        open_files=files.open_files(),
        heap_bytes=heap[0],
        stack_bytes=stack[0],
    )
    parts = (rollup.pss_anonymous_bytes, rollup.pss_file_bytes, rollup.pss_shmem_bytes)
    return full, Shares(*parts, heap[1], stack[1])


def total_of(
    readings: Sequence[ProcessSample], shares: Sequence[Shares], *, sweep: bool, is_torn: bool = False
) -> ProcessSample:
    """Return the total of *readings*, without counters; without a *sweep* only of the values read each time.

    If a start or an end of a process has *torn* them, values that depend on page sharing have no total.
    """
    if len(readings) <= 1:
        total = readings[0]._replace(peak_rss_bytes=None) if readings else ProcessSample()
        return total._replace(**dict.fromkeys((*_SHARED, *Shares._fields))) if is_torn else total
    # A sum of what is resident would count a shared page once for each process: RSS has no total, and each
    # kind of memory has that of its shares.
    sums = {name: _sum([getattr(reading, name) for reading in readings]) for name in _EACH_TIME}
    if sweep:
        known = [name for name in _SUMMED if not (is_torn and name in _SHARED)]
        sums.update((name, _sum([getattr(reading, name) for reading in readings])) for name in known)
        complete = len(shares) == len(readings) and not is_torn
        sums.update(
            (name, _sum([getattr(each, name) for each in shares]) if complete else None)
            for name in Shares._fields
        )
    on_gpus = [reading.gpu_bytes for reading in readings if reading.gpu_bytes is not None]
    sums["gpu_bytes"] = (
        sum(on_gpus) if on_gpus else None
    )  # a process without a GPU has no number, and no share
    return ProcessSample(**sums)  # type: ignore[arg-type]  # sums of ints are ints


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
