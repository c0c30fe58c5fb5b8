"""Page faults of a recording, summed by call path, and what of them the resident set shows."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame


class FaultStack(NamedTuple):
    """The faults of one thread along one call path; sizes are bytes, estimated from samples."""

    path: int  # number of a path
    pid: int
    tid: int
    seen_bytes: float  # made resident
    grown_bytes: float  # of that, resident at the end and not at the beginning
    samples: int
    seen_variance: float  # bytes²
    grown_variance: float
    # bytes², beyond these: another path that begins at the same instruction may have touched some of it
    seen_path_variance: float = 0.0
    grown_path_variance: float = 0.0


class Unseen(NamedTuple):
    """A part of the change that no sampled fault explains."""

    kind: str  # one of the words below
    bytes: int  # negative: less is resident than the faults explain


KERNEL_MODE, FILES, INHERITED, LOST = "kernel-mode", "files", "inherited", "lost"
LATER, MOVED, POPULATED, JOINED, PEAK, REST = "later", "moved", "populated", "joined", "peak", "rest"
UNWATCHED = "unwatched"
# Parts that a program has without making memory of its own.
NEEDING_NO_FAULT = (FILES, INHERITED, LATER)


class FaultAccount(NamedTuple):
    """The resident set of one process beside its faults; sizes are bytes."""

    pid: int
    name: str
    before_bytes: int  # resident when the recording began, or when the process was born
    after_bytes: Optional[int]  # None: never read
    seen_bytes: float
    grown_bytes: float
    unseen: Sequence[Unseen] = ()
    ended_seconds_after: Optional[float] = None  # how long after that reading it ended; None: it lives
    hugetlb_bytes: int = 0  # change of its pages of hugetlbfs: in no resident set, but the faults have them
    zero_bytes: int = 0  # of fresh memory that was only read, which takes no memory; not in seen_bytes
    shared_bytes: int = (
        0  # of grown_bytes: in files, shared memory and hugetlbfs, which others may have mapped too
    )

    @property
    def delta_bytes(self) -> Optional[int]:
        """Return by how much the resident set grew."""
        return None if self.after_bytes is None else self.after_bytes - self.before_bytes

    @property
    def hidden_bytes(self) -> int:
        """Return how much of the growth no recorded fault explains.

        Pages of files, which one fault maps by the dozen, and a parent's pages don't count.
        """
        return sum(max(part.bytes, 0) for part in self.unseen if part.kind not in NEEDING_NO_FAULT)


class HeldNow(NamedTuple):
    """A part of what one line made resident, by the entry of the ledger that it is in at the end."""

    category: str  # as model.ledger has it; "": it has left since
    label: str
    bytes: float
    # Of Python's small objects: bytes by size of block.
    pools: Mapping[str, float] = {}


class SiteHoldings(NamedTuple):
    """The contents, at the end, of the memory that one line made resident; sizes are bytes."""

    site: Frame
    bytes: float
    samples: int
    parts: Sequence[HeldNow]


class FaultTotals(NamedTuple):
    """The counts of a recording."""

    seconds: float
    faults: int
    samples: int
    lost_samples: int
    shortest_period: int  # faults a sample
    longest_period: int
    sees_kernel_mode: bool
    broken_paths: int  # samples whose call path ends before the thread's first function
    accounts: Sequence[FaultAccount] = ()
    assumed_paths: int = 0  # samples whose own stack was not copied: they have the call path of another one


class NamedStack(NamedTuple):
    """The faults of one thread along one call path, as a `FaultStack` has them, with frames in place of a path."""

    frames: Sequence[int]  # numbers of frames of the recording, the one of the fault first
    pid: int
    tid: int
    seen_bytes: float
    grown_bytes: float
    samples: int
    seen_variance: float
    grown_variance: float
    # Recordings that were saved by earlier versions have no error of paths.
    seen_path_variance: float = 0.0
    grown_path_variance: float = 0.0


class NamedFaults(NamedTuple):
    """A recording of page faults, with names in place of addresses."""

    command: str
    totals: FaultTotals
    threads: Mapping[str, str]  # names by tid
    frames: Annotated[Sequence[Frame], Key(rows=True)]
    stacks: Sequence[NamedStack]
    notices: Sequence[Notice] = ()
    recording: str = ""  # snapshots of one recording share their samples; "": there is one only

    @property
    def seconds(self) -> float:
        return self.totals.seconds

    @property
    def is_sampled(self) -> bool:
        """True if not every fault has a sample."""
        return self.totals.longest_period > 1 or self.totals.lost_samples > 0
