"""Recording the lines that make a process's memory resident, by its page faults. No code runs in it."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.faults import growth
from gdbmem.faults.account import Evidence, account
from gdbmem.faults.folios import FolioEvidence, with_large_folios
from gdbmem.faults.resident_by_path import unnamed_interpreters
from gdbmem.formats.addresses import Binary, Symbols
from gdbmem.formats.json_profiles import encode_faults, faults_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.linux.faults.readings import Reading, folio_sizes
from gdbmem.linux.files.target_files import TargetFiles, may_be_opened
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultAccount, FaultStack, FaultTotals, NamedFaults, NamedStack, SiteHoldings
from gdbmem.recording.faults import FaultRecorder, FaultRecording, Watched
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.symbols.call_paths import CallPaths, Place, Samples, jit_names, name_places
from gdbmem.symbols.unwind_tables import UnwindTable, can_unwind
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.inspection.growth_contents import Images


# Names for the call paths of recorded page faults.


class Binaries:
    """The programs and libraries in a recording, opened with the rights of the process if that is allowed."""

    def __init__(self, alive: Optional[int], uids: Sequence[int]) -> None:
        """*alive* is a process that still runs; *uids* are the users of all that were recorded."""
        self._files = TargetFiles(alive)
        self._ours = all(uid == os.geteuid() for uid in uids)

    def __enter__(self) -> Binaries:
        return self

    def __exit__(self, *exc: object) -> None:
        self._files.__exit__(*exc)

    def may_open(self, binary: Binary) -> bool:
        """Return whether the file can be opened by its name with our rights."""
        if self._files.is_elsewhere or binary.was_deleted:
            return False
        return self._ours or may_be_opened(binary.path)

    def table(self, binary: Binary) -> Optional[UnwindTable]:
        """Return the unwind table of *binary*; None if it has none, or the file has been replaced."""
        if not binary.path.startswith("/") or binary.was_deleted or not can_unwind():
            return None
        try:
            if not self._ours and self._files.rights is None and not may_be_opened(binary.path):
                return None
            with self._files.open(binary.path) as stream:

                def read(offset: int, size: int) -> bytes:
                    stream.seek(offset)
                    return stream.read(size)

                return UnwindTable(read)
        except (OSError, ValueError, OverflowError):
            return None


def rows_of(samples: Samples, part: slice = slice(None)) -> list[growth.WeighedFault]:
    """Return *part* of *samples* as rows."""
    columns = (
        samples.time, samples.pid, samples.tid, samples.address, samples.page_bytes, samples.weight, samples.path,
        samples.pages, samples.doubt, samples.until, samples.path_doubt,
    )  # fmt: skip
    return [growth.WeighedFault(*row) for row in zip(*(column[part] for column in columns))]


def names_of(
    samples: Samples, used: Sequence[int], symbols: Symbols, binaries: Binaries
) -> tuple[dict[int, Sequence[Frame]], list[Notice]]:
    """Return the frames of each of the places *used*, and notices on files without names."""
    places = [samples.places[number] for number in used]
    chains, notices = name_places(places, symbols, binaries.may_open, _names_of_jit(samples, used))
    return dict(zip(used, chains)), [*notices, *_unopened(places, binaries)]


def _names_of_jit(samples: Samples, used: Sequence[int]) -> Mapping[tuple[int, int], str]:
    """Return names for the addresses in *used* that belong to no file, by process and address."""
    wanted: dict[int, list[int]] = {}
    for number in used:
        place = samples.places[number]
        if place.binary is None:
            wanted.setdefault(place.pid, []).append(place.offset)
    return {
        (pid, address): name
        for pid, addresses in wanted.items()
        for address, name in jit_names(pid, addresses).items()
    }


def _unopened(places: Sequence[Place], binaries: Binaries) -> list[Notice]:
    """Return a notice if files were left unopened because gdb would have read them with our rights."""
    files = {one.binary for one in places if one.binary is not None and one.binary.path.startswith("/")}
    left = sorted(one.path for one in files if not binaries.may_open(one))
    if not left:
        return []
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    why = "deleted, in a container or changeable by another user"
    text = f"{printable(left[0])}{more}, {why}, was not opened for names"
    return [Notice("faults-unopened", f"{text}: record as the process's user, inside the container")]


def without_libdw() -> list[Notice]:
    """Return a notice if libdw, which finds callers, is not installed."""
    if can_unwind():
        return []
    text = "elfutils' libdw is not installed: callers are found only in code that keeps frame pointers"
    return [Notice("faults-no-libdw", f"{text} (on Debian: apt install libdw1)")]


def named_faults(
    program: str,
    samples: Samples,
    stacks: Sequence[FaultStack],
    chains: Mapping[int, Sequence[Frame]],
    totals: FaultTotals,
) -> NamedFaults:
    """Return a recording of *program*; *chains* are the frames of each place."""
    table: dict[Frame, int] = {}
    named = []
    for one in stacks:
        frames = [frame for number in samples.paths[one.path] for frame in chains[number]]
        numbers = [table.setdefault(frame, len(table)) for frame in frames]
        sums = {name: value for name, value in one._asdict().items() if name != "path"}
        named.append(NamedStack(numbers, **sums))
    threads = {str(tid): name for tid, name in samples.thread_names.items()}
    return NamedFaults(program, totals, threads, list(table), named)


__all__ = ["RecordedGrowth", "record_growth", "record_program_growth"]

Progress = Callable[[str], None]


class RecordedGrowth(NamedTuple):
    """A recording with names; its two profiles are the growth, and the memory that was made resident."""

    faults: NamedFaults
    source: str
    status: Optional[int]  # of the program started by the recording
    notices: Sequence[Notice] = ()  # about the recording itself
    # Contents of the memory of the lines that grew most; requested with ledger=True.
    held: Sequence[SiteHoldings] = ()

    @property
    def totals(self) -> FaultTotals:
        return self.faults.totals

    def profile(self, metric: Optional[str] = None) -> StackProfile:
        """Return it as a profile, as the readers of files make one."""
        profile = faults_profile(self.faults, self.source, metric)
        profile.notices.extend(self.notices)
        return profile

    def encoded(self) -> bytes:
        """Return it as a file that `show`, `diff`, `report` and `export` read."""
        return encode_faults(self.faults)


def record_growth(
    pids: Sequence[int],
    *,
    seconds: float = math.inf,
    period: int = 0,
    ledger: bool = False,
    progress: Optional[Progress] = None,
) -> RecordedGrowth:
    """Record the page faults of *pids* and of their children until *seconds* have passed or SIGINT comes.

    *period*: the number of faults per sample; 0: automatic. With *ledger* the processes are inspected at the
    end, as explain() does. Raises TargetError if the kernel refuses.
    """
    say = progress or (lambda text: None)
    images = _images(say) if ledger else None
    recorder = FaultRecorder(period=period, say=say, at_end=images.take if images is not None else _nothing)
    source = f"process {', '.join(map(str, pids))}"
    with _telling_of_loss(recorder, say):
        return _named(recorder.record(pids, seconds=seconds), source, say, images)


def record_program_growth(
    words: Sequence[str],
    *,
    seconds: float = math.inf,
    period: int = 0,
    stdout: Optional[str] = None,
    ledger: bool = False,
    progress: Optional[Progress] = None,
) -> RecordedGrowth:
    """Start a program and record its page faults until it ends; it is terminated after *seconds*."""
    say = progress or (lambda text: None)
    images = _images(say) if ledger else None
    recorder = FaultRecorder(period=period, say=say, at_end=images.take if images is not None else _nothing)
    with _telling_of_loss(recorder, say):
        recording = recorder.record_program(words, seconds=seconds, stdout=stdout)
        return _named(recording, Path(words[0]).name, say, images)


@contextlib.contextmanager
def _telling_of_loss(recorder: FaultRecorder, say: Progress) -> Iterator[None]:
    """Print the cost of Ctrl-C while the recorded addresses are named."""
    try:
        yield
    except KeyboardInterrupt:
        if recorder.has_recorded:
            say("the samples had not been named yet, so the recording is discarded")
        raise


def _images(say: Progress) -> Images:
    from gdbmem.inspection.growth_contents import Images  # the inspection of processes: a third of the start

    return Images(say)


def _nothing(pids: Sequence[int]) -> None:
    """Do nothing with the processes at the end."""


def _named(recording: FaultRecording, source: str, say: Progress, images: Optional[Images]) -> RecordedGrowth:
    try:
        with _binaries(recording) as binaries:
            samples = _call_paths(recording, binaries)
            totals, rows, grown = _sums(recording, samples, rows_of(samples))
            stacks = growth.stacks_of(rows, grown)
            used = sorted({number for one in stacks for number in samples.paths[one.path]})
            named, said = names_of(samples, used, GdbSymbols(progress=say), binaries)
    finally:
        recording.close()
    chains = (
        (one, [frame for number in samples.paths[one.path] for frame in named[number]]) for one in stacks
    )
    notices = [*unnamed_interpreters(chains), *said, *without_libdw(), *recording.spool.notices()]
    notices += images.notices if images is not None else []
    held = images.held(samples, named, rows, grown) if images is not None else []
    faults = named_faults(recording.program, samples, stacks, named, totals)
    return RecordedGrowth(faults, source, recording.status, notices, held)


def _binaries(recording: FaultRecording) -> Binaries:
    alive = next((one.pid for one in recording.watched.values() if not one.has_ended), None)
    return Binaries(alive, [one.uid for one in recording.watched.values()])


def _call_paths(recording: FaultRecording, binaries: Binaries) -> Samples:
    paths = CallPaths(recording.layout, recording.periods, binaries.table)
    try:
        for one in recording.watched.values():
            if one.maps:
                paths.start_with(one.pid, one.maps)
        for turn in recording.spool.turns():
            paths.add(turn)
        return paths.finish()
    finally:
        paths.close()


def _sums(
    recording: FaultRecording, samples: Samples, rows: Sequence[growth.WeighedFault]
) -> tuple[FaultTotals, Sequence[growth.WeighedFault], Sequence[float]]:
    """Return the totals, the samples with their final weights, and the bytes of each that stayed resident."""
    spans = {pid: _span(one, samples) for pid, one in recording.watched.items()}
    weight = sum(row.faults for row in rows)
    scale = recording.faults / weight if weight else 1.0
    rows = [growth.scaled(row, scale) for row in rows]
    counted = _counted(recording)
    in_kernel = None
    used = [period for changes in recording.periods.values() for _, period in changes] or [1]
    lost: Mapping[int, int] = {}
    if recording.sees_kernel_mode:
        counted = {**_counted_of_ended(recording, rows), **counted}
        # Where the kernel has counted no event, none was lost: it filled in the pages without one.
        lost = growth.unsampled(rows, counted, max(used)) if recording.faults else {}
        rows = growth.shared_out(rows, counted, lost)
    else:
        if len(counted) == len(recording.watched):
            in_kernel = max(sum(counted.values()) - recording.faults, 0)
        rows = growth.within_counts(rows, counted, in_kernel)
    rows, zero = growth.without_zero_pages(rows, spans)
    sampled = {pid: sum(rows[n].faults for n in mine) for pid, mine in growth.by_process(rows).items()}
    populated = {pid: _populated_faults(recording, one) for pid, one in recording.watched.items()}
    rows = with_large_folios(rows, spans, FolioEvidence(folio_sizes(), populated))
    doubts: dict[int, float] = {}
    grown = growth.grown_bytes(rows, spans, samples.began, doubts)
    rows = growth.within_peaks(rows, grown, spans, doubts)
    rows = growth.with_huge_pages(rows, grown, spans)
    evidence = {
        pid: Evidence(
            _kernel_faults(recording, one, sampled.get(pid, 0.0), in_kernel), populated[pid], lost.get(pid, 0),
            samples.lost_faults, recording.sees_kernel_mode, _unwatched_faults(one),
        )
        for pid, one in recording.watched.items()
    }  # fmt: skip
    accounts = _accounts(recording, list(zip(rows, grown)), spans, evidence, zero)
    totals = FaultTotals(
        recording.seconds, recording.faults, recording.samples, recording.lost, min(used), max(used),
        recording.sees_kernel_mode, samples.broken, accounts, samples.assumed,
    )  # fmt: skip
    return totals, rows, grown


def _accounts(
    recording: FaultRecording,
    rows: Sequence[tuple[growth.WeighedFault, float]],
    spans: Mapping[int, growth.Span],
    evidence: Mapping[int, Evidence],
    zero: Mapping[int, float],
) -> Sequence[FaultAccount]:
    numbers = growth.by_process([one for one, _ in rows])
    accounts = []
    for pid, one in recording.watched.items():
        mine = [rows[number] for number in numbers.get(pid, ())]
        found = account(one.name, pid, mine, spans[pid], evidence[pid])
        accounts.append(
            found._replace(ended_seconds_after=_ended_after(one), zero_bytes=round(zero.get(pid, 0.0)))
        )
    return accounts


def _span(one: Watched, samples: Samples) -> growth.Span:
    after, began = one.after, samples.began.get(one.pid)
    # An exec discards all memory that was resident before.
    before = one.before if began is None else Reading(one.before.time)
    is_new = one.pid in samples.executed
    if is_new and after is not None and began is not None and after.time < began:
        after = Reading(began) if one.is_root else None
    if one.is_root or not is_new:
        return growth.Span(before, after, one.is_root, one.peak_bytes, one.largest_bytes, one.sized)
    # The largest size may be that of the parent. And the peak of a child isn't known: what came after its last size
    # can't be limited.
    return growth.Span(before, after, True, None, one.size_bytes, one.sized, counts_later=False)


def _counted(recording: FaultRecording) -> Mapping[int, int]:
    """Return the kernel's own count of the faults of each process that lived to the end, while its events counted."""
    return {
        pid: one.faults_stopping - one.faults_started
        for pid, one in recording.watched.items()
        if one.faults_after is not None and one.faults_stopping is not None
    }


def _counted_of_ended(recording: FaultRecording, rows: Sequence[growth.WeighedFault]) -> Mapping[int, int]:
    """Return the kernel's last count of the faults of each process that ended, if it was read after its last sample."""
    latest: dict[int, int] = {}
    for row in rows:
        latest[row.pid] = max(row.time, latest.get(row.pid, 0))
    return {
        pid: one.faults_seen[1] - one.faults_started
        for pid, one in recording.watched.items()
        if one.has_ended
        and not one.is_root
        and one.faults_seen is not None
        and latest.get(pid, 0) <= one.faults_seen[0]
    }


def _populated_faults(recording: FaultRecording, one: Watched) -> Optional[int]:
    """Return how many faults of a process the kernel counted without an event; None if its events aren't known."""
    if not recording.sees_kernel_mode or len(recording.watched) > 1:
        return None
    counted = one.faults_stopping
    if counted is None or one.faults_after is None:
        counted = one.after.faults if one.after is not None else None
    return None if counted is None else max(counted - one.faults_started - recording.faults, 0)


def _unwatched_faults(one: Watched) -> int:
    """Return how many faults a process had between a reading and the moment when its events counted, or stopped."""
    first = one.faults_started - one.faults_before
    if one.faults_after is None or one.faults_stopping is None:
        return first
    return first + one.faults_after - one.faults_stopping


def _ended_after(one: Watched) -> Optional[float]:
    if not one.has_ended or one.after is None:
        return None
    return max(one.ended - one.after.time, 0) / 1e9


def _kernel_faults(
    recording: FaultRecording, one: Watched, sampled: float, in_kernel: Optional[int]
) -> Optional[int]:
    """Return the faults of a process in kernel mode, at most *in_kernel*, if those have no samples."""
    if recording.sees_kernel_mode or one.faults_after is None or one.faults_stopping is None:
        return None
    count = max(round(one.faults_stopping - one.faults_started - sampled), 0)
    return count if in_kernel is None else min(count, in_kernel)
