"""Memory over time: readings of processes, the lines they draw, marks. Sizes are bytes, times seconds."""

# No annotations from __future__: NamedTuple compiles each one that is a string, which doubles its cost.
from typing import NamedTuple, Optional

from gdbmem.records import dataclass

TREE = 0  # the line of the whole process tree


class ProcessSample(NamedTuple):
    """One sample of a process; None means not read this time, never 0.

    Counters (faults, threads_started, cpu_seconds) count from the process's birth or from the first look; the tree's
    keep what its dead have used.
    """

    rss_bytes: Optional[int] = None
    pss_bytes: Optional[int] = None
    uss_bytes: Optional[int] = None
    shared_bytes: Optional[int] = None  # resident pages of files and shared memory
    swap_bytes: Optional[int] = None
    anonymous_bytes: Optional[int] = None
    file_bytes: Optional[int] = None
    shmem_bytes: Optional[int] = None
    private_dirty_bytes: Optional[int] = None  # what copy-on-write really cost
    shared_dirty_bytes: Optional[int] = None  # inherited, not yet copied
    heap_bytes: Optional[int] = None  # resident in [heap]
    stack_bytes: Optional[int] = None  # resident in [stack]
    minor_faults: Optional[int] = None
    major_faults: Optional[int] = None
    threads: Optional[int] = None
    threads_started: Optional[int] = None
    open_files: Optional[int] = None
    cpu_seconds: Optional[float] = None
    # By the kernel's own count, where it was reached during the recording.
    peak_rss_bytes: Optional[int] = None
    gpu_bytes: Optional[int] = None  # on all GPUs, as NVML counts it
    hugetlb_bytes: Optional[int] = None  # pages of the hugetlb pool, in neither RSS nor PSS
    # For the tree only.
    family_bytes: Optional[int] = None  # anonymous and shared memory in a cgroup of the program's own
    # By which forked processes have un-shared what they had inherited, a counter.
    copied_bytes: Optional[int] = None
    copiers: Optional[int] = None  # processes that have, a counter
    # Reads of PSS whose total is left out, as a process was born or died meanwhile.
    torn_rounds: Optional[int] = None
    # The cgroup with the tightest limit, including other processes in it.
    cgroup_bytes: Optional[int] = None
    cgroup_peak_bytes: Optional[int] = None  # since the start, by the kernel's own count
    cgroup_cache_bytes: Optional[int] = (
        None  # the part that the kernel can drop immediately: inactive file pages
    )
    cgroup_limit_bytes: Optional[int] = None
    cgroup_limit_hits: Optional[int] = None
    cgroup_kills: Optional[int] = None  # processes that the kernel killed at the limit
    cgroup_shmem_bytes: Optional[int] = None  # files in /dev/shm and the like, charged to the cgroup
    family_kernel_bytes: Optional[int] = (
        None  # kernel memory of the program's own cgroup: pipes, sockets, tables
    )

    def filled_from(self, before: "ProcessSample") -> "ProcessSample":
        """Return this reading with what was not read taken from the one *before* it."""
        return ProcessSample._make(old if new is None else new for new, old in zip(self, before))


READING_FIELDS = ProcessSample._fields


class Sample(NamedTuple):
    """One reading of one line at one time."""

    t: float  # since the series began
    line: int  # TREE, or the line's number
    reading: ProcessSample


@dataclass(frozen=True)
class SeriesLine:
    """One process over time; a respawned worker carries on the line of the one before it."""

    number: int
    pid: int  # of the last process on it
    start_ticks: int  # when that process was born, by the kernel's clock: distinguishes reused pids
    name: str
    command: str
    parent: int  # the parent's line; 0 if the parent isn't watched
    born: float
    gone: Optional[float] = None
    respawns: int = 0
    earlier: str = ""  # the names of the programs that were sampled before it executed this one

    @property
    def names(self) -> str:
        """Its name, after the earlier ones, whose memory is also on this line."""
        return f"{self.earlier}, then {self.name}" if self.earlier else self.name


@dataclass(frozen=True)
class Mark:
    """A named moment."""

    t: float
    text: str


@dataclass(frozen=True)
class SeriesFacts:
    """Properties of a whole recording."""

    target: str
    interval_seconds: float
    began: float  # seconds since 1970
    boot_id: str
    boot_seconds: float  # the clock that also counts sleep, at t = 0
    limit_bytes: Optional[int] = None  # of the tightest cgroup, or the machine
    limit_of: str = ""
    reads_pss: bool = True  # False: it was not asked for
    exact_threads: bool = False  # the kernel reported each thread's start; else the count is a lower bound
    unknown_samples: int = 0  # of an imported series: no number, and left out
