"""The summary of a recording: the verdict, the lines, what grew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.series.series import SeriesFacts, SeriesLine
from gdbmem.model.series.verdict import Verdict
from gdbmem.records import dataclass


@dataclass(frozen=True)
class LineSummary:
    """One process over the whole recording, bytes; None is what was never read."""

    line: SeriesLine
    metric: str  # of the four that follow: rss_bytes or pss_bytes
    first_bytes: Optional[float]
    last_bytes: Optional[float]
    peak_bytes: Optional[float]
    private_dirty_change_bytes: Optional[float]
    threads_started: int
    most_threads: int


@dataclass(frozen=True)
class Component:
    """A part of the memory, and how much it changed over the window, bytes."""

    name: str  # anonymous, file, shmem, heap, swap
    change_bytes: float


@dataclass(frozen=True)
class CgroupSummary:
    """The cgroup over the whole recording, bytes, others' processes in it included; None if it was not recorded."""

    last_bytes: float
    peak_bytes: float
    cache_bytes: Optional[float]  # of the last: what the kernel can drop immediately
    limit_bytes: Optional[float]
    limit_hits: Optional[int]  # during the recording, as kills
    kills: Optional[int]
    shmem_bytes: Optional[float] = (
        None  # of the last: files in /dev/shm and the like, which stay until deleted
    )
    slope: Optional[float] = None  # bytes per second without cache, if it grows steadily

    @property
    def free_bytes(self) -> Optional[float]:
        """The bytes left under the limit; None if there is no limit."""
        if self.limit_bytes is None:
            return None
        return max(self.limit_bytes - self.last_bytes + (self.cache_bytes or 0), 0.0)


@dataclass(frozen=True)
class Spike:
    """A peak between two looks that only the kernel's own count knows, bytes."""

    line: Optional[SeriesLine]  # None: of a process that had ended before it was read
    rss_bytes: float


@dataclass(frozen=True)
class Outside:
    """Growth after the first third of the recording, bytes, that no process shows; None: not recorded."""

    # Anonymous and shared memory of the program's own cgroup beside its processes: memfds, segments, files in /dev/shm.
    cgroup_bytes: Optional[float] = None
    cgroup_verdict: Optional[Verdict] = None  # on it over time
    kernel_bytes: Optional[float] = None  # of its kernel memory: pipes, sockets, page tables
    # Files in memory that are charged to a cgroup with a limit, in which other programs may be too.
    shmem_bytes: Optional[float] = None
    gpu_bytes: Optional[float] = None  # of the processes' memory on GPUs
    gpu_verdict: Optional[Verdict] = None  # on it over time
    # By which anonymous memory grew while as many pages of files left the processes: their sum shows neither.
    for_files_bytes: Optional[float] = None


@dataclass(frozen=True)
class SeriesSummary:
    """A recording, judged."""

    facts: SeriesFacts
    metric: (
        str  # of the total: pss_bytes, rss_bytes for a single process, or family_bytes for one without PSS
    )
    seconds: float
    samples: int
    reads_of_pss: int
    first_bytes: Optional[float]
    last_bytes: Optional[float]
    peak_bytes: Optional[float]
    verdict: Verdict
    lines: Sequence[LineSummary]
    components: Sequence[Component]  # what changed most first
    threads_started: int
    # By which forked processes have un-shared what they had inherited; None is unknown.
    copied_bytes: Optional[int]
    gaps: Sequence[tuple[float, float]]  # stretches without samples: the monitor or the machine was stopped
    seconds_to_limit: Optional[float]
    notices: Sequence[Notice]
    # At which the tree's total follows RSS and page faults from one read of PSS to the next.
    looks_by_rss: int = 0
    looks_by_cgroup: int = 0  # at which it follows what the program's own cgroup holds
    copiers: Optional[int] = None  # processes that have
    torn_rounds: int = 0  # reads of PSS that are left out: a process was born or died meanwhile
    cgroup: Optional[CgroupSummary] = None
    spikes: Sequence[Spike] = ()  # of the processes of a tree
    gpu_peak_bytes: Optional[float] = None  # of the tree
    cpu_seconds: Optional[float] = None  # that the tree used meanwhile; with several processes a lower bound

    beside: Sequence[str] = ()  # what the total includes that RSS and PSS lack: swap, hugetlb pages
    outside: Outside = Outside()
    left_by_thread_bytes: Optional[float] = None  # by each that was started; None if that isn't proven
    resolve_bytes_per_second: Optional[float] = None  # the slope that should be detectable

    @property
    def known_peak_bytes(self) -> Optional[float]:
        """The highest size known, bytes; a tree holds at least as much as one of its processes does."""
        known = (self.peak_bytes, *(spike.rss_bytes for spike in self.spikes))
        return max((size for size in known if size is not None), default=None)

    @property
    def threads_per_second(self) -> float:
        """The threads started per second, on average."""
        return self.threads_started / self.seconds if self.seconds > 0 else 0.0
