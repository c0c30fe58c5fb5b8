"""A motionless copy of a live process, made by ptrace: the process is stopped only while the copy is made.

A stopped thread is made to call clone, with no signal at the copy's end. The copy never runs an instruction, is
killed after use, and is collected by the process itself (an injected wait4), so that it sees neither SIGCHLD nor a
zombie. Seccomp filters that could end the process for these calls are suspended while they are made; if they can't
be, no call is made. Other obstacles: copy_obstacles.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.holding.injected_calls import calling, maps_of_thread
from gdbmem.linux.holding.ptrace import Freeze, machine, ptrace
from gdbmem.linux.holding.returning_thread import CallSites
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.process.process import thread_ids

_SETOPTIONS = 0x4200
_EXIT_KILL = 0x100000
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
        self._thread, self._sites = tid, sites

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
            calling(freeze, maps_of_thread(tid), self._sites, refused) as caller,
        ):
            result = caller.system_call(caller.calls.wait4, self._inner, 0, _WALL | _NO_HANG, 0)
        return result == self._inner


def make_copy(
    freeze: Freeze,
    mappings: Sequence[Mapping],
    sites: Optional[CallSites],
    announce: Callable[[Copy], None],
) -> Copy:
    """Return a copy of the process that *freeze* holds; raises TargetError if none can be made.

    *announce* is called while the process would still collect it by itself if we were killed.
    """
    if machine() is None:
        raise TargetError(
            f"no copy of a process can be made on this architecture ({os.uname().machine})",
            slug="copy-unsupported",
            hint="leave out --fork",
        )
    with calling(freeze, mappings, sites, refused) as caller:
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
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        ptrace(_SETOPTIONS, pid, 0, _EXIT_KILL)
    return copy


def refused(pid: int, why: str) -> TargetError:
    """Return the error for a process that can't be copied."""
    return TargetError(
        f"no copy of process {pid} can be made: {why}", slug="copy-refused", hint="leave out --fork"
    )
