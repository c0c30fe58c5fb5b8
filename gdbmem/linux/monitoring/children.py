"""Forked and ended processes: the pages that they have copied, what they had used, the kernel's events about them."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.memory.maps import PAGE
from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone
from gdbmem.linux.process.process import Counts, Stat
from gdbmem.model.series import ProcessSample

# Copy-on-write by process: pages that a forked process shared with its parent, and has copied since.
#
# A copy does not change the resident set, makes a shared page private and dirty, and is one minor fault. So between
# two reads of smaps_rollup copies are estimated from faults; the faults of an ended process are added to its
# parent's. A process that lived between two reads is assumed to copy as much per fault as its siblings that were
# read.


_ENOUGH_FAULTS = 32  # faults between two reads needed to estimate the copied bytes per fault
_LEAST_BYTES = 64 << 10  # that a process must have copied to be counted
_MOST_UNREAD = 1000  # of one parent
_STAYS_SECONDS = 0.1  # time after which a forked process is assumed not to execute another program


class _Copier:
    """One forked process; sizes are bytes."""

    def __init__(self, parent: int, born: float, image: Sequence[bytes], anonymous: Optional[int]) -> None:
        self.parent = parent
        self.born = born
        self.image = image  # of the program that it shares with its parent
        # Resident at its birth; None until the first read, if the birth was not observed.
        self.anonymous = anonymous
        self.dirty = 0  # private already then
        self.copied = 0
        self.faults = 0  # faults at that read, and at the last sample
        self.last_faults = 0
        self.each = 0.0  # bytes copied per fault, between the last two reads
        self.is_read = False
        self.stays = False  # it was checked not to have executed another program
        self.left = False  # it has; its faults are no longer copies, but are included in its parent's count

    @property
    def is_new(self) -> bool:
        """True if it may yet execute another program."""
        return not (self.is_read or self.stays or self.left)

    def at(self, faults: int) -> float:
        """Return the bytes copied at a count of *faults*, at the rate before the last read."""
        copied = self.copied + max(faults - self.faults, 0) * self.each
        return copied if self.anonymous is None else min(copied, self.anonymous)


class _Parent:
    """The faults of a process's collected children, and its children whose final faults are still unknown.

    *unread* are ended children, with their final faults, which can't be estimated until a sibling is read.
    """

    def __init__(self, t: float, faults: int) -> None:
        self.t = t  # of the last sample
        self.before = faults  # at the previous sample, and at the last
        self.now = faults
        self.base = 0  # when all of the *dead* were alive
        self.dead: list[_Copier] = []
        self.copied = 0.0  # by all of its children that were read, with their faults
        self.faults = 0
        self.unread: deque[tuple[_Copier, int]] = deque(maxlen=_MOST_UNREAD)

    @property
    def each(self) -> Optional[float]:
        """The bytes that a fault of its children copies; None if unknown."""
        return self.copied / self.faults if self.faults >= _ENOUGH_FAULTS else None


class CopiedPages:
    """Sums the memory copied by the forked processes of a tree, including ended ones."""

    def __init__(self) -> None:
        self._alive: dict[int, _Copier] = {}
        self._parents: dict[int, _Parent] = {}
        self._dead_bytes = 0.0
        self._dead_copiers = 0
        self._most_bytes = 0

    @property
    def next_look(self) -> Optional[float]:
        """The time of the next check of the newest processes, of which those that call exec() have not copied."""
        new = [copier.born for copier in self._alive.values() if copier.is_new]
        return min(new) + _STAYS_SECONDS if new else None

    def born(self, pid: int, files: ProcessFiles, parent: ProcessFiles, t: float, *, now: bool) -> None:
        """Start counting for *pid*, which *parent* has forked, just *now*, at *t*, or at some time before."""
        try:
            image = files.image()
            if image == parent.image():
                # Either may have taken memory since the fork: that is not inherited.
                anonymous = min(one.rss_bytes - one.shared_bytes for one in (files.statm(), parent.statm()))
                self._alive[pid] = _Copier(parent.pid, t, image, anonymous if now else None)
        except ProcessGone:
            return

    def read(self, pid: int, files: ProcessFiles, reading: ProcessSample) -> None:
        """Add a *reading* of *pid* with its private pages; raises ProcessGone."""
        copier = self._alive.get(pid)
        if copier is None or copier.left or reading.private_dirty_bytes is None:
            return
        if files.image() != copier.image:  # it has executed another program: nothing is shared any more
            copier.left = True
            return
        anonymous, faults = (reading.rss_bytes or 0) - (reading.shared_bytes or 0), reading.minor_faults or 0
        if copier.anonymous is None:
            copier.anonymous, copier.dirty = anonymous, reading.private_dirty_bytes
            copier.faults = faults
        own = max(anonymous - copier.anonymous, 0)
        copied = max(copier.copied, reading.private_dirty_bytes - copier.dirty - own)
        if faults - copier.faults >= _ENOUGH_FAULTS:
            copier.each = min((copied - copier.copied) / (faults - copier.faults), PAGE)
        self._count(copier, copied, faults)
        copier.copied, copier.faults, copier.last_faults = copied, faults, faults
        copier.is_read = True

    def _count(self, copier: _Copier, copied: float, faults: int) -> None:
        """Update the rate of its siblings: *copier* has now *copied* bytes with *faults*."""
        parent = self._parents.get(copier.parent)
        if parent is not None:
            parent.copied += copied - copier.copied
            parent.faults += faults - copier.faults

    def saw(self, files: ProcessFiles, stat: Stat, t: float) -> None:
        """Add the fault counters of a process at a sample at *t*; they include its ended children.

        Raises ProcessGone.
        """
        pid = files.pid
        copier = self._alive.get(pid)
        if copier is not None:
            copier.last_faults = stat.own.minor_faults
            if copier.is_new and t >= copier.born + _STAYS_SECONDS:
                copier.stays = files.image() == copier.image
                copier.left = not copier.stays
        waited = stat.waited.minor_faults
        parent = self._parents.get(pid)
        if parent is None:
            self._parents[pid] = _Parent(t, waited)
            return
        if t > parent.t:
            parent.t, parent.before = t, parent.now
        parent.now = waited

    def died(self, pid: int) -> None:
        """Keep the bytes that *pid* had copied; its parent may still report its final faults."""
        own = self._parents.get(pid)
        if own is not None:
            for orphan in own.dead:
                self._bury(orphan, orphan.last_faults)
            self._bury_unread(own)
            del self._parents[pid]
        copier = self._alive.pop(pid, None)
        if copier is None:
            return
        parent = self._parents.get(copier.parent)
        if parent is None:
            self._bury(copier, copier.last_faults)
            return
        if not parent.dead:
            parent.base = parent.before
        parent.dead.append(copier)

    def _settle(self, parent: _Parent) -> None:
        known = sum(copier.last_faults for copier in parent.dead)
        if not parent.dead or parent.now - parent.base < known:
            return  # not all of them have been waited for
        unseen = (parent.now - parent.base - known) // len(parent.dead)  # the kernel reports only the sum
        for copier in parent.dead:
            self._bury(copier, copier.last_faults + unseen)
        parent.dead.clear()
        if parent.each is not None:
            self._bury_unread(parent)

    def _bury_unread(self, parent: _Parent) -> None:
        while parent.unread:
            self._add(self._size(*parent.unread.popleft()))

    def _bury(self, copier: _Copier, faults: int) -> None:
        parent = self._parents.get(copier.parent)
        if copier.is_read and not copier.left:
            self._count(copier, copier.at(faults), max(faults, copier.faults))
        elif copier.stays and parent is not None and parent.each is None:
            parent.unread.append((copier, faults))
            return
        self._add(self._size(copier, faults))

    def _add(self, copied: float) -> None:
        self._dead_bytes += copied
        self._dead_copiers += copied >= _LEAST_BYTES

    def _size(self, copier: _Copier, faults: int) -> float:
        """Return the bytes *copier* had copied at *faults*, at the rate of its siblings if it was never read."""
        if copier.left:
            return copier.copied
        parent = self._parents.get(copier.parent)
        if copier.is_read or not copier.stays or parent is None or parent.each is None:
            return copier.at(faults)
        return min(faults * parent.each, copier.anonymous or 0)

    def total(self) -> tuple[int, int]:
        """Return the bytes copied so far, at the end of a sample, and the number of processes that have copied."""
        for parent in self._parents.values():
            self._settle(parent)
        pending = [*self._alive.values(), *(c for parent in self._parents.values() for c in parent.dead)]
        sizes = [self._size(copier, copier.last_faults) for copier in pending]
        copiers = sum(size >= _LEAST_BYTES for size in sizes)
        # Reading a sibling may lower the estimate for the others.
        self._most_bytes = max(self._most_bytes, round(self._dead_bytes + sum(sizes)))
        return self._most_bytes, self._dead_copiers + copiers


# The resources that a tree of processes has used, including ended ones: page faults, CPU time, threads.
#
# The kernel adds the usage of a process to its parent when the parent has waited for it. So a child that lived
# between two samples is counted, unless its parent ended before it, or ignores the ends of its children.


_NOTHING = Counts(0, 0, 0.0)


class ExitedUsage:
    """Sums the usage of the processes of a tree."""

    def __init__(self, *, counts_children: bool = True) -> None:
        """Start at zero; with *counts_children* include the kernel's counts of collected children."""
        self._counts_children = counts_children
        self._dead = _NOTHING
        self._seen: dict[int, Counts] = {}  # pid → the part of its ended children's usage that is in _dead
        self._most = _NOTHING
        self.dead_threads = 0  # started by ended processes

    def bury(self, pid: int, stat: Stat, *, threads_started: int, parent_is_followed: bool) -> None:
        """Keep the usage of *pid* according to its last *stat*."""
        self._dead = _sum(self._dead, self._of(pid, stat))
        self.dead_threads += threads_started
        self._seen.pop(pid, None)
        if parent_is_followed:
            self._seen[stat.parent] = _sum(self._seen.get(stat.parent, _NOTHING), stat.own, stat.waited)

    def total(self, alive: Iterable[tuple[int, Stat]]) -> Counts:
        """Return the counts of ended processes and of those *alive*; they never fall."""
        now = _sum(self._dead, *(self._of(pid, stat) for pid, stat in alive))
        # A part of the usage of a process that has not been collected yet is missing for a while.
        self._most = _each(max, self._most, now)
        return self._most

    def _of(self, pid: int, stat: Stat) -> Counts:
        if not self._counts_children:
            return stat.own
        unseen = _each(lambda used, seen: max(used - seen, 0), stat.waited, self._seen.get(pid, _NOTHING))
        return _sum(stat.own, unseen)


def _sum(*counts: Counts) -> Counts:
    return Counts(*(sum(column) for column in zip(*counts)))


def _each(of_two: Callable[[float, float], float], left: Counts, right: Counts) -> Counts:
    return Counts(*map(of_two, left, right))  # type: ignore[arg-type]  # of two ints an int


# For how long the processes of a tree were stopped: memory that stays the same meanwhile proves nothing.


_STOPPED = "Tt"  # states in /proc/PID/stat: by a signal, by a debugger
_FROZEN = "D"  # as in a frozen cgroup; also of a process that waits for a disk, which runs from time to time


class StoppedTime:
    """Adds up the time during which all processes were stopped, as far as complete samples show it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: Optional[float] = None
        self._done: object = None

    def add(self, t: float, states: Sequence[str], done: object) -> None:
        """Take the *states* of all processes at time *t*, and what they have *done* until then: CPU time, faults.

        Stopped twice in a row, or frozen without having done anything, they were so in between.
        """
        moved, self._done = done != self._done, done
        if not states or any(state not in _STOPPED + _FROZEN for state in states):
            self._since = None
            return
        if self._since is not None and not (moved and _FROZEN in states):
            self.seconds += t - self._since
        self._since = t


# The kernel's process events (netlink, cn_proc): every fork and thread start, also of short-lived ones, or every exit.
#
# Root may always listen, other users since Linux 6.6. Source: include/uapi/linux/{netlink,connector,cn_proc}.h.


_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = 1
_NLMSG_DONE = 3
_LISTEN = 1
_FORK, _EXIT = 1, 0x80000000
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_CN_MSG = struct.Struct("=IIIIHH")
_EVENT_AT = _HEADER.size + _CN_MSG.size
# proc_event: what, cpu, timestamp_ns; then of a fork: parent pid, parent tgid, child pid, child tgid; of an exit: pid,
# tgid, status as of wait(), the signal that the parent gets.
_EVENT = struct.Struct("=IIQIIII")


class Started(NamedTuple):
    """A task that was started: a thread if *pid* isn't *group*."""

    parent_group: int
    pid: int
    group: int  # the process it belongs to


class ProcessEvents:
    """Listens to forks and thread starts on the whole machine."""

    _kind = _FORK

    def __init__(self) -> None:
        """Start listening; raises OSError if that isn't allowed."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR
        )
        self.lost = False  # the kernel dropped events since the last drain()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        self.waiting: Callable[[], object] = partial(poll.poll, 0)  # true if there is something to drain
        try:
            self._socket.setblocking(False)
            for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
                try:
                    self._socket.setsockopt(socket.SOL_SOCKET, option, 32 << 20)
                    break
                except PermissionError:
                    continue
            self._only_one_kind()
            self._socket.bind((0, _CN_IDX_PROC))
            self._ask(_LISTEN)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor to poll: readable when there is something to drain."""
        return self._socket.fileno()

    def drain(self) -> Iterable[Started]:
        """Return the tasks started since the last call; sets *lost* if the kernel dropped some."""
        self.lost = False
        # Polling first costs a tenth of an exception, and mostly there is nothing.
        return (Started(*event[1:]) for event in self._receive()) if self.waiting() else ()

    def _receive(self) -> Iterator[tuple[int, int, int, int]]:
        receive, unpack = self._socket.recv, _EVENT.unpack_from
        while True:
            try:
                data = receive(4096)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost = True
                continue
            if len(data) >= _EVENT_AT + _EVENT.size:
                what, _, _, *event = unpack(data, _EVENT_AT)
                if what == self._kind:
                    yield tuple(event)

    def _ask(self, operation: int) -> None:
        message = _CN_MSG.pack(_CN_IDX_PROC, 1, 0, 0, 4, 0) + struct.pack("=I", operation)
        header = _HEADER.pack(_HEADER.size + len(message), _NLMSG_DONE, 0, 0, os.getpid())
        self._socket.send(header + message)

    def _only_one_kind(self) -> None:
        # A classic BPF program of four instructions: other events never wake this process up.
        kind = socket.htonl(self._kind)
        program = b"".join(
            struct.pack("=HBBI", *instruction)
            for instruction in (
                (0x20, 0, 0, _EVENT_AT),  # A = word at _EVENT_AT (big-endian load)
                (0x15, 0, 1, kind),  # if A == kind, go on, else skip one
                (0x06, 0, 0, 0xFFFFFFFF),  # keep
                (0x06, 0, 0, 0),  # drop
            )
        )
        buffer = array("B", program)  # its address without ctypes, which is slow to import
        pointer = struct.pack("@HP", len(program) // 8, buffer.buffer_info()[0])
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)


class ExitEvents(ProcessEvents):
    """Listens to exits on the whole machine, for how processes end that are not our children."""

    _kind = _EXIT

    def take(self) -> dict[int, int]:
        """Return the processes that have ended since the last call, by pid, with their status as in a shell."""
        # That of the last thread: of a whole process that exits all threads have the same.
        codes = {group: code for _, group, code, _ in self._receive()}
        return {pid: 128 + (code & 0x7F) if code & 0x7F else code >> 8 for pid, code in codes.items()}


def listen() -> Optional[ProcessEvents]:
    """Return a listener; None if this user may not listen, or the kernel doesn't support it.

    In a PID namespace listening succeeds without receiving any event: so a thread is started as a test.
    """
    import threading  # not always needed

    try:
        events = ProcessEvents()
    except OSError:
        return None
    ours = threading.Thread(target=lambda: None)
    ours.start()
    ours.join()
    if any(started.group == os.getpid() for started in events.drain()):
        return events
    events.close()
    return None
