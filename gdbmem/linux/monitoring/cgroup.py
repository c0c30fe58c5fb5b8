"""A process's memory cgroup: usage, limit, and events at the limit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from gdbmem.linux.process.living import text_of
from gdbmem.records import dataclass

_ROOT = Path("/sys/fs/cgroup")
_ROOTS = (_ROOT, _ROOT / "memory")
_NO_LIMIT = 1 << 60  # version 1 writes "none" as a huge number


@dataclass(frozen=True)
class CgroupMemory:
    """The memory values of a cgroup; None if it has no such value."""

    folder: Path
    usage_bytes: Optional[int]
    peak_bytes: Optional[int]  # since it was created
    limit_bytes: Optional[int]
    cache_bytes: Optional[int]  # what the kernel can drop immediately: inactive pages of files
    shmem_bytes: Optional[
        int
    ]  # files in /dev/shm and the like, memfds, System V segments: in its usage until deleted
    events: dict[str, int]  # number of events: low, high, max, oom, oom_kill


def cgroup_of(pid: int) -> Optional[Path]:
    """Return the folder of the memory cgroup of *pid*; None if none is visible."""
    try:
        text = text_of(f"/proc/{pid}/cgroup")
    except OSError:
        return None
    for line in text.split("\n")[:-1]:
        number, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if "memory" in names:
            return _existing(_ROOT / "memory" / path.lstrip("/"), "memory.usage_in_bytes")
    for line in text.split("\n")[:-1]:
        number, _, path = line.split(":", 2)
        if number == "0":
            return _existing(_ROOT / path.lstrip("/"), "memory.current")
    return None


def read_cgroup(folder: Path) -> CgroupMemory:
    """Read the cgroup at *folder* (version 1 or 2)."""
    usage = _number(folder / "memory.current")
    peak = _number(folder / "memory.peak")  # since Linux 5.19
    limit = _number(folder / "memory.max")
    if usage is None:
        usage = _number(folder / "memory.usage_in_bytes")
        peak = _number(folder / "memory.max_usage_in_bytes")
        limit = _number(folder / "memory.limit_in_bytes")
    if limit is not None and limit >= _NO_LIMIT:
        limit = None
    sizes = _stat(folder)
    cache, shmem = (sizes.get(f"total_{name}", sizes.get(name)) for name in ("inactive_file", "shmem"))
    return CgroupMemory(folder, usage, peak, limit, cache, shmem, _events(folder))


@dataclass(frozen=True)
class Limit:
    """The lowest memory limit that applies to a process."""

    size_bytes: int
    whose: str  # "the cgroup" or "the machine"
    folder: Optional[
        Path
    ]  # the cgroup that has it; else the process's own, None if that is the whole machine


def tightest_limit(pid: int) -> Limit:
    """Return the lowest memory limit that applies to *pid*: a cgroup's, or the machine's."""
    folder = cgroup_of(pid)
    return tightest_over(folder)


def tightest_over(folder: Optional[Path]) -> Limit:
    """Return the lowest memory limit that applies to processes in the cgroup *folder*."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = Limit(machine, "the machine", folder if folder not in (None, *_ROOTS) else None)
    while folder is not None and folder not in _ROOTS:
        limit = read_cgroup(folder).limit_bytes
        if limit is not None and limit < found.size_bytes:
            found = Limit(limit, "the cgroup", folder)
        folder = folder.parent if folder.parent != folder else None
    return found


def cgroup_reading(folder: Path) -> dict[str, Optional[int]]:
    """Return the values of the cgroup *folder* by their names in a reading of a tree."""
    memory = read_cgroup(folder)
    return {
        "cgroup_bytes": memory.usage_bytes,
        "cgroup_peak_bytes": memory.peak_bytes,
        "cgroup_cache_bytes": memory.cache_bytes,
        "cgroup_shmem_bytes": memory.shmem_bytes,
        "cgroup_limit_bytes": memory.limit_bytes,
        "cgroup_limit_hits": memory.events.get("max"),
        "cgroup_kills": memory.events.get("oom_kill"),
    }


def _existing(folder: Path, file: str) -> Optional[Path]:
    if ".." in folder.parts:  # it is in no cgroup below our root; the path may lead to any folder
        return None
    # In a container the path may be the host's; the container's own cgroup is then mounted at the root.
    for candidate in (folder, _ROOT / "memory", _ROOT):
        if (candidate / file).exists():
            return candidate
    return None


def _number(path: Path) -> Optional[int]:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # absent, or "max"


def _stat(folder: Path) -> dict[str, int]:
    """Return the sizes in memory.stat; in cgroup v1 those that begin with total_ include the cgroups below."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(size) for name, size in (line.split(None, 1) for line in lines)}


def _events(folder: Path) -> dict[str, int]:
    found = {}
    for name in ("memory.events", "memory.oom_control"):
        try:
            lines = (folder / name).read_text().splitlines()
        except OSError:
            continue
        found.update({key: int(number) for key, _, number in (line.partition(" ") for line in lines)})
    failures = _number(folder / "memory.failcnt")
    if failures is not None:
        found["max"] = failures
    return found
