"""Python's memory as its own allocator has it: arenas, and objects by type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, Optional, TypedDict

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame


@dataclass(frozen=True)
class TypeUse:
    """Objects of one type, in the blocks that hold them."""

    type: str
    count: int
    bytes: int  # of blocks: an object's own, not what it refers to


@dataclass(frozen=True)
class PythonObjects:
    """The live objects of a process by type, and what else is allocated beside them."""

    program: str
    pid: Optional[int]
    types: Sequence[TypeUse]  # the largest first
    unused: TypeUse  # dead objects that the interpreter keeps to use them again
    # Blocks of Python's allocator that are not objects: tables of dicts, items of lists, buffers.
    others: TypeUse
    uncounted_blocks: int = 0  # in pools that contradict themselves
    large: Annotated[bool, Key("large_counted")] = True  # objects in malloc's blocks are counted, too
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()

    @property
    def count(self) -> int:
        return sum(one.count for one in self.types)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.types)


class BlockClass(NamedTuple):
    """Pools of blocks of one size."""

    block_bytes: int
    pools: int
    live_blocks: int
    capacity_blocks: int


class FillClass(NamedTuple):
    """Arenas of which no more than a share is live."""

    most: float  # 0 to 1
    arenas: int
    bytes: int
    live_bytes: int
    live_blocks: int


@dataclass(frozen=True)
class ArenaUse:
    """The arenas of Python's allocator: what is live in them, what is free, and what keeps them."""

    program: str
    pid: Optional[int]
    arenas: int
    arena_bytes: int  # of one
    pool_bytes: int  # of one
    interpreters: int
    live_blocks: int
    live_bytes: int
    header_bytes: int  # and rests of pools that are too small for a block
    free_in_pools_bytes: int  # in pools with live blocks
    free_pools_bytes: int  # in arenas with live blocks
    resident: Mapping[str, int] = field(default_factory=dict)  # of each of these
    classes: Sequence[BlockClass] = ()
    fill: Sequence[FillClass] = ()  # each without those of the ones before
    keepers: Sequence[TypeUse] = ()  # what is live in the emptiest arenas
    keeper_share: float = 0.0  # arenas no fuller than this are among those
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()

    @property
    def bytes(self) -> int:
        return self.arenas * self.arena_bytes

    def check(self) -> None:
        """Raise ValueError unless the parts add up to the arenas."""
        parts = self.live_bytes + self.header_bytes + self.free_in_pools_bytes + self.free_pools_bytes
        if parts != self.bytes:
            raise ValueError(f"the parts of the arenas are {parts} bytes, the arenas {self.bytes}")


class WorkerCopies(NamedTuple):
    """One forked process."""

    pid: int
    copied_bytes: int  # its pages in place of those that its parent has at the same addresses
    shared_bytes: int  # that it still shares with its parent
    own_bytes: int = 0  # where its parent has none: allocated by itself, or freed by the parent since
    # Of copied_bytes, what it shares with other processes: the parent wrote there.
    with_siblings_bytes: int = 0
    uncertain_bytes: int = 0  # of copied_bytes, what both may have allocated since the fork
    swapped_bytes: int = 0  # not compared, as it is swapped out in one of both
    # Of the garbage collector since the fork: at least, and at most; None: unknown.
    full_collections: Optional[int] = None
    most_full_collections: Optional[int] = None


class CopiedType(NamedTuple):
    """Objects of one type on copied pages."""

    type: str
    copied_bytes: int  # of these objects, in all copies
    pages: int  # copies of pages with such an object


class PythonCopies(NamedTuple):
    """Pages that forked workers have copied of their parent's memory."""

    program: str
    pid: int
    workers: Sequence[WorkerCopies]
    copied_bytes: int  # by all of them
    in_arenas_bytes: int  # of that in Python's arenas
    types: Sequence[CopiedType]  # the largest first
    others_bytes: int  # on copied pages of arenas and no live object: tables, free blocks, headers
    places: Mapping[str, int]  # of copied_bytes: arenas, malloc, data, other
    tracked_bytes: int = 0  # of copied_bytes, pages with objects that the garbage collector tracks
    # Of the parent since one of the forks: at least, and at most; None: unknown.
    full_collections: Optional[int] = None
    most_full_collections: Optional[int] = None
    has_frozen: bool = False  # gc.freeze() was called
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()


class PythonCall(NamedTuple):
    """One Python frame."""

    # Qualified where the version keeps that; "": it could not be read.
    function: Annotated[str, Key(or_null=True)]
    file: Annotated[str, Key(or_null=True)]
    line: Optional[int]  # None: the instruction belongs to none
    # C called it: the native frames have one of the interpreter's loop for it and what it calls.
    is_entry: Annotated[bool, Key("entry")] = True
    entered_at: Optional[int] = None  # since 3.12: an address within that loop's native frame


class PythonThread(NamedTuple):
    """One thread that Python knows."""

    tid: Optional[int]  # the kernel's number; None: unknown
    interpreter: int  # 0: the main one
    frames: Sequence[PythonCall]  # the innermost first
    is_whole: Annotated[bool, Key("whole")] = True  # False: the rest could not be read
    name: Annotated[str, Key(or_null=True)] = ""  # as the kernel has it; "": unknown
    # Its number, where the thread waits in one; None: it runs, or this is unknown.
    system_call: Optional[int] = None


class PythonStacks(NamedTuple):
    """The Python frames of a process's threads at one moment."""

    program: str
    pid: Optional[int]
    threads: Sequence[PythonThread]
    native_threads: Optional[int] = None  # that Python doesn't know
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()


class MixedStack(NamedTuple):
    """The frames of one thread, the innermost first: native ones, and Python's, which have no object."""

    tid: int
    frames: Sequence[Frame]
    python_frames: int
    is_whole: Annotated[bool, Key("whole")] = True


class TracingChange(NamedTuple):
    """The state of tracemalloc in a process after a change, reported by the process itself."""

    pid: int
    was_tracing: bool
    is_tracing: bool
    frames: int  # of each traceback
    traced_bytes: int  # before the change
    overhead_bytes: int  # tracemalloc's own memory before the change
    way: str  # "remote-exec" or "pending-call"
    waited_seconds: float
    pause_seconds: float


@dataclass(frozen=True)
class HolderStep:
    """One object on a path, or several that are alike."""

    type: str
    label: str  # how the step before refers to it: ".name", "['key']", "[3]"; "": unknown, or differs
    count: int  # so many objects on paths like this
    name: str = ""  # of a module or class
    repeats: bool = False  # some are reached through others of the same type


@dataclass(frozen=True)
class HolderPath:
    """Objects that are reached by like paths of references."""

    root: str  # ROOT_…
    root_name: str
    steps: Sequence[HolderStep]  # from the root to the objects themselves, which come last
    count: int
    bytes: int
    # In blocks that are not Python objects and to which these objects alone lead: items, buffers, C's own.
    beyond_bytes: int


ROOT_MODULE, ROOT_FRAME, ROOT_VARIABLES, ROOT_STACK, ROOT_MEMORY = (
    "module", "frame", "variables", "stack", "memory",
)  # fmt: skip


class Referrer(NamedTuple):
    """Objects of one type that refer to the objects in question themselves."""

    type: str  # "": memory that is not an object's: variables, stacks, of libraries
    holders: int
    references: int


@dataclass(frozen=True)
class PythonHolders:
    """The holders of all objects of a type."""

    program: str
    pid: Optional[int]
    types: Sequence[str]
    count: int
    bytes: int
    paths: Sequence[HolderPath]  # the shortest to each object; the ones with most bytes first
    referrers: Sequence[Referrer]
    other_paths: TypeUse  # objects whose paths are not listed
    unreached: TypeUse  # that no path was found to
    unreferred: TypeUse  # of these, the ones whose address is nowhere in the searched memory
    is_cut: bool = False  # the time was over before all paths were followed
    unsearched_bytes: int = 0  # memory beyond the limit, or that could not be read
    sampled_bytes: int = 0  # buffers that samples of show no reference in
    shared_bytes: int = 0  # in blocks that are not objects, to which others lead as well
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()


# Memory by line, as the recorder's files have it.


class RecordedLine(TypedDict):
    """A line of a function: how often it ran, the memory after it and the sum of its changes, in bytes."""

    line: int
    count: int
    memory_bytes: Optional[int]
    change_bytes: Optional[int]
    text: str


class RecordedFunction(TypedDict):
    """A recorded function. Sizes are bytes."""

    file: str
    function: str
    first_line: int
    calls: int
    change_bytes: int
    start_bytes: Optional[int]
    lines: list[RecordedLine]


class RecordedProcess(TypedDict):
    """The file that the recorder wrote at the end of a process."""

    pid: int
    parent: int
    backend: str  # the source of the numbers
    threads: int
    functions: list[RecordedFunction]
