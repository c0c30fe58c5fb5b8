"""Recording the lines that make a process's memory resident, by its page faults. No code runs in it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from gdbmem.api.fault_names import Binaries, named_faults, names_of, rows_of, without_libdw
from gdbmem.errors import Notice
from gdbmem.faults.account import Evidence, account
from gdbmem.faults.growth import (
    Span,
    WeighedFault,
    by_process,
    grown_bytes,
    scaled,
    shared_out,
    stacks_of,
    unsampled,
    with_huge_pages,
    within_counts,
    within_peaks,
    without_zero_pages,
)
from gdbmem.faults.resident_by_path import unnamed_interpreters
from gdbmem.formats.faults import encode_faults, faults_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.linux.faults.readings import Reading
from gdbmem.model.faults import FaultTotals, NamedFaults, SiteHoldings
from gdbmem.recording.faults import FaultRecorder, FaultRecording, Watched
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.symbols.call_paths import CallPaths, Samples

if TYPE_CHECKING:
    from gdbmem.inspection.growth_contents import Images

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
            stacks = stacks_of(rows, grown)
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
    recording: FaultRecording, samples: Samples, rows: Sequence[WeighedFault]
) -> tuple[FaultTotals, Sequence[WeighedFault], Sequence[float]]:
    """Return the totals, the samples with their final weights, and the bytes of each that stayed resident."""
    spans = {
        pid: Span(_before(one, samples), one.after, one.is_root, one.peak_bytes, one.largest_bytes, one.sized)
        for pid, one in recording.watched.items()
    }
    weight = sum(row.faults for row in rows)
    scale = recording.faults / weight if weight else 1.0
    rows = [scaled(row, scale) for row in rows]
    counted = _counted(recording)
    in_kernel = None
    used = [period for changes in recording.periods.values() for _, period in changes] or [1]
    lost: Mapping[int, int] = {}
    if recording.sees_kernel_mode:
        counted = {**_counted_of_ended(recording, rows), **counted}
        # Where the kernel has counted no event, none was lost: it filled in the pages without one.
        lost = unsampled(rows, counted, max(used)) if recording.faults else {}
        rows = shared_out(rows, counted, lost)
    else:
        if len(counted) == len(recording.watched):
            in_kernel = max(sum(counted.values()) - recording.faults, 0)
        rows = within_counts(rows, counted, in_kernel)
    rows, zero = without_zero_pages(rows, spans)
    doubts: dict[int, float] = {}
    grown = grown_bytes(rows, spans, samples.began, doubts)
    rows = within_peaks(rows, grown, spans, doubts)
    rows = with_huge_pages(rows, grown, spans)
    numbers = by_process(rows)
    accounts = []
    for pid, one in recording.watched.items():
        mine = [(rows[number], grown[number]) for number in numbers.get(pid, ())]
        kernel = _kernel_faults(recording, one, sampled=sum(row.faults for row, _ in mine))
        if kernel is not None and in_kernel is not None:
            kernel = min(kernel, in_kernel)
        evidence = Evidence(
            kernel, _populated_faults(recording, one), lost.get(pid, 0), samples.lost_faults,
            recording.sees_kernel_mode,
        )  # fmt: skip
        found = account(one.name, pid, mine, spans[pid], evidence)
        accounts.append(
            found._replace(ended_seconds_after=_ended_after(one), zero_bytes=round(zero.get(pid, 0.0)))
        )
    totals = FaultTotals(
        recording.seconds, recording.faults, recording.samples, recording.lost, min(used), max(used),
        recording.sees_kernel_mode, samples.broken, accounts, samples.assumed,
    )  # fmt: skip
    return totals, rows, grown


def _before(one: Watched, samples: Samples) -> Reading:
    # An exec discards all memory that was resident before.
    return Reading(one.before.time) if one.pid in samples.began else one.before


def _counted(recording: FaultRecording) -> Mapping[int, int]:
    """Return the kernel's own count of the faults of each process that lived to the end."""
    return {
        pid: one.faults_after - one.faults_before
        for pid, one in recording.watched.items()
        if one.faults_after is not None
    }


def _counted_of_ended(recording: FaultRecording, rows: Sequence[WeighedFault]) -> Mapping[int, int]:
    """Return the kernel's last count of the faults of each process that ended, if it was read after its last sample."""
    latest: dict[int, int] = {}
    for row in rows:
        latest[row.pid] = max(row.time, latest.get(row.pid, 0))
    return {
        pid: one.faults_seen[1] - one.faults_before
        for pid, one in recording.watched.items()
        if one.has_ended
        and not one.is_root
        and one.faults_seen is not None
        and latest.get(pid, 0) <= one.faults_seen[0]
    }


def _populated_faults(recording: FaultRecording, one: Watched) -> Optional[int]:
    """Return how many faults of a process the kernel counted without an event; None if its events aren't known."""
    reading = one.after
    if not recording.sees_kernel_mode or len(recording.watched) > 1:
        return None
    counted = (
        one.faults_after if one.faults_after is not None else reading.faults if reading is not None else None
    )
    return None if counted is None else max(counted - one.faults_before - recording.faults, 0)


def _ended_after(one: Watched) -> Optional[float]:
    if not one.has_ended or one.after is None:
        return None
    return max(one.ended - one.after.time, 0) / 1e9


def _kernel_faults(recording: FaultRecording, one: Watched, *, sampled: float) -> Optional[int]:
    if recording.sees_kernel_mode or one.faults_after is None:
        return None
    return max(round(one.faults_after - one.faults_before - sampled), 0)
