"""The ledger of a resident set: every resident byte in one entry, mapping by mapping."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Mapping as MappingType
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

from gdbmem.errors import Notice
from gdbmem.json_values import Key

# Settings of malloc that may give memory back, and how much each would. Sizes are bytes.


TRIM, TUNABLES = "malloc_trim(0)", "GLIBC_TUNABLES"
_WORTH = 0.01  # of the resident set: less is not worth a setting, nor a difference between two
_WORTH_BYTES = 256 << 10
_NEAR = 0.1
# The cheapest first: a call now and then; more system calls as the heap shrinks, for large blocks, for each page;
# threads that wait for each other.
_BY_COST = (TRIM, "trim_threshold", "mmap_threshold", "top_pad", "arena_max", "tcache_count")


class Remedy(NamedTuple):
    """One setting, in the form that GLIBC_TUNABLES= takes or a variable of the environment, or a call."""

    setting: str
    predicted_bytes: Optional[int]  # None: unknown until measured
    low_bytes: int  # the interval of the prediction
    high_bytes: int  # without a prediction: no more than this
    cost: str

    @property
    def is_call(self) -> bool:
        """True if the program has to call it; the others are set in its environment."""
        return self.setting == TRIM

    @property
    def variable(self) -> str:
        """The setting as a shell takes it before the program's name."""
        return f"{TUNABLES}={self.setting}" if self.setting.startswith("glibc.") else self.setting


def best_remedy(remedies: tuple[Remedy, ...]) -> Optional[Remedy]:
    """Return the one that is predicted to give most back; None if none gives anything."""
    return next((remedy for remedy in in_order(remedies) if remedy.predicted_bytes), None)


def in_order(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """Return *remedies*, the best first; of those that may return as much as the best one left, the cheapest first."""
    rest = sorted(remedies, key=lambda one: (-(one.predicted_bytes or 0), -one.high_bytes))
    ordered: list[Remedy] = []
    while rest:
        best = rest[0]
        least = best.low_bytes if best.predicted_bytes else 0
        equal = [one for one in rest if one is best or (least and least <= (one.predicted_bytes or 0))]
        ordered += sorted(equal, key=_cost_rank)
        rest = [one for one in rest if one not in equal]
    return tuple(ordered)


def _cost_rank(remedy: Remedy) -> int:
    return next((rank for rank, name in enumerate(_BY_COST) if name in remedy.setting), len(_BY_COST))


class MeasuredRemedy(NamedTuple):
    """The memory that one remedy returned, compared with runs without it; None: not measured."""

    remedy: Remedy
    gained_bytes: Annotated[Optional[int], Key("measured_bytes")] = None  # the difference of the medians
    # Its 95 % interval, from the spread between runs.
    low_bytes: Annotated[Optional[int], Key("measured_low_bytes")] = None
    high_bytes: Annotated[Optional[int], Key("measured_high_bytes")] = None
    why_not: Annotated[str, Key("why_not_measured", or_null=True)] = ""

    @property
    def is_as_predicted(self) -> Optional[bool]:
        """True if the gain is in the interval of the prediction, or within a tenth of it; None if unknown."""
        predicted = self.remedy.predicted_bytes
        if predicted is None or self.gained_bytes is None:
            return None
        near = abs(self.gained_bytes - predicted) <= _NEAR * predicted
        return near or self.remedy.low_bytes <= self.gained_bytes <= self.remedy.high_bytes


class MeasuredRemedies(NamedTuple):
    """The measured remedies of a program, the most effective first."""

    command: tuple[str, ...]
    moment: str  # when it was measured: AT_REST, AT_END, or after a time
    rss_bytes: int  # the median of the runs without
    runs: int
    remedies: tuple[MeasuredRemedy, ...]
    children: int = 0  # processes that the program had started by then: not measured

    @property
    def equals_of_best(self) -> tuple[MeasuredRemedy, ...]:
        """Return the other remedies that returned as much as the first one."""
        rows = self.remedies
        return tuple(row for row in rows[1:] if _as_much(row, rows[0], worth_bytes(self.rss_bytes)))


def worth_bytes(rss_bytes: int) -> int:
    """Return the fewest bytes that matter in a process of *rss_bytes*, for a gain or a difference of two gains."""
    return max(_WORTH_BYTES, round(_WORTH * rss_bytes))


def best_first(rows: Iterable[MeasuredRemedy], rss_bytes: int) -> tuple[MeasuredRemedy, ...]:
    """Return *rows* by the memory returned; those equal to the best one are sorted by prediction.

    Several remedies often return the same memory; differences of a few pages are chance.
    """
    found = sorted(rows, key=lambda row: -(row.gained_bytes if row.gained_bytes is not None else -1 << 62))
    if not found:
        return ()
    best, worth = found[0], worth_bytes(rss_bytes)
    equal = [row for row in found if _as_much(row, best, worth)]
    equal.sort(key=lambda row: (not row.is_as_predicted, -(row.remedy.predicted_bytes or 0)))
    return (*equal, *(row for row in found if row not in equal))


def _as_much(row: MeasuredRemedy, best: MeasuredRemedy, worth: int) -> bool:
    """Return whether *row* returned as much as *best*, within the scatter of the runs."""
    if row is best or row.gained_bytes is None or best.gained_bytes is None:
        return row is best
    if abs(best.gained_bytes - row.gained_bytes) <= worth:
        return True
    near = row.gained_bytes >= (1 - _NEAR) * best.gained_bytes
    return near and row.high_bytes is not None and row.high_bytes >= best.gained_bytes


# What a call of an allocator's own function returned in a copy of the process.


_AGREES, _AGREES_BYTES = 0.01, 512 << 10


class Tried(NamedTuple):
    """One call. Sizes are bytes."""

    allocator: str
    file: str  # that has the function; "" if there is none
    call: Annotated[str, Key("call", or_null=True)]  # as a program writes it
    returned_bytes: Optional[int] = None  # by the kernel's count; None: not tried
    read_bytes: Optional[int] = None  # what reading the allocator's data predicts; None: it can't tell
    returns_all: bool = True  # False: a call that returns only what the allocator would return soon by itself
    copies: int = 0  # that were made for it
    why_not: Annotated[str, Key("why_not_tried", or_null=True)] = ""

    @property
    def is_as_read(self) -> Optional[bool]:
        """True if both figures agree; None if one is missing."""
        if self.returned_bytes is None or self.read_bytes is None:
            return None
        most = max(_AGREES * self.read_bytes, _AGREES_BYTES)
        return abs(self.returned_bytes - self.read_bytes) <= most


AT_REST, AT_END, AFTER_TIME = "at rest", "at its end", "after the time given"


# In the order in which a report lists them.
HEAP_LIVE = "heap.live"
HEAP_RELEASABLE = "heap.free.releasable"
HEAP_PINNED = "heap.free.pinned"
HEAP_CACHED = "heap.free.cached"
HEAP_METADATA = "heap.metadata"
HEAP_MMAPPED = "heap.mmapped"
STACK_MAIN = "stack.main"
STACK_THREAD = "stack.thread"
STACK_UNJOINED = "stack.unjoined"  # of ended threads
STACK_CACHED = "stack.cached"
FILE_CODE = "file.code"
FILE_DATA = "file.data"
FILE_MAPPED = "file.mapped"  # files that are not loaded as a program or a library
FILE_COPIED = "file.copied"  # private copies of pages of such files
SHARED = "shared"
DEVICE = "device"
DROPPABLE = "anonymous.droppable"  # by MAP_DROPPABLE
LAZILY_FREED = "anonymous.lazyfree"  # by MADV_FREE: resident until the kernel needs it
NAMED = "anonymous.named"
OTHER = "anonymous.other"

# Python's small objects: an entry for each of these labels.
PYMALLOC = "allocator.pymalloc"
LIVE, HEADERS = "live", "headers"
FREE_IN_POOLS, FREE_POOLS = "free in pools", "free pools"

# Pools of BFC allocators: LIVE is what was asked for, beside an entry for each of these labels.
BFC = "allocator.bfc"
INTERNAL_WASTE, FREE_CHUNKS = "internal waste", "free chunks"

# Heaps of allocators that replace malloc ("allocator.jemalloc"): LIVE, and an entry for each of these labels.
IN_CACHES, IN_SLABS, IN_HUGE_PAGES = "free in caches", "free in slabs", "free in huge pages"
FREE_PAGES, LAZY_PAGES, RETURNED_PAGES = "free pages", "lazily freed pages", "returned pages"
ALLOCATORS_OWN, CHANGING = "metadata", "changing"

# Details of the resident set, beside the entries.
UNUSED_IN_VECTORS = "unused_in_vectors"  # resident capacity without elements
SHARED_BY_FORK = "shared_by_fork"  # anonymous pages that the process has in common with others since a fork


def in_arena(category: str) -> str:
    """Return the category of a further arena that answers to *category* of the main heap."""
    return f"arena.{category.partition('.')[2]}"


class BlockSize(NamedTuple):
    """Blocks of one size in an allocator that replaces malloc; counts, and bytes of pages."""

    block_bytes: int
    live: int
    cached: int  # freed, and kept by caches of threads or of the allocator
    free: int  # in slabs
    slabs: int  # 0 for blocks that have pages of their own
    free_resident_bytes: int  # of the resident pages of slabs, what no live or cached block has


class OtherMalloc(NamedTuple):
    """The sums of the heap of one allocator that replaces malloc. Sizes are bytes, resident or not."""

    category: str  # of its entries
    suffix: str  # of their labels: which one, if a process has several of one name
    layout: str  # as its structures were proved to be
    file: str  # that it is linked into
    live_bytes: int  # without what caches keep
    live_blocks: int
    cached_bytes: Optional[int]  # None: unknown, and part of what is live
    caches: int
    in_slabs_bytes: int
    free_page_bytes: int
    lazy_page_bytes: int
    returned_page_bytes: int
    metadata_bytes: int
    sizes: Sequence[BlockSize] = ()  # of slabs
    metadata_resident_bytes: Optional[int] = None  # None in documents of earlier versions
    in_huge_page_bytes: int = 0  # free pages of huge pages that the allocator divides
    odd_descriptors: int = 0  # that contradict others, as during a change: their pages are in no figure above

    @property
    def allocator(self) -> str:
        return self.category.partition(".")[2]


class LargePiece(TypedDict):
    """Mappings of one name, added up. Sizes are bytes."""

    name: str
    resident_bytes: int
    mapped_bytes: int


class Entry(NamedTuple):
    """One line of the ledger; sizes are bytes, what is unknown is None."""

    category: str
    label: str  # among entries of one category: "arena 3", the name of a mapping; "" if there is one
    resident_bytes: int
    allocated_bytes: Optional[int] = None  # what the program or the allocator asked for, resident or not
    detail: MappingType[str, Any] = {}

    @property
    def key(self) -> tuple[str, str]:
        return self.category, self.label


class Share(NamedTuple):
    """The division of one mapping's resident bytes: entry key → bytes."""

    start: int
    end: int
    name: str
    rss_bytes: int
    parts: MappingType[tuple[str, str], int]


class Arena(NamedTuple):
    """One arena of glibc's malloc, in bytes of chunks (resident or not)."""

    number: int
    address: int
    live_bytes: int
    live_chunks: int
    free_bytes: int  # in bins, top included
    free_chunks: int
    cached_bytes: int  # in fastbins and tcaches
    cached_chunks: int
    top_bytes: int
    system_bytes: int
    releasable_bytes: int  # resident
    threads: Sequence[int] = ()
    fastbin_bytes: int = 0  # of what is cached
    fastbin_chunks: int = 0


class SizeClass(NamedTuple):
    """Chunks of one size (header included) over all arenas."""

    size_bytes: int
    live: int
    free: int
    tcache: int
    fastbin: int
    pinned_bytes: float = 0.0  # free bytes on the pages that live chunks of this size share


class Heap(NamedTuple):
    """The sums of glibc's malloc over all arenas."""

    arenas: Sequence[Arena]
    sizes: Sequence[SizeClass]
    mmapped_chunks: int
    mmapped_bytes: int
    tcache_chunks: int
    tcache_bytes: int
    fastbin_chunks: int
    fastbin_bytes: int
    is_exact: bool  # every thread's cache was read, every seam matched
    source: str  # "debug information" or "layouts": how the structures were known
    trim_threshold_bytes: Optional[int] = None  # of malloc's settings; None: unknown
    mmap_threshold_bytes: Optional[int] = None

    @property
    def live_bytes(self) -> int:
        return sum(arena.live_bytes for arena in self.arenas)

    @property
    def live_chunks(self) -> int:
        return sum(arena.live_chunks for arena in self.arenas)

    @property
    def free_bytes(self) -> int:
        return sum(arena.free_bytes for arena in self.arenas)

    @property
    def free_chunks(self) -> int:
        return sum(arena.free_chunks for arena in self.arenas)


class Ledger(NamedTuple):
    """The resident set of one process (or the bytes present in a core), divided."""

    program: str
    pid: Optional[int]
    rss_bytes: int
    entries: Sequence[Entry]
    shares: Sequence[Share]
    releasable_bytes: Optional[int]  # what malloc_trim(0) would return; None: the allocator wasn't read
    threads: Sequence[MappingType[str, Any]] = ()
    heap: Optional[Heap] = None
    beside: MappingType[str, int] = {}  # page tables, swap, huge pages…: bytes
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()
    runtime: Optional[str] = None  # with a heap besides malloc's, for example v8
    forked_from: Optional[int] = None  # the parent that runs the same program since a fork
    remedies: tuple[Remedy, ...] = ()  # the best first; none if malloc could not be read
    mallocs: Sequence[OtherMalloc] = ()  # allocators that replace malloc, as far as they were read
    tried: Sequence[Tried] = ()  # in a copy, if that was asked for

    def check(self) -> None:
        """Raise ValueError unless entries add up to each mapping's Rss, and all of them to the total."""
        sums: dict[tuple[str, str], int] = {}
        for share in self.shares:
            if sum(share.parts.values()) != share.rss_bytes:
                raise ValueError(
                    f"the entries of {share.start:x}-{share.end:x} do not add up to its Rss:"
                    f" {sum(share.parts.values())} of {share.rss_bytes}"
                )
            for key, size in share.parts.items():
                if size < 0:
                    raise ValueError(f"{key} is negative in {share.start:x}-{share.end:x}")
                sums[key] = sums.get(key, 0) + size
        held = {entry.key: entry.resident_bytes for entry in self.entries}
        if len(held) != len(self.entries):
            raise ValueError("two entries have the same name")
        if {k: v for k, v in sums.items() if v} != {k: v for k, v in held.items() if v}:
            raise ValueError("the mappings' shares do not add up to the entries")
        if sum(held.values()) != self.rss_bytes:
            raise ValueError("the entries do not add up to the resident set")

    def total_of(self, category: str, *labels: str) -> int:
        """Return the resident bytes of the entries of *category* with one of *labels*."""
        return sum(e.resident_bytes for e in self.entries if e.category == category and e.label in labels)

    def freed_in(self, malloc: OtherMalloc) -> int:
        """Return the resident bytes of *malloc* that the program has freed and the kernel can't take by itself."""
        labels = (IN_CACHES, IN_SLABS, IN_HUGE_PAGES, FREE_PAGES)
        return self.total_of(malloc.category, *(label + malloc.suffix for label in labels))

    def total(self, *categories: str) -> int:
        """Return the resident bytes of all entries whose category is, or begins with, one of *categories*."""
        return sum(
            entry.resident_bytes
            for entry in self.entries
            if any(entry.category == c or entry.category.startswith(c + ".") for c in categories)
        )


# Resident memory that was not touched for a while, by the entries of a ledger.


class IdleEntry(NamedTuple):
    """An entry of the ledger; sizes are bytes.

    Accessed bits are counted by mapping: where several entries share one, only bounds are known.
    """

    category: str
    label: str
    resident_bytes: int
    least_idle_bytes: int
    most_idle_bytes: int


class BlockSum(NamedTuple):
    """Live blocks of malloc; bytes without its headers."""

    blocks: int
    bytes: int


class BlockGroup(NamedTuple):
    """The live blocks in one mapping, or in a part of it."""

    start: int  # of the mapping
    mapping_bytes: int
    # By kind, as model.ledger.block_types has it, and mangled class.
    types: Mapping[tuple[str, str], BlockSum]
    sizes: Mapping[int, BlockSum]  # by the bytes of each


class IdleBlocks(NamedTuple):
    """Live blocks of one type, or of one size; sizes are bytes, with bounds as those of entries."""

    kind: str  # as model.ledger.block_types has it; "" if they are alike in size
    name: str  # of the class, mangled
    size_bytes: int  # of each; 0 if they are alike in type
    blocks: int
    bytes: int
    least_idle_bytes: int
    most_idle_bytes: int


class TreeHolder(NamedTuple):
    """A place that owns nodes of trees."""

    name: str  # of a variable, mangled; else in words
    share: float  # of the nodes, by bytes, estimated from a sample


class IdleMemory(NamedTuple):
    """Memory that was resident at the end of some time and was not touched in it; sizes are bytes."""

    seconds: float
    rss_bytes: int
    idle_bytes: int
    entries: Sequence[IdleEntry]
    types: Sequence[IdleBlocks] = ()
    sizes: Sequence[IdleBlocks] = ()
    tree_holders: Sequence[TreeHolder] = ()
