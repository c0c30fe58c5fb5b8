"""Recording the page faults of running processes, or of a new program."""

import contextlib
import math
import os
import signal
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.linux.faults.event import FORK, HEADER, SampleLayout, Turn
from gdbmem.linux.faults.readings import Reading, held_bytes, peak_bytes, read_resident
from gdbmem.linux.faults.watch import FaultWatch
from gdbmem.linux.memory.maps import maps_text
from gdbmem.linux.memory.process_memory import random_bytes
from gdbmem.linux.process.process import (
    check_analysable,
    descendants,
    ended,
    has_ended,
    parents,
    process_facts,
    stat_of,
)
from gdbmem.linux.process.threads import page_faults
from gdbmem.recording.beside import RECORDING
from gdbmem.recording.targets import WatchedProgram
from gdbmem.text import format_duration, plural, printable

# The records of sampled page faults, turn by turn, in a temporary file.


_LARGEST_BYTES = 2 << 30
_EVENTS_A_TURN = 400


class _StoredTurn(NamedTuple):
    pieces: Sequence[tuple[int, int, int]]  # ring, place in the file, size
    stacks: Sequence[tuple[int, int]]  # place in the file, size
    faults: Mapping[int, int]


class TurnSpool:
    """Stores turns, and returns them in their order. Close it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="gdbmem-")  # noqa: SIM115  (closed in close())
        self._turns: list[_StoredTurn] = []
        self._taken = 0
        self._dropped = 0  # batches for which the file was too large

    def take(self, watch: FaultWatch, *, is_last: bool) -> Iterator[bytes]:
        """Store what *watch* has for one turn, and yield it batch by batch; all have to be taken."""
        # Many events take long to count: then only some turns count them.
        self._taken += 1
        is_counted = is_last or self._taken % (1 + watch.events // _EVENTS_A_TURN) == 0
        pieces, stacks = [], []
        for ring, data in watch.take():
            at = self._keep(data)
            if at is not None:
                pieces.append((ring, at, len(data)))
                yield data
        for data in watch.take_stacks():
            at = self._keep(data)
            if at is not None:
                stacks.append((at, len(data)))
        self._turns.append(_StoredTurn(pieces, stacks, dict(watch.count()) if is_counted else {}))

    def _keep(self, data: bytes) -> Optional[int]:
        """Store *data*; return where, or None if the file is too large."""
        at = self._file.seek(0, os.SEEK_END)
        if at + len(data) > _LARGEST_BYTES:
            self._dropped += 1
            return None
        self._file.write(data)
        return at

    def turns(self) -> Iterator[Turn]:
        """Yield the turns, one after the other."""
        for turn in self._turns:
            records = [(ring, self._read(at, size)) for ring, at, size in turn.pieces]
            yield Turn(records, [self._read(at, size) for at, size in turn.stacks], turn.faults)

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)

    def clear(self) -> None:
        """Forget all turns."""
        self._turns = []
        self._file.truncate(0)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def notices(self) -> list[Notice]:
        """Return a notice if batches were dropped."""
        if not self._dropped:
            return []
        text = f"{self._dropped:,} batches of samples were dropped: the recording had reached 2 GiB"
        return [Notice("faults-disk", text)]


_TURN_SECONDS = 0.05
# A short program's size is read often: nothing else limits what came after the last time.
_BURST_SECONDS, _BURST_TURN_SECONDS = 0.5, 0.005
_GRACE_SECONDS = 5.0
_READING_SHARE = 0.005  # fraction of the time for reading resident memory during the recording,
_READING_SECONDS = 0.08  # and the least allowance
_STEP_BYTES = 1 << 20
_MOST_READ = 64  # processes whose resident memory is checked in each turn


class Watched:
    """One process of the recording; it is a root if it existed, or was started, at the beginning."""

    def __init__(self, pid: int, name: str, is_root: bool, before: Reading, *, uid: int = 0) -> None:
        self.pid = pid
        self.uid = uid
        self.name = name
        self.is_root = is_root
        self.before = before
        self.maps = b""  # its code mappings at the beginning; b"": they are in the records
        self.after: Optional[Reading] = None  # at the end; for one that ended before: at the largest reading
        self.has_ended = False
        self.ended = 0  # CLOCK_MONOTONIC, ns: the time of that reading
        self.size_bytes = 0  # resident, and in pages of hugetlbfs, at the last turn,
        self.largest_bytes = 0  # at the turn when it was largest
        self.sized = 0  # CLOCK_MONOTONIC, ns: the time of the last turn that read it
        # By /proc/PID/stat: before its first reading, and when all its events counted; before the first of them
        # stopped, and at its last reading. A busy or large process has faults meanwhile.
        self.faults_before = self.faults_started = 0
        self.faults_stopping: Optional[int] = None
        self.faults_after: Optional[int] = None
        # When last counted (CLOCK_MONOTONIC, ns), and the count.
        self.faults_seen: Optional[tuple[int, int]] = None
        self.peak_bytes: Optional[int] = None  # peak RSS in the kernel's record, of a program that has ended


class FaultRecording:
    """A recording; its records are in a temporary file. Close it."""

    def __init__(self, layout: SampleLayout, sees_kernel_mode: bool, spool: TurnSpool) -> None:
        self.layout = layout
        self.sees_kernel_mode = sees_kernel_mode
        self.spool = spool
        self.periods: dict[int, list[tuple[int, int]]] = {}  # in the form of FaultWatch
        self.faults = self.samples = self.lost = 0  # lost: samples
        self.seconds = 0.0
        self.watched: dict[int, Watched] = {}
        self.program = ""
        self.status: Optional[int] = None  # of a started program

    def close(self) -> None:
        """Remove the records."""
        self.spool.close()


class FaultRecorder:
    """Records until a signal, the end of the time, or the end of all processes."""

    def __init__(
        self,
        *,
        period: int = 0,
        say: Callable[[str], None] = lambda text: None,
        at_end: Callable[[Sequence[int]], None] = lambda pids: None,
    ) -> None:
        """*at_end* is called with the processes that still run, before a started program is ended."""
        self._period = period
        self._at_end = at_end
        self._say = say
        self._ended_by: Optional[int] = None
        self.has_recorded = False  # the work after that takes time
        self._spent = 0.0  # CPU seconds, for reading what is resident

    def record(self, pids: Sequence[int], *, seconds: float) -> FaultRecording:
        """Record the faults of the running processes *pids*, and of their children. Raises TargetError."""
        for pid in pids:
            check_analysable(pid, may_be_traced=True)
        everyone = [*pids, *(one for one in descendants(set(pids), parents()) if one not in pids)]
        with FaultWatch(everyone, period=self._period) as watch, self._end_by_signals():
            recording = self._begun(watch)
            for pid in everyone:
                self._add_root(recording, pid)
            if not recording.watched:
                raise ended(pids[0])
            watch.start()
            for one in recording.watched.values():
                one.faults_started = page_faults(one.pid) or one.faults_before
            self._say(f"{RECORDING}{_names(recording)}{_until(seconds)}")
            self._run(watch, recording, lambda: _have_ended(pids, recording), seconds)
        recording.program = ", ".join(one.name for one in recording.watched.values() if one.pid in pids)
        return recording

    def record_program(
        self, words: Sequence[str], *, seconds: float, stdout: Optional[str]
    ) -> FaultRecording:
        """Start a program and record its faults; it is ended after *seconds*. Raises GdbmemError."""
        with FaultWatch(period=self._period) as watch, self._end_by_signals():
            recording = self._begun(watch)
            program = WatchedProgram(words, stdout=stdout)
            recording.program = " ".join(words)
            nothing = Reading(time.monotonic_ns())
            recording.watched[program.pid] = Watched(
                program.pid, Path(words[0]).name, True, nothing, uid=os.getuid()
            )
            try:
                self._run(watch, recording, lambda: program.poll() is not None, seconds)
            finally:
                recording.status = self._finish(program)
            if len(recording.watched) == 1:  # otherwise it may be that of a collected child
                recording.watched[program.pid].peak_bytes = program.peak_bytes
        return recording

    def _begun(self, watch: FaultWatch) -> FaultRecording:
        return FaultRecording(watch.layout, watch.wishes.kernel, TurnSpool())

    def _add_root(self, recording: FaultRecording, pid: int) -> None:
        faults = page_faults(pid)
        reading = read_resident(pid)
        if reading is None:
            return  # it has just ended
        facts = process_facts(pid)
        maps = b""
        with contextlib.suppress(OSError):
            maps = maps_text(pid)
        root = recording.watched[pid] = Watched(pid, facts.name, True, reading, uid=facts.uid)
        root.maps, root.faults_before = maps, faults or 0

    def _run(
        self, watch: FaultWatch, recording: FaultRecording, is_over: Callable[[], bool], seconds: float
    ) -> None:
        began = time.monotonic()
        while True:
            over = is_over() or self._ended_by is not None or time.monotonic() - began >= seconds
            if over:
                for one in recording.watched.values():
                    one.faults_stopping = None if one.has_ended else page_faults(one.pid)
                watch.stop()
            self._take(watch, recording, at_end=over)
            self._look(recording, began, at_end=over)
            if over:
                break
            alive = [one.pid for one in recording.watched.values() if not one.has_ended]
            watch.adapt(alive)
            watch.ask_for_stacks(alive)
            is_young = time.monotonic() - began < _BURST_SECONDS
            watch.wait(_BURST_TURN_SECONDS if is_young else _TURN_SECONDS)
        recording.seconds = time.monotonic() - began
        self.has_recorded = True
        self._at_end([one.pid for one in recording.watched.values() if not one.has_ended])
        recording.periods, recording.lost = dict(watch.periods), watch.lost
        recording.samples, recording.faults = watch.samples, sum(watch.counts.values())

    def _take(self, watch: FaultWatch, recording: FaultRecording, *, at_end: bool) -> None:
        lost, births = watch.lost, watch.births
        for data in recording.spool.take(watch, is_last=at_end):
            for pid, parent in _births(data) if watch.births > births else ():
                if pid not in recording.watched:
                    self._add_child(recording, pid, parent)
        if watch.lost > lost:  # the birth of a process may be among what found no room
            parent_of = parents()
            for pid in list(descendants(set(recording.watched), parent_of)):
                self._add_child(recording, pid, parent_of[pid])

    def _add_child(self, recording: FaultRecording, pid: int, parent: int) -> None:
        above = recording.watched.get(parent)
        stat = stat_of(pid)
        name = stat.name if stat is not None else above.name if above is not None else ""
        uid = above.uid if above is not None else 0
        recording.watched[pid] = Watched(pid, name, False, Reading(time.monotonic_ns()), uid=uid)

    # Resident memory is read at the end, and before, as long as that is cheap, whenever a process is larger
    # than at the last reading: it may end at any moment.
    def _look(self, recording: FaultRecording, began: float, *, at_end: bool) -> None:
        alive = [one for one in recording.watched.values() if not one.has_ended]
        for one in alive if at_end else alive[:_MOST_READ]:
            looked = time.monotonic_ns()  # what comes from now on may be missing in the size
            size = held_bytes(one.pid)
            count = page_faults(one.pid)  # also of one that has just ended
            if count is not None:
                one.faults_seen = (time.monotonic_ns(), count)
            if size is None:
                one.has_ended = has_ended(one.pid)
                one.ended = time.monotonic_ns() if one.has_ended else 0
                continue
            one.largest_bytes, one.sized = max(size, one.largest_bytes), looked
            if one.is_root and not one.before.rss_bytes:  # else the peak may be from before
                one.largest_bytes = max(peak_bytes(one.pid) or 0, one.largest_bytes)
            now = time.monotonic()
            seen = one.after.held_bytes if one.after is not None else 0
            is_quiet, one.size_bytes = size == one.size_bytes, size
            affordable = self._spent <= _READING_SECONDS + _READING_SHARE * (now - began)
            has_grown = is_quiet or size > seen + max(_STEP_BYTES, seen >> 4)
            if at_end or (size > seen and has_grown and affordable):
                used = time.thread_time()  # other programs may have the processor meanwhile
                one.after = read_resident(one.pid) or one.after
                one.faults_after = page_faults(one.pid) if at_end else None
                self._spent += time.thread_time() - used

    def _finish(self, program: WatchedProgram) -> int:
        if program.poll() is None:
            program.signal(signal.SIGTERM if self._ended_by is None else signal.Signals(self._ended_by))
            until = time.monotonic() + _GRACE_SECONDS
            try:
                while program.poll() is None and time.monotonic() < until:
                    time.sleep(_TURN_SECONDS)
            finally:  # at a second Ctrl-C at once
                if program.poll() is None:
                    program.signal(signal.SIGKILL)
        return program.finish()

    @contextlib.contextmanager
    def _end_by_signals(self) -> Iterator[None]:
        """Make SIGINT, SIGTERM and SIGHUP end the recording; a second one ends this process."""
        before: dict[int, Any] = {}

        def end(number: int, _: object) -> None:
            self._ended_by = number
            for one, handler in before.items():
                signal.signal(one, handler)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, end)
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _have_ended(pids: Sequence[int], recording: FaultRecording) -> bool:
    """Return whether all of *pids* had ended at the last turn."""
    watched = recording.watched
    return all(pid not in watched or watched[pid].has_ended for pid in pids)


def _names(recording: FaultRecording) -> str:
    first, *rest = recording.watched.values()
    name = f"process {first.pid} ({printable(first.name)})"
    return f"{name} and {plural(len(rest), 'further process', 'further processes')}" if rest else name


def _until(seconds: float) -> str:
    if math.isinf(seconds):
        return "; Ctrl-C ends it"
    return f" for {format_duration(seconds)}; Ctrl-C ends it before"


def _births(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (pid, parent) of each new process (not thread) in the records *data*."""
    at = 0
    while at < len(data):
        kind, _, size = HEADER.unpack_from(data, at)
        if kind == FORK:
            pid, parent, tid, _ = struct.unpack_from("<IIII", data, at + 8)
            if pid == tid and pid != parent:
                yield pid, parent
        at += size


# Recording the page faults of one process in intervals, each between two moments at which it is stopped.


_WAIT_SECONDS = 0.05


class Interval(NamedTuple):
    """The faults between two moments; the counts are those of this interval alone."""

    before: Reading
    after: Reading
    turns: Sequence[Turn]
    faults: int
    samples: int
    lost: int  # samples
    counted: Optional[int]  # faults by the kernel's count of the process, which includes those in kernel mode
    executed: bool  # another program was executed, or the same again


class _Counts(NamedTuple):
    faults: int
    samples: int
    lost: int
    of_process: Optional[int]


class IntervalRecorder:
    """Records from the start on; cut() ends an interval and begins the next. Leave with the context manager."""

    def __init__(self, pid: int, *, period: int = 0, requests: Optional[int] = None) -> None:
        """Begin with process *pid*. Data that comes on the descriptor *requests* ends a turn() early.

        *period*: the number of faults per sample; 0: automatic. Raises TargetError if the kernel refuses.
        """
        check_analysable(pid, may_be_traced=True)
        self.pid = pid
        self._watch = FaultWatch([pid], period=period)
        try:
            if requests is not None:
                self._watch.wake_by(requests)
            facts = process_facts(pid)
            self.name, self.uid = facts.name, facts.uid
            self._last = self._read_resident()
            self.maps = b""
            with contextlib.suppress(OSError):
                self.maps = maps_text(pid)
            self.spool = TurnSpool()
        except BaseException:
            self._watch.__exit__()
            raise
        self.first = self._last
        self._program = random_bytes(pid)
        self._before = self._counts()
        self._watch.start()

    def __enter__(self) -> "IntervalRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()
        self.spool.close()

    @property
    def layout(self) -> SampleLayout:
        """Return the layout of the samples."""
        return self._watch.layout

    @property
    def periods(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Return the faults per sample, each with its start time, by the event's identifier; entries are added."""
        return self._watch.periods

    @property
    def sees_kernel_mode(self) -> bool:
        """Return whether faults in kernel mode are sampled, too."""
        return self._watch.wishes.kernel

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return has_ended(self.pid)

    def turn(self) -> None:
        """Take the samples, and wait a moment for more."""
        before = self._watch.counts
        self._take(is_last=False)
        # A stop in gdb has no bearing on the rate of its faults.
        if self._watch.counts != before:
            self._watch.adapt([self.pid])
        self._watch.ask_for_stacks([self.pid])
        self._watch.wait(_WAIT_SECONDS)

    def cut(self) -> Interval:
        """Return the recording since the last cut. Raises TargetError if the process has ended."""
        self._take(is_last=True)
        before, self._last = self._last, self._read_resident()
        # Its record may have been lost.
        program, self._program = self._program, random_bytes(self.pid)
        then, now = self._before, self._counts()
        self._before = now
        turns = list(self.spool.turns())
        self.spool.clear()
        counted = None
        if now.of_process is not None and then.of_process is not None:
            counted = now.of_process - then.of_process
        return Interval(
            before, self._last, turns, now.faults - then.faults, now.samples - then.samples, now.lost - then.lost,
            counted, program != self._program,
        )  # fmt: skip

    def _read_resident(self) -> Reading:
        found = read_resident(self.pid)
        if found is None:
            raise ended(self.pid)
        return found

    def _counts(self) -> _Counts:
        watch = self._watch
        return _Counts(sum(watch.counts.values()), watch.samples, watch.lost, page_faults(self.pid))

    def _take(self, *, is_last: bool) -> None:
        for _ in self.spool.take(self._watch, is_last=is_last):
            pass
