"""A motionless copy of a live process, made by ptrace: the process is stopped only while the copy is made.

A stopped thread is made to call clone, with no signal at the copy's end. The copy runs no instruction by itself
(running_copy.py makes it call functions), is killed after use, and is collected by the process itself (an injected
wait4), so that it sees neither SIGCHLD nor a zombie. Seccomp filters that could end the process for these calls are
suspended while they are made; if they can't be, no call is made. Other obstacles: copy_obstacle().
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import re
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Callable, NoReturn, Optional

from gdbmem.errors import GdbmemError, TargetError
from gdbmem.files import close_all_but
from gdbmem.linux.holding.injected_calls import calling, maps_of_thread
from gdbmem.linux.holding.ptrace import Freeze, machine, ptrace
from gdbmem.linux.holding.returning_thread import CallSites
from gdbmem.linux.memory.maps import Mapping, mappings_of, resident_ranges
from gdbmem.linux.monitoring.limits import rooms_of
from gdbmem.linux.process.process import ProcessFacts, memory_folder, thread_ids
from gdbmem.text import format_duration, printable

_SETOPTIONS = 0x4200
_EXIT_KILL = 0x100000
_POPULATE_WRITE = 23
_WALL, _NO_HANG = 0x40000000, 1
_NEGATIVE = 1 << 63
_WORD = (1 << 64) - 1
_PATIENCE_SECONDS, _PAUSE_SECONDS = 30.0, 0.01  # stopping one thread on a busy machine may fail after 5 s
_TRIES = 8  # number of threads that are tried for a call


class Copy:
    """A stopped copy of the process that *freeze* holds; kill() ends it."""

    def __init__(self, freeze: Freeze, pid: int, inner: int, tid: int, sites: Optional[CallSites]) -> None:
        self.parent = freeze.pid
        self.pid = pid
        self._inner = inner  # its pid in the process's own namespace
        self._thread, self.sites = tid, sites

    def limit(self) -> None:
        """Make it the first that the kernel kills for want of memory, and leave no core."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text("1000")
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(self.pid, resource.RLIMIT_CORE, _NO_CORE)

    def kill(self) -> None:
        """End the copy, and have the process collect it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            # Until we have seen its end, and not only a stop before it, its parent can't collect it.
            while os.WIFSTOPPED(os.waitpid(self.pid, _WALL)[1]):
                pass
        self.collect()

    def collect(self) -> None:
        """Make the process collect the copy, which ends."""
        if not Path(f"/proc/{self.pid}").exists():
            return
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._is_collected() and thread_ids(self.parent) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)  # another gdbmem holds it

    def _is_collected(self) -> bool:
        # One thread is enough: any thread of the parent may wait for the parent's child.
        living = thread_ids(self.parent)
        for tid in sorted(living, key=lambda tid: tid != self._thread)[:_TRIES]:
            with contextlib.suppress(TargetError, OSError):
                if self._collected_by(tid):
                    return True
        return not Path(f"/proc/{self.pid}").exists()

    def _collected_by(self, tid: int) -> bool:
        with (
            Freeze(self.parent, only=tid) as freeze,
            calling(freeze, maps_of_thread(tid), self.sites, refused) as caller,
        ):
            result = caller.system_call(caller.calls.wait4, self._inner, 0, _WALL | _NO_HANG, 0)
        return result == self._inner


# A copy that a seccomp filter kills leaves no core; at 0 the program that core_pattern names would still be started.
_NO_CORE = (1, 1)


def make_copy(
    freeze: Freeze,
    mappings: Sequence[Mapping],
    sites: Optional[CallSites],
    announce: Callable[[Copy], None],
    avoided: Collection[int] = (),
) -> Copy:
    """Return a copy of the process that *freeze* holds; raises TargetError if none can be made.

    *announce* is called while the process would still collect it by itself if we were killed. The copy's only thread is
    one of *avoided* only if no other can make it.
    """
    if machine() is None:
        raise TargetError(
            f"no copy of a process can be made on this architecture ({os.uname().machine})",
            slug="copy-unsupported",
            hint="leave out --fork",
        )
    with calling(freeze, mappings, sites, refused, avoided) as caller:
        inner, pid = caller.copy()
        copy = Copy(freeze, pid, inner, caller.tid, sites)
        if pid:
            announce(copy)
    if not pid:
        why = os.strerror(_WORD + 1 - inner) if inner >= _NEGATIVE else "it was not made"
        raise refused(freeze.pid, f"the kernel reported: {why}")
    # We trace the copy already: it stops by itself before its first instruction.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, _WALL)
    with contextlib.suppress(OSError):
        ptrace(_SETOPTIONS, pid, 0, _EXIT_KILL)
    return copy


def refused(pid: int, why: str) -> TargetError:
    """Return the error for a process that can't be copied."""
    return TargetError(
        f"no copy of process {pid} can be made: {why}", slug="copy-refused", hint="leave out --fork"
    )


# Reasons against copying a process, known before it is stopped: a copy would harm it or fail.


_WATCHED = {"um", "uw", "ui"}  # smaps' flags of memory whose faults are handled by a userfaultfd
_REMOTE, _RINGS = ("/dev/infiniband/", "/dev/vfio/"), ("/[aio]", "[io_uring]")  # who reads so has one mapped
# File systems whose direct I/O pins pages; others, over a network, take mere references to them.
_PINNING = frozenset(
    (
        "bcachefs",
        "btrfs",
        "devtmpfs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "ntfs3",
        "tmpfs",
        "vfat",
        "xfs",
    )
)
_PINNED_SINCE = (6, 5)  # Linux: no file and no symbol tells
_FREE_HUGE_PAGES = Path("/sys/kernel/mm/hugepages")


def copy_obstacle(facts: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """Return why no copy of the process should be made; None if no reason is known."""
    reasons = (_other_namespace, _watched_memory, _device_writes, _reserved_pages, _too_little_memory)
    return next((why for reason in reasons for why in [reason(facts, mappings)] if why), None)


def _other_namespace(facts: ProcessFacts, _: Sequence[Mapping]) -> Optional[str]:
    """The first child would be the init of a new namespace, in which no process can start after it has ended."""
    folder = Path(f"{memory_folder(facts.pid)}/ns")
    try:
        own = (folder / "pid").readlink()
        names = {entry.name for entry in folder.iterdir()}
        if "pid_for_children" not in names or (folder / "pid_for_children").readlink() == own:
            return None
    except FileNotFoundError:
        pass  # that namespace has had no process yet
    except OSError:
        return None
    return "its children belong to another PID namespace, which the end of the copy could end"


def _watched_memory(_: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """True if clone waits for a thread to read an event (UFFD_FEATURE_EVENT_FORK); that may be one that we hold."""
    if any(_WATCHED.intersection(m.flags.split()) for m in mappings):
        return "a userfaultfd watches its memory, and could block the copy forever"
    return None


def _device_writes(facts: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """Data that a device is writing goes to the copy if the process writes to the page first, unless it is pinned.

    A clone copies pinned pages at once, for the child. So few requests as are under way take no time; what is
    registered with RDMA and VFIO may be all memory.
    """
    if any(mark in m.name for m in mappings for mark in _REMOTE):
        return "it may do RDMA or own a device (VFIO), whose data the copy could get"
    if not any(mark in m.name for m in mappings for mark in _RINGS):
        return None
    if not _pins_pages():
        return "it may do direct I/O (aio, io_uring), whose data the copy could get"
    return _unpinned_file(facts.pid)


def _pins_pages() -> bool:
    """Return whether the kernel pins the pages of direct I/O."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _PINNED_SINCE


def _unpinned_file(pid: int) -> Optional[str]:
    """Return the reason if a file is open for direct I/O, or registered with a ring, whose pages may not be pinned."""
    folder = Path(memory_folder(pid))
    try:
        mounts = [line.split() for line in (folder / "mountinfo").read_text().splitlines()]
        kinds = {words[0]: words[words.index("-") + 1] for words in mounts}
        for entry in (folder / "fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                text = entry.read_text()
                fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
                if int(fields.get("UserFiles", "0")):
                    return "it may do direct I/O to files registered with io_uring, whose data the copy could get"
                is_direct = int(fields.get("flags", "0"), 8) & os.O_DIRECT
                # Without stat(), which could wait for a server; a pipe may have that flag, too.
                if not is_direct or str((folder / "fd" / entry.name).readlink())[0] != "/":
                    continue
                kind = kinds.get(fields.get("mnt_id", ""), "an unknown file system")
                if kind not in _PINNING:
                    return (
                        f"it may do direct I/O to a file on {printable(kind)}, whose data the copy could get"
                    )
    except (OSError, ValueError) as error:
        return f"it may do direct I/O, and which files it has open can't be read ({error})"
    return None


def _reserved_pages(_: ProcessFacts, mappings: Sequence[Mapping]) -> Optional[str]:
    """Writing to a copied hugetlbfs page takes a second one; without a reserve the process could not have it."""
    unreserved = (m for m in mappings if {"ht", "nr"} <= set(m.flags.split()) and m.permissions[3] == "p")
    need = sum(m.hugetlb_bytes for m in unreserved)
    if need > _free_huge_bytes():
        return "it has huge pages without a reserve, and would need as many again"
    return None


def _free_huge_bytes() -> int:
    total = 0
    for folder in _FREE_HUGE_PAGES.glob("hugepages-*kB"):
        try:
            total += int((folder / "free_hugepages").read_text()) * int(folder.name[10:-2]) << 10
        except (OSError, ValueError):
            continue
    return total


def _too_little_memory(facts: ProcessFacts, _: Sequence[Mapping]) -> Optional[str]:
    """While the copy lives, each page that the process writes is duplicated, and pages come back from swap."""
    for room in rooms_of(facts.pid):
        written = min(facts.anonymous_bytes, room.limit_bytes // 10)
        if room.left_bytes < written + facts.swap_bytes + facts.pinned_bytes:
            return f"{room.whose} has too little memory left for the pages it writes meanwhile"
    return None


# A helper process for work that must not be interrupted, which survives if gdbmem is killed meanwhile.
#
# A tracer must not die while a thread of the traced process makes a call for it.


_LENGTH = struct.Struct("=Q")


class KeeperEndedError(Exception):
    """It was ended before it answered."""


def _received(connection: socket.socket, head: bytes) -> object:
    """Return the object whose length is *head*, from *connection* between two processes of this very program."""
    if len(head) < _LENGTH.size:
        raise KeeperEndedError
    data = bytearray()
    size = _LENGTH.unpack(head)[0]
    while len(data) < size and (piece := connection.recv(min(size - len(data), 1 << 20))):
        data += piece
    try:
        return pickle.loads(data)
    except (EOFError, pickle.UnpicklingError) as error:
        raise KeeperEndedError from error


class Awaiting:
    """The keeper's connection to the process that started it."""

    def __init__(self, theirs: socket.socket) -> None:
        self._socket = theirs

    def answer(self, answer: object, *descriptors: int) -> None:
        """Send *answer*, unless the other side has ended."""
        with contextlib.suppress(OSError):
            data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
            socket.send_fds(self._socket, [_LENGTH.pack(len(data))], list(descriptors))
            self._socket.sendall(data)

    def fail(self, error: Exception) -> None:
        """Send *error*, which is raised on the other side."""
        if isinstance(error, GdbmemError):
            self.answer(error.parts)
        else:
            self.answer(error)

    def request(self) -> object:
        """Wait for what the other side asks for; return it, or None when that has closed, or was killed."""
        try:
            return _received(self._socket, self._socket.recv(_LENGTH.size, socket.MSG_WAITALL))
        except (OSError, KeeperEndedError):
            return None

    def has_gone(self, seconds: float) -> bool:
        """Wait for *seconds*; return at once whether the other side has closed, or was killed."""
        return bool(select.select([self._socket], [], [], seconds)[0])


class Keeper:
    """The process; close() ends it and waits for it."""

    def __init__(self, work: Callable[[Awaiting], None], *kept: int) -> None:
        """Call *work* in a new process, which keeps only the descriptors *kept*."""
        self._socket, theirs = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            _work(work, theirs, kept)
        theirs.close()

    def receive(self) -> tuple[object, list[int]]:
        """Return the answer, and descriptors. Raises the error that was the answer, and KeeperEndedError."""
        try:
            head, found, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
            answer = _received(self._socket, head)
        except ConnectionError as error:  # it was killed before it had read what it was sent
            raise KeeperEndedError from error
        if isinstance(answer, dict):
            raise TargetError(**answer)
        if isinstance(answer, Exception):
            raise answer
        return answer, found

    def send(self, request: object) -> None:
        """Ask for something more. Raises KeeperEndedError."""
        data = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise KeeperEndedError from error

    def close(self) -> bool:
        """Make it finish, and wait for its end; return whether it ended by itself."""
        self._socket.close()
        try:
            return os.WIFEXITED(os.waitpid(self._child, 0)[1])
        except ChildProcessError:
            return False


@contextlib.contextmanager
def spared_for_want_of_memory() -> Iterator[None]:
    """Exempt this process from the OOM killer during the block, if we have the right.

    The block must not read data whose size another process chooses.
    """
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    with contextlib.suppress(OSError):
        score.write_text("-1000")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            score.write_text(before)


def _work(work: Callable[[Awaiting], None], theirs: socket.socket, kept: tuple[int, ...]) -> NoReturn:
    try:
        _leave(theirs.fileno(), *kept)
        work(Awaiting(theirs))
    finally:
        os._exit(0)


def _leave(*kept: int) -> None:
    """Detach from the terminal, the open files and the process group, so that signals to the group don't reach it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    close_all_but(*kept)
    while os.open(os.devnull, os.O_RDWR) < 2:
        pass


def unshare_pages() -> None:
    """Copy the pages that this process still shares with the one it was forked from.

    Otherwise each is copied when it is first written to, some while another process stands still and waits.
    Source: madvise(2), MADV_POPULATE_WRITE (Linux 5.14); before, nothing happens.
    """
    libc, pid = ctypes.CDLL(None), os.getpid()
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    areas = [(one.start, one.end) for one in mappings_of(pid) if one.permissions in ("rw-p", "rwxp")]
    for start, end in resident_ranges(pid, areas)[0].items:
        libc.madvise(start, end - start, _POPULATE_WRITE)


# How long a process is stopped while a copy of it is made, or while it is read itself.


SILENT_SECONDS = 0.05  # a process is never stopped longer without an announcement
_GIB, _MIB = 1 << 30, 1 << 20
_TABLE_BYTES = 4096

# Measured on Linux 6.18 in a virtual machine; upper ends of the measurements.
_COPY, _HOLD = 0.002, 0.01  # independent of size
_COPY_OF_GIB = 0.05
_COPY_OF_TABLE = 0.00002  # per page of page tables
_OF_MAPPING = 0.000003
_OF_THREAD = 0.0001
_BUSY = 2  # slowdown to expect, at least, on a machine with other load
_COPY_OF_PINNED = _TAKE_OF_MIB = 0.0005  # per MiB
_READ_OF_MIB = 0.0025
_READ_OF_MAPPING = 0.00005


def expected_copy(facts: ProcessFacts, mappings: Sequence[Mapping], threads: int) -> float:
    """Return the expected seconds of the stop while a copy is made."""
    return (
        _COPY
        + facts.anonymous_bytes / _GIB * _COPY_OF_GIB
        + facts.pinned_bytes / _MIB * _COPY_OF_PINNED
        + facts.page_table_bytes / _TABLE_BYTES * _COPY_OF_TABLE
        + len(mappings) * _OF_MAPPING
        + threads * _OF_THREAD
    )


def expected_hold(
    facts: ProcessFacts, mappings: Sequence[Mapping], threads: int, *, taken: bool = False
) -> float:
    """Return the expected seconds of the stop while the process itself is read, or its memory only *taken*."""
    return (
        _HOLD
        + facts.anonymous_bytes / _MIB * (_TAKE_OF_MIB if taken else _READ_OF_MIB)
        + len(mappings) * _READ_OF_MAPPING
        + threads * _OF_THREAD
    )


def is_long(expected_seconds: float) -> bool:
    """Return whether a stop has to be announced because it may be noticeable."""
    return expected_seconds * max(_BUSY, _waiting()) > SILENT_SECONDS


def wait_text(expected_seconds: float) -> str:
    """Return the announced duration of a stop; on a busy machine also the least that the current load makes of it.

    How long a stopped process waits there has no upper end: 2.6 s were seen where the load made 1.0 s of 0.14 s.
    """
    least, most = expected_seconds, expected_seconds * _waiting()
    text = f"about {format_duration(least)}"
    return f"{text} (on this busy machine {format_duration(most)} or longer)" if most > 1.5 * least else text


def _waiting() -> float:
    """Return the number of running or waiting threads per processor."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
