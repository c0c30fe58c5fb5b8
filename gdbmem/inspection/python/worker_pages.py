"""The pages of forked processes beside those of their parent: copied, still shared, its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from gdbmem.arrays import import_numpy
from gdbmem.errors import TargetError
from gdbmem.inspection.process_maps import read_smaps
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.page_sharing import Pages, PageSharing, same_pages
from gdbmem.linux.memory.pages import PAGE, Ranges, scan_resident
from gdbmem.linux.memory.twins import Twin, find_twins, is_private_data
from gdbmem.linux.process.forks import runs_same_program
from gdbmem.linux.process.process import has_ended
from gdbmem.linux.process.processes import descendants, parents
from gdbmem.model.python import WorkerCopies
from gdbmem.records import dataclass, field

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
