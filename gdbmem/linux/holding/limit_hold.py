"""Keeping the kernel from killing at a control group's limit for some seconds; a guard undoes it in any case.

In version 1 the group's OOM killer is switched off (memory.oom_control): who needs memory then waits in the kernel, for
as long as it is off, also if the process that switched it off has been killed. In version 2 memory.high, a little below
the limit, slows down those who allocate.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.files import close_all_but
from gdbmem.linux.monitoring.cgroup import cgroup_of, cgroup_usage
from gdbmem.text import printable

MOST_SECONDS = 9.5  # that a process is held at the limit
_EVERY_SECONDS = 0.1  # the guard looks
_MARGIN = 16  # of the limit, to memory.high


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
            self._high -= self._high // _MARGIN
            self._value = "1" if is_first else str(self._high)
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
        if self._high:
            return (cgroup_usage(self._folder) or 0) >= self._high
        try:
            return "under_oom 1" in self._file.read_text()
        except OSError:
            return False

    def note_limit(self) -> None:
        """Take note that the limit was reached now."""
        self.since = time.monotonic()

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
        while not select.select([wire], [], [], _EVERY_SECONDS)[0]:
            if not self.is_at_limit():
                until = None
            elif until is None:
                until = time.monotonic() + MOST_SECONDS
            elif time.monotonic() >= until:
                break
        self._restore()

    def _restore(self) -> None:
        with contextlib.suppress(OSError):  # the group may be gone
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
