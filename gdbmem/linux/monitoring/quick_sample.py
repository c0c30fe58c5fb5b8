"""The cheapest sample of processes: the statm of each, kept as raw text and decoded later.

Decoding and storing in batches costs a fraction of doing it after each sleep, when the processor's caches
have gone cold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone
from gdbmem.linux.process.process import Stat, stat_of, status_fields
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_WORDS_IN_STATM = 7
FRAME = b"@%a %b\n%b%b"  # a Glance as text; any number of them can follow each other
_FAMILY = b"family "


class Glance(NamedTuple):
    """The bytes of statm of some processes at one time, not yet decoded."""

    t: float
    lines: bytes  # their line numbers, separated by spaces
    statm: bytes  # a text line for each of them, which may have its minor faults as an eighth word
    family: bytes = b""  # a text line: the memory of the program's own cgroup

    @property
    def family_bytes(self) -> Optional[int]:
        """The memory of the program's own cgroup; None if it has none."""
        return int(self.family[len(_FAMILY) :]) if self.family else None

    def readings(self) -> list[tuple[int, ProcessSample]]:
        """Return it decoded; the tree's own is that of its only process, else empty: RSS has no sum."""
        found = [
            (line, ProcessSample(rss_bytes=resident * PAGE_BYTES, shared_bytes=shared * PAGE_BYTES))
            for line, _, resident, shared, _ in sizes_of([self])
        ]
        total = found[0][1] if len(found) == 1 else ProcessSample()
        return [*found, (TREE, total._replace(family_bytes=self.family_bytes))]


class Glances(NamedTuple):
    """Reading RSS between two complete samples."""

    until: float  # when the next complete sample is due
    lines: bytes  # of the processes, in the form of a Glance
    read: Callable[[], bytes]  # the texts of their statm; b"" if one of them has ended
    read_family: Optional[Callable[[], Optional[int]]] = None


def family_row(size_bytes: Optional[int]) -> bytes:
    """Return the text line of a Glance's family."""
    return b"" if size_bytes is None else b"%b%d\n" % (_FAMILY, size_bytes)


def sizes_of(glances: Sequence[Glance]) -> Iterator[tuple[int, float, int, int, Optional[int]]]:
    """Yield line, time, resident and shared pages, minor faults, line by line; the *glances* are at the same lines.

    Without a Python loop: this is most of the cost of storing a glance.
    """
    numbers = glances[0].lines.split()
    words = b"".join([glance.statm for glance in glances]).split()
    times, count = [glance.t for glance in glances], len(numbers)
    width = len(words) // (count * len(times))
    resident, shared = words[1::width], words[2::width]
    faults: Iterable[Optional[int]] = repeat(None)
    for place, number in enumerate(numbers):
        if width > _WORDS_IN_STATM:
            faults = map(int, words[_WORDS_IN_STATM + place * width :: count * width])
        yield from zip(
            repeat(int(number)),
            times,
            map(int, resident[place::count]),
            map(int, shared[place::count]),
            faults,
        )


def faults_reader(descriptors: Sequence[tuple[int, int]]) -> Callable[[], bytes]:
    """Return a reader like statm_reader(), with minor faults, for the (statm, stat) of several processes."""
    pread = os.pread

    def read_all() -> bytes:
        try:
            found = [
                b"%b %b\n"
                % (pread(statm, 128, 0)[:-1], pread(stat, 512, 0).rpartition(b")")[2].split(None, 8)[7])
                for statm, stat in descriptors
            ]
        except (ProcessLookupError, IndexError):
            return b""
        rows = b"".join(found)
        return b"" if rows.startswith((b"0 ", b" ")) or b"\n0 " in rows or b"\n " in rows else rows

    return read_all


def statm_reader(descriptors: Sequence[int]) -> Callable[[], bytes]:
    """Return a reader of the statm behind each of *descriptors*; it returns b"" if a process has ended."""
    pread = os.pread

    def read_one() -> bytes:
        try:
            statm = pread(first, 128, 0)
        except ProcessLookupError:
            return b""
        # A zombie has a size of 0; a collected one has no text.
        return b"" if statm.startswith(b"0 ") else statm

    def read_all() -> bytes:
        try:
            found = [pread(descriptor, 128, 0) for descriptor in descriptors]
        except ProcessLookupError:
            return b""
        statm = b"".join(found)
        return b"" if statm.startswith(b"0 ") or b"\n0 " in statm or not all(found) else statm

    first, *others = descriptors or (-1,)
    return read_all if others else read_one


def unpack_glances(data: bytes) -> list[Glance]:
    """Return the glances in *data*, FRAMEs; a truncated one is omitted."""
    found = []
    for frame in data.split(b"@")[1:]:
        head, _, statm = frame.partition(b"\n")
        t, _, lines = head.partition(b" ")
        statm, family, size = statm.partition(_FAMILY)
        if _is_whole(lines.split(), statm) and (not family or size[-1:] == b"\n"):
            found.append(Glance(float(t), lines, statm, family + size))
    return found


def _is_whole(lines: Sequence[bytes], statm: bytes) -> bool:
    rows = statm.split(b"\n")
    return (
        bool(lines)
        and rows.pop() == b""
        and len(rows) == len(lines)
        and {len(row.split()) for row in rows} in ({_WORDS_IN_STATM}, {_WORDS_IN_STATM + 1})
    )


# Checks that the set of processes did not change while they were read one after the other.


_PAUSE_SECONDS = 0.001
_LEAST_BYTES, _LEAST_SHARE = 1 << 20, 0.05  # tolerated error of a total, in bytes or as a fraction of it


def has_ended(files: ProcessFiles) -> bool:
    """Return whether a process has given up its memory, or is about to."""
    try:
        return files.statm().rss_bytes == 0
    except ProcessGone:
        return True


def _is_released(files: ProcessFiles) -> bool:
    try:
        return files.stat().has_ended
    except ProcessGone:
        return True


class Copies:
    """Copies of processes that gdbmem makes to inspect them: not part of the program, but they share its pages."""

    def __init__(self) -> None:
        self._copies: list[ProcessFiles] = []

    def take(self, files: ProcessFiles) -> bool:
        """Return whether a new process is such a copy, and keep its *files* if so; raises ProcessGone."""
        # It never runs: it is traced from its birth on, and its parent gets no signal when it ends.
        is_copy = not files.exit_signal() and status_fields(files.pid).get("TracerPid", "0") != "0"
        if is_copy and files.pid in {copy.pid for copy in self._copies}:
            files.close()
        elif is_copy:
            self._copies.append(files)
        return is_copy

    def are_there(self) -> bool:
        """Return whether one exists now: until its pages are released, PSS and USS of its parent are too low.

        Its resident size is 0 before that, as soon as the kernel begins to release them.
        """
        for files in [copy for copy in self._copies if _is_released(copy)]:
            self._copies.remove(files)
            files.close()
        return bool(self._copies)


class RoundEnding:
    """Ending processes, whose shared pages are counted inconsistently until all of their memory is released."""

    def __init__(self) -> None:
        self._processes: set[tuple[int, int]] = set()

    def add(self, pid: int, stat: Stat) -> None:
        """Add *pid*, identified by its *stat*."""
        self._processes.add((pid, stat.start_ticks))

    def wait(self, seconds: float) -> bool:
        """Wait until the pages of all have been released, up to *seconds*; return whether they have been."""
        deadline = time.monotonic() + seconds
        while self._processes:
            pid, start_ticks = next(iter(self._processes))
            stat = stat_of(pid)
            if stat is None or stat.start_ticks != start_ticks or stat.has_ended:
                self._processes.remove((pid, start_ticks))
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(_PAUSE_SECONDS)
        return True


def matters(readings: Mapping[int, ProcessSample], *, parents: Sequence[int] = (), changes: int = 0) -> bool:
    """Return whether the total of *readings*, by pid, may have a large error, as processes started or ended meanwhile.

    *parents* are those that forked, each as often as it did; of *changes* more it isn't known whose they were. Each
    takes or gives back one share of the pages that the parent shares, and a fork half of those that were its alone.
    Pages of shared files are few compared with these.
    """
    total = sum(reading.pss_bytes or 0 for reading in readings.values())
    most = max(map(_at_stake, readings.values()), default=0)
    error = changes * most + sum(_at_stake(readings[p]) if p in readings else most for p in parents)
    return error > max(_LEAST_BYTES, _LEAST_SHARE * total)


def _at_stake(reading: ProcessSample) -> int:
    """Return the most that one fork or end of the process of *reading* changes in a total."""
    share = max((reading.pss_bytes or 0) - (reading.uss_bytes or 0), 0)
    return min(share, reading.shared_dirty_bytes or 0) + (reading.private_dirty_bytes or 0) // 2


# The clock of a series: seconds since it began, across suspends and clock changes.


def series_clock(boot_seconds: float) -> Callable[[], float]:
    """Return the clock of a new series; it includes time in suspend and ignores changes of the system clock."""
    gettime, boottime = time.clock_gettime, time.CLOCK_BOOTTIME
    return lambda: gettime(boottime) - boot_seconds


def clock_of(facts: SeriesFacts) -> Callable[[], float]:
    """Return the clock of a series that has begun already, also if the machine was rebooted since."""
    if facts.boot_id == boot_id():
        return series_clock(facts.boot_seconds)
    return series_clock(time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - facts.began))


def boot_id() -> str:
    """Return the id of this boot: the clock's zero."""
    with open("/proc/sys/kernel/random/boot_id") as stream:  # noqa: PTH123
        return stream.read().strip()
