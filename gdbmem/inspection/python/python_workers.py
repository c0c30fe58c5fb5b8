"""Pages that forked workers have copied of a Python process's memory, by the types of the objects on those pages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Unsure, live_blocks
from gdbmem.allocators.cpython.objects import ObjectCounter, TypedBlocks
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.arrays import import_numpy
from gdbmem.errors import TargetError
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.process_maps import read_maps, read_smaps
from gdbmem.inspection.python.python_questions import about_python, check_python
from gdbmem.inspection.still_process import Say
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.page_sharing import PageSharing
from gdbmem.linux.memory.pages import PAGE
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory
from gdbmem.linux.process.process import process_facts
from gdbmem.linux.process.processes import descendants, parents
from gdbmem.model.memory import Memory
from gdbmem.model.python import CopiedType, PythonCopies, WorkerCopies
from gdbmem.records import dataclass, field

NOT_OBJECTS = ""  # blocks that are not objects, free ones, headers
ARENAS, HEAP, DATA, OTHER = "arenas", "malloc", "data", "other"  # location of a copied page


@dataclass
class _Area:
    """A private, writable mapping of the parent: for each page, how many workers have a private copy."""

    mapping: Mapping
    copies: Any  # int64, one per page


@dataclass
class _CopiedPages:
    """The query for the contents of the copied pages; called with the data read from the parent."""

    areas: Sequence[_Area]
    bytes: dict[str, float] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    in_arenas: int = 0  # bytes

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        arenas = [arena for arena in reading.others.python.arenas if self._copies_in(arena)]
        self.in_arenas = sum(self._copies_in(arena) for arena in arenas) * PAGE
        counter = ObjectCounter(memory, reading.mappings, reading.others.python.arenas)
        for typed in counter.sorted_by_type(live_blocks(memory, arenas, Unsure())):
            self._add(typed)

    def _copies_in(self, arena: PythonArena) -> int:
        return int(sum(self._copies(_pages_of(arena.address, arena.end)))) if self.areas else 0

    def _copies(self, pages: Any) -> Any:
        """Return the number of copies of each of *pages* (page numbers)."""
        np = import_numpy()
        result = np.zeros(len(pages), np.int64)
        for area in self.areas:
            first = area.mapping.start // PAGE
            inside = (pages >= first) & (pages < first + len(area.copies))
            result[inside] = area.copies[pages[inside] - first]
        return result

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
            copies = self._copies(page) * (size > 0)
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
        check_python(mappings, pid, careful_memory(pid, memory, mappings, swapped=swapped))
    areas = [_area(m) for m in mappings if _may_be_copied(m)]
    workers = [
        one for child in descendants({pid}, parents()) if child != pid for one in _look(pid, child, areas)
    ]
    if not workers:
        raise TargetError(
            f"process {pid} has no forked process that shares its memory",
            slug="python-no-workers",
            hint="name the process that forks the workers, while they live",
        )
    question = _CopiedPages([area for area in areas if area.copies.any()])
    ledger = explain_process(pid, fork=fork, look=question, say=say, swapped=swapped)
    copied = sum(worker.copied_bytes for worker in workers)
    types = [
        CopiedType(name, round(size), question.pages[name]) for name, size in question.bytes.items() if name
    ]
    others = question.in_arenas - sum(one.copied_bytes for one in types)
    return PythonCopies(
        facts.name,
        pid,
        workers,
        copied,
        question.in_arenas,
        sorted(types, key=lambda one: (-one.copied_bytes, one.type)),
        others,
        _places(question, areas, copied),
        ledger.pause_seconds,
        about_python(ledger),
    )


def _area(mapping: Mapping) -> _Area:
    return _Area(mapping, import_numpy().zeros(mapping.size_bytes // PAGE, "int64"))


def _may_be_copied(mapping: Mapping) -> bool:
    return (
        mapping.permissions[1] == "w" and mapping.permissions[3] == "p" and not mapping.name.startswith("[v")
    )


def _look(pid: int, child: int, areas: Sequence[_Area]) -> Iterator[WorkerCopies]:
    """Add the pages copied by *child* to *areas*, and yield the sum; nothing if it shares no page with *pid*."""
    np = import_numpy()
    with contextlib.suppress(TargetError):  # it has just ended
        known = {(m.start, m.name): m for m in read_maps(child)}
        copied, shared = 0, 0
        found = []
        with PageSharing(pid) as ours, PageSharing(child) as theirs:
            for area in areas:
                twin = known.get((area.mapping.start, area.mapping.name))
                if twin is None:
                    continue
                end = min(twin.end, area.mapping.end)
                present, _ = ours.of(area.mapping.start, end)
                there, alone = theirs.of(area.mapping.start, end)
                copies = present & alone
                shared += int((present & there & ~alone).sum())
                copied += int(copies.sum())
                found.append((area, np.flatnonzero(copies)))
        if not shared:
            return  # it has executed another program, or copied everything
        for area, pages in found:
            area.copies[pages] += 1
        yield WorkerCopies(child, copied * PAGE, shared * PAGE)


def _places(question: _CopiedPages, areas: Sequence[_Area], copied: int) -> dict[str, int]:
    """Return the copied bytes by location: Python's arenas, malloc's main heap, variables of files, the rest."""
    places = {ARENAS: question.in_arenas, HEAP: 0, DATA: 0}
    for area in areas:
        size = int(area.copies.sum()) * PAGE
        if area.mapping.name == "[heap]":
            places[HEAP] += size
        elif area.mapping.is_file:
            places[DATA] += size
    places[OTHER] = copied - sum(places.values())
    return places
