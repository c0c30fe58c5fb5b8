"""The ledger of a live process, which waits little: a copy of it is read, or where none can be made itself.

Where it has to wait longer than people notice, this is said before it does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from gdbmem.allocators.glibc.heap import Walker, choose_walker
from gdbmem.analysis.ledger.division import areas_to_scan
from gdbmem.analysis.ledger.ledger import ProcessImage, build_ledger
from gdbmem.errors import TargetError
from gdbmem.inspection.copy_keeper import CopyKeeper
from gdbmem.inspection.pause import (
    SILENT_SECONDS,
    HeldTooLong,
    TimedMemory,
    expected_copy,
    expected_hold,
    is_long,
    wait_text,
)
from gdbmem.inspection.read_process import (
    Look,
    Malloc,
    fill_reading,
    find_malloc,
    look_beside,
    named_threads,
    parse_maps,
    read_maps_text,
    read_process,
    read_smaps,
)
from gdbmem.inspection.vector_slack import WHEN_STILL, WHILE_HELD
from gdbmem.linux.holding.copy_obstacles import copy_obstacle
from gdbmem.linux.holding.copying import Copy, make_copy, refused
from gdbmem.linux.holding.ptrace import Freeze, HeldThread, held_threads
from gdbmem.linux.maps import Mapping
from gdbmem.linux.pages import Ranges, resident_ranges, scan_resident
from gdbmem.linux.process import (
    ProcessFacts,
    check_analysable,
    ended,
    has_ended,
    process_facts,
    thread_ids,
    tracer_is_gdbmem,
)
from gdbmem.linux.process_memory import ProcMemory
from gdbmem.linux.target_files import TargetFiles
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import Memory
from gdbmem.text import printable
from gdbmem.units import format_duration, format_size

_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.02  # with another gdbmem that looks at the same process
Say = Callable[[str], None]


@dataclass(frozen=True)
class _Subject:
    """A process, and what is to be asked of it."""

    facts: ProcessFacts
    memory: ProcMemory
    mappings: Sequence[Mapping]
    malloc: Malloc
    walker: Walker
    look: Optional[Look]
    say: Say
    swapped: bool

    @property
    def pid(self) -> int:
        return self.facts.pid

    @property
    def name(self) -> str:
        return f"process {self.pid} ({printable(self.facts.name)})"


def explain_process(
    pid: int,
    *,
    walker: Optional[Walker] = None,
    fork: Optional[bool] = None,
    look: Optional[Look] = None,
    say: Say = lambda _: None,
    swapped: bool = False,
) -> Ledger:
    """Return the ledger of live process *pid*; *look* gets what was read.

    With *fork* a motionless copy of it is analysed, with False the process itself while it is held; by default a copy
    where one can be made. *say* is told of a longer wait before it begins. What is swapped out is read in a copy, and
    in the process itself only if *swapped*. Raises TargetError with the reason where it can't be looked into.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return _explain(pid, walker, fork, look, say, swapped)
        except TargetError as error:
            held = error.slug in ("process-traced", "ptrace-refused") and tracer_is_gdbmem(pid)
            if held and time.monotonic() < deadline:
                time.sleep(_PAUSE_SECONDS)  # two looks at once: one after the other
                continue
            if error.slug not in ("no-such-process", "process-zombie") and has_ended(pid):
                raise ended(pid) from error
            raise


def _explain(
    pid: int,
    walker: Optional[Walker],
    fork: Optional[bool],
    look: Optional[Look],
    say: Say,
    swapped: bool,
) -> Ledger:
    facts = check_analysable(pid)
    with ProcMemory(pid) as memory, TargetFiles(pid) as files:
        mappings = read_smaps(pid)
        malloc = find_malloc(memory, mappings, files)
        # Loads numpy before the process is made to wait.
        subject = _Subject(facts, memory, mappings, malloc, walker or choose_walker(), look, say, swapped)
        obstacle = copy_obstacle(facts, mappings)
        if fork:
            if obstacle is not None:
                raise refused(pid, obstacle)
            return _explain_copy(subject)
        return _explain_shortest(subject, "it was asked for with --hold" if fork is False else obstacle)


def _explain_shortest(subject: _Subject, obstacle: Optional[str]) -> Ledger:
    """Copy the process, which makes it wait shortest; hold it where something is against a copy."""
    if obstacle is None:
        try:
            return _explain_copy(subject)
        except TargetError as error:
            if error.slug not in ("copy-refused", "copy-unsupported"):
                raise
            obstacle = error.message
    expected = expected_hold(subject.facts, subject.mappings, len(thread_ids(subject.pid)))
    how_long = wait_text(expected)
    if expected < SILENT_SECONDS:
        try:
            return _explain_held(subject, is_timed=True)
        except HeldTooLong:
            how_long = f"longer than {format_duration(SILENT_SECONDS)}"
    subject.say(f"{subject.name} waits {how_long} now, while it is read: {obstacle}")
    return _explain_held(subject, is_timed=False)


def _explain_held(subject: _Subject, *, is_timed: bool) -> Ledger:
    with Freeze(subject.pid) as freeze:
        memory: Memory = TimedMemory(subject.memory) if is_timed else subject.memory
        reading = read_process(
            subject.pid,
            subject.facts.name,
            memory,
            named_threads(subject.pid, held_threads(freeze)),
            subject.malloc,
            walker=subject.walker,
            look=subject.look,
            searched=WHILE_HELD,
            swapped=subject.swapped,
        )
    return build_ledger(reading, pause_seconds=freeze.pause_seconds)


def _explain_copy(subject: _Subject) -> Ledger:
    """Make a copy of the process, and analyse that while the process goes on."""
    expected = expected_copy(subject.facts, subject.mappings, len(thread_ids(subject.pid)))
    if is_long(expected):
        size = format_size(subject.facts.anonymous_bytes)
        subject.say(f"{subject.name} waits {wait_text(expected)} now, while its {size} are copied")
    with CopyKeeper(subject.pid, subject.memory.descriptor, lambda: _copy(subject)) as keeper:
        moment = keeper.made
        try:
            view = _copied_view(subject, moment)
            with keeper.memory() as still:
                fill_reading(
                    view,
                    still,
                    subject.malloc,
                    main=subject.pid,
                    walker=subject.walker,
                    look=subject.look,
                    searched=WHEN_STILL,
                    swapped=True,
                )
        except TargetError as error:
            if has_ended(moment.copy.pid):
                raise refused(
                    subject.pid, "it was ended before it was read, perhaps for want of memory"
                ) from error
            raise
    return build_ledger(view, pause_seconds=moment.pause_seconds)


@dataclass(frozen=True)
class _Moment:
    """The copy, and what was read of the process itself while that was made."""

    copy: Copy
    threads: Sequence[HeldThread]
    mappings: Sequence[Mapping]
    uncopied: Sequence[tuple[int, int]]
    present: Optional[Ranges]  # pages of those; None where this kernel can't tell
    page_table_bytes: int
    pause_seconds: float


def _copy(subject: _Subject) -> _Moment:
    pid, earlier = subject.pid, read_maps_text(subject.pid)
    mappings = parse_maps(earlier)
    uncopied = uncopied_areas(subject.mappings, mappings)
    copy: Optional[Copy] = None
    try:
        with Freeze(pid) as freeze:
            copy = make_copy(freeze, subject.memory, mappings)
            threads = list(held_threads(freeze))
            now = read_maps_text(pid)
            if now != earlier:  # seldom: nothing is taken for known
                mappings = parse_maps(now)
                uncopied = [(mappings[0].start, mappings[-1].end)] if mappings else []
            present = scan_resident(pid, uncopied)
            tables = process_facts(pid).page_table_bytes
    except BaseException:
        if copy is not None:  # also where letting the process go is what failed
            copy.kill()
        raise
    return _Moment(copy, threads, mappings, uncopied, present, tables, freeze.pause_seconds)


def uncopied_areas(known: Sequence[Mapping], mappings: Sequence[Mapping]) -> list[tuple[int, int]]:
    """Return where the kernel copies no pages: files, shared memory, and what was excepted (madvise).

    Neighbours are joined. *known* are the mappings with their figures, *mappings* those of a moment later.
    """
    figures = {(m.start, m.end): m for m in known}
    areas: list[tuple[int, int]] = []
    joined = False
    for mapping in mappings:
        one = figures.get((mapping.start, mapping.end), mapping)
        is_private = one.permissions[3] == "p" and not {"dc", "wf"}.intersection(one.flags.split())
        if is_private and (one.is_anonymous or one.anonymous_bytes):
            joined = False
        else:
            start = areas.pop()[0] if joined else mapping.start
            areas.append((start, mapping.end))
            joined = True
    return areas


def _copied_view(subject: _Subject, moment: _Moment) -> ProcessImage:
    """Return the kernel's view of the process at the moment when it was copied."""
    pid, copied = moment.copy.pid, {m.start: m for m in read_smaps(moment.copy.pid)}
    outside = Ranges(moment.uncopied)
    # Where the kernel can't scan pages, those of files and shared memory are counted a moment later.
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
        subject.facts.name, subject.pid, mappings, resident, zero_known or not partial, threads
    )
    look_beside(reading, moment.page_table_bytes)
    return reading
