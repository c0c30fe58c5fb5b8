"""Pools of best-fit allocators with coalescing (TensorFlow, XLA, onnxruntime; PyTorch's is described alike).

A pool is regions, which the allocator got from a device or from malloc; a region is chunks without gaps between them.
Chunks are columns: a pool may have a million.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Annotated, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame

SMALLEST = 256  # bytes: every size is rounded up to a multiple of this
BINS = 21

# Classes of allocators: each has its own rules.
TENSORFLOW, ONNXRUNTIME, PYTORCH = "tensorflow", "onnxruntime", "pytorch"

# States of a chunk.
FREE, IN_USE = 0, 1
PENDING = 2  # the program has freed it, the device still works with it: neither in use nor free

STATES = ("free", "in_use", "pending")  # their names in documents

UNKNOWN = -1  # in a signed column


def rounded(size_bytes: int) -> int:
    """Return *size_bytes* rounded up to a multiple of the allocator's unit."""
    return (size_bytes + SMALLEST - 1) // SMALLEST * SMALLEST


def bin_of(size_bytes: int) -> int:
    """Return the number of the bin that a free chunk of *size_bytes* belongs to."""
    return min(BINS - 1, (max(size_bytes, SMALLEST) >> 8).bit_length() - 1)


def bin_floor(number: int) -> int:
    """Return the smallest size in bytes of chunks in bin *number*; the last one has no upper end."""
    return SMALLEST << number


@dataclass(frozen=True)
class Chunks:
    """The chunks of one allocator, region by region, in order of address; all columns are of one length.

    A column that is None is one that the source doesn't have.
    """

    address: "array[int]"  # "Q"
    size: "array[int]"  # "Q", bytes
    state: bytes  # FREE, IN_USE, PENDING
    requested: "Optional[array[int]]" = None  # "q", bytes; UNKNOWN; meaningless for a free chunk
    allocation_id: "Optional[array[int]]" = None  # "q", UNKNOWN of a free one
    bin: "Optional[array[int]]" = None  # "i": as the allocator has it; -1 of one in no bin
    freed_at: "Optional[array[int]]" = None  # "Q": a count; above 0 a free chunk isn't merged yet
    tag: Optional[bytes] = None  # of pools with two ends: GAP, LOWER, UPPER
    stream: "Optional[array[int]]" = None  # "Q": neighbours of different streams don't merge
    owner: "Optional[array[int]]" = None  # "I": an index into `owners`
    owners: Sequence[str] = ("",)  # annotations, names of operations; "" is not an owner

    def __len__(self) -> int:
        return len(self.address)

    def check(self) -> None:
        """Raise ValueError unless all columns are of one length."""
        columns = (self.size, self.state, self.requested, self.allocation_id, self.bin, self.freed_at)
        for column in (*columns, self.tag, self.stream, self.owner):
            if column is not None and len(column) != len(self.address):
                raise ValueError(f"columns of {len(column)} and of {len(self.address)} chunks")

    def owner_of(self, index: int) -> str:
        return self.owners[self.owner[index]] if self.owner is not None else ""

    def requested_of(self, index: int) -> Optional[int]:
        """Return the bytes requested by the client; None for a free chunk, and if unknown."""
        if self.requested is None or self.state[index] == FREE or self.requested[index] == UNKNOWN:
            return None
        return self.requested[index]


GAP, LOWER, UPPER = 0, 1, 2  # ends of a pool that is filled from both, see Chunks.tag
TAGS = ("central gap", "lower", "upper")  # their names in documents


@dataclass(frozen=True)
class Region:
    """One piece of memory that the allocator got; its chunks are `first` to `first + count`."""

    address: int
    size_bytes: int
    first: int
    count: int
    label: str = ""  # what its source calls it

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    @property
    def indices(self) -> range:
        return range(self.first, self.first + self.count)


class Options(NamedTuple):
    """An allocator's settings; None if unknown."""

    allow_growth: Optional[bool] = None  # False: the whole limit is one region
    next_region_bytes: Optional[int] = None  # what it would ask for, if no more is needed
    split_above_bytes: Optional[int] = None  # a remainder of this size is always split off
    garbage_collection: Optional[bool] = None  # gives regions that are wholly free back before it fails
    grows_as_requested: bool = False  # onnxruntime's kSameAsRequested; else by doubling
    backpedals_once: bool = False  # before 2024: after the first refusal of the device one size only is tried
    started_backpedal: Optional[bool] = None
    honours_alignment: bool = False  # 2026: an alignment above 256 needs a chunk with room for it
    joins_regions: Optional[bool] = None  # regions that lie beside each other become one
    largest_extension_bytes: Optional[int] = None  # onnxruntime's max_power_of_two_extend_bytes


class Counters(NamedTuple):
    """The allocator's own counters, in bytes; None is what it doesn't count, or wasn't read."""

    in_use_bytes: Optional[int] = None
    peak_in_use_bytes: Optional[int] = None
    pool_bytes: Optional[int] = None
    allocations: Optional[int] = None
    largest_allocation_bytes: Optional[int] = None
    reserved_bytes: Optional[int] = None  # onnxruntime: in use, counted above, but in no region


class Violation(NamedTuple):
    """A contradiction in the allocator's own data; *rule* is a short fixed name, *text* has the numbers."""

    rule: str
    text: str


class Bin(NamedTuple):
    """Sums of the chunks whose sizes belong to one bin."""

    number: int
    floor_bytes: int
    in_use: int
    in_use_bytes: int
    free: int
    free_bytes: int


@dataclass(frozen=True)
class Allocator:
    """One allocator at one moment. Sizes are bytes, what is unknown is None."""

    name: str  # "GPU_0_bfc"; "" if it isn't known
    class_name: Annotated[str, Key("class")]  # "tsl::BFCAllocator"
    kind: str  # TENSORFLOW, ONNXRUNTIME, PYTORCH
    source: str  # for people: "process 4711 (python3)", "train.log, line 301"
    regions: Sequence[Region]
    chunks: Chunks
    limit_bytes: Optional[int] = None
    options: Options = field(default_factory=Options)
    counters: Counters = field(default_factory=Counters)
    address: Optional[int] = None  # of the object
    layout: str = ""  # how the structures were known: "debug information", "self-calibrated", …
    is_locked: Optional[bool] = None  # its mutex was held: an operation may be in progress
    violations: Sequence[Violation] = ()
    is_complete: bool = True  # every chunk is here; False: what follows from chunks is of those that are here
    # False: they follow from addresses (old logs, dumps): neighbours may be one here.
    regions_known: bool = True
    # The 100 characters of a log's last line: '*' in use, 'x' wasted, '_' free.
    bar: Annotated[str, Key(or_null=True)] = ""
    asked_bytes: Optional[int] = None  # a request that failed when this was written
    asked_by: Annotated[str, Key(or_null=True)] = ""  # the operation that made it
    notices: Sequence[Notice] = ()

    def check(self) -> None:
        """Raise ValueError unless the regions' chunks are all chunks, each once."""
        self.chunks.check()
        at = 0
        for region in self.regions:
            if region.first != at:
                raise ValueError(f"region 0x{region.address:x} begins with chunk {region.first}, not {at}")
            at += region.count
        if at != len(self.chunks):
            raise ValueError(f"the regions have {at} chunks of {len(self.chunks)}")

    @property
    def pool_bytes(self) -> int:
        """The bytes that the allocator holds in regions; where chunks are missing here, by its own count."""
        if not self.is_complete and self.counters.pool_bytes is not None:
            return self.counters.pool_bytes
        return sum(region.size_bytes for region in self.regions)

    @property
    def reserved_bytes(self) -> int:
        """The bytes that it holds beside its regions (onnxruntime's reserved chunks)."""
        return self.counters.reserved_bytes or 0

    @property
    def available_bytes(self) -> Optional[int]:
        """The bytes that it may still ask the device for under its limit, in whole multiples of 256."""
        if self.limit_bytes is None or (not self.is_complete and self.counters.pool_bytes is None):
            return None
        return max(0, self.limit_bytes - self.pool_bytes - self.reserved_bytes) // SMALLEST * SMALLEST

    @property
    def in_use_bytes(self) -> int:
        """Sizes of the chunks in use, with what was reserved: as the allocator's own counter has it.

        If chunks are missing here, it is that counter.
        """
        if not self.is_complete and self.counters.in_use_bytes is not None:
            return self.counters.in_use_bytes
        return self.bytes_in(IN_USE) + self.reserved_bytes

    @property
    def pending_bytes(self) -> int:
        return self.bytes_in(PENDING)

    @property
    def free_bytes(self) -> int:
        return self.bytes_in(FREE)

    @property
    def requested_bytes(self) -> Optional[int]:
        """The bytes that clients asked for of the chunks in use; None if one isn't known."""
        if self.chunks.requested is None:
            return None
        asked = list(compress(self.chunks.requested, self.where(IN_USE)))
        return None if UNKNOWN in asked else sum(asked) + self.reserved_bytes

    @property
    def largest_free_bytes(self) -> int:
        return max(compress(self.chunks.size, self.where(FREE)), default=0)

    @property
    def free_count(self) -> Annotated[int, Key("free_chunks")]:
        return self.chunks.state.count(FREE)

    @property
    def in_use_count(self) -> Annotated[int, Key("in_use_chunks")]:
        return self.chunks.state.count(IN_USE)

    @property
    def fragmentation(self) -> Optional[float]:
        """Return the share of the free bytes that isn't in the largest free chunk; None if none are free."""
        free = self.free_bytes
        return (free - self.largest_free_bytes) / free if free else None

    def bytes_in(self, state: int) -> int:
        """Return the bytes of the chunks in *state*."""
        return sum(compress(self.chunks.size, self.where(state)))

    def where(self, state: int) -> bytes:
        """Return a 1 for each chunk in *state*, a 0 for each other."""
        return self.chunks.state.translate(_SELECT[state])

    def bins(self) -> list[Bin]:
        """Return all bins, with the chunks in use that would belong to them, as the allocators' own dumps do."""
        sums = [[0, 0, 0, 0] for _ in range(BINS)]
        for size, state in zip(self.chunks.size, self.chunks.state):
            sums_of_bin = sums[bin_of(size)]
            at = 2 if state == FREE else 0
            sums_of_bin[at] += 1
            sums_of_bin[at + 1] += size
        return [Bin(number, bin_floor(number), *of_bin) for number, of_bin in enumerate(sums)]

    def idle_regions(self) -> Iterator[Region]:
        """Yield the regions in which nothing is in use."""
        for region in self.regions:
            if not any(self.chunks.state[region.first : region.first + region.count]):
                yield region


_SELECT = [bytes(1 if value == state else 0 for value in range(256)) for state in (FREE, IN_USE, PENDING)]


# Outcomes of a request.
NOTHING, FITS, EXTENDS, FAILS, UNDECIDED = "nothing", "fits", "extends", "fails", "undecided"

# Why it fails, in the order in which they are tried (`Decision.cause`).
ALIGNMENT = "alignment"  # a chunk has the size, but not with the padding
OTHER_END = "other-end"  # a chunk of the other end of the pool would do
OTHER_STREAM = "other-stream"  # free neighbours of different streams don't merge
DEVICE = "device"  # the limit leaves room: it is the device that refuses
IDLE_REGIONS = "idle-regions"  # enough, but in regions that don't merge, and that could be given back
FRAGMENTATION = "fragmentation"
FULL = "full"


class Obstacle(NamedTuple):
    """A run of neighbouring chunks of one region that would be one hole if those in use were freed."""

    first: int  # indices of chunks
    last: int
    in_use: Sequence[int]  # indices of those in the way
    in_use_bytes: int
    hole_bytes: int


class Advice(NamedTuple):
    """One thing that would help; *slug* is a short fixed name, *is_tried* whether it was simulated on this pool."""

    slug: str
    text: str
    is_tried: bool = False


class Decision(NamedTuple):
    """The allocator's decision on a request, step by step. Sizes are bytes."""

    request_bytes: Annotated[int, Key("bytes")]
    alignment: int
    rounded_bytes: int
    outcome: str  # NOTHING, FITS, EXTENDS, FAILS, UNDECIDED
    chunk: Optional[int] = None  # index of the one that it takes
    is_split: bool = False
    taken_bytes: Annotated[int, Key(or_null=True)] = 0  # of that chunk, after a split
    extends_bytes: Optional[int] = None  # the region that it asks for first
    # What it asks for next, each time the device refuses.
    retries: Annotated[Sequence[int], Key("retries_bytes")] = ()
    gives_back_bytes: int = 0  # regions that garbage collection returns before
    cause: Annotated[str, Key(or_null=True)] = ""  # of FAILS
    obstacle: Optional[Obstacle] = None  # of FRAGMENTATION: the smallest
    steps: Sequence[str] = ()  # what is tried, in order, as sentences
    advice: Sequence[Advice] = ()

    @property
    def wasted_bytes(self) -> int:
        """The bytes that the request would get and not use."""
        return max(0, self.taken_bytes - self.request_bytes)


# Two moments of one pool of memory.


class PoolChange(NamedTuple):
    """Chunks in use of one size or one owner, before and after; sizes are bytes."""

    name: str  # an owner, a stranger's word; "" of a size
    size_bytes: int  # of each of them; 0 of an owner's
    before: int  # chunks
    after: int
    before_bytes: int
    after_bytes: int

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


class PoolDiff(NamedTuple):
    """The changes of one pool. Where chunks are missing on a side, so are its sizes and owners."""

    before: Allocator
    after: Allocator
    sizes: Sequence[PoolChange]  # those that changed, the largest change first
    owners: Sequence[PoolChange]  # none if neither side knows owners

    @property
    def is_complete(self) -> bool:
        return self.before.is_complete and self.after.is_complete


# Pools of memory as a log describes them: dumps of allocators, and refusals that came without one.


class TorchAccount(NamedTuple):
    """The amounts in PyTorch's sentence about a refused request, in bytes; None: it does not say."""

    asked: int
    allocated: int
    unused: Optional[int]  # held by PyTorch, and in no tensor
    capacity: Optional[int] = None  # of the device
    free: Optional[int] = None
    allowed: Optional[int] = None  # by a limit of the process's own
    own: Optional[int] = None  # of this process in all
    private: Optional[int] = None  # of what is allocated
    processes: Sequence[
        tuple[int, int]
    ] = ()  # others, by their numbers; in a container this one may be among them

    @property
    def held(self) -> int:
        """The memory that PyTorch has from the device."""
        return self.allocated + (self.unused or 0)

    @property
    def is_limited(self) -> bool:
        """Whether the process's own limit refused: PyTorch's memory and the request exceed it."""
        # Metal's limit is for all.
        used = self.held if self.capacity is not None else max(self.held, self.own or 0)
        return self.allowed is not None and used + self.asked > self.allowed * 0.99


class Refusal(NamedTuple):
    """A device, or a framework, that gave no memory; nothing is known of a pool."""

    line: int  # from 1
    text: str  # of the log, a stranger's
    size_bytes: Optional[int] = None  # that were asked for
    times: int = 1  # this often in a row
    by: str = "the device"  # who refused
    backs_off: bool = False  # asked again, each time for less
    account: Optional[TorchAccount] = None


class PoolLog(NamedTuple):
    """What one log contains, in file order."""

    source: str
    allocators: Sequence[Allocator]
    refusals: Sequence[Refusal]
    notices: Sequence[Notice]


# Walks of the pools of one process, one after the other.


class PoolSample(NamedTuple):
    """The sums of one pool at one moment, in bytes; what isn't known is None."""

    at_seconds: float  # since the first walk
    name: str
    address: Optional[int]  # of the allocator
    pool_bytes: int
    in_use_bytes: int
    requested_bytes: Optional[int]
    free_bytes: int
    free_chunks: int
    largest_free_bytes: int
    fragmentation: Optional[float]  # None if nothing is free
    outcome: Annotated[str, Key(or_null=True)] = ""  # of the request, where one is asked for
    cause: Annotated[str, Key(or_null=True)] = ""


class PoolSeries(NamedTuple):
    """The course of a process's pools over time."""

    source: str
    samples: Sequence[PoolSample]  # by time; of each pool one a walk
    diffs: Sequence[PoolDiff]  # of each pool that the first and the last walk have
    walks: int
    longest_pause_seconds: float
    notices: Sequence[Notice] = ()

    def of(self, address: Optional[int]) -> list[PoolSample]:
        """Return the samples of the pool whose allocator is at *address*."""
        return [one for one in self.samples if one.address == address]


def sample_of(allocator: Allocator, at_seconds: float, decision: Optional[Decision]) -> PoolSample:
    """Return the sums of *allocator*, which was walked at *at_seconds*."""
    return PoolSample(
        at_seconds=at_seconds,
        name=allocator.name,
        address=allocator.address,
        pool_bytes=allocator.pool_bytes,
        in_use_bytes=allocator.in_use_bytes,
        requested_bytes=allocator.requested_bytes,
        free_bytes=allocator.free_bytes,
        free_chunks=allocator.free_count,
        largest_free_bytes=allocator.largest_free_bytes,
        fragmentation=allocator.fragmentation,
        outcome=decision.outcome if decision is not None else "",
        cause=decision.cause if decision is not None else "",
    )


# A snapshot of PyTorch's caching allocators: what torch.cuda.memory._dump_snapshot() writes.


# Words in the label of an allocator's region: regions of different labels never serve each other's requests.
SMALL, LARGE, EXPANDABLE, PRIVATE = "small", "large", "expandable", "pool "


def is_small(region: Region) -> bool:
    """Return whether *region* serves small requests, up to 1 MiB."""
    return region.label.startswith(SMALL)


def is_private(region: Region) -> bool:
    """Return whether *region* belongs to a private pool, as CUDA graphs have."""
    return PRIVATE in region.label


class RefusedRequest(NamedTuple):
    """An allocation that failed, from the history of its device."""

    device: int
    size_bytes: int
    device_free_bytes: Optional[int]  # free by the driver's count at that time
    stack: int  # index into TorchSnapshot.stacks


class TorchSegment(NamedTuple):
    """One region of an allocator, with what BFC's regions don't have."""

    device: int
    address: int
    size_bytes: int
    stream: int
    is_large: bool
    pool: tuple[int, int]  # (0, 0): the common one; else a private one, as CUDA graphs have
    is_expandable: bool
    stack: int


class TorchSnapshot(NamedTuple):
    """The file's contents: an allocator for each device, and where its blocks were allocated."""

    source: str
    allocators: Sequence[Allocator]  # by device; of each the chunks in the order of its regions
    segments: Sequence[Sequence[TorchSegment]]  # of each allocator, as its regions
    block_stacks: Sequence[Sequence[int]]  # of each allocator's chunks: indices into `stacks`
    stacks: Sequence[Sequence[int]]  # indices into `frames`, allocation site first; stack 0 has none
    frames: Sequence[Frame]
    entries: int  # of the history
    notices: Sequence[Notice]

    @property
    def has_stacks(self) -> bool:
        """True if any block has the stack that allocated it."""
        return any(any(stacks) for stacks in self.block_stacks)
