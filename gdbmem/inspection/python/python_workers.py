"""Pages that forked workers have copied of a Python process's memory, by the types of the objects on those pages."""

from __future__ import annotations

from typing import Any, Optional

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Unsure, live_blocks
from gdbmem.allocators.cpython.collector import LINKS_BYTES
from gdbmem.allocators.cpython.large_blocks import large_blocks
from gdbmem.allocators.cpython.objects import ObjectCounter, TypedBlocks
from gdbmem.allocators.cpython.types import HAS_GC
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.arrays import import_numpy
from gdbmem.errors import Notice, TargetError
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.process_maps import read_smaps
from gdbmem.inspection.python.python_questions import about_python, check_python
from gdbmem.inspection.python.worker_collections import add_collections, collector_of
from gdbmem.inspection.python.worker_pages import Family, find_family, first_fork
from gdbmem.inspection.still_process import Say
from gdbmem.linux.memory.pages import PAGE
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory
from gdbmem.linux.process.process import process_facts
from gdbmem.model.memory import Memory
from gdbmem.model.python import CopiedType, PythonCopies
from gdbmem.records import dataclass, field
from gdbmem.text import plural
from gdbmem.units import format_size

NOT_OBJECTS = ""  # blocks that are not objects, free ones, headers
ARENAS, HEAP, DATA, OTHER = "arenas", "malloc", "data", "other"  # location of a copied page
_WORTH_SAYING, _LEAST = 0.1, 1 << 20  # fraction of the copies, and bytes


@dataclass
class _CopiedPages:
    """The query for the contents of the copied pages; called with the data read from the parent."""

    family: Family
    bytes: dict[str, float] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    in_arenas: int = 0  # bytes
    tracked: int = 0  # bytes

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        arenas = [arena for arena in reading.others.python.arenas if self._copies_in(arena)]
        self.in_arenas = sum(self._copies_in(arena) for arena in arenas) * PAGE
        counter = ObjectCounter(memory, reading.mappings, reading.others.python.arenas)
        for typed in counter.sorted_by_type(live_blocks(memory, arenas, Unsure())):
            self._add(typed)
            self._add_tracked(typed)
        if reading.heap is not None and reading.heap.is_used and not reading.others.replacement:
            for typed in counter.sorted_by_type(large_blocks(memory, reading.heap, every=False)):
                self._add_tracked(typed)

    def _add_tracked(self, typed: TypedBlocks) -> None:
        """Count the copies of pages with objects that the collector tracks; it writes before each of these."""
        pages = import_numpy().unique((_tracked_objects(typed) - LINKS_BYTES) // PAGE)
        self.tracked += int(self.family.copies_of(pages).sum()) * PAGE

    def _copies_in(self, arena: PythonArena) -> int:
        return int(self.family.copies_of(_pages_of(arena.address, arena.end)).sum())

    def _add(self, typed: TypedBlocks) -> None:
        np = import_numpy()
        start = typed.blocks.addresses.astype(np.int64)
        end = start + typed.blocks.sizes
        kinds = np.where(typed.dead, -1, typed.kinds)
        # A block is smaller than a page: it is on one or two pages.
        for page, size in (
            (start // PAGE, np.minimum(end, (start // PAGE + 1) * PAGE) - start),
            (start // PAGE + 1, np.maximum(end - (start // PAGE + 1) * PAGE, 0)),
        ):
            copies = self.family.copies_of(page) * (size > 0)
            held = copies > 0
            self._sum(typed, kinds[held], page[held], (copies * size)[held], copies[held])

    def _sum(self, typed: TypedBlocks, kinds: Any, pages: Any, sizes: Any, copies: Any) -> None:
        np = import_numpy()
        sums = np.bincount(kinds + 1, sizes, len(typed.types) + 1)
        order = np.lexsort((pages, kinds))
        new = np.ones(len(order), bool)
        new[1:] = (kinds[order][1:] != kinds[order][:-1]) | (pages[order][1:] != pages[order][:-1])
        counts = np.bincount(kinds[order][new] + 1, copies[order][new], len(typed.types) + 1)
        for number in np.flatnonzero(sums).tolist():
            name = typed.types[number - 1].name if number else NOT_OBJECTS
            self.bytes[name] = self.bytes.get(name, 0) + float(sums[number])
            self.pages[name] = self.pages.get(name, 0) + int(counts[number])


def _tracked_objects(typed: TypedBlocks) -> Any:
    """Return the addresses of the live objects that the garbage collector tracks: a link before them is not 0."""
    np = import_numpy()
    places = [one.offset if one.flags & HAS_GC else 0 for one in typed.types]
    offset = np.array([*places, 0], np.int64)[typed.kinds]
    could = (typed.kinds >= 0) & ~typed.dead & (offset > 0)
    before = (typed.lead + offset)[could]
    links = typed.blocks.words[typed.blocks.at[could] + (before - LINKS_BYTES) // 8]
    return (typed.blocks.addresses[could].astype(np.int64) + before)[links != 0]


def _pages_of(start: int, end: int) -> Any:
    """Return the numbers of the pages from *start* to *end*."""
    np = import_numpy()
    return np.arange(start // PAGE, -(-end // PAGE))


def copied_by_workers(pid: int, *, fork: Optional[bool], swapped: bool, say: Say) -> PythonCopies:
    """Return the memory of *pid* that its forked children have copied; *fork*, *say* as for `ask_process`.

    Raises TargetError if it is not a Python, or has no forked child that shares memory with it.
    """
    facts = process_facts(pid)
    mappings = read_smaps(pid)
    with ProcMemory(pid) as memory:
        careful = careful_memory(pid, memory, mappings, swapped=swapped)
        check_python(mappings, pid, careful)
        collector = collector_of(careful, mappings)
    family = find_family(pid, mappings)
    if not family.workers:
        raise _no_workers(family)
    collections = add_collections(family, collector)
    question = _CopiedPages(family)
    ledger = explain_process(pid, fork=fork, look=question, say=say, swapped=swapped)
    types = [
        CopiedType(name, round(size), question.pages[name]) for name, size in question.bytes.items() if name
    ]
    others = question.in_arenas - sum(one.copied_bytes for one in types)
    return PythonCopies(
        facts.name,
        pid,
        family.workers,
        family.copied_bytes,
        question.in_arenas,
        sorted(types, key=lambda one: (-one.copied_bytes, one.type)),
        others,
        _places(question.in_arenas, family),
        question.tracked,
        *collections,
        ledger.pause_seconds,
        [*about_python(ledger), *_notices(family)],
    )


def _no_workers(family: Family) -> TargetError:
    """Return the error that *family* has no forked process, with the one to name instead if there is one."""
    forking = first_fork(family)
    if forking is not None:
        pid, count = forking
        return TargetError(
            f"process {family.pid} has no forked process that shares its memory, but it has started process {pid},"
            f" which has forked {plural(count, 'process', 'processes')}",
            slug="python-no-workers",
            hint=f"'gdbmem python cow {pid}' (a fork server of multiprocessing, its default since Python 3.14)",
        )
    if family.others:
        count = len(family.others)
        return TargetError(
            f"process {family.pid} has no forked process that shares its memory:"
            f" {plural(count, 'process that it has started has', 'processes that it has started have')} executed a"
            " program of their own since (multiprocessing does that with 'spawn'), which shares nothing",
            slug="python-no-workers",
            hint="'gdbmem python objects PID' counts the objects of each",
        )
    return TargetError(
        f"process {family.pid} has no forked process that shares its memory",
        slug="python-no-workers",
        hint="name the process that forks the workers, while they live",
    )


def _notices(family: Family) -> list[Notice]:
    """Return what could not be compared, and what may not be a copy."""
    notices = []
    unsure = sum(one.uncertain_bytes for one in family.workers)
    if unsure >= max(_WORTH_SAYING * family.copied_bytes, _LEAST):
        text = (
            f"up to {format_size(unsure)} of the copies may be memory that both processes have allocated since the"
            " fork, at the same addresses"
        )
        notices.append(Notice("python-copies-uncertain", text))
    swapped = sum(one.swapped_bytes for one in family.workers)
    if swapped:
        text = f"{format_size(swapped)} are swapped out in the parent or in a forked process, and are not compared"
        notices.append(Notice("python-copies-incomplete", text))
    forking = first_fork(family)
    if forking is not None:
        text = (
            f"process {forking[0]}, which process {family.pid} has started, has forked"
            f" {plural(forking[1], 'process', 'processes')} itself, which are not counted here: 'gdbmem python cow"
            f" {forking[0]}'"
        )
        notices.append(Notice("python-copies-incomplete", text))
    if family.unread:
        text = f"{plural(len(family.unread), 'process', 'processes')} below process {family.pid} could not be read"
        notices.append(Notice("python-copies-incomplete", text))
    return notices


def _places(in_arenas: int, family: Family) -> dict[str, int]:
    """Return the copied bytes by location: Python's arenas, malloc's main heap, variables of files, the rest."""
    places = {ARENAS: in_arenas, HEAP: 0, DATA: 0}
    for mapping in family.mappings:
        place = HEAP if mapping.name == "[heap]" else DATA if mapping.is_file else ""
        if place:
            places[place] += family.copied_in(mapping.start, mapping.end)
    places[OTHER] = family.copied_bytes - sum(places.values())
    return places
