"""Watching the page faults of processes: their events, two rings per processor, the sampling period, refusals.

Small samples are so many to a ring that a burst fits, in which nothing can be adapted yet. How much became resident at
which address is counted by them alone. Samples with a copied stack name the call paths; the kernel limits their rate.
Where there are many faults to a sample, every sample has a stack: a second event costs the program more than those.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import GdbmemError, TargetError
from gdbmem.linux.faults import event
from gdbmem.linux.faults.event import (
    ANY,
    MAJOR,
    MINOR,
    NOTHING,
    EventSettings,
    Ring,
    SampleLayout,
    Taken,
    small_of_whole,
    small_samples,
    trimmed,
)
from gdbmem.linux.memory.resident import PAGE_BYTES
from gdbmem.linux.process.process import check_analysable, descendants, parents, thread_ids
from gdbmem.linux.process.rights import AS_ROOT

STACK_BYTES = 16 << 10  # bytes copied of each stack,
_SMALL_STACK_BYTES = 8 << 10  # and where the rings are small
STACKS_PER_SECOND = 1000  # of each thread, at most
_MOST_STACKS = 2000  # a second, of all threads together
SAMPLES_PER_SECOND = 1000  # the target rate of small samples
_SETTLED_SAMPLES = 20_000  # the longer the recording, the fewer per second are enough
_ADAPT_SECONDS = 0.1
_CALM_SECONDS = 1.0  # before the period is shortened again
_MANY_SAMPLES = 100
_SAMPLES_A_LIFE = 10  # of a thread, if many are created and end
_RING_SECONDS = 0.05  # that a ring should last at the rate of the fastest burst
# Of small samples, and of samples with a stack. kernel.perf_event_mlock_kb leaves an ordinary user 129 pages per
# processor, in which a ring takes one more than it has; a further 8 MiB by ulimit -l are usual.
_RING_PAGES = ((256, 1024), (256, 256), (128, 64), (64, 32), (32, 16), (16, 8), (8, 8))
_LARGE_PAGES = 64
# A further event that counts makes each fault 1.5 to 3.5 % slower (Linux 6.18, AMD EPYC). From this period on no burst
# fills a ring of so many bytes with whole samples before it is read.
_WHOLE_PERIOD = 64
_WHOLE_RING_BYTES = 1 << 20
_FEW_FAULTS = 50  # of a turn: the stack of each is worth having
_ASKED_EVENTS = 64
_MOST_TRIES = 4  # to open the events of all threads while others begin
_REOPENED_EVENTS = 1000  # more of them change their period in place
_THIS_THREAD = 0
# ax bx cx dx si di bp sp ip, r8 to r15; on aarch64 x0 to x30, sp and pc
REGISTERS = {"x86_64": 0xFF01FF, "aarch64": (1 << 33) - 1}
_WHERE = {"x86_64": 0x180, "aarch64": 3 << 31}  # sp and ip (pc)


_Events = dict[tuple[int, int, int], int]  # descriptors, by thread, processor and kind of fault


class FaultWatch:
    """The events of some processes, and of their future children. Leave with the context manager."""

    def __init__(self, pids: Sequence[int] = (), *, period: int = 0) -> None:
        """Open events on all threads of *pids*; without any on the next program that this thread starts.

        Those of *pids* count from start() on. *period*: the number of faults per sample; 0: automatic.
        Raises TargetError if the kernel refuses.
        """
        self._pids = tuple(pids)
        self._adapts = period == 0
        self._cpus = event.online_processors()
        machine = os.uname().machine
        self.wishes = EventSettings(
            max(period, 1), period, _stacks_per_second(), STACK_BYTES, 0, REGISTERS.get(machine, 0),
            _WHERE.get(machine, 0), on_exec=not pids,
        )  # fmt: skip
        self._rings: dict[int, Ring] = {}  # by processor: of small samples,
        self._stack_rings: dict[int, Ring] = {}  # and of those with a stack
        self._events: _Events = {}
        # The number of faults per sample, and since when (CLOCK_MONOTONIC, ns), by event identifier; 0: of samples with
        # an identifier of another tool's event, which has taken one of the same fault.
        self.periods: dict[int, list[tuple[int, int]]] = {0: [(0, max(period, 1))]}
        self._uncounted: set[int] = set()  # identifiers of events that only name paths
        self._counted: dict[int, int] = {}  # by events that were replaced
        self.counts: dict[int, int] = {}  # faults by processor, when they were read last
        self._least = 1.0  # the period at which rings last long enough in bursts like the recent ones
        now = time.monotonic()
        self._counted_at = (now, now)  # begin and end of the last reading of the counts
        self._measured = _RateMark(now, now, 0, 0, 0, 0)
        self._period_before = max(period, 1)  # when the rings were last emptied
        self._changed = 0.0  # when the period was last changed
        self._opened_after = 0  # number of births when the events were opened
        self.samples = self.lost = self.births = 0  # small samples; births: of processes and threads
        self.stacks = 0
        self._asked_at = 0  # samples so far
        self._asking: _Events = {}  # for stacks only
        self._stacks: list[bytes] = []  # samples with a stack, for take_stacks()
        self._where = _places(self.wishes.where, self.wishes.registers)
        self._poll = select.poll()
        try:
            self._open_rings()
            self.wishes = self.wishes._replace(whole=self._whole(self.period))
            self._events = self._open_events()
        except OSError as error:
            self._close()
            raise refusal(self._pids, error) from error
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> FaultWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def layout(self) -> SampleLayout:
        """Return the layout of the samples."""
        return SampleLayout(bin(self.wishes.registers).count("1"), self.wishes.page_size)

    @property
    def period(self) -> int:
        """Return the current number of faults per sample."""
        return self.wishes.period

    @property
    def events(self) -> int:
        """Return the number of events: reading each is a system call."""
        return len(self._events)

    def count(self) -> Mapping[int, int]:
        """Read the number of faults counted so far on each processor."""
        began = time.monotonic()
        self.counts = _counts(self._events, self._counted)
        self._counted_at = (began, time.monotonic())
        return self.counts

    def start(self) -> None:
        """Start counting."""
        for one in self._events.values():
            event.enable(one)

    def stop(self) -> None:
        """Stop counting; the contents of the rings stay."""
        for one in self._events.values():
            event.disable(one)

    def wait(self, seconds: float) -> None:
        """Wait until a ring fills, or until the timeout."""
        self._poll.poll(1000 * seconds)

    def wake_by(self, descriptor: int) -> None:
        """Make wait() return also when *descriptor* is readable."""
        self._poll.register(descriptor, select.POLLIN | select.POLLHUP)

    def take_stacks(self) -> Iterator[bytes]:
        """Yield the samples with a stack that take() has found."""
        while self._stacks:
            yield self._stacks.pop(0)

    def take(self) -> Iterator[tuple[int, bytes]]:
        """Yield (processor, records) of each non-empty ring, without stacks; the records are removed from it."""
        for cpu, ring in self._rings.items():
            kept = small_samples(ring.take(), self.layout)
            yield from self._taken(cpu, kept, ring.size_bytes // self.layout.small_bytes)
            stack_ring = self._stack_rings[cpu]
            data = stack_ring.take()
            stacks = trimmed(data, self.layout)
            self.stacks += stacks.samples
            if stacks.data:
                self._stacks.append(stacks.data)
            kept = small_samples(
                small_of_whole(data, self.layout, self._is_counted, self._where), self.layout
            )
            yield from self._taken(cpu, kept, stack_ring.size_bytes // self.wishes.stack_bytes)
        self._period_before = self.period

    def _is_counted(self, identifier: int) -> bool:
        return identifier in self.periods or (self.wishes.whole and identifier not in self._uncounted)

    def _taken(self, cpu: int, kept: Taken, full: int) -> Iterator[tuple[int, bytes]]:
        if kept.data:
            self.samples += kept.samples
            self.lost += kept.lost
            self.births += kept.births
            self._heed(kept, full)
            yield cpu, kept.data

    def _heed(self, kept: Taken, full: int) -> None:
        """Record a burst that fills a ring, which has room for *full* samples."""
        if 2 * kept.samples >= full and kept.nanoseconds:
            rate = min(self.period, self._period_before) * kept.samples * 1e9 / kept.nanoseconds
            self._least = max(self._least, rate * _RING_SECONDS / full)

    # -- opening

    def _open_rings(self) -> None:
        owners: dict[int, tuple[int, int]] = {}
        try:
            for cpu in self._cpus:
                small = self._open_one(_THIS_THREAD, cpu, NOTHING)
                owners[cpu] = small, -1
                owners[cpu] = small, self._open_one(_THIS_THREAD, cpu, NOTHING)
            self._rings, self._stack_rings = _mapped(owners)
        except BaseException:
            for owner in (one for pair in owners.values() for one in pair if one >= 0):
                os.close(owner)
            raise
        if any(ring.size_bytes < _LARGE_PAGES * PAGE_BYTES for ring in self._stack_rings.values()):
            self.wishes = self.wishes._replace(stack_bytes=_SMALL_STACK_BYTES)
        for owner in (one for pair in owners.values() for one in pair):
            self._poll.register(owner, select.POLLIN)

    def _tids(self) -> list[int]:
        tids = [tid for pid in self._pids for tid in thread_ids(pid)] if self._pids else [_THIS_THREAD]
        if not tids:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        return tids

    def _open_events(self) -> _Events:
        tids = self._tids()
        if self._pids:  # otherwise our child processes inherit it
            _allow_files(len(tids) * (len(self._rings) + 1) * 3 * 2)  # while they are reopened twice
        opened: _Events = {}
        try:
            for tid in tids:
                for cpu in self._rings:
                    self._open_on(tid, cpu, opened)
            if not opened:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        except BaseException:
            _close_all(opened)
            raise
        return opened

    def _open_on(self, tid: int, cpu: int, opened: _Events) -> None:
        for config in (MINOR, MAJOR) if self.wishes.whole else (MINOR, MAJOR, ANY):
            try:
                descriptor = opened[tid, cpu, config] = self._open_one(tid, cpu, config)
            except ProcessLookupError:
                return  # the thread has ended: the main one may end while others run on
            if config == ANY:
                event.write_into(descriptor, self._stack_rings[cpu].descriptor)
                self._uncounted.add(event.identifier(descriptor))
                continue
            rings = self._stack_rings if self.wishes.whole else self._rings
            event.write_into(descriptor, rings[cpu].descriptor)
            self.periods[event.identifier(descriptor)] = [(0, self.period)]

    def _open_one(self, tid: int, cpu: int, config: int) -> int:
        """Open one event; drop requests that this kernel doesn't support, or doesn't allow to this user."""
        while True:
            try:
                return event.open_event(event.attributes(self.wishes, config), tid, cpu)
            except OSError as error:
                if error.errno == errno.EACCES and self.wishes.kernel:
                    self.wishes = self.wishes._replace(kernel=False)
                elif error.errno == errno.EINVAL and self.wishes.page_size:
                    self.wishes = self.wishes._replace(page_size=False)
                else:
                    raise

    def _close(self) -> None:
        _close_all(self._events)
        _close_all(self._asking)
        self._events, self._asking = {}, {}
        for ring in (*self._rings.values(), *self._stack_rings.values()):
            ring.close()
            os.close(ring.descriptor)
        self._rings, self._stack_rings = {}, {}

    # -- adapting

    def adapt(self, pids: Sequence[int]) -> None:
        """Lengthen the period if there are many faults, and shorten it if there are few.

        *pids* are the watched processes. The rates are those between the last two calls of count().
        """
        then = self._measured
        if self._counted_at[1] <= then.ended:
            return
        taken_so_far = self.samples + self.lost
        now = _RateMark(*self._counted_at, sum(self.counts.values()), taken_so_far, self.births, self.stacks)
        # Rather too long: if others had the processor meanwhile, the faults of that time are among those counted.
        seconds = now.ended - then.began
        faults, taken = now.faults - then.faults, now.samples - then.samples
        if not self._adapts or (seconds < _ADAPT_SECONDS and taken < _MANY_SAMPLES):
            return
        self._measured = now
        aim = SAMPLES_PER_SECOND / (1 + (self.samples / _SETTLED_SAMPLES) ** 2)
        # A thread that ends before its first sample is never observed.
        longest = max(faults // (_SAMPLES_A_LIFE * (now.births - then.births) + 1), 1)
        wanted = max(min(round(max(faults / seconds / aim, self._least)), longest), 1)
        # Inherited events keep the period of that time: reopened ones have the current period. Just after a change the
        # rings still had samples from before it.
        disobeyed = then.ended > self._changed and taken > 2 * faults / self.period + _MANY_SAMPLES
        if not self.wishes.whole and now.stacks - then.stacks > 2 * _MOST_STACKS * max(
            seconds, _ADAPT_SECONDS
        ):  # of many threads
            rate = self.wishes.stacks_per_second * _MOST_STACKS * seconds / (now.stacks - then.stacks)
            self.wishes = self.wishes._replace(stacks_per_second=max(round(rate), 1))
            disobeyed = True
        if wanted > self.period * 2 or self.period > 2 * longest:
            self._change(pids, wanted, now.ended)
        elif disobeyed:
            self._reopen(pids, self.period, now.ended)
        elif wanted * 4 < self.period and now.ended - self._changed > _CALM_SECONDS:
            self._least = 1.0
            self._change(pids, wanted, now.ended)

    def ask_for_stacks(self, pids: Sequence[int]) -> None:
        """Have the stacks of the next faults of *pids* copied where there are few: one may bring much, as huge pages.

        The kernel spaces the copies by the rate that it saw last, such as that of a program's start. Events of their
        own have none yet; the others stay, for the threads and processes that inherit them. Call it once a turn.
        """
        faults, self._asked_at = self.samples - self._asked_at, self.samples
        if faults and self._asking:
            _close_all(self._asking)
            self._asking = {}
        if faults > _FEW_FAULTS or self.wishes.whole or self._asking:
            return
        wishes = self.wishes._replace(on_exec=False, inherit=False)
        tids = pids if self.wishes.on_exec or not self._pids else sorted({tid for tid, _, _ in self._events})
        for tid, cpu in [(tid, cpu) for tid in tids for cpu in self._rings][:_ASKED_EVENTS]:
            with contextlib.suppress(OSError):  # the thread has ended
                descriptor = self._asking[tid, cpu, ANY] = event.open_event(
                    event.attributes(wishes, ANY), tid, cpu
                )
                event.write_into(descriptor, self._stack_rings[cpu].descriptor)
                self._uncounted.add(event.identifier(descriptor))
                event.enable(descriptor)

    def _change(self, pids: Sequence[int], period: int, now: float) -> None:
        period |= 1  # odd: allocators' patterns repeat every 2, 4, 8 … pages
        # A program started by gdbmem has inherited its events, too. And after a change in place in a burst the kernel
        # throttles an event, which then counts nothing until the next tick.
        is_inherited = self.births > self._opened_after or self.wishes.on_exec
        if is_inherited or len(self._events) <= _REOPENED_EVENTS or self._whole(period) != self.wishes.whole:
            self._reopen(pids, period, now)
            return
        self._changed, self.wishes = now, self.wishes._replace(period=period)
        self.periods[0].append((time.monotonic_ns(), period))
        for (_, _, config), one in self._events.items():
            if config == ANY:
                continue
            since = time.monotonic_ns()
            event.set_period(one, period)
            self.periods[event.identifier(one)].append((since, period))

    def _reopen(self, pids: Sequence[int], period: int, now: float) -> None:
        before, self._changed, self._opened_after = (self._pids, self.wishes), now, self.births
        self.wishes = self.wishes._replace(on_exec=False, period=period, whole=self._whole(period))
        # A child born since the rings were read has only inherited events, which end with those of its parent.
        self._pids = self._with_children(pids)
        for left in reversed(range(_MOST_TRIES)):
            events: _Events = {}
            try:
                events = self._open_events()
                self._pids = self._with_children(pids)
                born = {*self._tids()} - {tid for tid, _, _ in events}
            except OSError:  # too many threads, or none is left
                _close_all(events)
                self._pids, self.wishes = before
                return
            if not (born and left):
                break
            _close_all(events)  # it may have been born before the events of its parent were opened
        earlier, self._events = self._events, events
        self.periods[0].append((time.monotonic_ns(), period))
        # Faults are counted twice for a moment: better than that they are not counted if another program gets the
        # processor in this moment.
        for whose in [whose for whose in events if whose not in earlier]:
            event.enable(events[whose])
        for whose, one in earlier.items():
            if whose in events:
                event.enable(events[whose])
            event.disable(one)
        self._counted = _counts(earlier, self._counted)
        _close_all(earlier)

    @staticmethod
    def _with_children(pids: Sequence[int]) -> tuple[int, ...]:
        return (*pids, *descendants(set(pids), parents()))

    def _whole(self, period: int) -> bool:
        """Return whether every sample is to have a stack at this period."""
        return period >= _WHOLE_PERIOD and all(
            ring.size_bytes >= _WHOLE_RING_BYTES for ring in self._stack_rings.values()
        )


class _RateMark(NamedTuple):
    began: float
    ended: float
    faults: int
    samples: int
    births: int
    stacks: int


def _counts(events: _Events, before: Mapping[int, int]) -> dict[int, int]:
    found = dict(before)
    for (_, cpu, config), one in events.items():
        if config != ANY:
            found[cpu] = found.get(cpu, 0) + event.count(one)
    return found


def _places(registers: int, among: int) -> Sequence[int]:
    """Return the numbers of the *registers*, a mask, among those of another mask."""
    return [
        bin(among & (1 << bit) - 1).count("1")
        for bit in range(registers.bit_length())
        if registers >> bit & 1
    ]


def _stacks_per_second() -> int:
    """Return the rate of samples with a stack: the kernel may have lowered what it allows."""
    try:
        with open("/proc/sys/kernel/perf_event_max_sample_rate", encoding="ascii") as stream:  # noqa: PTH123
            return max(min(int(stream.read()), STACKS_PER_SECOND), 1)
    except (OSError, ValueError):
        return STACKS_PER_SECOND


def _mapped(owners: Mapping[int, tuple[int, int]]) -> tuple[dict[int, Ring], dict[int, Ring]]:
    """Map rings of the largest sizes that are possible for all processors; return both kinds by processor.

    Raises LockedMemoryError if there is no room for the smallest, OSError for other failures.
    """
    refused = OSError()
    for small_pages, stack_pages in _RING_PAGES:
        small: dict[int, Ring] = {}
        stacks: dict[int, Ring] = {}
        try:
            for cpu, (of_small, of_stacks) in owners.items():
                small[cpu] = Ring(of_small, small_pages)
                stacks[cpu] = Ring(of_stacks, stack_pages)
            return small, stacks
        except OSError as error:  # over the limit of locked memory: try the next smaller size
            refused = error
            for ring in (*small.values(), *stacks.values()):
                ring.close()
    if refused.errno == errno.EPERM:
        raise LockedMemoryError(errno.EPERM, os.strerror(errno.EPERM))
    raise refused


def _allow_files(more: int) -> None:
    """Raise our own limit of open files to the maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = more + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _close_all(events: _Events) -> None:
    for one in events.values():
        os.close(one)


# Permissions to sample page faults, and remedies if the kernel refuses.


_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_ANY_UP_TO = 2  # with a higher one (which Debian's and Ubuntu's kernels support) they see none


class LockedMemoryError(PermissionError):
    """The user's limit of locked memory has no room for the sample buffers."""


def paranoia() -> Optional[int]:
    """Return kernel.perf_event_paranoid; None if the kernel has no perf events."""
    try:
        return int(_PARANOID.read_text())
    except (OSError, ValueError):
        return None


def refusal(pids: Sequence[int], error: OSError) -> GdbmemError:
    """Return the error for the kernel's refusal *error* to watch *pids* (none: a program started by gdbmem)."""
    if error.errno in (errno.ESRCH, errno.EACCES, errno.EPERM):
        for pid in pids:
            try:
                check_analysable(pid, may_be_traced=True)
            except TargetError as why:
                return why
    if isinstance(error, LockedMemoryError):
        return TargetError(
            "other recordings of this user use up the memory that the kernel may lock for sampling"
            " (kernel.perf_event_mlock_kb, and ulimit -l)",
            slug="faults-no-buffers",
            hint=f"wait until they have ended, raise ulimit -l, or {AS_ROOT}",
        )
    level = paranoia()
    if error.errno in (errno.ENOSYS, errno.ENOENT, errno.EOPNOTSUPP) or level is None:
        return TargetError(
            "this kernel can't sample page faults (it was built without CONFIG_PERF_EVENTS, or is an emulation"
            " without perf_event_open)",
            slug="faults-unsupported",
            hint="'memwatch growth' in gdb records who asks the kernel for memory",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TargetError(
            "sampling page faults needs two open files for each thread and processor, more than this process"
            " may open",
            slug="faults-files",
            hint="raise the limit in this shell: ulimit -n 1000000 (as root where it may not be raised)",
        )
    if error.errno not in (errno.EACCES, errno.EPERM):
        return TargetError(
            f"the kernel can't sample page faults: {os.strerror(error.errno or 0)}", slug="faults-refused"
        )
    if level > _ANY_UP_TO:
        return TargetError(
            f"ordinary users may not sample page faults on this system (kernel.perf_event_paranoid is {level})",
            slug="faults-forbidden",
            hint=f"allow it until the next reboot: sudo sysctl kernel.perf_event_paranoid={_ANY_UP_TO}; or {AS_ROOT}",
        )
    return TargetError(
        "sampling page faults is forbidden here, by a seccomp filter (containers have one) or a security module",
        slug="faults-forbidden",
        hint="start the container with --cap-add=PERFMON --security-opt seccomp=unconfined, or type it outside the"
        " container with the process's number there",
    )
