"""Reasons against copying a process, known before it is stopped: a copy would harm it or fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.monitoring.cgroup import cgroup_of, read_cgroup
from gdbmem.linux.process.living import memory_folder
from gdbmem.linux.process.process import ProcessFacts

_WATCHED = {"um", "uw", "ui"}  # smaps' flags of memory whose faults are handled by a userfaultfd
_DEVICE_WRITES = ("/[aio]", "[io_uring]", "/dev/infiniband/", "/dev/vfio/")  # who reads so has one mapped
_FREE_HUGE_PAGES = Path("/sys/kernel/mm/hugepages")


def copy_obstacle(facts: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """Return why no copy of the process should be made; None if no reason is known."""
    reasons = (_other_namespace, _watched_memory, _device_writes, _reserved_pages, _too_little_memory)
    return next((why for reason in reasons for why in [reason(facts, mappings)] if why), None)


def _other_namespace(facts: ProcessFacts, _: Sequence[Mapping]) -> Optional[str]:
    """The first child would be the init of a new namespace, in which no process can start after it has ended."""
    folder = Path(f"{memory_folder(facts.pid)}/ns")
    try:
        own = (folder / "pid").readlink()
        names = {entry.name for entry in folder.iterdir()}
        if "pid_for_children" not in names or (folder / "pid_for_children").readlink() == own:
            return None
    except FileNotFoundError:
        pass  # that namespace has had no process yet
    except OSError:
        return None
    return "its children belong to another PID namespace, which the end of the copy could end"


def _watched_memory(_: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """True if clone waits for a thread to read an event (UFFD_FEATURE_EVENT_FORK); that may be one that we hold."""
    if any(_WATCHED.intersection(m.flags.split()) for m in mappings):
        return "a userfaultfd watches its memory, and could block the copy forever"
    return None


def _device_writes(_: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """Data that a device is writing goes to the copy if the process writes to the page first (Linux before 6.3)."""
    if any(mark in m.name for m in mappings for mark in _DEVICE_WRITES):
        return "it may do direct I/O (aio, io_uring, RDMA), whose data the copy could get"
    return None


def _reserved_pages(_: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """Writing to a copied hugetlbfs page takes a second one; without a reserve the process could not have it."""
    unreserved = (m for m in mappings if {"ht", "nr"} <= set(m.flags.split()) and m.permissions[3] == "p")
    need = sum(m.hugetlb_bytes for m in unreserved)
    if need > _free_huge_bytes():
        return "it has huge pages without a reserve, and would need as many again"
    return None


def _free_huge_bytes() -> int:
    total = 0
    for folder in _FREE_HUGE_PAGES.glob("hugepages-*kB"):
        try:
            total += int((folder / "free_hugepages").read_text()) * int(folder.name[10:-2]) << 10
        except (OSError, ValueError):
            continue
    return total


def _too_little_memory(facts: ProcessFacts, _: Sequence[Mapping]) -> Optional[str]:
    """While the copy lives, each page that the process writes is duplicated, and pages come back from swap."""
    for whose, limit, left in _limits(facts.pid):
        if left < min(facts.anonymous_bytes, limit // 10) + facts.swap_bytes:
            return f"{whose} has too little memory left for the pages it writes meanwhile"
    return None


def _limits(pid: int) -> Iterable[tuple[str, int, int]]:
    """Yield the limits on the memory of *pid*: the limiter, the limit, and the remaining bytes."""
    folder = cgroup_of(pid)
    while (
        folder is not None and len(folder.parts) > 3
    ):  # up to /sys/fs/cgroup, which in a container has a limit
        memory = read_cgroup(folder)
        if memory.limit_bytes is not None and memory.usage_bytes is not None:
            dropped = memory.cache_bytes or 0
            yield "its control group", memory.limit_bytes, memory.limit_bytes - memory.usage_bytes + dropped
        folder = folder.parent
    sizes = _machine()
    if "MemAvailable" in sizes:
        yield "this machine", sizes["MemTotal"], sizes["MemAvailable"]


def _machine() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    return {line.partition(":")[0]: int(line.split()[1]) << 10 for line in lines}
