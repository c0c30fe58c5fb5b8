"""The usage of a memory cgroup divided into entries that add up to it; its text and JSON (kind=cgroup)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.linux.monitoring.cgroup import CgroupReading
from gdbmem.model.groups import CachedFile, CgroupEntry, CgroupLedger, CgroupProcess
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.terminal.document import Document, whole
from gdbmem.text import format_size, plural, printable

_MOVED_SHARE = 0.01  # of the usage: more than that while it was read is said
_KERNEL = {  # in memory.stat of cgroup v2
    "pagetables": "page tables",
    "kernel_stack": "kernel stacks of threads",
    "percpu": "per-CPU data of the kernel",
    "vmalloc": "vmalloc of the kernel",
    "slab_reclaimable": "slab: caches of names and inodes, which the kernel frees when needed",
    "slab_unreclaimable": "slab: other objects of the kernel",
}


def divided(
    reading: CgroupReading, processes: Sequence[CgroupProcess], unreadable: Sequence[int]
) -> CgroupLedger:
    """Return the ledger of a cgroup, by *reading* and the *processes* in it."""
    entries = [*_user_entries(reading, processes, unreadable), *_kernel_entries(reading)]
    rest = reading.usage_bytes - sum(entry.size_bytes for entry in entries)
    entries.append(CgroupEntry("not told by the kernel", rest, "its own batches, for each processor"))
    by_size = sorted(processes, key=lambda process: -process.pss_bytes)
    return CgroupLedger(
        str(reading.folder),
        reading.version,
        reading.usage_bytes,
        reading.limit_bytes,
        reading.high_bytes,
        reading.usage_bytes - reading.sizes["inactive_file"] if "inactive_file" in reading.sizes else None,
        sorted((entry for entry in entries if entry.size_bytes), key=lambda entry: -entry.size_bytes),
        by_size,
        unreadable,
        _victim(processes, unreadable),
        reading.kills_all,
        list(_notices(reading, unreadable)),
    )


def with_files(ledger: CgroupLedger, files: Sequence[CachedFile]) -> CgroupLedger:
    """Return *ledger* with *files*, which the kernel may or may not have told about."""
    known = sorted((file for file in files if file.cached_bytes), key=lambda file: -(file.cached_bytes or 0))
    return ledger._replace(files=known, untold_files=len(files) - len(known))


def _user_entries(
    reading: CgroupReading, processes: Sequence[CgroupProcess], unreadable: Sequence[int]
) -> list[CgroupEntry]:
    sizes = reading.sizes
    anonymous, shmem = sizes.get("anon", 0), sizes.get("shmem", 0)
    files = sizes.get("file", 0) - shmem
    if any(one.anonymous_bytes is None for one in processes):  # the kernel doesn't tell the processes' parts
        return [
            CgroupEntry("anonymous memory: heaps, stacks, arenas", anonymous),
            CgroupEntry("shared memory and tmpfs files", shmem),
            CgroupEntry("page cache of files", files),
        ]
    of_processes = min(anonymous, sum(one.anonymous_bytes or 0 for one in processes))
    mapped = min(shmem, sum(one.shmem_bytes or 0 for one in processes))
    nobody = "of processes that can't be read, or of none" if unreadable else "of ended or moved processes"
    most = min(files, sum(one.file_bytes or 0 for one in processes))
    return [
        CgroupEntry("anonymous memory: heaps, stacks, arenas", of_processes, "that its processes map"),
        CgroupEntry("other anonymous memory", anonymous - of_processes, nobody),
        CgroupEntry("shared memory and tmpfs files", mapped, "that its processes map"),
        CgroupEntry(
            "tmpfs files, memfds, System V segments", shmem - mapped, "that none of its processes maps"
        ),
        CgroupEntry(
            "page cache of files", files, f"at most {format_size(most)} of it mapped by its processes"
        ),
    ]


def _kernel_entries(reading: CgroupReading) -> list[CgroupEntry]:
    sizes = reading.sizes
    kernel = sizes.get("kernel")
    parts = [CgroupEntry(text, sizes[name]) for name, text in _KERNEL.items() if sizes.get(name)]
    if "sock" in sizes:
        parts.append(CgroupEntry("buffers of sockets", sizes["sock"]))
    if kernel is None:
        return parts
    known = sum(sizes.get(name, 0) for name in _KERNEL)
    what = (
        "other memory of the kernel" if known else "memory of the kernel: page tables, slab, sockets, stacks"
    )
    return [*parts, CgroupEntry(what, kernel - known)]


def _victim(processes: Sequence[CgroupProcess], unreadable: Sequence[int]) -> Optional[int]:
    known = [(one.badness_bytes, one.pid) for one in processes if one.badness_bytes is not None]
    return None if unreadable or not known else max(known)[1]


def _notices(reading: CgroupReading, unreadable: Sequence[int]) -> list[Notice]:
    found = []
    if reading.moved_bytes > _MOVED_SHARE * reading.usage_bytes:
        moved = format_size(reading.moved_bytes)
        text = f"its usage changed by {moved} while it was read: each entry may be off by as much"
        found.append(Notice("cgroup-moved", text))
    if unreadable:
        text = (
            f"the memory of {plural(len(unreadable), 'process', 'processes')} can't be read: run it as root"
        )
        found.append(Notice("cgroup-unreadable", text))
    return found


def cgroup_document(ledger: CgroupLedger) -> Document:
    """Return *ledger* as a document; its entries add up to ``usage_bytes``."""
    return whole("cgroup", ledger, answer(ledger))


def answer(ledger: CgroupLedger) -> str:
    """Return how much is used, and by what most, in one sentence without its full stop."""
    largest = ledger.entries[0] if ledger.entries else None
    limit = "" if ledger.limit_bytes is None else f" of {format_size(ledger.limit_bytes)} allowed"
    share = f"{largest.size_bytes / ledger.usage_bytes:.0%}" if largest and ledger.usage_bytes > 0 else ""
    most = f"; {format_size(largest.size_bytes)} ({share}) is {largest.name}" if largest else ""
    return f"{format_size(ledger.usage_bytes)} used{limit} by {plural(_count(ledger), 'process', 'processes')}{most}"


def _count(ledger: CgroupLedger) -> int:
    return len(ledger.processes) + len(ledger.unreadable)


def print_cgroup(ledger: CgroupLedger, console: Console, *, top: int) -> None:
    """Print the answer, the entries, the *top* largest processes, and what happens at the limit."""
    print_sentence(console, answer(ledger), "bold")
    console.print()
    table = drawing.Table()
    table.add_numbers("size")
    table.add_column("what")
    for entry in ledger.entries:
        detail = f", {entry.detail}" if entry.detail else ""
        table.add_row(format_size(entry.size_bytes), f"{entry.name}{detail}")
    table.add_row(format_size(ledger.usage_bytes), "usage of the cgroup")
    console.print(table)
    console.print()
    console.print(_processes(ledger.processes[:top]))
    if len(ledger.processes) > top:
        print_sentence(
            console, f"… and {plural(len(ledger.processes) - top, 'smaller process', 'smaller processes')}"
        )
    print_sentence(console, "of pages that several processes map, each has its share", "dim")
    _print_files(ledger, console, top)
    for sentence in _limits(ledger):
        print_sentence(console, sentence)
    print_notices(ledger.notices, console)


def _print_files(ledger: CgroupLedger, console: Console, top: int) -> None:
    if not ledger.files and not ledger.untold_files:
        return
    table = drawing.Table()
    table.add_numbers("cached")
    table.add_column("file")
    for file in ledger.files[:top]:
        table.add_row(format_size(file.cached_bytes or 0), printable(file.path))
    total = sum(file.cached_bytes or 0 for file in ledger.files)
    table.add_row(
        format_size(total), f"of {plural(len(ledger.files), 'file')}, whichever cgroup is charged for it"
    )
    console.print()
    console.print(table)
    if ledger.untold_files:
        print_sentence(
            console, f"the kernel tells nothing about {plural(ledger.untold_files, 'file')} of other users"
        )


def _processes(processes: Sequence[CgroupProcess]) -> drawing.Table:
    table = drawing.Table()
    table.add_numbers("pid", "PSS", "anonymous", "files", "shared", "swap")
    table.add_column("process")
    for one in processes:
        sizes = (one.pss_bytes, one.anonymous_bytes, one.file_bytes, one.shmem_bytes, one.swap_bytes)
        cells = ("" if size is None else format_size(size) for size in sizes)
        table.add_row(str(one.pid), *cells, printable(one.name))
    return table


def _limits(ledger: CgroupLedger) -> list[str]:
    found = []
    if ledger.working_set_bytes is not None:
        found.append(f"working set, as Kubernetes counts it: {format_size(ledger.working_set_bytes)}")
    if ledger.high_bytes is not None:
        found.append(f"above {format_size(ledger.high_bytes)} (memory.high) its processes are slowed down")
    if ledger.limit_bytes is not None and ledger.victim is not None:
        name = next(one.name for one in ledger.processes if one.pid == ledger.victim)
        victim = f"process {ledger.victim} ({printable(name)})"
        whom = "all its processes (memory.oom.group)" if ledger.kills_all else victim
        found.append(f"at the limit of {format_size(ledger.limit_bytes)} the kernel would now kill {whom}")
    found.append(f"cgroup v{ledger.version}: {printable(ledger.folder)}")
    return found
