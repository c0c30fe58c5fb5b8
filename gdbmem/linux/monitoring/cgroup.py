"""A process's memory cgroup: usage, limit, and events at the limit."""

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import PAGE, parse_rollup
from gdbmem.linux.process.process import process_facts, stat_of, text_of

if TYPE_CHECKING:
    from gdbmem.model.groups import CgroupProcess

_ROOT = Path("/sys/fs/cgroup")
_ROOTS = (_ROOT, _ROOT / "memory")
_NO_LIMIT = 1 << 60  # version 1 writes "none" as a huge number


class CgroupMemory(NamedTuple):
    """The memory values of a cgroup; None if it has no such value."""

    folder: Path
    usage_bytes: Optional[int]
    peak_bytes: Optional[int]  # since it was created
    limit_bytes: Optional[int]
    cache_bytes: Optional[int]  # what the kernel can drop immediately: inactive pages of files
    # Files in /dev/shm and the like, memfds, System V segments: in its usage until deleted.
    shmem_bytes: Optional[int]
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
            return _existing_file(_ROOT / "memory" / path.lstrip("/"), "memory.usage_in_bytes")
    for line in text.split("\n")[:-1]:
        number, _, path = line.split(":", 2)
        if number == "0":
            return _existing_file(_ROOT / path.lstrip("/"), "memory.current")
    return None


def read_cgroup(folder: Path) -> CgroupMemory:
    """Read the cgroup at *folder* (version 1 or 2)."""
    usage = _number(folder / "memory.current")
    peak = _number(folder / "memory.peak")  # since Linux 5.19
    limit = _number(folder / "memory.max")
    if usage is None:
        usage = cgroup_usage(folder)
        peak = _number(folder / "memory.max_usage_in_bytes")
        limit = _number(folder / "memory.limit_in_bytes")
    if limit is not None and limit >= _NO_LIMIT:
        limit = None
    sizes = _stat(folder)
    cache, shmem = (sizes.get(f"total_{name}", sizes.get(name)) for name in ("inactive_file", "shmem"))
    return CgroupMemory(folder, usage, peak, limit, cache, shmem, _events(folder))


def cgroup_usage(folder: Path) -> Optional[int]:
    """Return what the limit of the cgroup at *folder* is compared with, bytes; None if it has no such value."""
    usage = _number(folder / "memory.current")
    return _number(folder / "memory.usage_in_bytes") if usage is None else usage


class Limit(NamedTuple):
    """The lowest memory limit that applies to a process."""

    size_bytes: int
    whose: str  # "the cgroup" or "the machine"
    # The cgroup that has it; else the process's own, None if that is the whole machine.
    folder: Optional[Path]


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


def _existing_file(folder: Path, file: str) -> Optional[Path]:
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


# A separate memory cgroup for a program that gdbmem starts: the memory of all its processes is then one cheap
# number.
#
# It is created only below a cgroup that we may divide: in cgroup v1 our own one, in cgroup v2 a delegated one that
# enables the memory controller for its children. Limits still apply: the new one is below them, or there are none. A
# running program is never moved.


_NAME = "gdbmem."
_DELEGATED = ("user.delegate", "trusted.delegate")  # set by systemd, the second one by root's
_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "pids.max")  # "max" if there is none
_HELD = {
    1: re.compile(rb"^total_(?:rss|shmem) (\d+)$", re.M),
    2: re.compile(rb"^(?:anon|shmem) (\d+)$", re.M),
}
_KERNEL, _RECLAIMABLE = (
    re.compile(rb"^kernel (\d+)$", re.M),
    re.compile(rb"^slab_reclaimable (\d+)$", re.M),
)


class Family:
    """The cgroup of a program and its descendants."""

    def __init__(self, folder: Path) -> None:
        """Use the new cgroup *folder* for it; raises OSError."""
        self.folder = folder
        self._above = folder.parent
        version = 1 if (folder / "memory.usage_in_bytes").exists() else 2
        self._pattern = _HELD[version]
        self._counts_above = version == 2  # events also count in the cgroups above
        self._stat = os.open(folder / "memory.stat", os.O_RDONLY | os.O_CLOEXEC)
        self._entry: Optional[int] = None
        try:
            self._entry = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            self._keep_limit(version)
        except OSError:
            self.close()
            raise

    def _keep_limit(self, version: int) -> None:
        # A runtime that sizes itself by its own cgroup's limit finds the effective one.
        limit = tightest_over(self._above)
        if limit.whose == "the cgroup":
            name = "memory.limit_in_bytes" if version == 1 else "memory.max"
            (self.folder / name).write_text(str(limit.size_bytes))

    def enter(self) -> None:
        """Move this process, a child that has not executed the program yet, into it."""
        if self._entry is not None:
            with contextlib.suppress(OSError):  # starting the program is more important than measuring it
                os.write(self._entry, b"0")

    def held_bytes(self) -> Optional[int]:
        """Return its anonymous and shared memory; None if unavailable."""
        try:
            found = self._pattern.findall(os.pread(self._stat, 4096, 0))
        except OSError:
            return None
        return sum(map(int, found)) if found else None

    def members(self) -> list[int]:
        """Return the processes in it; none if they can't be read."""
        with contextlib.suppress(OSError):
            return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]
        return []

    def kernel_bytes(self) -> Optional[int]:
        """Return its kernel memory (pipes, sockets, page tables) that stays; None if the kernel doesn't count it."""
        try:
            if not self._counts_above:  # cgroup v1
                return int((self.folder / "memory.kmem.usage_in_bytes").read_bytes())
            data = os.pread(self._stat, 4096, 0)
        except (OSError, ValueError):
            return None
        kernel, reclaimable = _KERNEL.search(data), _RECLAIMABLE.search(data)
        return int(kernel[1]) - (int(reclaimable[1]) if reclaimable else 0) if kernel else None

    def with_events(self, found: dict[str, Optional[int]], folder: Path) -> dict[str, Optional[int]]:
        """Return the values *found* in *folder*, a cgroup above, with the events of this one."""
        if self._counts_above and folder in self.folder.parents:
            return found
        own = cgroup_reading(self.folder)
        names = ("cgroup_limit_hits", "cgroup_kills")
        return {**found, **{name: (found.get(name) or 0) + (own.get(name) or 0) for name in names}}

    def close(self) -> None:
        """Remove it; processes still in it are moved to our own cgroup."""
        os.close(self._stat)
        if self._entry is not None:
            os.close(self._entry)
        for pid in self.members():
            with contextlib.suppress(OSError):
                (self._above / "cgroup.procs").write_text(str(pid))
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def make_family() -> Optional[Family]:
    """Return a new cgroup for a program to start; None if none can or may be created."""
    own = cgroup_of(os.getpid())
    above = None if own is None else divisible(own)
    if above is None:
        return None
    _remove_old(above)
    folder = above / f"{_NAME}{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        return Family(folder)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return None


def divisible(own: Path) -> Optional[Path]:
    """Return the cgroup below which one may be created for children of a process in *own*; None if there is none."""
    if (own / "memory.usage_in_bytes").exists() or _hands_memory_down(own):
        return own
    # In cgroup v2 only a cgroup without processes passes controllers to its children: so the new one is beside ours.
    if _hands_memory_down(own.parent) and _is_delegated(own.parent) and not _has_limits(own):
        return own.parent
    return None


def _hands_memory_down(folder: Path) -> bool:
    try:
        return "memory" in (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


def _is_delegated(folder: Path) -> bool:
    for above in (folder, *folder.parents):
        for name in _DELEGATED:
            with contextlib.suppress(OSError):
                if os.getxattr(above, name) == b"1":
                    return True
    return False


def _has_limits(folder: Path) -> bool:
    for name in _LIMITS:
        with contextlib.suppress(OSError):
            if not (folder / name).read_text().startswith("max"):
                return True
    return False


def _remove_old(above: Path) -> None:
    """Remove cgroups left by killed monitors; those with processes can't be removed."""
    for folder in above.glob(f"{_NAME}*"):
        pid = folder.name[len(_NAME) :]
        if pid.isdigit() and stat_of(int(pid)) is None:
            with contextlib.suppress(OSError):
                folder.rmdir()


# The whole of a cgroup, for its ledger.


_V1_NAMES = {  # of cgroup v2 → of v1, with the cgroups below
    "anon": "total_rss",
    "file": "total_cache",
    "shmem": "total_shmem",
    "inactive_file": "total_inactive_file",
}
_DEEPEST = 64  # folders below each other


class CgroupReading(NamedTuple):
    """The values of a memory cgroup, bytes; the values of both versions have the names of version 2."""

    folder: Path
    version: int
    usage_bytes: int
    limit_bytes: Optional[int]
    high_bytes: Optional[int]
    sizes: dict[str, int]  # of memory.stat; "kernel" is all of the kernel's memory but that of sockets
    kills_all: bool
    moved_bytes: int  # the change of its usage while it was read


def read_whole_cgroup(folder: Path) -> Optional[CgroupReading]:
    """Read the cgroup at *folder*; None if it has no memory values (the root of version 2, or it is gone)."""
    before = read_cgroup(folder)
    sizes, version = _stat(folder), 2 if (folder / "memory.current").exists() else 1
    if before.usage_bytes is None or not sizes:
        return None
    if version == 1:
        sizes = {name: sizes.get(old, 0) for name, old in _V1_NAMES.items()}
        kernel = _number(folder / "memory.kmem.usage_in_bytes")
        if kernel is not None:
            sizes["kernel"] = kernel
    after = read_cgroup(folder).usage_bytes
    return CgroupReading(
        folder,
        version,
        before.usage_bytes,
        before.limit_bytes,
        _number(folder / "memory.high"),
        sizes,
        _number(folder / "memory.oom.group") == 1,
        abs((after or 0) - before.usage_bytes),
    )


def processes_in(folder: Path) -> list[int]:
    """Return the pids in the cgroup at *folder* and in those below it."""
    found: list[int] = []
    for place, below, _ in os.walk(folder):
        if len(Path(place).parts) - len(folder.parts) > _DEEPEST:
            below.clear()
        with contextlib.suppress(OSError):
            found += map(int, (Path(place) / "cgroup.procs").read_text().split())
    return found


def cgroups_named(name: str) -> list[Path]:
    """Return the folders of the memory cgroups that have a process and *name* in a part of their path."""
    found: set[Path] = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        folder = cgroup_of(int(entry.name))
        if folder is None or folder in _ROOTS:
            continue
        parts = folder.parts
        at = next((n for n, part in enumerate(parts) if n >= len(_ROOT.parts) and name in part), None)
        if at is not None:
            found.add(Path(*parts[: at + 1]))
    return sorted(found)


_NEVER = -1000  # oom_score_adj of a process that is never killed


def machine_sizes() -> dict[str, int]:
    """Return the sizes of /proc/meminfo, bytes, by their names; none if it can't be read."""
    with contextlib.suppress(OSError):
        rows = (line.split() for line in text_of("/proc/meminfo").splitlines())
        return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows}
    return {}


def allowed_bytes(folder: Optional[Path], limit_bytes: Optional[int]) -> int:
    """Return what oom_score_adj is a share of: a cgroup's limit, or the machine's memory, with the swap."""
    sizes = machine_sizes()
    memory, swap = (sizes.get(name, 0) for name in ("MemTotal", "SwapTotal"))
    if folder is None or limit_bytes is None:
        return memory + swap
    swappiness = _number(folder / "memory.swappiness")
    if (_number(Path("/proc/sys/vm/swappiness")) if swappiness is None else swappiness) == 0:
        return limit_bytes
    both = _number(folder / "memory.memsw.limit_in_bytes")  # of version 1
    most = both - limit_bytes if both is not None else _number(folder / "memory.swap.max")
    return limit_bytes + (swap if most is None else min(most, swap))


def process_in_cgroup(pid: int, allowed: int) -> Optional["CgroupProcess"]:
    """Return the memory of *pid*, in a cgroup with *allowed* bytes; None if it has ended or has no memory.

    Raises PermissionError for a process of another user.
    """
    try:
        data = Path(f"/proc/{pid}/smaps_rollup").read_bytes()
        adjustment = int(text_of(f"/proc/{pid}/oom_score_adj"))
        facts = process_facts(pid)
    except PermissionError:
        raise
    except (OSError, ValueError, TargetError):
        return None
    if b"Rss" not in data:  # a kernel thread, or one that is ending
        return None
    rollup = parse_rollup(data)
    # As oom_badness() in the kernel's mm/oom_kill.c, which counts in whole pages.
    badness = rollup.rss_bytes + facts.swap_bytes + facts.page_table_bytes
    badness += adjustment * (allowed // PAGE // 1000) * PAGE
    from gdbmem.model.groups import CgroupProcess  # for the ledger of a cgroup alone

    return CgroupProcess(
        pid,
        facts.name,
        rollup.pss_bytes,
        rollup.pss_anonymous_bytes,
        rollup.pss_file_bytes,
        rollup.pss_shmem_bytes,
        rollup.swap_bytes,
        None if adjustment == _NEVER else badness,
    )
