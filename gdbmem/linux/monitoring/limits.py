"""The limits over a process's memory: what they leave it, the kernel's events on the way, threads that wait at one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.files import close_all_but
from gdbmem.linux.memory.maps import PAGE
from gdbmem.linux.monitoring.cgroup import cgroup_of, machine_sizes, read_cgroup
from gdbmem.linux.process.process import thread_ids
from gdbmem.text import printable

_OUT = "memory.oom_control"  # its event: the kernel is about to kill
_OUT_COUNT = re.compile(rb"^oom (\d+)$", re.M)  # in memory.events
_ROOT_PARTS = 3  # of /sys/fs/cgroup, which in a container has a limit
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC  # also eventfd's


class Room(NamedTuple):
    """The memory that one limit leaves."""

    whose: str  # "its control group", "this machine"
    folder: Optional[Path]  # of the control group
    limit_bytes: int
    left_bytes: int  # with the pages of files that the kernel can drop immediately
    kills: Optional[int] = None  # processes that the kernel has killed there for lack of memory

    @property
    def used(self) -> float:
        """The share of the limit that is used, 0 to 1."""
        return 1 - self.left_bytes / self.limit_bytes if self.limit_bytes else 1.0


def rooms_of(pid: int) -> list[Room]:
    """Return the limits on the memory of *pid*: those of its control groups, the deepest first, then the machine's."""
    found = []
    folder = cgroup_of(pid)
    while folder is not None and len(folder.parts) > _ROOT_PARTS:
        memory = read_cgroup(folder)
        if memory.limit_bytes is not None and memory.usage_bytes is not None:
            left = memory.limit_bytes - memory.usage_bytes + (memory.cache_bytes or 0)
            kills = memory.events.get("oom_kill")
            found.append(Room("its control group", folder, memory.limit_bytes, left, kills))
        folder = folder.parent
    sizes = machine_sizes()
    if "MemAvailable" in sizes:
        found.append(Room("this machine", None, sizes["MemTotal"], sizes["MemAvailable"]))
    return found


class LimitEvents:
    """Descriptors that become ready when the usage of control groups passes a level, or when one is out of memory.

    In version 1 these are eventfds, which change nothing in the group and end with this process; in version 2
    memory.events, which changes at the limit only.
    """

    def __init__(self, rooms: Iterable[Room], levels: Sequence[float], poll: select.poll) -> None:
        """Register them with *poll*, as far as the kernel lets us."""
        self._poll = poll
        self._counters: dict[int, bool] = {}  # eventfds, and whether they tell that the memory is out
        self._files: dict[int, int] = {}  # memory.events, and how often the memory was out
        self._sources: list[int] = []  # the files that the eventfds are of
        for room in rooms:
            if room.folder is None:
                continue
            if (room.folder / "cgroup.event_control").exists():
                for level in levels:
                    self._count(room.folder, "memory.usage_in_bytes", str(int(level * room.limit_bytes)))
                self._count(room.folder, _OUT, "")
            else:
                self._await(room.folder / "memory.events")

    def _count(self, folder: Path, name: str, argument: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)  # os.eventfd is of Python 3.10
        counter = libc.eventfd(0, _NONBLOCK | _CLOEXEC)
        if counter < 0:
            return
        self._counters[counter] = name == _OUT
        with contextlib.suppress(OSError):
            source = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
            self._sources.append(source)
            (folder / "cgroup.event_control").write_text(f"{counter} {source} {argument}".strip())
            self._poll.register(counter, select.POLLIN)

    def _await(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._files[file] = _times_out(os.pread(file, 4096, 0))
            self._poll.register(file, select.POLLPRI)

    def take(self) -> bool:
        """Take note of what has happened; return whether a group was out of memory since the last call."""
        was_out = False
        for counter, tells_out in self._counters.items():
            with contextlib.suppress(OSError):
                os.read(counter, 8)  # fails if nothing has happened
                was_out = was_out or tells_out
        for file, before in self._files.items():
            with contextlib.suppress(OSError):
                self._files[file] = _times_out(os.pread(file, 4096, 0))
                was_out = was_out or self._files[file] > before
        return was_out

    def close(self) -> None:
        """Close the descriptors, which ends the kernel's events."""
        for descriptor in (*self._counters, *self._files):
            with contextlib.suppress(KeyError):
                self._poll.unregister(descriptor)
        for descriptor in (*self._counters, *self._files, *self._sources):
            os.close(descriptor)
        self._counters, self._files, self._sources = {}, {}, []


def _times_out(events: bytes) -> int:
    found = _OUT_COUNT.search(events)
    return int(found[1]) if found else 0


# Threads that wait in the kernel for memory of their control group, whose OOM killer is switched off.


_WAITS_IN = "mem_cgroup_oom_synchronize"  # Linux, mm/memcontrol.c, later memcontrol-v1.c


def waits_for_memory(pid: int) -> Mapping[int, tuple[int, int]]:
    """Return the stack pointer and the program counter of each thread of *pid* that waits so, by its id."""
    if not _is_held(pid):
        return {}
    found = {tid: _registers_of_waiting(pid, tid) for tid in thread_ids(pid)}
    return {tid: where for tid, where in found.items() if where is not None}


def _is_held(pid: int) -> bool:
    """Return whether the OOM killer of a control group of *pid* is off while the group is out of memory."""
    folder = cgroup_of(pid)
    while folder is not None and len(folder.parts) >= _ROOT_PARTS:
        try:
            words = (folder / "memory.oom_control").read_text().split()
        except OSError:
            return False  # version 2 can't hold a process so
        if words[:4] == ["oom_kill_disable", "1", "under_oom", "1"]:
            return True
        folder = folder.parent
    return False


def _registers_of_waiting(pid: int, tid: int) -> Optional[tuple[int, int]]:
    """Return the stack pointer and the program counter of thread *tid* if it waits for memory; else None."""
    try:
        task = Path(f"/proc/{pid}/task/{tid}")
        if (task / "wchan").read_text() != _WAITS_IN:
            return None
        words = (task / "syscall").read_text().split()
    except OSError:
        return None
    return (int(words[-2], 16), int(words[-1], 16)) if len(words) > 2 else (0, 0)


# Keeping the kernel from killing at a control group's limit for some seconds; a guard undoes it in any case.
#
# In version 1 the group's OOM killer is switched off (memory.oom_control): who needs memory then waits in the
# kernel, for as long as it is off, also if the process that switched it off has been killed. In version 2
# memory.high, a little below the limit, slows down those who allocate; then the group is frozen (cgroup.freeze), as
# what is slowed down still gets to the limit, sooner the smaller that is.


MOST_SECONDS = 9.5  # that a process is held at the limit
_EVERY_SECONDS = 0.1  # the guard looks
# Of the limit, to memory.high: the kernel delays for some seconds what would fill a tenth of 64 MiB.
_MARGIN = 10


class LimitHold:
    """The hold on one control group, until release(), until a process was held for long, or until we are killed."""

    def __init__(self, folder: Path) -> None:
        """Take it; raises TargetError if it can't be taken, or if this process would hold itself."""
        self.since: Optional[float] = None  # when the limit was reached
        self._ended: Optional[float] = None
        check_outside(folder)
        is_first = (folder / "memory.oom_control").exists()
        self._folder = folder
        self._file = folder / ("memory.oom_control" if is_first else "memory.high")
        try:
            text = self._file.read_text()
            self._before = text.split()[1] if is_first else text.strip()
            self._high = 0 if is_first else int((folder / "memory.max").read_text())
            self._high = (self._high - self._high // _MARGIN) // PAGE * PAGE  # as the kernel will show it
            self._value = "1" if is_first else str(self._high)
            self._is_frozen = False
            if is_first and self._before != "0":
                raise _refused(folder, "its OOM killer is switched off already")
            self._guard, self._wire = self._start_guard()
            try:
                self._file.write_text(self._value)
            except OSError:
                self.release()
                raise
        except (OSError, ValueError, IndexError) as error:
            raise _refused(folder, str(getattr(error, "strerror", "") or error)) from error

    def is_at_limit(self) -> bool:
        """Return whether a process waits for memory, or is slowed down."""
        if self._ended is not None:
            return False
        if self._is_frozen:
            return True
        if self._high:
            memory = read_cgroup(self._folder)
            # Pages of files that the kernel drops instead are no lack of memory.
            return (memory.usage_bytes or 0) - (memory.cache_bytes or 0) >= self._high
        try:
            return "under_oom 1" in self._file.read_text()
        except OSError:
            return False

    def note_limit(self) -> None:
        """Take note that the limit was reached now; in version 2 keep the processes from going on."""
        self.since = time.monotonic()
        freezer = self._folder / "cgroup.freeze"
        with contextlib.suppress(OSError):  # before Linux 5.2, or the group is gone
            if self._high and freezer.read_text() == "0\n":
                os.write(self._wire, b"f")  # before it is so: the guard may be alone from any moment on
                freezer.write_text("1")
                self._is_frozen = True

    @property
    def seconds(self) -> float:
        """How long the limit has been held."""
        return 0.0 if self.since is None else (self._ended or time.monotonic()) - self.since

    def release(self) -> None:
        """Put back what was there before; harmless when called again."""
        if self._ended is not None:
            return
        self._ended = time.monotonic()
        os.close(self._wire)  # the guard puts it back
        _, status = os.waitpid(self._guard, 0)
        if status:
            self._restore()

    def _start_guard(self) -> tuple[int, int]:
        """Start the guard; return its pid, and the descriptor that it watches."""
        ours, wire = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid:
            os.close(ours)
            return pid, wire
        status = 1
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            close_all_but(ours)
            self._keep_watch(ours)
            status = 0
        finally:
            os._exit(status)

    def _keep_watch(self, wire: int) -> None:
        until: Optional[float] = None
        while True:
            if select.select([wire], [], [], _EVERY_SECONDS)[0]:
                if not os.read(wire, 1):
                    break
                self._is_frozen = True
            if not self.is_at_limit():
                until = None
            elif until is None:
                until = time.monotonic() + MOST_SECONDS
            elif time.monotonic() >= until:
                break
        self._restore()

    def _restore(self) -> None:
        with contextlib.suppress(OSError):  # the group may be gone
            if self._is_frozen:
                (self._folder / "cgroup.freeze").write_text("0")
        with contextlib.suppress(OSError):
            now = self._file.read_text().split()
            if self._value in (now[:1] if self._high else now[1:2]):  # nobody else has changed it
                self._file.write_text(self._before)


def check_outside(folder: Path) -> None:
    """Raise TargetError if this process is in the control group *folder*, or below it."""
    own = cgroup_of(os.getpid())
    if own is not None and (own == folder or folder in own.parents):
        raise _refused(folder, "gdbmem itself is in that control group, and would be held, too")


def _refused(folder: Path, why: str) -> TargetError:
    return TargetError(
        f"the kernel's kill in {printable(str(folder))} can't be held back: {why}",
        slug="no-hold",
        hint="leave out --hold, or watch from outside of the control group, as root",
    )
