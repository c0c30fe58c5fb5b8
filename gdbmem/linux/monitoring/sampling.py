"""Reading one process repeatedly at low cost: descriptors of statm and stat stay open.

An open descriptor refers to the process, not to its number: reading it fails when the process has ended, even if
the kernel has reused the pid.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.memory.maps import PAGE, Rollup, parse_rollup, parse_smaps
from gdbmem.linux.process.process import Stat, boot_id, living_thread, parse_stat, stat_of, status_fields
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts


class ProcessGone(Exception):  # noqa: N818  (processes end; that is not an error)
    """The process has ended, or is a zombie with no memory left: none of its threads lives."""


class StatmSample(NamedTuple):
    """The values of /proc/PID/statm, bytes."""

    rss_bytes: int
    shared_bytes: int


class ProcessFiles:
    """The /proc files of one process."""

    def __init__(self, pid: int) -> None:
        """Open them; raises ProcessGone if there is no such process."""
        self.pid = pid
        self._folder = f"/proc/{pid}/"
        self._memory = self._folder  # of a living thread: the main one may have ended
        self._stat: Optional[int] = None
        self._statm: Optional[int] = None
        try:
            self._stat = os.open(self._folder + "stat", os.O_RDONLY | os.O_CLOEXEC)
            self._statm = os.open(self._folder + "statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise ProcessGone from None

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._stat, self._statm):
            if descriptor is not None:
                os.close(descriptor)
        self._stat = self._statm = None

    @property
    def statm_descriptor(self) -> int:
        """The descriptor of statm; raises ProcessGone when it has been closed."""
        if self._statm is None:
            raise ProcessGone
        return self._statm

    @property
    def stat_descriptor(self) -> int:
        """The descriptor of stat; raises ProcessGone when it has been closed."""
        if self._stat is None:
            raise ProcessGone
        return self._stat

    def stat(self) -> Stat:
        """Read stat; raises ProcessGone, for a zombie too, but not where only the main thread has ended."""
        stat = parse_stat(self._read(self._stat))
        if stat.state in "ZX" or self._memory != self._folder:
            self._look_through_living()
        return stat

    def last_stat(self) -> Optional[Stat]:
        """Read stat of a process that has ended; None if its parent has collected it already."""
        try:
            return parse_stat(self._read(self._stat))
        except ProcessGone:
            return None

    def _look_through_living(self) -> None:
        """Read through a living thread what an ended main thread no longer shows; raises ProcessGone if none lives.

        An exec makes any thread the main one, so this is checked each time.
        """
        tid = living_thread(self.pid)
        memory = f"{self._folder}task/{tid}/" if tid != self.pid else self._folder
        if tid is None or self._statm is None:
            raise ProcessGone
        if memory != self._memory:
            try:
                statm = os.open(memory + "statm", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                raise ProcessGone from None
            os.dup2(statm, self._statm, inheritable=False)  # the number stays: other code reads by it
            os.close(statm)
            self._memory = memory

    def image(self) -> tuple[bytes, ...]:
        """Return the addresses of its program and its first stack, which a forked process inherits.

        Raises ProcessGone. An exec changes them, unless addresses are not randomised.
        """
        data = self._read(self._stat) if self._memory == self._folder else self._read_file("stat")
        return tuple(data[data.rindex(b")") + 2 :].split(None, 26)[23:26])

    def exit_signal(self) -> int:
        """Return the signal that its parent gets when it ends, 0 for none; raises ProcessGone."""
        data = self._read(self._stat)
        return int(data[data.rindex(b")") + 2 :].split(None, 36)[35])

    def statm(self) -> StatmSample:
        """Read statm; raises ProcessGone."""
        words = self._read(self._statm).split(None, 3)
        return StatmSample(int(words[1]) * PAGE, int(words[2]) * PAGE)

    def rollup(self) -> Rollup:
        """Read smaps_rollup; raises ProcessGone, or PermissionError for a process of another user.

        It is opened each time: an open descriptor would refer to the memory before an exec.
        """
        # Where only RSS is read, neither this nor maps below is: 1 ms of CPU each.
        data = self._read_file("smaps_rollup")
        if not data:
            raise ProcessGone  # a zombie, or it is about to exec
        return parse_rollup(data)

    def status_sizes(self) -> dict[str, int]:
        """Return RssAnon, RssFile, RssShmem, VmSwap, VmHWM, HugetlbPages of status, bytes; readable for everybody."""
        sizes = {}
        for line in self._read_file("status").split(b"\n"):
            if line.startswith((b"Rss", b"VmSwap", b"VmHWM", b"HugetlbPages")):
                name, value, _ = line.split(None, 2)
                sizes[name[:-1].decode()] = int(value) * 1024
        return sizes

    def named_mappings(self) -> dict[str, tuple[int, int]]:
        """Return the resident bytes of [heap] and [stack], and those by PSS; raises as rollup() does."""
        found: dict[str, tuple[int, int]] = {}
        for mapping in parse_smaps(self._read_file("smaps")):
            if mapping.name in ("[heap]", "[stack]"):
                rss, pss = found.get(mapping.name, (0, 0))
                found[mapping.name] = rss + mapping.rss_bytes, pss + mapping.pss_bytes
        return found

    def open_files(self) -> int:
        """Return the number of its open files; raises as rollup() does."""
        return len(_names(self._memory + "fd"))

    def thread_ids(self) -> list[int]:
        """Return the ids of its threads; raises ProcessGone."""
        return [int(name) for name in _names(self._folder + "task")]

    def children(self, threads: int) -> list[int]:
        """Return the pids of its children, from all of its *threads*, as each child belongs to one of them.

        Raises ProcessGone; FileNotFoundError if the kernel doesn't list children.
        """
        if threads == 1:
            return self._children_of(self.pid)
        found = []
        for tid in self.thread_ids():
            try:
                found += self._children_of(tid)
            except ProcessGone:
                continue  # only the thread has ended
        return found

    def _children_of(self, tid: int) -> list[int]:
        return [int(word) for word in _content(f"{self._folder}task/{tid}/children").split()]

    def command(self) -> str:
        """Return the command line ("" for a kernel thread); raises ProcessGone."""
        words = self._read_file("cmdline").rstrip(b"\0").split(b"\0")
        return os.fsdecode(b" ".join(words))

    def _read(self, descriptor: Optional[int]) -> bytes:
        if descriptor is None:
            raise ProcessGone
        try:
            data = os.pread(descriptor, 4096, 0)
        except ProcessLookupError:
            raise ProcessGone from None
        if not data:
            raise ProcessGone
        return data

    def _read_file(self, name: str) -> bytes:
        return _content(self._memory + name)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            parts = []
            while part := stream.read(1 << 16):
                parts.append(part)
            return b"".join(parts)
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGone from None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  (hot path)
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGone from None


# Converting data of /proc to a reading of a process, and the readings of a tree to its total.


_EACH_TIME = ("threads",)
_SUMMED = (
    "pss_bytes", "uss_bytes", "swap_bytes", "private_dirty_bytes", "shared_dirty_bytes", "open_files",
    "hugetlb_bytes",
)  # fmt: skip

_SHARED = ("pss_bytes", "uss_bytes", "private_dirty_bytes", "shared_dirty_bytes")


def quick_reading(files: ProcessFiles, stat: Stat, threads_started: int) -> ProcessSample:
    """Return the values that are cheap to read; raises ProcessGone."""
    statm = files.statm()
    has_memory = statm.rss_bytes > 0  # an ending process has released its memory: 0 is not its size
    return ProcessSample(
        rss_bytes=statm.rss_bytes if has_memory else None,
        shared_bytes=statm.shared_bytes if has_memory else None,
        threads=stat.threads,
        threads_started=threads_started,
        **stat.own._asdict(),
    )


def with_sizes(reading: ProcessSample, files: ProcessFiles) -> ProcessSample:
    """Return *reading* with the sizes in status, which every user may read."""
    sizes = files.status_sizes()
    return reading._replace(
        anonymous_bytes=sizes.get("RssAnon"),
        file_bytes=sizes.get("RssFile"),
        shmem_bytes=sizes.get("RssShmem"),
        swap_bytes=sizes.get("VmSwap"),
        peak_rss_bytes=sizes.get("VmHWM"),
        hugetlb_bytes=sizes.get("HugetlbPages"),
    )


class Shares(NamedTuple):
    """A process's part of the tree's kinds of memory, by PSS: shared pages count once; None is unknown."""

    anonymous_bytes: Optional[int] = None
    file_bytes: Optional[int] = None
    shmem_bytes: Optional[int] = None
    heap_bytes: Optional[int] = None
    stack_bytes: Optional[int] = None


def with_pss(reading: ProcessSample, files: ProcessFiles, *, mappings: bool) -> tuple[ProcessSample, Shares]:
    """Return *reading* with PSS and the like, with *mappings* [heap] and [stack] too, and its shares.

    Raises ProcessGone, and PermissionError for a process of another user.
    """
    rollup = files.rollup()
    named = files.named_mappings() if mappings else None
    heap = stack = (None, None) if named is None else (0, 0)
    if named is not None:
        heap, stack = named.get("[heap]", (0, 0)), named.get("[stack]", (0, 0))
    full = reading._replace(
        pss_bytes=rollup.pss_bytes,
        uss_bytes=rollup.uss_bytes,
        private_dirty_bytes=rollup.private_dirty_bytes,
        shared_dirty_bytes=rollup.shared_dirty_bytes,
        swap_bytes=rollup.swap_bytes,
        open_files=files.open_files(),
        heap_bytes=heap[0],
        stack_bytes=stack[0],
    )
    parts = (rollup.pss_anonymous_bytes, rollup.pss_file_bytes, rollup.pss_shmem_bytes)
    return full, Shares(*parts, heap[1], stack[1])


def without_memory(reading: ProcessSample) -> tuple[ProcessSample, Shares]:
    """Return *reading*, and its shares, of a process that has no memory of its own beside its parent's."""
    nothing = dict.fromkeys((*_SHARED, "swap_bytes", "hugetlb_bytes", "heap_bytes", "stack_bytes"), 0)
    return reading._replace(**nothing), Shares(*[0] * len(Shares._fields))


def total_of(
    readings: Sequence[ProcessSample], shares: Sequence[Shares], *, sweep: bool, is_torn: bool = False
) -> ProcessSample:
    """Return the total of *readings*, without counters; without a *sweep* only of the values read each time.

    If a start or an end of a process has *torn* them, values that depend on page sharing have no total.
    """
    if len(readings) <= 1:
        total = readings[0]._replace(peak_rss_bytes=None) if readings else ProcessSample()
        return total._replace(**dict.fromkeys((*_SHARED, *Shares._fields))) if is_torn else total
    # A sum of what is resident would count a shared page once for each process: RSS has no total, and each
    # kind of memory has that of its shares.
    sums = {name: _sum([getattr(reading, name) for reading in readings]) for name in _EACH_TIME}
    if sweep:
        known = [name for name in _SUMMED if not (is_torn and name in _SHARED)]
        sums.update((name, _sum([getattr(reading, name) for reading in readings])) for name in known)
        complete = len(shares) == len(readings) and not is_torn
        sums.update(
            (name, _sum([getattr(each, name) for each in shares]) if complete else None)
            for name in Shares._fields
        )
    on_gpus = [reading.gpu_bytes for reading in readings if reading.gpu_bytes is not None]
    # A process without a GPU has no number, and no share.
    sums["gpu_bytes"] = sum(on_gpus) if on_gpus else None
    return ProcessSample(**sums)  # type: ignore[arg-type]  # sums of ints are ints


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# The cheapest sample of processes: the statm of each, kept as raw text and decoded later.
#
# Decoding and storing in batches costs a fraction of doing it after each sleep, when the processor's caches have
# gone cold.


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
            (line, ProcessSample(rss_bytes=resident * PAGE, shared_bytes=shared * PAGE))
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


_DYING_AT_MOST = 10.0  # seconds for which the end of a process is awaited


class RoundEnding:
    """Ending processes, whose shared pages are counted inconsistently until all of their memory is released."""

    def __init__(self) -> None:
        self._processes: set[tuple[int, int]] = set()
        self._until = 0.0

    def add(self, pid: int, stat: Stat) -> None:
        """Add *pid*, identified by its *stat*."""
        self._processes.add((pid, stat.start_ticks))
        self._until = time.monotonic() + _DYING_AT_MOST

    def are_there(self) -> bool:
        """Return whether the kernel still takes the memory of one; false once that has taken very long."""
        return time.monotonic() < self._until and not self.wait(0.0)

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
