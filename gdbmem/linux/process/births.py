"""Processes born of a program, by the kernel's own records: a short one, too, and whatever it executed."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.faults import event
from gdbmem.linux.faults.event import Born, Executed, LostRecords, Mapped, Record, Ring, SampleLayout
from gdbmem.linux.process.process import thread_ids, words_of

_RING_PAGES = 32  # 130 processes that execute a program, between two calls of take()
# A child that has not executed another program by then, on a busy machine, works itself.
_EXEC_NANOSECONDS = 5_000_000_000
# Python's process that removes what was shared at the end runs none of the program's code.
_TRACKER = "from multiprocessing.resource_tracker import"
_NO_SAMPLES = SampleLayout(0, has_page_size=False)


class Children(NamedTuple):
    """Numbers of processes that were born of a program."""

    forked: int  # that ran its code without executing another program
    own: int  # that executed the program's own file


class _Process:
    def __init__(self, born: int, *, has_code: bool) -> None:
        self.born = born  # CLOCK_MONOTONIC, ns
        self.has_code = has_code  # begins with the program's own code
        self.executed: Optional[int] = None  # when
        self.runs_own = False
        self.is_tracker = False

    @property
    def stays(self) -> bool:
        """Whether it does more in the code that it begins with than execute another program."""
        return self.executed is None or self.executed - self.born > _EXEC_NANOSECONDS


class Births:
    """Records the processes born of a running one, and of these. Close it."""

    def __init__(self, pid: int, program: Path) -> None:
        """Begin with process *pid*, which runs *program*. Raises OSError if the kernel refuses."""
        self._pid = pid
        self._path, self._inode = os.fspath(program), program.stat().st_ino
        self._processes: list[tuple[int, _Process]] = []
        self._latest: dict[int, _Process] = {}  # by pid
        self._is_whole = True
        self._descriptors: list[int] = []
        self._rings: list[Ring] = []
        try:
            first, *others = thread_ids(pid)
            for cpu in event.online_processors():
                ring = self._open(first, cpu)
                self._rings.append(Ring(ring, _RING_PAGES))
                for tid in others:
                    event.write_into(self._open(tid, cpu), ring)
        except ValueError:
            raise ProcessLookupError(f"process {pid} has ended") from None
        except BaseException:
            self.close()
            raise

    def _open(self, tid: int, cpu: int) -> int:
        self._descriptors.append(event.open_event(event.of_births(), tid, cpu))
        return self._descriptors[-1]

    def close(self) -> None:
        """Stop recording; what was taken stays."""
        for ring in self._rings:
            ring.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._rings, self._descriptors = [], []

    def take(self) -> None:
        """Read the records since the last call. Raises TargetError for invalid ones."""
        found = [one for ring in self._rings for one in event.small_records(ring.take(), _NO_SAMPLES)]
        for record in sorted(found, key=_when):
            self._note(record)
        for pid, one in self._processes:
            if one.runs_own and not one.is_tracker:
                one.is_tracker = any(_TRACKER in word for word in words_of(pid))

    def _note(self, record: Record) -> None:
        if isinstance(record, LostRecords):
            self._is_whole = False
        elif isinstance(record, Born) and record.pid != record.parent:
            parent = self._latest.get(record.parent)
            has_code = parent.has_code and parent.executed is None if parent is not None else True
            child = self._latest[record.pid] = _Process(record.time, has_code=has_code)
            self._processes.append((record.pid, child))
        elif isinstance(record, Executed) and record.pid in self._latest:
            child = self._latest[record.pid]
            child.executed = child.executed or record.time
        elif isinstance(record, Mapped) and record.pid in self._latest:
            child = self._latest[record.pid]
            if child.executed is not None and (record.inode == self._inode or record.name == self._path):
                child.runs_own = True

    def children(self, vforked: Container[int]) -> Optional[Children]:
        """Return how many processes there were so far; None if some may be missing.

        *vforked* are processes that shared the program's memory until they executed another program, or ended.
        """
        if not self._is_whole:
            return None
        own = sum(one.runs_own and not one.is_tracker for _, one in self._processes)
        return Children(
            sum(
                one.has_code and one.stays and not one.runs_own and pid not in vforked
                for pid, one in self._processes
            ),
            own,
        )


def _when(record: Record) -> int:
    return record.time if isinstance(record.time, int) else record.time[0]
