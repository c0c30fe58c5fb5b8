"""The ledger of a resident set: every resident byte in one entry, mapping by mapping."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from typing import Any, Optional, TypedDict

from gdbmem.errors import Notice
from gdbmem.model.ledger.remedies import Remedy
from gdbmem.records import dataclass, field

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

# Details of the resident set, beside the entries.
UNUSED_IN_VECTORS = "unused_in_vectors"  # resident capacity without elements
SHARED_BY_FORK = "shared_by_fork"  # anonymous pages that the process has in common with others since a fork


def in_arena(category: str) -> str:
    """Return the category of a further arena that answers to *category* of the main heap."""
    return f"arena.{category.partition('.')[2]}"


class LargePiece(TypedDict):
    """Mappings of one name, added up. Sizes are bytes."""

    name: str
    resident_bytes: int
    mapped_bytes: int


@dataclass(frozen=True)
class Entry:
    """One line of the ledger; sizes are bytes, what is unknown is None."""

    category: str
    label: str  # among entries of one category: "arena 3", the name of a mapping; "" if there is one
    resident_bytes: int
    allocated_bytes: Optional[int] = None  # what the program or the allocator asked for, resident or not
    detail: MappingType[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.category, self.label


@dataclass(frozen=True)
class Share:
    """The division of one mapping's resident bytes: entry key → bytes."""

    start: int
    end: int
    name: str
    rss_bytes: int
    parts: MappingType[tuple[str, str], int]


@dataclass(frozen=True)
class Arena:
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


@dataclass(frozen=True)
class SizeClass:
    """Chunks of one size (header included) over all arenas."""

    size_bytes: int
    live: int
    free: int
    tcache: int
    fastbin: int
    pinned_bytes: float = 0.0  # free bytes on the pages that live chunks of this size share


@dataclass(frozen=True)
class Heap:
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


@dataclass(frozen=True)
class Ledger:
    """The resident set of one process (or the bytes present in a core), divided."""

    program: str
    pid: Optional[int]
    rss_bytes: int
    entries: Sequence[Entry]
    shares: Sequence[Share]
    releasable_bytes: Optional[int]  # what malloc_trim(0) would return; None: the allocator wasn't read
    threads: Sequence[MappingType[str, Any]] = ()
    heap: Optional[Heap] = None
    beside: MappingType[str, int] = field(default_factory=dict)  # page tables, swap, huge pages…: bytes
    pause_seconds: Optional[float] = None
    notices: Sequence[Notice] = ()
    runtime: Optional[str] = None  # with a heap besides malloc's, for example v8
    forked_from: Optional[int] = None  # the parent that runs the same program since a fork
    remedies: tuple[Remedy, ...] = ()  # the best first; none if malloc could not be read

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

    def total(self, *categories: str) -> int:
        """Return the resident bytes of all entries whose category is, or begins with, one of *categories*."""
        return sum(
            entry.resident_bytes
            for entry in self.entries
            if any(entry.category == c or entry.category.startswith(c + ".") for c in categories)
        )
