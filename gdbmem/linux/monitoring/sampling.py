"""Reading one process repeatedly at low cost: descriptors of statm and stat stay open.

An open descriptor refers to the process, not to its number: reading it fails when the process has ended, even if
the kernel has reused the pid.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Rollup, parse_rollup, parse_smaps
from gdbmem.linux.process.process import Stat, living_thread, parse_stat
from gdbmem.model.series import ProcessSample

_PAGE = os.sysconf("SC_PAGE_SIZE")


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
        return StatmSample(int(words[1]) * _PAGE, int(words[2]) * _PAGE)

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
    sums["gpu_bytes"] = (
        sum(on_gpus) if on_gpus else None
    )  # a process without a GPU has no number, and no share
    return ProcessSample(**sums)  # type: ignore[arg-type]  # sums of ints are ints


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
