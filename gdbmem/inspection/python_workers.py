"""Pages that forked workers have copied of a Python process's memory, by the types of the objects on those pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Unsure, large_blocks, live_blocks
from gdbmem.allocators.cpython.collector import LINKS_BYTES, Collector, CollectorState, find_collector
from gdbmem.allocators.cpython.interpreters import find_interpreters
from gdbmem.allocators.cpython.objects import HAS_GC, ObjectCounter, TypedBlocks
from gdbmem.arrays import import_numpy
from gdbmem.errors import Notice, TargetError
from gdbmem.inspection.live_process import Say, explain_process
from gdbmem.inspection.python_queries import about_python, check_python
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.memory.maps import (
    PAGE,
    Mapping,
    Ranges,
    Twin,
    find_twins,
    is_private_data,
    read_smaps,
    scan_resident,
)
from gdbmem.linux.memory.pagemap import Pages, PageSharing, same_pages
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory, runs_same_program
from gdbmem.linux.process.process import descendants, has_ended, parents, process_facts
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.model.python import CopiedType, PythonCopies, WorkerCopies
from gdbmem.text import format_size, plural

# The pages of forked processes beside those of their parent: copied, still shared, its own.


_SPARSE = 1 << 32  # bytes of a mapping from which on its resident pages are looked for first
_ALONE = 1 << 63  # beside the number of the only process that maps a page, in place of its frame


@dataclass
class Family:
    """A process and the forked processes that still run its program."""

    pid: int
    mappings: Sequence[Mapping]  # the parent's
    workers: list[WorkerCopies] = field(default_factory=list)
    others: list[int] = field(default_factory=list)  # descendants that have executed a program
    unread: list[int] = field(default_factory=list)  # that may be forked processes
    # Copies of the parent's pages: numbers of pages, each once, the copies of each, and the process with one.
    pages: Any = None  # int64, in order
    copies: Any = None  # int64
    holders: Any = None  # int64

    @property
    def copied_bytes(self) -> int:
        return 0 if self.copies is None else int(self.copies.sum()) * PAGE

    def copied_in(self, start: int, end: int) -> int:
        """Return the bytes of the copies of the pages from *start* to *end*."""
        if self.pages is None:
            return 0
        first, last = import_numpy().searchsorted(self.pages, (start // PAGE, end // PAGE))
        return int(self.copies[first:last].sum()) * PAGE

    def copies_of(self, pages: Any) -> Any:
        """Return the number of copies of each of *pages* (numbers)."""
        np = import_numpy()
        if self.pages is None or not len(self.pages):
            return np.zeros(len(pages), np.int64)
        at = np.minimum(np.searchsorted(self.pages, pages), len(self.pages) - 1)
        return np.where(self.pages[at] == pages, self.copies[at], 0)


@dataclass
class _Copies:
    """The pages of one process in place of its parent's."""

    pages: list[Any] = field(default_factory=list)  # numbers
    frames: list[Any] = field(default_factory=list)  # different where the memory is
    with_others: int = 0  # pages
    unsure: int = 0  # that may never have been common
    shared: int = 0
    own: int = 0
    swapped: int = 0

    def add_piece(self, pid: int, twin: Twin, first: int, ours: Pages, theirs: Pages) -> None:
        """Add adjacent pages of *twin* from number *first* on, the parent's and those of its child *pid*."""
        np = import_numpy()
        same = same_pages(ours, theirs)
        differ = ours.present & theirs.present & ~same
        self.shared += int(same.sum())
        self.own += int((theirs.is_anonymous & ~ours.present).sum())
        self.swapped += int((theirs.swapped | (ours.swapped & theirs.present)).sum())
        places = np.flatnonzero(differ)
        alone = theirs.alone[places]
        self.with_others += int((~alone).sum())
        self.unsure += _unsure(twin, same, differ & ours.alone & theirs.alone)
        self.pages.append(first + places)
        self.frames.append(np.where(alone, np.uint64(_ALONE | pid), theirs.frames[places]))

    def of(self, pid: int) -> WorkerCopies:
        return WorkerCopies(
            pid,
            copied_bytes=sum(len(one) for one in self.pages) * PAGE,
            shared_bytes=self.shared * PAGE,
            own_bytes=self.own * PAGE,
            with_siblings_bytes=self.with_others * PAGE,
            uncertain_bytes=self.unsure * PAGE,
            swapped_bytes=self.swapped * PAGE,
        )


def find_family(pid: int, mappings: Sequence[Mapping]) -> Family:
    """Return the forked processes of *pid*, which has *mappings*, and which of its pages they have copies of.

    Raises TargetError if the pages of *pid* can't be read.
    """
    family = Family(pid, mappings)
    found: dict[int, _Copies] = {}
    with PageSharing(pid) as ours:
        for child in sorted(descendants({pid}, parents())):
            same = runs_same_program(pid, child)
            if same is False:
                family.others.append(child)
                continue
            try:
                copies = _compare(mappings, ours, child)
            except TargetError:
                if not has_ended(child):
                    family.unread.append(child)
                continue
            if same or copies.shared:
                found[child] = copies
    family.workers = [copies.of(child) for child, copies in found.items()]
    _add_up(family, found)
    return family


def _compare(mappings: Sequence[Mapping], ours: PageSharing, child: int) -> _Copies:
    """Return how the pages of *child* differ from *ours*, those of the process with *mappings*. Raises TargetError."""
    theirs = [one for one in read_smaps(child) if one.rss_bytes or one.swap_bytes]
    twins = [
        one
        for one in find_twins(mappings, theirs)
        if is_private_data(one.parent) or is_private_data(one.child)
    ]
    common = Ranges((one.start, one.end) for one in twins)
    result = _Copies()
    with PageSharing(child) as pages:
        for twin in twins:
            for start, end in _pieces(child, twin.start, twin.end):
                result.add_piece(child, twin, start // PAGE, ours.of(start, end), pages.of(start, end))
        for mapping in filter(is_private_data, theirs):
            for gap in common.gaps(mapping.start, mapping.end):
                for start, end in _pieces(child, *gap):
                    result.own += int(pages.of(start, end).is_anonymous.sum())
    return result


def _pieces(pid: int, start: int, end: int) -> Sequence[tuple[int, int]]:
    """Return the pieces of a mapping that are read: of a very large one, those in memory, if the kernel tells."""
    found = scan_resident(pid, [(start, end)]) if end - start > _SPARSE else None
    return [(start, end)] if found is None else found.items


def _unsure(twin: Twin, same: Any, single: Any) -> int:
    """Return how many *single* pages of *twin* may never have been common.

    New memory is mapped beside the old, at the same addresses in parent and child, and becomes one mapping with it. So
    these are the ones beyond all that are the *same*, at an end where the mappings of both have different bounds:
    else neither has grown there, or both by as much.
    """
    common = import_numpy().flatnonzero(same)
    first, last = (common[0], common[-1] + 1) if len(common) else (len(same), 0)
    count = 0
    if twin.parent.start != twin.child.start:
        count += int(single[:first].sum())
    if twin.parent.end != twin.child.end:
        count += int(single[last:].sum())
    return min(count, int(single.sum()))


def _add_up(family: Family, found: dict[int, _Copies]) -> None:
    """Count the copies of each page; what several processes have in place of their parent's is one copy."""
    np = import_numpy()
    parts = [(pid, *pair) for pid, copies in found.items() for pair in zip(copies.pages, copies.frames)]
    if not parts:
        return
    pids = np.concatenate([np.full(len(pages), pid) for pid, pages, _ in parts])
    pages = np.concatenate([pages for _, pages, _ in parts])
    frames = np.concatenate([frames for _, _, frames in parts])
    order = np.lexsort((frames, pages))
    pids, pages, frames = pids[order], pages[order], frames[order]
    new = np.ones(len(pages), bool)
    new[1:] = (pages[1:] != pages[:-1]) | (frames[1:] != frames[:-1])
    family.pages, first, family.copies = np.unique(pages[new], return_index=True, return_counts=True)
    family.holders = pids[new][first]


def first_fork(family: Family) -> Optional[tuple[int, int]]:
    """Return the first of *family.others* that has forked processes itself, and their number; None if none has."""
    parent_of = parents()
    for pid in family.others:
        count = sum(runs_same_program(pid, one) is True for one in descendants({pid}, parent_of))
        if count:
            return pid, count
    return None


# Garbage collections of a Python process and its forked processes: each writes into all objects that it tracks.


def collector_of(memory: Memory, mappings: Sequence[Mapping]) -> Optional[Collector]:
    """Return the garbage collector of the main interpreter; None if it was not recognised."""
    try:
        interpreters = find_interpreters(memory, mappings)
        return None if interpreters is None else find_collector(memory, interpreters.addresses(memory)[0])
    except (MemoryUnreadable, IndexError):
        return None


def add_collections(
    family: Family, collector: Optional[Collector]
) -> tuple[Optional[int], Optional[int], bool]:
    """Add its full collections to each worker; return the least and most of the parent, and whether one has frozen.

    A forked process goes on counting from its parent's number at the fork, which is not known: the parent may have
    raised its own since.
    """
    ours = None if collector is None else _state(collector, family.pid)
    if collector is None or ours is None:
        return None, None, False
    least, frozen = 0, ours.has_frozen
    for number, worker in enumerate(family.workers):
        theirs = _state(collector, worker.pid)
        if theirs is not None:
            more = theirs.full_collections - ours.full_collections
            family.workers[number] = worker._replace(
                full_collections=max(more, 0), most_full_collections=theirs.full_collections
            )
            least = max(least, -more)
            frozen |= theirs.has_frozen
    return least, ours.full_collections, frozen


def _state(collector: Collector, pid: int) -> Optional[CollectorState]:
    try:
        with ProcMemory(pid) as memory:
            return collector.state(memory)
    except TargetError:
        return None


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
