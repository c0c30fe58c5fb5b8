"""Finding a process of a command by what it is, and killing it at a given moment."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.murder.scenes import DOORKEEPER, GDB_ITSELF, HELPER, LAUNCHER, PROGRAM, WORKER
from tests.processes import marked_processes
from tests.zoo.vitals import status_of

_TO_BE_BORN = 20.0  # seconds


@dataclass(frozen=True)
class Family:
    """Whom a command consists of: all that have its mark."""

    mark: str
    leader: int  # of the terminal's session; the command is its child
    program: int  # that it looks at; 0 where it starts one

    def members(self) -> dict[int, str]:
        """Return pid → its role, without the leader and the inspected process."""
        return {
            pid: self._kind(pid, words)
            for pid, words in marked_processes(self.mark).items()
            if pid not in (self.leader, self.program)
        }

    def victims(self, kind: str) -> list[int]:
        """Return the living processes that are *kind*."""
        if kind == PROGRAM and self.program:
            return [self.program]
        return sorted(pid for pid, found in self.members().items() if found == kind)

    def _kind(self, pid: int, words: str) -> str:
        try:
            program, status = os.readlink(f"/proc/{pid}/exe"), status_of(Path(f"/proc/{pid}"))  # noqa: PTH115
        except OSError:
            return "gone"
        if int(status["PPid"]) == self.leader:
            return LAUNCHER
        if "/valgrind/" in program or "/zoo/build/" in program:
            return "copy" if int(status["PPid"]) == self.program else PROGRAM
        if program.rpartition("/")[2].startswith("gdb"):
            return GDB_ITSELF
        if _answers_opens(pid):
            return DOORKEEPER
        if "gdbmem.api.gdb_worker" in words:
            return WORKER
        return HELPER if "python" in program or "gdbmem-sentinel" in words else "other"


def _answers_opens(pid: int) -> bool:
    """Return whether *pid* has what a seccomp filter asks."""
    with contextlib.suppress(OSError):
        found = (os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir())  # noqa: PTH115
        return "anon_inode:seccomp notify" in found
    return False


@dataclass
class Killer(threading.Thread):
    """Kills one *kind* of a family *delay* seconds after it was born."""

    family: Family
    kind: str
    delay: float
    killed: int = 0
    wait_for_quit: bool = False
    quits: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        for _ in self._until_born():
            pass
        while self.wait_for_quit and not self.quits.wait(0.01):
            if self.stopping.is_set():
                return
        if self.stopping.wait(self.delay):
            return
        found = self.family.victims(self.kind)
        which = int(self.delay * 1000) % max(len(found), 1)  # of those that are alike
        for pid in found[which : which + 1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed = pid

    def end(self) -> None:
        """Stop killing."""
        self.stopping.set()
        self.join()

    def _until_born(self) -> Iterator[None]:
        deadline = time.monotonic() + _TO_BE_BORN
        while not self.family.victims(self.kind) and time.monotonic() < deadline:
            if self.stopping.wait(0.01):
                return
            yield
