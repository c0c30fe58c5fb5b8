"""The ledger of a live process, with a short pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from gdbmem.allocators.glibc.heap import Walker, choose_walker
from gdbmem.analysis.ledger.division import areas_to_scan
from gdbmem.analysis.ledger.ledger import ProcessImage, build_ledger
from gdbmem.inspection.process_maps import read_smaps
from gdbmem.inspection.read_process import (
    Look,
    Malloc,
    fill_reading,
    find_malloc,
    look_beside,
    named_threads,
    read_process,
)
from gdbmem.inspection.still_process import Moment, Say, Subject, ask_process
from gdbmem.inspection.vector_slack import WHEN_STILL, WHILE_HELD
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.ptrace import HeldThread
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.pages import Ranges, resident_ranges
from gdbmem.linux.process.forks import forked_from
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.model.memory import Memory
from gdbmem.records import dataclass, replace


@dataclass(frozen=True)
class _Contents:
    """The question that fills a ledger."""

    subject: Subject
    malloc: Malloc
    walker: Walker
    look: Optional[Look]
    swapped: bool

    def of_process(self, memory: Memory, threads: Sequence[HeldThread]) -> ProcessImage:
        return read_process(
            self.subject.pid,
            self.subject.facts.name,
            memory,
            named_threads(self.subject.pid, threads),
            self.malloc,
            walker=self.walker,
            look=self.look,
            searched=WHILE_HELD,
            swapped=self.swapped,
        )

    def of_copy(self, moment: Moment, memory: Memory) -> ProcessImage:
        view = _copied_view(self.subject, moment)
        fill_reading(
            view,
            memory,
            self.malloc,
            main=self.subject.pid,
            walker=self.walker,
            look=self.look,
            searched=WHEN_STILL,
            swapped=True,
        )
        return view


def explain_process(
    pid: int,
    *,
    walker: Optional[Walker] = None,
    fork: Optional[bool] = None,
    look: Optional[Look] = None,
    say: Say = lambda _: None,
    swapped: bool = False,
    suits: Callable[[Sequence[Mapping]], None] = lambda _: None,
) -> Ledger:
    """Return the ledger of live process *pid*; *look* is called with the data read.

    *suits* may raise, before the process is stopped, if its mappings show that there is nothing to find.
    Swapped pages are read in a copy, and in the process itself only if *swapped*. *fork*, *say* and exceptions:
    as for `ask_process`.
    """
    with TargetFiles(pid) as files:

        def prepare(subject: Subject) -> _Contents:
            suits(subject.mappings)
            # Loads numpy, too, before the process is stopped.
            malloc = find_malloc(subject.memory, subject.mappings, files)
            return _Contents(subject, malloc, walker or choose_walker(), look, swapped)

        image, pause_seconds = ask_process(pid, prepare, fork=fork, say=say)
    return build_ledger(image, pause_seconds=pause_seconds)


def _copied_view(subject: Subject, moment: Moment) -> ProcessImage:
    """Return the kernel's view of the process at the moment of the copy."""
    pid, copied = moment.copy.pid, {m.start: m for m in read_smaps(moment.copy.pid)}
    outside = Ranges(moment.uncopied)
    # If the kernel can't scan pages, those of files and shared memory are counted a moment later.
    itself = {} if moment.present is not None else {m.start: m for m in read_smaps(subject.pid)}
    mappings = []
    for held in moment.mappings:
        known = copied.get(held.start, held)
        rss = known.rss_bytes
        if outside.within(held.start, held.end):
            known = itself.get(held.start, known)
            is_huge = known.hugetlb_bytes or "ht" in known.flags.split()
            rss = known.rss_bytes
            if moment.present is not None:
                rss = 0 if is_huge else moment.present.within(held.start, held.end)
        mappings.append(replace(known, end=held.end, name=held.name, rss_bytes=rss))
    partial, whole = areas_to_scan(mappings)
    scanned, zero_known = resident_ranges(pid, partial)
    present = moment.present.items if moment.present is not None else []
    threads = named_threads(subject.pid, moment.threads)
    resident = Ranges([*scanned.items, *whole, *present])
    reading = ProcessImage(
        subject.facts.name,
        subject.pid,
        mappings,
        resident,
        zero_known or not partial,
        threads,
        forked_from=forked_from(subject.pid),
    )
    look_beside(reading, moment.page_table_bytes, subject.mappings)
    return reading
