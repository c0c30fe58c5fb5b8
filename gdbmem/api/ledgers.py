"""Ledgers: where the resident memory of a process or a core file is."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

from gdbmem.errors import InputError, TargetError, UsageError
from gdbmem.inspection.block_queries import BlockQueries
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.read_process import explain_core as explain_core_file
from gdbmem.linux.memory.hugetlb import SharedHugetlb
from gdbmem.linux.memory.maps import Mapping, read_smaps
from gdbmem.linux.monitoring.cgroup import (
    allowed_bytes,
    cgroup_of,
    cgroups_named,
    process_in_cgroup,
    processes_in,
    read_whole_cgroup,
)
from gdbmem.linux.process.process import check_not_own, descendants, has_ended, parents, process_facts
from gdbmem.model.heap_blocks import HeapMap
from gdbmem.model.ledger import IdleMemory, Ledger
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from gdbmem.ledger.pinners import PinnerPaths
    from gdbmem.model.groups import CachedFile, CgroupLedger, WorkersLedger
    from gdbmem.runs.run import Run
    from gdbmem.runs.saved_results import SavedResult

__all__ = [
    "BlockQueries",
    "class_names",
    "explain",
    "explain_container",
    "explain_core",
    "explain_idle",
    "explain_workers",
    "pinner_paths",
    "place_to_save",
    "read_ledger",
    "save_ledger",
    "saved_heap_map",
]

_MOST_NAMED = 8  # in a message

Operand = Union[str, "os.PathLike[str]"]


def explain(
    pid: int,
    *,
    copy: Optional[bool] = None,
    swapped: bool = False,
    tried: Optional[str] = None,
    progress: Optional[Callable[[str], None]] = None,
    look: Optional[BlockQueries] = None,
) -> Ledger:
    """Return the ledger of process *pid*: its resident set, divided down to malloc's live and free blocks.

    With *copy* a motionless copy of the process is analysed, with False the process itself while it is stopped; by
    default a copy if possible. Swapped pages of a stopped process are read only with *swapped*, as that
    brings them back into memory. With *tried*, "purge", "trim" or "all", a copy is made to call what returns its
    allocators' free memory (purge), malloc_trim (trim), or both. *progress* is called before the process has to wait
    for long. Raises TargetError where it can't be read.
    """
    check_not_own(pid)
    say = progress or (lambda text: None)
    ledger = explain_process(pid, fork=copy, look=look, say=say, swapped=swapped, tried=tried)
    ledger.check()
    return ledger


def explain_idle(pid: int, seconds: float, *, progress: Optional[Callable[[str], None]] = None) -> IdleMemory:
    """Return the memory of process *pid* that is resident but was not touched for *seconds*, by entry of its ledger.

    Only the accessed bits of its pages are changed: they are cleared. Raises TargetError if that is
    refused.
    """
    from gdbmem.inspection.idle import read_idle  # slow to import

    return read_idle(pid, seconds, say=progress or (lambda text: None))


def explain_core(
    core: Operand, program: Optional[Operand] = None, *, look: Optional[BlockQueries] = None
) -> Ledger:
    """Return the ledger of the core file *core*; *program* is the program's file, if it has moved.

    Raises InputError if *core* is not a core file, or of another program.
    """
    ledger = explain_core_file(Path(core), program=Path(program) if program else None, look=look)
    ledger.check()
    return ledger


def read_ledger(operand: Operand) -> Ledger:
    """Return the ledger in a file that `gdbmem explain --json` wrote, or that is saved in a run: ``RUN``, ``RUN:NAME``.

    Raises InputError if there is none.
    """
    from gdbmem.runs.saved_documents import load_ledger  # with the readers of all formats, as the next

    return load_ledger(os.fspath(operand))


def saved_heap_map(operand: Operand) -> Optional[HeapMap]:
    """Return the map of the heap that was saved with the ledger of *operand*; None if there is none."""
    from gdbmem.runs.saved_documents import load_heap_map

    return load_heap_map(os.fspath(operand))


def place_to_save(text: str) -> tuple[Run, str]:
    """Return the run and the name of the moment that *text*, ``RUN:NAME``, names. Raises InputError."""
    from gdbmem.runs import saved_documents

    return saved_documents.place_to_save(text)


def save_ledger(run: Run, name: str, ledger: Ledger) -> SavedResult:
    """Save *ledger* in *run* as *name*. Raises InputError."""
    from gdbmem.runs import saved_documents

    return saved_documents.save_ledger(run, name, ledger)


def pinner_paths(operand: str, ledger: Ledger) -> PinnerPaths:
    """Return the call paths that allocate blocks of the sizes that pin pages in *ledger*, by snapshot *operand*."""
    from gdbmem.runs.saved_documents import paths_of_pinners
    from gdbmem.symbols.address_names import GdbSymbols

    return paths_of_pinners(operand, ledger, GdbSymbols())


# The bytes that the malloc of this process has handed out, by its own count.
#
# A block that fits into memory which malloc had kept free makes the process no bigger: only malloc knows of it.


_PROBE_BYTES = 50_000  # more than a thread caches, less than what malloc maps by itself
_LARGEST_PYTHON_BLOCK = 512  # of CPython's own allocator; larger ones are malloc's


class MallocCount(NamedTuple):
    """The counts of a malloc, bytes; blocks that it maps by themselves are left out, as they always make RSS grow."""

    in_use: int
    free: int  # what it keeps


Count = Callable[[], MallocCount]


_NAMES_OF_MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                      "keepcost")  # fmt: skip


class _Mallinfo(ctypes.Structure):
    """Source: malloc.h, struct mallinfo: before glibc 2.33 numbers that wrap at 4 GiB."""

    _fields_ = [(name, ctypes.c_uint) for name in _NAMES_OF_MALLINFO]


class _Mallinfo2(ctypes.Structure):
    """Source: malloc.h, struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in _NAMES_OF_MALLINFO]


def malloc_count() -> Optional[Count]:
    """Return a function that reads the count; None if the malloc of this process keeps none that is known."""
    process = ctypes.CDLL(None)
    for name, make in _MAKERS.items():
        if hasattr(process, name) and _sees_a_block(count := make(process), process):
            return count
    return None


def _sees_a_block(count: Count, process: ctypes.CDLL) -> bool:
    """Return whether *count* is that of malloc: another library may have replaced the one that keeps it."""
    take, give_back = process.malloc, process.free
    take.restype, take.argtypes, give_back.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    before = count()
    block = take(_PROBE_BYTES)
    after = count()
    give_back(block)
    return after.in_use - before.in_use >= _PROBE_BYTES


def _of_tcmalloc(process: ctypes.CDLL) -> Count:
    """Source: gperftools, malloc_extension_c.h."""
    read = process.MallocExtension_GetNumericProperty
    value = ctypes.c_size_t()

    def property_of(name: bytes) -> int:
        read(name, ctypes.byref(value))
        return value.value

    def count() -> MallocCount:
        in_use = property_of(b"generic.current_allocated_bytes")
        return MallocCount(in_use, property_of(b"generic.heap_size") - in_use)

    return count


def _of_jemalloc(process: ctypes.CDLL) -> Count:
    """Source: jemalloc(3), mallctl(): statistics are those of the last epoch."""
    control = process.mallctl
    epoch, value, size = ctypes.c_uint64(1), ctypes.c_size_t(), ctypes.c_size_t()

    def number(name: bytes) -> int:
        size.value = ctypes.sizeof(value)
        failed = control(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
        return 0 if failed else value.value

    def count() -> MallocCount:
        control(b"epoch", None, None, ctypes.byref(epoch), ctypes.c_size_t(ctypes.sizeof(epoch)))
        in_use = number(b"stats.allocated")
        return MallocCount(in_use, number(b"stats.resident") - in_use)

    return count


def _of_mallinfo2(process: ctypes.CDLL) -> Count:
    read = process.mallinfo2
    read.restype = _Mallinfo2

    def count() -> MallocCount:
        found = read()
        return MallocCount(found.uordblks, found.fordblks)

    return count


def _of_mallinfo(process: ctypes.CDLL) -> Count:
    read = process.mallinfo
    read.restype = _Mallinfo
    first = read()

    def count() -> MallocCount:
        found = read()
        # Only differences matter: those since the first one are right up to 2 GiB.
        return MallocCount(_signed(found.uordblks - first.uordblks), _signed(found.fordblks - first.fordblks))

    return count


def _signed(difference: int) -> int:
    """Return a *difference* of two numbers of 32 bits, of which either may have wrapped."""
    return (difference + (1 << 31)) % (1 << 32) - (1 << 31)


# The allocator's own function first: some also have the one of glibc.
_MAKERS: dict[str, Callable[[ctypes.CDLL], Count]] = {
    "MallocExtension_GetNumericProperty": _of_tcmalloc,
    "mallctl": _of_jemalloc,
    "mallinfo2": _of_mallinfo2,
    "mallinfo": _of_mallinfo,
}


def python_blocks() -> int:
    """Return the number of blocks that Python's own allocator has handed out."""
    return sys.getallocatedblocks()


def largest_python_block() -> Optional[int]:
    """Return the size of the largest block that Python's own allocator hands out; None if they have any size."""
    return None if sysconfig.get_config_var("Py_GIL_DISABLED") else _LARGEST_PYTHON_BLOCK


def class_names(mangled: Iterable[str]) -> dict[str, str]:
    """Return mangled → demangled for those that gdb can demangle; nothing if there is no gdb."""
    from gdbmem.symbols import batch_gdb  # for classes of C++ alone

    return batch_gdb.class_names(mangled)


def explain_container(what: str, *, files: Optional[Operand] = None) -> CgroupLedger:
    """Return where the memory of a cgroup is, every byte of its usage once.

    *what* is a pid in it, its folder below /sys/fs/cgroup, or a name that is in its path (a container's id, a service,
    a pod). *files* is a folder whose files are to be listed by their part of the page cache. No daemon is asked, no
    process is stopped. Raises TargetError if there is none, or if several fit; InputError for *files*.
    """
    from gdbmem.ledger.cgroup import divided, with_files  # for cgroups alone

    folder = _cgroup(what)
    reading = read_whole_cgroup(folder)
    if reading is None:
        raise TargetError(
            f"{printable(str(folder))} has no memory values",
            slug="no-cgroup",
            hint="name a cgroup below the root, with the memory controller",
        )
    processes, unreadable = [], []
    allowed = allowed_bytes(folder, reading.limit_bytes)
    for pid in processes_in(folder):
        try:
            found = process_in_cgroup(pid, allowed)
        except PermissionError:
            unreadable.append(pid)
        else:
            processes += [found] if found is not None else []
    ledger = divided(reading, processes, unreadable)
    return ledger if files is None else with_files(ledger, _files_below(Path(files)))


def explain_workers(
    processes: Union[int, Iterable[int]], *, progress: Optional[Callable[[str], None]] = None
) -> WorkersLedger:
    """Return where the memory of *processes* is, shared pages once: a pid with its descendants, or a list of pids.

    They are read one after the other, as by explain(). One that can't be read has its memory in an entry of its own,
    and a notice. Raises TargetError if none of them is there.
    """
    from gdbmem.ledger.workers import ReadWorker, together  # for several processes alone

    if isinstance(processes, int):
        pids = [processes, *descendants({processes}, parents())]
    else:
        pids = list(dict.fromkeys(processes))
    for pid in pids:
        check_not_own(pid)
    # Before the first copy, which would share all pages.
    known = {pid: mappings for pid in pids if (mappings := _mappings_of(pid))}
    if not known:
        raise TargetError(
            f"none of {plural(len(pids), 'process', 'processes')} has memory that can be read",
            slug="no-such-process",
            hint="see ps -e; the processes of other users are read as root",
        )
    in_hugetlb = {pid: sum(one.hugetlb_bytes for one in mappings) for pid, mappings in known.items()}
    hugetlb = SharedHugetlb().used({pid: size for pid, size in in_hugetlb.items() if size})
    workers = []
    for pid, mappings in known.items():
        name = process_facts(pid).name if not has_ended(pid) else "?"
        try:
            workers.append(ReadWorker(pid, name, mappings, explain(pid, progress=progress)))
        except TargetError as error:
            workers.append(ReadWorker(pid, name, mappings, None, error.message))
    return together(workers, hugetlb)


def _mappings_of(pid: int) -> Sequence[Mapping]:
    try:
        return read_smaps(pid)
    except TargetError:  # it has ended, or belongs to another user
        return ()


def _files_below(folder: Path) -> list[CachedFile]:
    from gdbmem.linux.memory.pagemap import cached_files  # for --files only

    try:
        return list(cached_files(folder))
    except OSError as error:
        raise InputError(
            f"{printable(str(folder))} can't be read: {error.strerror}",
            slug="unreadable",
            hint="name a folder",
        ) from error


def _cgroup(what: str) -> Path:
    if what.isascii() and what.isdigit():
        folder = cgroup_of(int(what))
        if folder is None:
            raise TargetError(
                f"process {what} is in no memory cgroup that is visible here",
                slug="no-cgroup",
                hint="check the pid, and that /sys/fs/cgroup is mounted",
            )
        return folder
    if what.startswith("/"):
        if not (Path(what) / "cgroup.procs").is_file():
            raise TargetError(
                f"{printable(what)} is no cgroup", slug="no-cgroup", hint="name a folder below /sys/fs/cgroup"
            )
        return Path(what)
    if not what:
        raise UsageError("name a container", hint="--container PID, NAME or /sys/fs/cgroup/…")
    named = cgroups_named(what)
    if len(named) != 1:
        listed = ", ".join(printable(str(folder)) for folder in named[:_MOST_NAMED])
        more = ", …" if len(named) > _MOST_NAMED else ""
        how_many = f"{len(named)} cgroups have" if named else "no cgroup with processes has"
        raise TargetError(
            f"{how_many} '{printable(what)}' in the path{': ' if named else ''}{listed}{more}",
            slug="no-cgroup",
            hint="name one by its folder, or by the pid of one of its processes",
        )
    return named[0]
