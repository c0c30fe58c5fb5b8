"""Who holds the blocks of a heap, what each holder retains, and which blocks nothing reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame
from gdbmem.model.diff import LEAKED

# Kinds of holders: a variable of a program or library, thread-local memory, memory that is not malloc's, the stack of a
# thread with its registers; blocks of one kind; several holders at once; all blocks of a class or size.
DATA, THREAD_LOCAL, MEMORY, STACK = "data", "thread_local", "memory", "stack"
# And all places of one object file, and of one thread.
BLOCK, SEVERAL, TYPE, OBJECT, THREAD = "block", "several", "type", "object", "thread"
# What a row is.
BY_ROOT, BY_TYPE, BY_SIZE, BY_OBJECT, BY_THREAD = "root", "type", "size", "object", "thread"


class HeapQuery(NamedTuple):
    """Which rows are wanted."""

    by: str = BY_ROOT  # or BY_TYPE, BY_SIZE, BY_OBJECT, BY_THREAD
    top: int = 20  # the largest
    min_bytes: int = 0  # that retain at least so much
    depth: int = 3  # levels of blocks below each
    without: Sequence[str] = ()  # holders that don't count, as they are shown, or addresses of blocks
    only_leaks: bool = False  # no holders, which takes less than half of the time
    block: Optional[int] = None  # an address: of the block there, what holds it and what it holds
    type: str = ""  # only what is held of this class, as it is shown, or of blocks of this size

    expression: str = ""  # in place of `block`: of a variable that leads to it
    sizes: bool = False  # also how many live blocks of each size there are

    @property
    def is_of_kinds(self) -> bool:
        """Whether rows are kinds of blocks, not holders."""
        return self.by in (BY_TYPE, BY_SIZE)

    @property
    def asks_for_leaks_only(self) -> bool:
        return self.only_leaks and self.block is None and not self.expression


class Part(NamedTuple):
    """Blocks of one size and class among those that a holder retains."""

    blocks: int
    bytes: Annotated[int, Key("size_bytes")]
    block_bytes: int  # usable bytes of each
    class_name: Annotated[str, Key(or_null=True)] = ""  # mangled, if each begins with its vtable
    structure: Annotated[str, Key(or_null=True)] = ""  # "tree" or "list", if most are nodes of one


class GivenBack(NamedTuple):
    """The memory that would come back if some blocks were freed; bytes.

    The kernel gets resident pages after malloc_trim(). Blocks that tcaches take keep some of these.
    """

    malloc_bytes: int  # with malloc's headers
    unmapped_bytes: int  # to the kernel at once: of blocks that have mappings of their own
    least_bytes: int  # to the kernel, those at once among them
    most_bytes: int


class Holder(NamedTuple):
    """A holder; sizes are bytes, in glibc with malloc's headers, as mallinfo2 counts them."""

    name: str  # mangled, if it is a variable
    kind: str
    address: Optional[int]
    object: Annotated[str, Key(or_null=True)]  # the file of a variable
    retained_bytes: int  # what would be freed with it
    retained_blocks: int
    own_bytes: int  # of the block itself; 0 for a place outside of the heap
    parts: Sequence[Part] = ()  # the largest of what it retains
    holders: Sequence[str] = ()  # of blocks held by several: some of these
    below: Sequence[Holder] = ()  # blocks that it alone holds, by kind, the largest groups
    given_back: Optional[GivenBack] = None  # if all that it retains were freed; None: not asked for
    frame: Optional[int] = (
        None  # number of the frame of a function, 0 is the innermost; of a stack that was unwound
    )
    type: Annotated[str, Key(or_null=True)] = ""  # of a variable, by debug information, in words
    elements: Optional[int] = (
        None  # of a container, by its own count; None: unknown, or not all are in its blocks
    )
    element_nodes: bool = False  # each element is in a block of its own


class HiddenPointers(NamedTuple):
    """Pointers that no reader of words sees."""

    type: str  # that has them, in words
    keeps: str  # what it keeps instead of addresses
    holder: Annotated[str, Key(or_null=True)]  # a variable of that type; "": objects of a class


class LostStructures(NamedTuple):
    """Lost blocks whose first ones are alike: of each structure all but the first is reached from the first."""

    structures: int
    blocks: int
    bytes: Annotated[int, Key("size_bytes")]
    block_bytes: int  # usable bytes of the first block
    class_name: Annotated[str, Key(or_null=True)]  # mangled, of the first block
    address: int  # of one of these


# Doubts on which blocks there are.
UNREAD = DAMAGED, CUT = ("the heap is damaged", "part of the heap was not read")


@dataclass(frozen=True)
class Leaks:
    """The blocks that nothing reaches: an interval, because words that are no pointers may look like some."""

    least_bytes: int  # to which no word leads
    least_blocks: int
    # And those which only the ends of texts over older pointers lead to; None: not all blocks could be read.
    most_bytes: Optional[int]
    most_blocks: Optional[int]
    structures: Sequence[LostStructures]
    doubt: Annotated[str, Key(or_null=True)] = ""  # why the lower bounds are 0
    given_back: Optional[GivenBack] = None  # if those of the lower bound were freed
    of_read_bytes: Optional[int] = (
        None  # where there is no upper bound: that of the blocks that could be read
    )
    of_read_blocks: Optional[int] = None

    @property
    def are_of_a_part(self) -> bool:
        """Whether the heap has blocks that could not be read, of which any may be lost."""
        return self.most_bytes is None

    def of_a_part(self) -> Leaks:
        """Return the same for a heap that could be read in part, so that the upper bounds are of that part."""
        part = self.most_bytes, self.most_blocks
        return replace(self, most_bytes=None, most_blocks=None, of_read_bytes=part[0], of_read_blocks=part[1])


class Pools(NamedTuple):
    """Blocks that a program keeps many objects in, each of which is one block of the graph."""

    blocks: int
    bytes: Annotated[int, Key("size_bytes")]


class OneType(NamedTuple):
    """All live blocks of a class or size, held or lost."""

    name: str  # as it was asked for
    blocks: int
    bytes: Annotated[int, Key("size_bytes")]


class SizeCount(NamedTuple):
    """All live blocks of one size."""

    block_bytes: int  # usable bytes of each
    blocks: int
    bytes: Annotated[int, Key("size_bytes")]  # of all, as the sizes of a view


class Word(NamedTuple):
    """A word that leads to a block."""

    holder: Holder  # a place outside, or the block that it stands in
    offset: Optional[int]  # of the word in that block; None: far from its beginning, or it stands outside


@dataclass(frozen=True)
class BlockHolders:
    """A block, what holds it and what it holds."""

    asked: int  # an address in it
    block: Holder
    reached: str  # by the strongest of what leads to it: "variables", "stacks", "remainders" or "nothing"
    words: Sequence[Word]  # some of those that lead to it
    word_count: int
    path: Sequence[Holder]  # the shortest way to it, from a place outside
    dominators: Sequence[Holder]  # without any of these it would be lost, the nearest first


class AllocationPath(NamedTuple):
    """Blocks that one call path has allocated."""

    blocks: int
    bytes: Annotated[int, Key("size_bytes")]  # that the program asked for
    frames: Sequence[Frame]  # from the allocation outward


# What a holder retains, what holders retain that are not listed, and what none does.
OF_HOLDER, OF_OTHERS, OF_NONE = "holder", "other holders", "lost"


class AllocatedGroup(NamedTuple):
    """Who allocated the blocks that one holder retains, that the others do, or that are lost."""

    kind: str  # OF_HOLDER, OF_OTHERS or OF_NONE
    row: Optional[int]  # the holder's place in `HeapView.holders`
    blocks: int
    bytes: Annotated[int, Key("size_bytes")]  # that the program asked for
    path_count: int
    paths: Sequence[AllocationPath]  # those with most bytes


class Allocations(NamedTuple):
    """Who allocated each block, by a tool that has recorded it; the groups have all live blocks."""

    source: str  # "memcheck"
    blocks: int
    bytes: Annotated[int, Key("size_bytes")]  # that the program asked for
    groups: Sequence[AllocatedGroup]
    block: Optional[AllocationPath] = None  # the one that was asked for


@dataclass(frozen=True)
class HeapView:
    """The heap of one process or core."""

    program: str
    pid: Optional[int]
    live_blocks: int
    live_bytes: int
    variables_bytes: int  # what variables and memory outside reach
    stacks_bytes: int  # what only stacks and registers reach
    other_bytes: (
        int  # resident memory that is neither malloc's, nor variables', nor stacks': only its words were read
    )
    by: str  # what each of `holders` is: "root", "type", "size", "object" or "thread"
    holders: Sequence[Holder]
    holder_count: Optional[int]  # of which the largest are listed; None: only what is lost was asked for
    leaks: Leaks
    without: Sequence[str] = ()  # holders that were not counted
    block: Optional[BlockHolders] = None  # of the address that was asked for
    trimmed_bytes: Optional[int] = None  # that malloc_trim() would return to the kernel now
    pause_seconds: Optional[float] = None
    allocator: str = "glibc"  # whose blocks these are
    of_type: Optional[OneType] = None  # the blocks that `holders` count, where one type was asked for
    pools: Optional[Pools] = None  # 0 blocks if these have a small part of the heap; None: not looked for
    sizes: Optional[Sequence[SizeCount]] = None  # None: not asked for
    allocations: Optional[Allocations] = None  # None: nothing has recorded who allocated the blocks
    notices: Sequence[Notice] = ()
    unseen: Sequence[HiddenPointers] = ()  # types that were met and are known to hide pointers


class HeapSum(NamedTuple):
    """The bytes that a holder retains, or that all live blocks of a type have, without any details."""

    name: str  # as a view has it, demangled
    kind: str
    object: Annotated[str, Key(or_null=True)]
    holders: Sequence[str]  # of what several hold: some of these
    block_bytes: int  # usable bytes of each block, of a type without a class
    bytes: Annotated[int, Key("size_bytes")]
    blocks: int


class HeapNode(NamedTuple):
    """A holder, or blocks of one kind that what is above alone holds, in a tree of what retains what."""

    above: int  # its place in the tree; -1: none
    name: str  # in words
    object: str  # the file of a variable; ""
    bytes: int  # without those below
    blocks: int


class SavedTree(NamedTuple):
    """The tree of a saved heap alone."""

    tree: Annotated[Sequence[HeapNode], Key(rows=True)]


class BlockColumns(NamedTuple):
    """All live blocks in order of address, as columns: little-endian numbers, packed by zlib, in base64."""

    blocks: int
    addresses: str  # int64: differences; the first is the first address
    sizes: str  # uint32: units of 16 bytes, malloc's header included
    holders: str  # int32: the place in `SavedHeap.holders`, or LOST, MAYBE_LOST


LOST, MAYBE_LOST = -1, -2  # no word leads to the block; only words that are probably no pointers


@dataclass(frozen=True)
class SavedHeap:
    """A heap at one moment, as much of it as another moment can be compared with. Names are demangled."""

    view: HeapView
    execution: Annotated[str, Key(or_null=True)]  # what tells one execution of a program from all others
    time: Optional[float]  # seconds since 1970, of a core that of its file; None: unknown
    holders: Sequence[HeapSum]  # all of them
    types: Sequence[HeapSum]
    tree: Annotated[
        Sequence[HeapNode], Key(rows=True)
    ]  # what retains what, and what is lost; each behind its above
    blocks: Optional[BlockColumns]  # None: too many


class HeapChange(NamedTuple):
    """The change of what a holder retains, or of all live blocks of a type."""

    name: str
    kind: str
    object: Annotated[str, Key(or_null=True)]
    holders: Sequence[str]
    block_bytes: int
    before_bytes: int
    after_bytes: int
    before_blocks: int
    after_blocks: int

    @property
    def delta_bytes(self) -> int:
        """The growth."""
        return self.after_bytes - self.before_bytes


class NewlyLost(NamedTuple):
    """Blocks that are lost and were not, by what held them before."""

    holder: Optional[HeapSum]  # None: they were allocated since
    bytes: Annotated[int, Key("size_bytes")]
    blocks: int
    address: int  # of the largest one


class LostGrowth(NamedTuple):
    """How much was lost between two moments; bounds as those of `Leaks`, None where one of these is."""

    least_bytes: Optional[int]
    most_bytes: Optional[int]
    blocks: Optional[int]  # that are lost and were not; None: the moments are of two processes
    groups: Sequence[NewlyLost] = ()


class HeapSide(NamedTuple):
    """One of the two moments."""

    name: str  # as it was named
    program: str
    pid: Optional[int]
    live_bytes: int
    live_blocks: int
    lost_least_bytes: int
    lost_most_bytes: Optional[int]


@dataclass(frozen=True)
class HeapGrowth:
    """The change of a heap from one moment to another, or between the heaps of two processes."""

    before: HeapSide
    after: HeapSide
    is_one_process: bool
    holders: Sequence[HeapChange]  # those that changed, the largest change first
    types: Sequence[HeapChange]
    lost: LostGrowth
    notices: Sequence[Notice] = ()

    @property
    def delta_bytes(self) -> int:
        """The growth of the live blocks."""
        return self.after.live_bytes - self.before.live_bytes


class HeapLimit(NamedTuple):
    """A limit of --fail-on: of all live blocks, of what is lost, or of what one holder retains."""

    subject: str  # "": all live blocks; LEAKED; or the name of a holder
    bytes: int

    @property
    def of_holder(self) -> bool:
        """Whether it is about what a holder retains."""
        return self.subject not in ("", LEAKED)
