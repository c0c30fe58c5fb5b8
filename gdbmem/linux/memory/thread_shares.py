"""Divides a change of the resident set among the threads that ran: each is charged for its own page faults.

A page that a thread makes resident is a page fault of that thread, and the kernel counts these for each thread.
Releasing memory causes no fault, and has to be reported with `Sharing.released`.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from gdbmem.linux.memory.resident import PAGE_BYTES
from gdbmem.linux.process.threads import FaultCount

Read = Callable[[], Optional[int]]


class Part(NamedTuple):
    """A thread's part of the change of the process."""

    own_bytes: int
    others_bytes: int  # the rest: other threads
    is_exact: bool


class _Counters(NamedTuple):
    """The counters of a thread and of its process at one moment."""

    reading: int
    own_faults: int
    faults: int  # of all threads
    own_released: int  # bytes
    released: int


class Sharing:
    """Charges each thread for its changes since its own last event, so that nothing is counted twice.

    *pid* is None if the kernel's fault counts are unavailable, or don't match the quantity of *read*. The change since
    the last event of any thread is then charged to the thread that has the next one; *is_alone* returns whether there
    is only one thread.
    """

    def __init__(self, read: Read, pid: Optional[int], is_alone: Callable[[], bool]) -> None:
        self._read = read
        self._pid = pid
        self._is_alone = is_alone
        self._all = FaultCount(pid or 0)
        self._counts: dict[int, FaultCount] = {}  # by tid
        self._stands: dict[int, _Counters] = {}  # by tid
        self._released: dict[int, int] = {}
        self.sees_releases = False  # `released` is called for everything that the C library releases
        self.reading: Optional[int] = None  # at the last event of any thread

    def released(self, tid: int, size_bytes: int) -> None:
        """Record that thread *tid* is about to release this many bytes."""
        self._released[tid] = self._released.get(tid, 0) + size_bytes

    def part(self, tid: int) -> Optional[Part]:
        """Return the part of stopped thread *tid* since its last event; None at its first.

        None also if the process can't be read.
        """
        if self._pid is None:
            return self._since_anybody()
        alone = self._is_alone()
        # Other threads may run on: pages that they touch between two counts must be charged to them.
        began = None if alone else self._all.read()
        now = self.reading = self._read()
        own, faults = self._count(tid).read(), self._all.read()
        began = faults if alone else began
        if began is None or now is None or own is None or faults is None:
            return None
        released, mine = sum(self._released.values()), self._released.get(tid, 0)
        before, self._stands[tid] = self._stands.get(tid), _Counters(now, own, began, mine, released)
        if before is None:
            return None
        change = now - before.reading
        found = divide(
            change,
            own_faults=own - before.own_faults,
            faults=faults - before.faults,
            own_released=mine - before.own_released,
            released=released - before.released,
            sees_releases=self.sees_releases,
        )
        alone = alone and own - before.own_faults == faults - before.faults
        return Part(change, 0, is_exact=True) if alone else found

    def _count(self, tid: int) -> FaultCount:
        if tid not in self._counts:
            self._counts[tid] = FaultCount(self._pid or 0, tid)
        return self._counts[tid]

    def _since_anybody(self) -> Optional[Part]:
        before, now = self.reading, self._read()
        self.reading = now
        if before is None or now is None:
            return None
        return Part(now - before, 0, is_exact=self._is_alone())


def divide(
    change: int, *, own_faults: int, faults: int, own_released: int, released: int, sees_releases: bool
) -> Part:
    """Divide *change* bytes between a thread and the others, by their page faults and releases."""
    own = own_faults * PAGE_BYTES - own_released
    if own_faults == faults and own_released == released and change >= own:
        # The others did nothing. A huge page is one fault, and so are pages of a file that are mapped together.
        return Part(change, 0, is_exact=True)
    if own_faults == faults and not sees_releases:
        return Part(change, 0, is_exact=False)  # the release was not observed; the others had no faults
    # A fault for a copied or only read page adds no resident page, and a release may follow its report late.
    did_nothing = sees_releases and not own_faults and not own_released
    return Part(own, change - own, is_exact=did_nothing or faults * PAGE_BYTES - released == change)
