"""The memory of several processes that share pages, as one ledger: frozen data."""

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import Notice

UNREAD = "unread"  # the category of processes without a ledger
CHANGED = "changed"  # of what changed between the reading of sizes and that of the heaps


class WorkersEntry(NamedTuple):
    """A line of the common ledger."""

    category: str  # of the processes' ledgers, or UNREAD, CHANGED
    label: str
    size_bytes: int  # each page divided among the processes that map it
    resident_bytes: int  # the sum over the processes: a shared page counts in each
    processes: int  # that have such an entry


class WorkerProcess(NamedTuple):
    """One of the processes; sizes are bytes, by the kernel."""

    pid: int
    name: str
    rss_bytes: int
    pss_bytes: int
    private_bytes: int  # that only it maps: its end would return as much
    pause_seconds: Optional[float]  # None: it has no ledger
    problem: str = ""  # why it has none


class WorkersLedger(NamedTuple):
    """The memory of the processes; the sizes of the entries add up to `pss_bytes`."""

    pss_bytes: int
    rss_bytes: int  # the sum: shared pages count several times
    entries: Sequence[WorkersEntry]  # the largest first
    workers: Sequence[WorkerProcess]  # the largest first
    notices: Sequence[Notice] = ()
