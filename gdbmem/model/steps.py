"""The change of memory between two stops of the program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Optional

from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame

LOCKED, FREE, SHARED = "on", "off", "shared"


class Step(NamedTuple):
    """One step with its account; it belongs to the line that it started at. What is unknown is None.

    (A named tuple: a frozen dataclass takes ten times as long to make, and stepping makes thousands.)
    """

    command: str  # next, step, …, or "run" for what gdb's own commands did
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    thread: Optional[int]  # gdb's number
    delta_bytes: Optional[int]  # of what `source` measures, by this thread; None: unknown
    total_bytes: Optional[int]  # since the account began
    source: str  # statm, smaps, pagemap, heap, massif, …
    exact: bool
    heap_delta_bytes: Optional[int] = None  # bytes in use by the allocator
    parts: Optional[Mapping[str, int]] = None  # what changed: heap, mmap, stack, file → bytes
    lock: str = FREE  # LOCKED: no other thread ran; SHARED: those of shared_threads did
    shared_threads: tuple[int, ...] = ()
    others_bytes: Optional[int] = None  # what they changed; None: unknown, and part of delta_bytes
    divided_exactly: bool = True  # False: the two were divided by page faults that don't explain all
    seconds: Annotated[float, Key(digits=6)] = 0.0
    ended: str = ""  # why it ended where it did; "" for the ordinary end of the command
    note: str = ""

    @property
    def is_doubtful(self) -> bool:
        """True if other threads may have done some of it."""
        return self.lock == SHARED and (self.others_bytes is None or not self.divided_exactly)

    @property
    def key(self) -> tuple[Optional[str], Optional[int]]:
        """The line that the step belongs to."""
        return self.file, self.line


@dataclass
class StepSum:
    """The sum of the steps of one line (function, file, thread)."""

    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    thread: Optional[int]
    hits: int = 0
    own_bytes: int = 0  # in steps during which no other thread ran
    shared_bytes: int = 0
    shared_hits: int = 0
    others_bytes: int = 0  # changes by other threads meanwhile; not part of the other sums
    doubtful_hits: int = 0  # steps whose change may include that of other threads
    heap_bytes: Optional[int] = None
    inexact_hits: int = 0  # steps whose delta is known but not exact
    unknown_hits: int = 0  # steps whose delta is unknown

    @property
    def delta_bytes(self) -> int:
        """The sum of the known changes."""
        return self.own_bytes + self.shared_bytes

    @property
    def is_unknown(self) -> bool:
        """True if the changes of all steps are unknown."""
        return self.hits == self.unknown_hits

    @property
    def changed_anything(self) -> bool:
        """True if it changed something, or its change is unknown."""
        return bool(self.delta_bytes or self.heap_bytes or self.others_bytes or self.unknown_hits)


# Changes of memory by line of one function, over some calls.


class LineProfile(NamedTuple):
    """One line of the function; sizes are sums over its hits."""

    line: int
    hits: int
    delta_bytes: int
    total_bytes: Optional[int]  # of the process when the line was last left; None: it was never left
    shared_hits: int  # changes that were divided among threads, and may be off


class FunctionProfile(NamedTuple):
    """The lines of *function*, in the order of the source; lines without code are absent."""

    function: str
    file: Optional[str]
    calls: int  # that are over
    lines: Sequence[LineProfile]
    source: str  # statm, smaps, heap, massif, …
    own_only: bool  # what the calls made by a line did is left out
    abandoned_calls: int = 0  # of the calls, recursive ones included, left by an exception or longjmp
    # Of the abandoned: it wasn't seen when, and what their last lines did is not counted.
    unseen_calls: int = 0
    recursive_calls: int = 0
    has_inlined: bool = False  # other functions are inlined into it: they count for the line that calls them
    outside_bytes: int = 0  # with own_only: what the calls made by the lines did
    is_outside_shared: bool = False
    under_way_from: Optional[int] = None  # the line that a call was on which had begun before
    # By which the process changed meanwhile, other code and threads included.
    process_bytes: Optional[int] = None

    @property
    def delta_bytes(self) -> int:
        """The sum over all lines."""
        return sum(line.delta_bytes for line in self.lines)

    @property
    def shared_hits(self) -> int:
        """The number of the lines' changes that were divided among threads."""
        return sum(line.shared_hits for line in self.lines)


# Requests for memory from the kernel: calls that changed the address space, by path.


class GrowthPath(NamedTuple):
    """The calls of one kind made along one path by one thread."""

    call: str  # brk, mmap, munmap, mremap, madvise, shmat
    thread: int  # gdb's number
    calls: int
    mapped_bytes: int  # by which the address space changed
    resident_bytes: int  # by which its thread changed the resident set until the thread's next request
    frames: Sequence[Frame]  # from the call outward to main
    resident_is_exact: bool = True  # False: divided among threads, or between what was seen and what was not
    unsettled: int = 0  # calls whose effect is unknown: the process had ended

    @property
    def is_unknown(self) -> bool:
        """True if nothing is known of what its calls did."""
        return self.unsettled == self.calls > 0


class KernelRequests(NamedTuple):
    """The recorded requests."""

    paths: Sequence[GrowthPath]  # largest change of the address space first
    events: int
    left_out: int  # smaller than asked for
    seconds: Annotated[float, Key(digits=6)]
    cost_seconds: Annotated[float, Key(digits=6)]  # what gdb spent on it
    # By which the process changed from the first request to the last.
    mapped_bytes: Annotated[int, Key("total_bytes")]
    resident_bytes: int
    unseen_mapped_bytes: Annotated[int, Key("unseen_bytes")] = 0  # by no request that was seen
    unseen_resident_bytes: int = 0  # not after a request of the thread that did it
    unsettled: int = 0  # requests whose effect is unknown: the process had ended

    @property
    def is_exact(self) -> bool:
        """True if no row was divided."""
        return all(path.resident_is_exact for path in self.paths)


# Pages that the program wrote in a step.


class WrittenRange(NamedTuple):
    """Adjacent pages of one mapping that were written."""

    start: int
    end: int
    mapping: str  # the kernel's name, "" for anonymous memory
    # False: shared pages that came into memory, read or written.
    is_certain: Annotated[bool, Key("written", or_null=True)] = True
    where: Annotated[str, Key("in")] = ""  # what they belong to, in words

    @property
    def size_bytes(self) -> Annotated[int, Key("bytes")]:
        return self.end - self.start


class WrittenMemory(NamedTuple):
    """The pages that one run of the program wrote, and what could not be watched; sizes are bytes."""

    command: str  # gdb's, that ran the program
    function: str
    file: Optional[str]
    line: Optional[int]  # where it began
    page_bytes: int
    ranges: Sequence[WrittenRange]
    huge_bytes: int  # in huge pages, which are left out
    unwatched_bytes: int  # of mappings that the kernel could not watch
    threads: int  # that ran
    ended: Annotated[str, Key(or_null=True)] = ""  # why nothing is known; the ranges are empty then

    @property
    def written(self) -> Sequence[WrittenRange]:
        return [one for one in self.ranges if one.is_certain]

    @property
    def written_bytes(self) -> int:
        return sum(one.size_bytes for one in self.written)

    @property
    def came_bytes(self) -> int:
        """Shared pages that came into memory: read or written."""
        return sum(one.size_bytes for one in self.ranges if not one.is_certain)
