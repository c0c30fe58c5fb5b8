"""From what /proc says of a process to a reading; from the readings of a tree to its total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.linux.sampling import ProcessFiles, Rollup, Stat
from gdbmem.model.series import READING_FIELDS, Reading

_EACH_TIME = ("minor_faults", "major_faults", "threads", "threads_started", "cpu_seconds")
_SUMMED = tuple(name for name in READING_FIELDS if name not in ("rss_bytes", "shared_bytes"))


def quick_reading(files: ProcessFiles, stat: Stat, threads_started: int) -> Reading:
    """Return what costs little to read; raises ProcessGone."""
    statm = files.statm()
    return Reading(
        rss_bytes=statm.rss_bytes,
        shared_bytes=statm.shared_bytes,
        minor_faults=stat.minor_faults,
        major_faults=stat.major_faults,
        threads=stat.threads,
        threads_started=threads_started,
        cpu_seconds=stat.cpu_seconds,
    )


def with_sizes(reading: Reading, files: ProcessFiles) -> Reading:
    """Return *reading* with what everybody may read in status."""
    sizes = files.status_sizes()
    return reading._replace(
        anonymous_bytes=sizes.get("RssAnon"),
        file_bytes=sizes.get("RssFile"),
        shmem_bytes=sizes.get("RssShmem"),
        swap_bytes=sizes.get("VmSwap"),
    )


def with_pss(reading: Reading, files: ProcessFiles, *, mappings: bool) -> Reading:
    """Return *reading* with PSS and the like, with *mappings* [heap] and [stack] too.

    Raises ProcessGone, and PermissionError for a process of somebody else.
    """
    rollup = files.rollup()
    named = files.named_mappings() if mappings else None
    return _from_rollup(reading, rollup)._replace(
        open_files=files.open_files(),
        heap_bytes=None if named is None else named.get("[heap]", 0),
        stack_bytes=None if named is None else named.get("[stack]", 0),
    )


def _from_rollup(reading: Reading, rollup: Rollup) -> Reading:
    return reading._replace(
        pss_bytes=rollup.pss_bytes,
        uss_bytes=rollup.uss_bytes,
        private_dirty_bytes=rollup.private_dirty_bytes,
        shared_dirty_bytes=rollup.shared_dirty_bytes,
        swap_bytes=rollup.swap_bytes,
    )


def total_of(readings: Sequence[Reading], *, sweep: bool) -> Reading:
    """Return what *readings* come to; without a *sweep* only what is read each time."""
    if len(readings) <= 1:
        return readings[0] if readings else Reading()
    # The sum of RSS would count a shared page once for each process: it is no total, so there is none.
    sums: dict[str, Optional[float]] = {}
    for name in _SUMMED if sweep else _EACH_TIME:
        values = [getattr(reading, name) for reading in readings]
        sums[name] = None if None in values else sum(values)
    on_gpus = [reading.gpu_bytes for reading in readings if reading.gpu_bytes is not None]
    sums["gpu_bytes"] = (
        sum(on_gpus) if on_gpus else None
    )  # a process without a GPU has no number, and no share
    return Reading(**sums)  # type: ignore[arg-type]  # sums of ints are ints
