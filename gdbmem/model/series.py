"""Memory over time: readings of processes, the lines they draw, marks. Sizes are bytes, times seconds."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Optional, TypedDict

from gdbmem.errors import Notice
from gdbmem.json_values import Key

# No annotations from __future__: NamedTuple compiles each one that is a string, which doubles its cost.


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
    # The part that the kernel can drop immediately: inactive file pages.
    cgroup_cache_bytes: Optional[int] = None
    cgroup_limit_bytes: Optional[int] = None
    cgroup_limit_hits: Optional[int] = None
    cgroup_kills: Optional[int] = None  # processes that the kernel killed at the limit
    cgroup_shmem_bytes: Optional[int] = None  # files in /dev/shm and the like, charged to the cgroup
    # Kernel memory of the program's own cgroup: pipes, sockets, tables.
    family_kernel_bytes: Optional[int] = None

    def filled_from(self, before: "ProcessSample") -> "ProcessSample":
        """Return this reading with what was not read taken from the one *before* it."""
        return ProcessSample._make(old if new is None else new for new, old in zip(self, before))


READING_FIELDS = ProcessSample._fields
TREE_FIELDS = READING_FIELDS[READING_FIELDS.index("family_bytes") :]
COUNTERS = frozenset((
    "minor_faults", "major_faults", "threads_started", "cpu_seconds", "cgroup_limit_hits", "cgroup_kills",
    "copied_bytes", "copiers", "torn_rounds",
))  # fmt: skip


class Sample(NamedTuple):
    """One reading of one line at one time."""

    t: float  # since the series began
    line: int  # TREE, or the line's number
    reading: ProcessSample


class SeriesLine(NamedTuple):
    """One process over time; a respawned worker carries on the line of the one before it."""

    number: Annotated[int, Key("line")]
    pid: int  # of the last process on it
    start_ticks: int  # when that process was born, by the kernel's clock: distinguishes reused pids
    name: str
    command: str
    parent: Annotated[int, Key("parent_line", or_null=True)]  # 0 if the parent isn't watched
    born: float
    gone: Optional[float] = None
    respawns: int = 0
    earlier: str = ""  # the names of the programs that were sampled before it executed this one

    @property
    def names(self) -> str:
        """Its name, after the earlier ones, whose memory is also on this line."""
        return f"{self.earlier}, then {self.name}" if self.earlier else self.name


class Mark(NamedTuple):
    """A named moment."""

    t: float
    text: str


class SeriesFacts(NamedTuple):
    """Properties of a whole recording."""

    target: str
    interval_seconds: float
    began: float  # seconds since 1970
    boot_id: str
    boot_seconds: float  # the clock that also counts sleep, at t = 0
    limit_bytes: Optional[int] = None  # of the tightest cgroup, or the machine
    limit_of: str = ""
    reads_pss: bool = True  # False: it was not asked for
    # The kernel reported each thread's start; else the count is a lower bound.
    exact_threads: Annotated[bool, Key("threads_started_is_exact")] = False
    unknown_samples: int = 0  # of an imported series: no number, and left out


# The verdict on a series: whether it grows, and the smallest growth that it could have shown.


KINDS = ("growing", "plateau", "sawtooth", "step", "shrinking", "inconclusive")


class Slope(NamedTuple):
    """A rate with its 95 % confidence interval, bytes per second (or per mark)."""

    value: float
    low: float
    high: float


class Regime(NamedTuple):
    """A stretch of a series in which it did one thing; a step lasts from the sample before it to the one after."""

    begin: Annotated[float, Key("from")]  # seconds since the series began, as end
    end: Annotated[float, Key("to")]
    kind: str  # one of KINDS
    change_bytes: float
    slope: Optional[Slope] = None  # bytes per second; None of a step


class Verdict(NamedTuple):
    """The judgement on one series."""

    kind: str  # one of KINDS: what the last regime is, with a step where that came before a level
    metric: str
    evidence: str  # one sentence that can be checked against the plot
    samples: int
    slope: Optional[Slope] = None  # bytes per second, of the last regime; of a sawtooth: of its floor
    # The smallest slope this window would have shown.
    resolution: Annotated[Optional[float], Key("resolution_bytes_per_second")] = None
    warmup_seconds: float = 0.0  # left out at the beginning
    floor: Annotated[str, Key(or_null=True)] = ""  # of a sawtooth: rising, flat, falling, or unclear
    period_seconds: Optional[float] = None
    amplitude_bytes: Optional[float] = None
    step_bytes: Optional[float] = None
    step_at: Annotated[Optional[float], Key("step_at_seconds")] = None  # since the series began
    per_mark: Annotated[Optional[Slope], Key("bytes_per_mark")] = None  # from one mark to the next
    first_bytes: Optional[float] = None
    last_bytes: Optional[float] = None
    regimes: Sequence[Regime] = ()  # in order of time; the last one is judged
    needs_seconds: Optional[float] = None  # how much longer to watch until an open question is decided

    @property
    def grows(self) -> bool:
        """True if memory is lost over time: it grows, or the floor of its sawtooth rises."""
        return self.kind == "growing" or self.floor == "rising"

    @property
    def is_conclusive(self) -> bool:
        """True if the last regime is known, and for a sawtooth also whether its floor rises."""
        return self.kind != "inconclusive" and self.floor != "unclear"


# The summary of a recording: the verdict, the lines, what grew.


class LineSummary(NamedTuple):
    """One process over the whole recording, bytes; None is what was never read."""

    line: SeriesLine
    metric: str  # of the four that follow: rss_bytes or pss_bytes
    first_bytes: Optional[float]  # 0 of one that was born later,
    last_bytes: Optional[float]  # and of one that had gone
    peak_bytes: Optional[float]
    private_dirty_change_bytes: Optional[float]
    threads_started: int
    most_threads: int


class Component(NamedTuple):
    """A part of the memory, and how much it changed over the window, bytes."""

    name: str  # anonymous, file, shmem, heap, swap
    change_bytes: float


class CgroupSummary(NamedTuple):
    """The cgroup over the whole recording, bytes, others' processes in it included; None if it was not recorded."""

    last_bytes: float
    peak_bytes: float
    cache_bytes: Optional[float]  # of the last: what the kernel can drop immediately
    limit_bytes: Optional[float]
    limit_hits: Optional[int]  # during the recording, as kills
    kills: Optional[int]
    # Of the last: files in /dev/shm and the like, which stay until deleted.
    shmem_bytes: Optional[float] = None
    slope: Optional[float] = None  # bytes per second without cache, if it grows steadily

    @property
    def free_bytes(self) -> Optional[float]:
        """The bytes left under the limit; None if there is no limit."""
        if self.limit_bytes is None:
            return None
        return max(self.limit_bytes - self.last_bytes + (self.cache_bytes or 0), 0.0)


class Spike(NamedTuple):
    """A peak between two looks that only the kernel's own count knows, bytes."""

    line: Optional[SeriesLine]  # None: of a process that had ended before it was read
    rss_bytes: float


class Outside(NamedTuple):
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


class SeriesSummary(NamedTuple):
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


# Two groups of recordings, set against each other. Sizes are bytes.


class Difference(NamedTuple):
    """One number, the second group's minus the first's, with its interval if one is known.

    The intervals of all differences of a comparison leave out zero by chance once in twenty comparisons, not rows.
    """

    metric: str
    unit: str  # "B", "B/s", "1/s", "s", or "" for a count
    first: float
    second: float
    value: float
    low: Optional[float] = None
    high: Optional[float] = None
    chance: Optional[float] = None  # how probable so large a difference is between runs of the same thing
    dof: Optional[float] = None  # degrees of freedom of the interval

    @property
    def is_shown(self) -> bool:
        """True if the runs show a difference at all: its interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Comparison(NamedTuple):
    """The differences between two groups of runs."""

    first: Sequence[str]  # names of the runs
    second: Sequence[str]
    differences: Sequence[Difference]
    notices: Sequence[Notice] = ()


class FiredTrigger(TypedDict):
    """An action that a trigger has started, in the form saved in the run."""

    t: float  # seconds since the recording began
    when: str
    value: str
    do: str
    pid: int
    folder: str  # relative to the run folder
    failed: bool  # a step of it did, as far as is known
