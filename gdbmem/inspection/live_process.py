"""The ledger of a live process: a copy of it is read, or the process itself, with a short pause."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Callable, Generic, NamedTuple, Optional, Protocol, TypeVar, cast

from gdbmem.allocators.glibc.heap import Walker
from gdbmem.arrays import has_numpy
from gdbmem.errors import TargetError
from gdbmem.inspection.ledger_parts import WHEN_STILL, WHILE_HELD
from gdbmem.inspection.read_process import (
    Look,
    Malloc,
    fill_reading,
    find_malloc,
    kernels_view,
    look_beside,
    named_threads,
)
from gdbmem.ledger.division import areas_to_scan
from gdbmem.ledger.ledger import ProcessImage, build_ledger
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding import copying
from gdbmem.linux.holding.injected_calls import is_taking_signals
from gdbmem.linux.holding.ptrace import (
    Freeze,
    HeldThread,
    ahead_of_others,
    held_threads,
    threads_out_of_memory,
)
from gdbmem.linux.holding.returning_thread import CallSites, find_call_sites
from gdbmem.linux.memory.maps import (
    Mapping,
    Ranges,
    count_pages,
    parse_maps,
    read_maps_text,
    read_smaps,
    resident_ranges,
    scan_resident,
    swapped_ranges,
)
from gdbmem.linux.memory.process_memory import (
    CarefulMemory,
    ProcMemory,
    TakenMemory,
    absent_pages,
    forked_from,
)
from gdbmem.linux.monitoring.limits import rooms_of
from gdbmem.linux.process.process import (
    ProcessFacts,
    check_analysable,
    ended,
    has_ended,
    page_table_bytes,
    thread_ids,
    tracer_is_gdbmem,
)
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import Buffer, Memory
from gdbmem.text import format_duration, format_size, printable

if TYPE_CHECKING:
    from gdbmem.inspection.trying import Trying  # here, and in functions: few calls try anything

# Of SILENT_SECONDS, before the first look is given up: what goes on is not interrupted at once.
_TRIED_SECONDS = 0.035
_MUCH_LEFT_OUT = 1 << 20
_TAKEN_ROOM = 3  # times the memory that is taken: its contents are read, and compared with each other


class HeldTooLong(Exception):  # noqa: N818  (nothing is wrong: the look is made another way)
    """The process has been stopped as long as is allowed without an announcement."""


class TimedMemory:
    """A `Memory` that can be read for a limited time; afterwards HeldTooLong is raised."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._end = time.monotonic() + _TRIED_SECONDS

    def read(self, address: int, size: int) -> bytes:
        self.check()
        return self._memory.read(address, size)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self.check()
        self._memory.read_into(address, buffer)

    def check(self) -> None:
        """Raise HeldTooLong if the time is over."""
        if time.monotonic() > self._end:
            raise HeldTooLong


# A helper process that copies another one, and ends and collects the copy after use, or when gdbmem has died.
#
# A tracer must not die while it makes a thread of the process call clone(), nor before the process has collected the
# copy. The rest of the inspection takes long and much memory, so it is more likely to be killed.


class _HasCopy(Protocol):
    @property
    def copy(self) -> copying.Copy: ...


_Made = TypeVar("_Made", bound=_HasCopy)
Announce = Callable[[copying.Copy], None]


class CopyKeeper(Generic[_Made]):
    """Yield the result of *make*, with a copy of process *pid*; the copy ends with the context."""

    def __init__(self, pid: int, memory: int, make: Callable[[Announce], _Made]) -> None:
        """Call *make* in a process that has the descriptor *memory*; raises its exceptions."""
        self._keeper = copying.Keeper(lambda asker: _keep(asker, make), memory)
        self._copy: Optional[copying.Copy] = None
        try:
            self._copy = cast("copying.Copy", self._keeper.receive()[0])
            made, (self._memory,) = self._keeper.receive()
        except copying.KeeperEndedError as error:
            self.close()
            raise TargetError(
                f"no copy of process {pid} could be made: the copying process was killed",
                slug="copy-refused",
                hint="leave out --fork",
            ) from error
        except BaseException:
            self.close()
            raise
        self.made = cast("_Made", made)

    def __enter__(self) -> CopyKeeper[_Made]:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)
        self.close()

    def serve(self, request: object) -> object:
        """Have *request* done with the copy (work_in_copy); return the answer. Raises KeeperEndedError."""
        self._keeper.send(request)
        return self._keeper.receive()[0]

    def memory(self) -> ProcMemory:
        """Return the memory of the copy."""
        return ProcMemory(self.made.copy.pid, os.dup(self._memory))

    def close(self) -> None:
        """End the copy, and wait until it is collected."""
        if self._keeper.close() or self._copy is None:
            return
        self._copy.collect()  # the kernel has ended it because the keeper was killed


def _keep(asker: copying.Awaiting, make: Callable[[Announce], _HasCopy]) -> None:
    """Call *make*, pass on the result, and end the copy when the other side asks for it, or has ended."""
    try:
        made = make(asker.answer)
    except Exception as error:  # noqa: BLE001  (it is raised by whoever waits for this)
        asker.fail(error)
        return
    try:
        with ProcMemory(made.copy.pid) as copied:
            asker.answer(made, copied.descriptor)
        while (request := asker.request()) is not None:
            from gdbmem.inspection.trying import work_in_copy

            try:
                asker.answer(work_in_copy(made.copy, request, asker))
            except Exception as error:  # noqa: BLE001  (as above)
                asker.fail(error)
    finally:
        made.copy.kill()


# Reading a process with the shortest possible stop: a copy of it is read, or the process itself if it can't be
# copied.
#
# A noticeable stop is announced before.


_TRIES, _BREATH_SECONDS = 10, 0.005  # if each thread is about to handle a signal
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.02  # for another gdbmem that inspects the same process
_OUT_OF_MEMORY = (
    "its control group has no memory left, and its OOM killer is switched off (memory.oom_control)"
)
Say = Callable[[str], None]
Answer = TypeVar("Answer")
Told = TypeVar("Told", covariant=True)


class Subject(NamedTuple):
    """A process before it is stopped."""

    facts: ProcessFacts
    memory: ProcMemory
    mappings: Sequence[Mapping]
    say: Say
    standing: Sequence[HeldThread] = ()  # threads that wait for memory of their control group

    @property
    def pid(self) -> int:
        return self.facts.pid

    @property
    def name(self) -> str:
        return f"process {self.pid} ({printable(self.facts.name)})"


class Moment(NamedTuple):
    """The copy, and the data read from the process itself while the copy was made."""

    copy: copying.Copy
    threads: Sequence[HeldThread]
    mappings: Sequence[Mapping]
    uncopied: Sequence[tuple[int, int]]
    present: Optional[Ranges]  # pages of those; None if this kernel doesn't report them
    page_table_bytes: int
    pause_seconds: float


class Held(NamedTuple):
    """A process that is stopped while it is read."""

    pid: int
    memory: Memory  # may raise HeldTooLong
    threads: Sequence[HeldThread]
    freeze: Freeze
    taken: Optional[TakenMemory]  # with room for its memory; None if there is too little here

    def take(self, mappings: Sequence[Mapping], *, swapped: bool) -> Memory:
        """Return the memory of the process: a copy, if there is room for it, while the process runs on.

        Pages that reading would bring back into memory can't be read, swapped ones only if *swapped*.
        """
        absent = absent_pages(self.pid, mappings, swapped=swapped)
        if self.taken is None:
            return CarefulMemory(self.memory, mappings, absent)
        own = [m for m in mappings if _is_own(m)]
        areas = [(m.start, m.end) for m in own]
        pages = resident_ranges(self.pid, areas)[0]
        if swapped:
            pages = Ranges([*pages.items, *swapped_ranges(self.pid, areas)])
        blank = Ranges((m.start, m.end) for m in own if m.is_anonymous)
        check = self.memory.check if isinstance(self.memory, TimedMemory) else lambda: None
        self.taken.take(pages, blank, check)
        self.freeze.release()
        return CarefulMemory(self.taken, mappings, absent)


def _is_own(mapping: Mapping) -> bool:
    """Return whether *mapping* has pages that only this process writes to."""
    if mapping.permissions[3] != "p" or mapping.is_device or {"ht"} & set(mapping.flags.split()):
        return False
    return mapping.is_anonymous or bool(mapping.anonymous_bytes) or mapping.permissions[1] == "w"


def _room_to_take(subject: Subject) -> Optional[TakenMemory]:
    """Return room for the memory of the process; None if that would leave little to read it with."""
    expected = sum(m.rss_bytes for m in subject.mappings if _is_own(m))
    left = min((room.left_bytes for room in rooms_of(os.getpid())), default=0)
    return TakenMemory(subject.memory, expected) if _TAKEN_ROOM * expected < left else None


class Question(Protocol[Told]):
    """A query to a stopped process."""

    def of_process(self, held: Held) -> Told:
        """Answer from the process itself, which is stopped meanwhile, or until its memory is taken."""

    def of_copy(self, moment: Moment, memory: Memory) -> Told:
        """Answer from its copy, while the process continues."""


def ask_process(
    pid: int,
    prepare: Callable[[Subject], Question[Answer]],
    *,
    fork: Optional[bool],
    brief: bool = False,
    say: Say = lambda _: None,
    trying: Optional[Trying] = None,
    whole: bool = False,
    no_copy: str = "--hold was given",
) -> tuple[Answer, float]:
    """Return the answer of live process *pid*, and the seconds for which it was stopped.

    *prepare* gets the process before it is stopped. With *fork* a motionless copy of it is read, with False the process
    itself while it is stopped; by default a copy if possible, for the *whole* only if it would have all memory. A
    *brief* query, which reads a few pages, is answered by the process itself by default. *say* is called before a
    longer stop. *trying* has the copy, and others, call functions after it was read. *no_copy* says why *fork* is
    False. Raises TargetError with the reason if the process can't be read.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return _ask(pid, prepare, fork, brief, say, trying, whole, no_copy)
        except TargetError as error:
            held = error.slug in ("process-traced", "ptrace-refused") and tracer_is_gdbmem(pid)
            if held and time.monotonic() < deadline:
                time.sleep(_PAUSE_SECONDS)  # concurrent inspections take turns
                continue
            if error.slug not in ("no-such-process", "process-zombie") and has_ended(pid):
                raise ended(pid) from error
            raise


def _ask(
    pid: int,
    prepare: Callable[[Subject], Question[Answer]],
    fork: Optional[bool],
    brief: bool,
    say: Say,
    trying: Optional[Trying],
    whole: bool,
    no_copy: str,
) -> tuple[Answer, float]:
    facts = check_analysable(pid)
    with ProcMemory(pid) as memory:
        subject = Subject(facts, memory, read_smaps(pid), say, threads_out_of_memory(pid, memory))
        question = prepare(subject)
        obstacle = _OUT_OF_MEMORY if subject.standing else copying.copy_obstacle(facts, subject.mappings)
        if whole and fork is None:
            obstacle = obstacle or _left_out(subject.mappings)
        if fork:
            if obstacle is not None:
                raise copying.refused(pid, obstacle)
            return _ask_copy(subject, question, trying)
        if subject.standing:
            return _ask_standing(subject, question)
        if brief:
            return _ask_briefly(subject, question)
        return _ask_shortest(subject, question, no_copy if fork is False else obstacle)


def _ask_shortest(
    subject: Subject, question: Question[Answer], obstacle: Optional[str]
) -> tuple[Answer, float]:
    """Copy the process, which is the shortest stop; hold it if there is an obstacle to a copy."""
    if obstacle is None:
        try:
            return _ask_copy(subject, question)
        except TargetError as error:
            if error.slug not in ("copy-refused", "copy-unsupported"):
                raise
            obstacle = error.message
    if has_ended(subject.pid):  # this also looks like an obstacle
        raise ended(subject.pid)
    has_numpy()  # loads it, before the process is stopped; a copy is made by a fork, which has less to copy without it
    taken = _room_to_take(subject)
    threads = len(thread_ids(subject.pid))
    expected = copying.expected_hold(subject.facts, subject.mappings, threads, taken=taken is not None)
    how_long = f"for {copying.wait_text(expected)}"
    if expected < copying.SILENT_SECONDS:
        try:
            return _ask_held(subject, question, TimedMemory, taken)
        except HeldTooLong:
            how_long = f"for more than {format_duration(copying.SILENT_SECONDS)}"
            taken = _room_to_take(subject)
    subject.say(f"{subject.name} is stopped {how_long} while it is read: {obstacle}")
    return _ask_held(subject, question, taken=taken)


def _ask_briefly(subject: Subject, question: Question[Answer]) -> tuple[Answer, float]:
    try:
        return _ask_held(subject, question, TimedMemory)
    except HeldTooLong:
        subject.say(
            f"{subject.name} is stopped for more than {format_duration(copying.SILENT_SECONDS)} while it is read"
        )
    return _ask_held(subject, question)


def _ask_standing(subject: Subject, question: Question[Answer]) -> tuple[Answer, float]:
    """Read a process with threads that wait for memory; the others are stopped meanwhile."""
    subject.say(f"{subject.name} stands still: {_OUT_OF_MEMORY}")
    has_numpy()  # loads it, before the process is stopped
    answer = _ask_held(subject, question)
    if {held.tid for held in subject.standing} - {held.tid for held in threads_out_of_memory(subject.pid)}:
        raise TargetError(
            f"{subject.name} ran on while it was read: its control group got memory",
            slug="ran-meanwhile",
            hint="try again",
        )
    return answer


def _ask_held(
    subject: Subject,
    question: Question[Answer],
    limited: Optional[Callable[[Memory], Memory]] = None,
    taken: Optional[TakenMemory] = None,
) -> tuple[Answer, float]:
    with Freeze(subject.pid, standing=subject.standing) as freeze:
        # Its time begins when the process has been stopped.
        memory = limited(subject.memory) if limited is not None else subject.memory
        answer = question.of_process(Held(subject.pid, memory, list(held_threads(freeze)), freeze, taken))
    return answer, freeze.pause_seconds


def _ask_copy(
    subject: Subject, question: Question[Answer], trying: Optional[Trying] = None
) -> tuple[Answer, float]:
    """Make a copy of the process, and query the copy while the process continues."""
    expected = copying.expected_copy(subject.facts, subject.mappings, len(thread_ids(subject.pid)))
    is_long = copying.is_long(expected)
    if is_long:
        size = format_size(subject.facts.anonymous_bytes)
        subject.say(
            f"{subject.name} is stopped for {copying.wait_text(expected)} while its {size} are copied"
        )

    def make_keeper() -> CopyKeeper[Moment]:
        return CopyKeeper(
            subject.pid, subject.memory.descriptor, lambda announce: _copy(subject, announce, trying, is_long)
        )

    with make_keeper() as keeper:
        moment = keeper.made
        try:
            with keeper.memory() as still:
                answer = question.of_copy(moment, still)
        except TargetError as error:
            if has_ended(moment.copy.pid):
                raise copying.refused(
                    subject.pid, "it was killed before it was read, perhaps for lack of memory"
                ) from error
            raise
        if trying is not None:
            trying.ask(keeper)
    if trying is not None:
        from gdbmem.inspection.trying import try_again

        try_again(trying, make_keeper)
    return answer, moment.pause_seconds


def _copy(subject: Subject, announce: Announce, trying: Optional[Trying], is_long: bool) -> Moment:
    expected = _expected(subject)  # what can be known before the process is stopped
    if is_long:
        copying.unshare_pages()
    for attempt in range(_TRIES):
        with ahead_of_others(), Freeze(subject.pid) as freeze:
            if attempt == _TRIES - 1 or not is_taking_signals(freeze):
                avoided = trying.settle(freeze, subject.memory) if trying is not None else ()
                return _copied(subject, freeze, expected, announce, avoided)
        time.sleep(_BREATH_SECONDS)  # a thread that is about to handle a signal makes no call before that
    raise AssertionError


class _Expected(NamedTuple):
    """A process a moment before it is stopped."""

    maps: bytes  # the text of its mappings
    mappings: Sequence[Mapping]
    uncopied: Sequence[tuple[int, int]]  # see uncopied_areas()
    sites: Optional[CallSites]


def _expected(subject: Subject) -> _Expected:
    text = read_maps_text(subject.pid)
    mappings = parse_maps(text)
    sites = find_call_sites(subject.pid, subject.memory, mappings)
    return _Expected(text, mappings, uncopied_areas(subject.mappings, mappings), sites)


def _copied(
    subject: Subject, freeze: Freeze, expected: _Expected, announce: Announce, avoided: Collection[int]
) -> Moment:
    """Return a copy of the process that *freeze* holds, which was as *expected* a moment before."""
    pid, mappings, uncopied = subject.pid, expected.mappings, expected.uncopied
    copy = copying.make_copy(freeze, mappings, expected.sites, announce, avoided)
    try:
        threads = list(held_threads(freeze))
        now = read_maps_text(pid)
        if now != expected.maps:  # rare: nothing is assumed
            mappings = parse_maps(now)
            uncopied = [(mappings[0].start, mappings[-1].end)] if mappings else []
        present = scan_resident(pid, uncopied)
        tables = page_table_bytes(pid)
        freeze.release()  # here, because a failure later would leave the copy behind
        copy.limit()
    except BaseException:
        copy.kill()
        raise
    return Moment(copy, threads, mappings, uncopied, present, tables, freeze.pause_seconds)


def uncopied_areas(known: Sequence[Mapping], mappings: Sequence[Mapping]) -> list[tuple[int, int]]:
    """Return the areas whose pages the kernel does not copy: files, shared memory, and madvise exceptions.

    Adjacent areas are joined. *known* are the mappings with their figures, *mappings* those of a moment later.
    """
    figures = {(m.start, m.end): m for m in known}
    areas: list[tuple[int, int]] = []
    joined = False
    for mapping in mappings:
        one = figures.get((mapping.start, mapping.end), mapping)
        is_copied = one.permissions[3] == "p" and not _is_left_out(one)
        # Beside private copies of small pages, huge pages of the file are not copied either.
        if is_copied and (one.is_anonymous or (one.anonymous_bytes and not one.huge_bytes)):
            joined = False
        else:
            start = areas.pop()[0] if joined else mapping.start
            areas.append((start, mapping.end))
            joined = True
    return areas


def _is_left_out(mapping: Mapping) -> bool:
    """Whether a copy has no pages of *mapping* (MADV_DONTFORK, MADV_WIPEONFORK), by the flags in its smaps."""
    return not {"dc", "wf"}.isdisjoint(mapping.flags.split())


def _left_out(mappings: Sequence[Mapping]) -> Optional[str]:
    """Return that a copy would lack much memory, as V8's heaps, which may hold what the question is about."""
    size = sum(mapping.anonymous_bytes for mapping in mappings if _is_left_out(mapping))
    return f"a copy would lack {format_size(size)} of its memory" if size >= _MUCH_LEFT_OUT else None


class _Contents(NamedTuple):
    """The question that fills a ledger."""

    subject: Subject
    malloc: Malloc
    walker: Optional[Walker]
    look: Optional[Look]
    swapped: bool

    def of_process(self, held: Held) -> ProcessImage:
        pid = self.subject.pid
        view = kernels_view(pid, self.subject.facts.name, named_threads(pid, held.threads))
        fill_reading(
            view,
            held.take(view.mappings, swapped=self.swapped),
            self.malloc,
            main=pid,
            walker=self.walker,
            look=self.look,
            searched=WHILE_HELD if held.taken is None else WHEN_STILL,
            swapped=self.swapped,
        )
        return view

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
    tried: Optional[str] = None,
) -> Ledger:
    """Return the ledger of live process *pid*; *look* is called with the data read.

    *suits* may raise, before the process is stopped, if its mappings show that there is nothing to find.
    Swapped pages are read in a copy, and in the process itself only if *swapped*. *fork*, *say* and exceptions:
    as for `ask_process`. *tried* names the functions of allocators that a copy is made to call (PURGE, TRIM, ALL of
    trying.py); a notice says so if no copy can be made.
    """
    if tried is None:
        image, pause_seconds = read_live(
            pid, walker=walker, fork=fork, look=look, say=say, swapped=swapped, suits=suits
        )
        return build_ledger(image, pause_seconds=pause_seconds)
    from gdbmem.inspection.trying import Trying, nothing_to_try

    trying = Trying(tried)
    with TargetFiles(pid) as files:
        prepare = _preparing(files, walker, look, swapped=swapped, suits=suits, trying=trying)
        try:
            image, pause_seconds = ask_process(pid, prepare, fork=True, say=say, trying=trying)
        except TargetError as error:
            if error.slug not in ("copy-refused", "copy-unsupported"):
                raise
            trying.refuse(error.message)
            image, pause_seconds = ask_process(pid, prepare, fork=False, say=say, no_copy=error.message)
    ledger = build_ledger(image, pause_seconds=pause_seconds)
    tried_calls = trying.results(ledger)
    return ledger._replace(tried=tried_calls, notices=[*ledger.notices, *nothing_to_try(tried_calls)])


def read_live(
    pid: int,
    *,
    walker: Optional[Walker] = None,
    fork: Optional[bool] = None,
    look: Optional[Look] = None,
    say: Say = lambda _: None,
    swapped: bool = False,
    suits: Callable[[Sequence[Mapping]], None] = lambda _: None,
    whole: bool = False,
) -> tuple[ProcessImage, float]:
    """Return everything of live process *pid*, and the seconds for which it was stopped; as for explain_process()."""
    with TargetFiles(pid) as files:
        prepare = _preparing(files, walker, look, swapped=swapped, suits=suits)
        return ask_process(pid, prepare, fork=fork, say=say, whole=whole)


def _preparing(
    files: TargetFiles,
    walker: Optional[Walker],
    look: Optional[Look],
    *,
    swapped: bool,
    suits: Callable[[Sequence[Mapping]], None],
    trying: Optional[Trying] = None,
) -> Callable[[Subject], _Contents]:
    """Return what prepares the question before the process is stopped."""

    def prepare(subject: Subject) -> _Contents:
        suits(subject.mappings)
        malloc = find_malloc(subject.memory, subject.mappings, files)
        if trying is not None:
            trying.prepare(subject.memory, subject.mappings, files, malloc.image)
        return _Contents(subject, malloc, walker, look, swapped)

    return prepare


def _copied_view(subject: Subject, moment: Moment) -> ProcessImage:
    """Return the kernel's view of the process at the moment of the copy."""
    pid = moment.copy.pid
    is_same = [(m.start, m.end) for m in moment.mappings] == [(m.start, m.end) for m in subject.mappings]
    counted = count_pages(pid, subject.mappings) if is_same and moment.present is not None else None
    copied = {m.start: m for m in (counted.mappings if counted is not None else read_smaps(pid))}
    outside = Ranges(moment.uncopied)
    # If the kernel can't scan pages, those of files and shared memory are counted a moment later.
    itself = {} if moment.present is not None else {m.start: m for m in read_smaps(subject.pid)}
    before = {(m.start, m.end): m for m in subject.mappings}
    mappings = []
    for held in moment.mappings:
        known = copied.get(held.start, held)
        rss = known.rss_bytes
        if outside.within(held.start, held.end):
            if _is_left_out(earlier := before.get((held.start, held.end), held)):
                known = earlier  # the copy has none of its pages
            known = (
                known._replace(  # nor page tables of files and shared memory, which would tell these apart
                    hugetlb_bytes=max(known.hugetlb_bytes, earlier.hugetlb_bytes),
                    huge_bytes=max(known.huge_bytes, earlier.huge_bytes),
                )
            )
            known = itself.get(held.start, known)
            is_huge = known.hugetlb_bytes or "ht" in known.flags.split()
            rss = known.rss_bytes
            if moment.present is not None:
                rss = 0 if is_huge else moment.present.within(held.start, held.end)
        mappings.append(
            known._replace(
                end=held.end,
                name=held.name,
                rss_bytes=rss,
                anonymous_bytes=min(known.anonymous_bytes, rss),
                huge_bytes=min(known.huge_bytes, rss),
                lazily_freed_bytes=min(known.lazily_freed_bytes, rss),
            )
        )
    if counted is not None:
        areas = ((m.start, m.end) for m in mappings if m.is_anonymous)
        anonymous, zero_known = [piece for area in areas for piece in counted.resident.overlaps(*area)], True
    else:
        partial, whole = areas_to_scan(mappings)
        scanned, zero_known = resident_ranges(pid, partial)
        anonymous, zero_known = [*scanned.items, *whole], zero_known or not partial
    present = moment.present.items if moment.present is not None else []
    threads = named_threads(subject.pid, moment.threads)
    resident = Ranges([*anonymous, *present])
    reading = ProcessImage(
        subject.facts.name,
        subject.pid,
        mappings,
        resident,
        zero_known,
        threads,
    )
    reading.forked_from = forked_from(subject.pid)
    look_beside(reading, moment.page_table_bytes, subject.mappings)
    return reading
