"""The memory of a cgroup (a container, a service) divided: frozen data."""

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import Notice


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
