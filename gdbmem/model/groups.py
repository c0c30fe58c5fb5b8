"""Several processes together: those of a control group, and those that share pages. Frozen data."""

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import Notice

# The memory of a cgroup (a container, a service) divided.


class CgroupEntry(NamedTuple):
    """A part of the cgroup's usage."""

    name: str
    size_bytes: int
    detail: str = ""


class CgroupProcess(NamedTuple):
    """A process of the cgroup, bytes; its proportional shares of pages that several processes map."""

    pid: int
    name: str
    pss_bytes: int
    anonymous_bytes: Optional[int]  # None in this and the two below: before Linux 5.8
    file_bytes: Optional[int]
    shmem_bytes: Optional[int]
    swap_bytes: int
    # Of the kernel's oom_badness(), for a kill at this cgroup's limit: the largest is killed; None: never.
    badness_bytes: Optional[int]


class CachedFile(NamedTuple):
    """A file and its pages in the page cache of the machine, whichever cgroup they are charged to."""

    path: str
    cached_bytes: Optional[int]  # None: it can't be told


class CgroupLedger(NamedTuple):
    """The usage of one memory cgroup, each byte in one entry."""

    folder: str
    version: int  # of the cgroup interface, 1 or 2
    usage_bytes: int
    limit_bytes: Optional[int]  # None: none of its own
    high_bytes: Optional[int]  # above which its processes are slowed down; None: none
    working_set_bytes: Optional[int]  # usage without inactive pages of files, as Kubernetes counts it
    entries: Sequence[CgroupEntry]
    processes: Sequence[CgroupProcess]  # the largest first
    unreadable: Sequence[int]  # pids whose memory this user may not read
    victim: Optional[int]  # the pid that the kernel would kill at the limit; None: it can't be told
    kills_all: bool  # memory.oom.group: then all are killed
    notices: Sequence[Notice] = ()
    files: Sequence[CachedFile] = ()  # below --files, the largest first
    untold_files: int = 0  # files below it that the kernel tells nothing about


# The memory of several processes that share pages, as one ledger.


UNREAD = "unread"  # the category of processes without a ledger
CHANGED = "changed"  # of what changed between the reading of sizes and that of the heaps


class WorkersEntry(NamedTuple):
    """A line of the common ledger."""

    category: str  # of the processes' ledgers, or UNREAD, CHANGED
    label: str
    size_bytes: int  # each page divided among the processes that map it
    resident_bytes: int  # the sum over the processes: a shared page counts in each
    processes: int  # that have such an entry


class WorkerProcess(NamedTuple):
    """One of the processes; sizes are bytes, by the kernel."""

    pid: int
    name: str
    rss_bytes: int
    pss_bytes: int
    private_bytes: int  # that only it maps: its end would return as much
    pause_seconds: Optional[float]  # None: it has no ledger
    problem: str = ""  # why it has none


class WorkersLedger(NamedTuple):
    """The memory of the processes; the sizes of the entries add up to `pss_bytes`."""

    pss_bytes: int
    rss_bytes: int  # the sum: shared pages count several times
    entries: Sequence[WorkersEntry]  # the largest first
    workers: Sequence[WorkerProcess]  # the largest first
    notices: Sequence[Notice] = ()
    # In pages of hugetlbfs, which are in none of the other sizes; shared ones once; None: unknown.
    hugetlb_bytes: Optional[int] = 0
