"""Reading a BFC allocator: its raw bytes while the process is stopped, and decoding them afterwards.

The memory of the chunks is device memory, or the program's data, and is never read.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import compress
from operator import itemgetter
from typing import NamedTuple, Optional

from gdbmem.allocators.bfc.layout import (
    ABSL,
    MOST_BYTES,
    NONE,
    NSYNC,
    PTHREAD,
    Layout,
    LayoutUnknown,
    characters_at,
    read_words,
    region_rows,
    string_at,
)
from gdbmem.errors import Notice
from gdbmem.model.bfc import (
    BINS,
    FREE,
    GAP,
    IN_USE,
    ONNXRUNTIME,
    SMALLEST,
    TENSORFLOW,
    Allocator,
    Chunks,
    Counters,
    Options,
    Region,
    Violation,
    bin_floor,
    bin_of,
)
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.text import plural

# The invariants of a BFC allocator, and checks for violations.


def check_handles(raw: RawPool, order: Sequence[int], regions: Sequence[Region]) -> Iterator[Violation]:
    """Yield the places where a region's handles don't match the chunks found by the walk."""
    step = raw.layout.chunk_stride >> 3
    addresses = raw.slots[3::step]
    for region, handles in zip(regions, raw.handles):
        if handles is None:
            continue
        met = order[region.first : region.first + region.count]
        lost = next((h for h in met if _entry(handles, addresses[h] - region.address) != h), None)
        named = len(handles) - handles.count(NONE)
        if lost is not None:
            text = f"no handle leads to chunk {lost} at 0x{addresses[lost]:x}"
            yield Violation("handles-name-chunks", text)
        elif named != len(met):
            text = f"the region at 0x{region.address:x} has {named} handles and {len(met)} chunks"
            yield Violation("handles-name-chunks", text)


def _entry(handles: Sequence[int], offset: int) -> Optional[int]:
    return handles[offset >> 8] if offset >> 8 < len(handles) else None


def check_allocator(allocator: Allocator, next_id: Optional[int]) -> Iterator[Violation]:
    """Yield each violated rule, with the first contradiction of each kind, in a fixed order."""
    if not allocator.is_complete:
        return
    yield from _sums(allocator)
    yield from _ids(allocator, next_id)
    yield from _bins(allocator)
    yield from _merged(allocator)


def _sums(allocator: Allocator) -> Iterator[Violation]:
    counted = allocator.counters
    in_use, pool = allocator.in_use_bytes, allocator.pool_bytes + allocator.reserved_bytes
    if counted.in_use_bytes is not None and counted.in_use_bytes != in_use:
        text = f"chunks of {in_use} bytes are in use, and {counted.in_use_bytes} are counted"
        yield Violation("in-use-counted", text)
    if counted.pool_bytes is not None and counted.pool_bytes != pool:
        yield Violation("pool-counted", f"regions have {pool} bytes, and {counted.pool_bytes} are counted")


def _ids(allocator: Allocator, next_id: Optional[int]) -> Iterator[Violation]:
    ids = allocator.chunks.allocation_id
    if ids is None:
        return
    used = list(compress(ids, allocator.where(IN_USE)))
    if len(set(used)) != len(used):
        yield Violation("ids-unique", "two chunks have the same allocation id")
    if next_id is not None and used and max(used) >= next_id:
        yield Violation(
            "ids-below-next", f"a chunk has the allocation id {max(used)}, and {next_id} is the next one"
        )


def _bins(allocator: Allocator) -> Iterator[Violation]:
    chunks = allocator.chunks
    if chunks.bin is None:
        return
    for index, (number, size, state) in enumerate(zip(chunks.bin, chunks.size, chunks.state)):
        is_gap = chunks.tag is not None and chunks.tag[index] == GAP
        expected = bin_of(size) if state == FREE and not is_gap else -1
        if number != expected:
            place = f"the chunk at 0x{chunks.address[index]:x}"
            yield Violation("bin-by-size", f"{place} is in bin {number}, and belongs to {expected}")
            return


def _merged(allocator: Allocator) -> Iterator[Violation]:
    chunks = allocator.chunks
    for region in allocator.regions:
        before = IN_USE
        for index in region.indices:
            state = chunks.state[index]
            if state == before == FREE and _mergeable(allocator, index - 1, index):
                text = f"the chunk at 0x{chunks.address[index]:x} and the one before it are free"
                yield Violation("neighbours-merged", text)
                return
            before = state


def _mergeable(allocator: Allocator, one: int, other: int) -> bool:
    chunks = allocator.chunks
    if chunks.freed_at is not None and (chunks.freed_at[one] or chunks.freed_at[other]):
        return False
    columns = (chunks.tag, chunks.stream)
    return all(column is None or column[one] == column[other] for column in columns)


_MOST_HANDLE_BYTES = 16 << 20  # read for checks: more is not worth the longer stop of the process
_SPARE_BYTES = 1 << 12  # growth allowed for until the process is stopped
_SIGN = 1 << 63


class RawPool(NamedTuple):
    """The bytes of an allocator at one moment."""

    address: int
    layout: Layout
    object: bytes
    regions: array[int]
    slots: array[int]  # of chunks
    firsts: Sequence[int]  # handles, one for each region
    handles: Sequence[Optional[array[int]]]  # all of a region's, if they were read
    name: str
    owners: Optional[OwnerBytes] = None

    def word(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self.object, offset)[0])


def is_busy(memory: Memory, address: int, layout: Layout) -> bool:
    """Return whether the mutex of the allocator at *address* is held."""
    return _lock_owner(layout, memory.read(address, layout.size)) is not None


def _lock_owner(layout: Layout, data: bytes) -> Optional[int]:
    """Return the thread that holds the mutex in the object's *data*; 0 if unknown, None if no thread holds it."""
    if layout.mutex is None:
        return None
    first, second = struct.unpack_from("<QQ", data, layout.mutex)
    if layout.mutex_kind == ABSL:
        return 0 if first & 8 else None
    if layout.mutex_kind == NSYNC:
        return 0 if first & 1 else None
    if layout.mutex_kind == PTHREAD:
        return second & 0xFFFFFFFF if first & 0xFFFFFFFF else None
    return None


class Buffers:
    """Buffers for the data of an allocator, allocated before its process is stopped."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        """Allocate for *sizes*, the bytes that will be read, in the order of reading."""
        self._made = deque(array("Q", bytes((size + size // 16 + _SPARE_BYTES) & -8)) for size in sizes)

    @property
    def bytes(self) -> int:
        return sum(8 * len(one) for one in self._made)

    def read(self, memory: Memory, address: int, size: int) -> array[int]:
        """Return the words from *address* on, *size* bytes of them."""
        count = size >> 3
        words = self._made.popleft() if self._made else array("Q")
        if len(words) < count:
            words = array("Q", bytes(8 * count))
        del words[count:]
        if count:
            memory.read_into(address, memoryview(words).cast("B"))
        return words


def prepare(memory: Memory, address: int, layout: Layout) -> Buffers:
    """Return buffers for capture() of the allocator at *address*, which may run meanwhile."""
    data = memory.read(address, layout.size)
    vectors = _vectors(data, layout)
    if vectors is None:
        return Buffers()
    (begin, size), (_, chunks_size) = vectors
    rows = region_rows(Buffers().read(memory, begin, size), layout.region_stride)
    return Buffers([size, chunks_size, *(wanted for wanted in _handle_bytes(rows) if wanted)])


def _vectors(data: bytes, layout: Layout) -> Optional[list[tuple[int, int]]]:
    """Return address and size of the vectors of regions and chunks of the object *data*; None if they are invalid."""
    bounds = [struct.unpack_from("<QQ", data, at) for at in (layout.regions, layout.chunks)]
    if all(begin <= end <= begin + MOST_BYTES for begin, end in bounds):
        return [(begin, end - begin) for begin, end in bounds]
    return None


def _handle_bytes(rows: Iterable[tuple[int, int, int]]) -> Iterator[int]:
    """Yield the number of bytes to read of each region's handles; 0: too many."""
    left = _MOST_HANDLE_BYTES
    for _, size, _ in rows:
        wanted = -(-size // SMALLEST) * 8
        left -= wanted
        yield wanted if left >= 0 else 0


def capture(memory: Memory, address: int, layout: Layout, buffers: Optional[Buffers] = None) -> RawPool:
    """Read all data of the allocator at *address*, into *buffers* if they are large enough.

    Raises MemoryUnreadable, and LayoutUnknown if it is no longer an allocator.
    """
    buffers = buffers or Buffers()
    data = memory.read(address, layout.size)
    floors = [struct.unpack_from("<Q", data, layout.bins + n * layout.bin_stride)[0] for n in range(BINS)]
    if floors != [bin_floor(number) for number in range(BINS)]:
        raise LayoutUnknown(address, "been an allocator", "its 21 bins are gone")
    vectors = _vectors(data, layout)
    if vectors is None:
        raise LayoutUnknown(address, "been an allocator", "its vectors end before they begin")
    regions, slots = (buffers.read(memory, begin, size) for begin, size in vectors)
    pointers = regions[layout.handles >> 3 :: layout.region_stride >> 3]
    firsts = [read_words(memory, pointer, 8)[0] for pointer in pointers]
    wanted = _handle_bytes(region_rows(regions, layout.region_stride))
    handles = [
        buffers.read(memory, pointer, size) if size else None for pointer, size in zip(pointers, wanted)
    ]
    named = characters_at if layout.name_is_pointer else string_at
    name = named(memory, address + layout.name) if layout.name is not None else ""
    owners = capture_owners(memory, slots, layout.chunk_stride >> 3) if layout.has_owners else None
    return RawPool(address, layout, data, regions, slots, firsts, handles, name, owners)


def decode(raw: RawPool, source: str) -> Allocator:
    """Decode *raw* to an allocator, with every rule that it violates."""
    layout = raw.layout
    order, regions, violations = _walk(raw)
    texts = raw.owners.texts() if raw.owners is not None else {}
    chunks = _with_owners(_columns(raw, order), order, texts)
    owner = _lock_owner(layout, raw.object)
    counters = _counters(raw, regions)
    allocator = Allocator(
        name=raw.name,
        class_name=layout.class_name,
        kind=layout.kind,
        source=source,
        regions=regions,
        chunks=chunks,
        limit_bytes=raw.word(layout.limit),
        options=_options(raw),
        counters=counters,
        address=raw.address,
        layout="self-calibrated",
        is_locked=owner is not None,
        is_complete=not violations,
        notices=_notices(raw, owner, len(texts)),
    )
    next_id = raw.word(layout.next_id) if layout.next_id is not None else None
    found = [*violations, *check_handles(raw, order, regions), *check_allocator(allocator, next_id)]
    return replace(allocator, violations=tuple(found))


def _walk(raw: RawPool) -> tuple[list[int], list[Region], list[Violation]]:
    """Return the handles of all chunks in order, the regions, and the reason if a walk ended too early."""
    step = raw.layout.chunk_stride >> 3
    pointers, sizes = raw.slots[3::step], raw.slots[0::step]
    before, following = raw.slots[4::step], raw.slots[5::step]
    count = len(pointers)
    seen = bytearray(count)
    order: list[int] = []
    regions, violations = [], []
    for first, (base, size, _) in zip(raw.firsts, region_rows(raw.regions, raw.layout.region_stride)):
        start, at, handle, previous, why = len(order), base, first, NONE, None
        while handle != NONE:
            if handle >= count:
                why = Violation("handle-in-range", f"handle {handle} follows at 0x{at:x}, of {count} chunks")
            elif seen[handle]:
                why = Violation("no-cycle", f"chunk {handle} follows at 0x{at:x}, and was met before")
            elif pointers[handle] != at:
                why = Violation(
                    "chunks-adjoin", f"chunk {handle} begins at 0x{pointers[handle]:x}, not at 0x{at:x}"
                )
            elif sizes[handle] > base + size - at:
                why = Violation(
                    "chunk-in-region", f"chunk {handle} at 0x{at:x} ends behind the region at 0x{base:x}"
                )
            elif before[handle] != previous:
                why = Violation("prev-mirrors-next", f"chunk {handle} at 0x{at:x} has another one before it")
            if why is not None:
                break
            seen[handle] = 1
            order.append(handle)
            at += sizes[handle]
            previous, handle = handle, following[handle]
        if why is None and at != base + size:
            why = Violation("chunks-fill-region", f"the chunks of the region at 0x{base:x} end at 0x{at:x}")
        if why is not None:
            violations.append(why)
        regions.append(Region(base, size, start, len(order) - start))
    return order, regions, violations


def _columns(raw: RawPool, order: Sequence[int]) -> Chunks:
    layout = raw.layout
    step = layout.chunk_stride >> 3

    def column(word: int, kind: str = "Q") -> array[int]:
        values = raw.slots[word::step]
        if not order:
            return array(kind)
        picked = itemgetter(*order)(values) if len(order) > 1 else (values[order[0]],)
        if kind == "q":
            return array("q", [value - (1 << 64) if value >= _SIGN else value for value in picked])
        return array(kind, picked)

    ids = column(2, "q")
    bins = array("i", [(value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000 for value in column(6)])
    # A requested size that doesn't fit into a signed word is invalid.
    requested = array("q", [min(value, _SIGN - 1) for value in column(1)])
    return Chunks(
        address=column(3),
        size=column(0),
        state=bytes(0 if number == -1 else 1 for number in ids),
        requested=requested,
        allocation_id=ids,
        bin=bins,
        freed_at=column(7) if layout.has_timestamps else None,
        tag=bytes(value & 0xFF for value in column(8)) if layout.has_tags else None,
        stream=column(7) if layout.has_streams else None,
    )


def _with_owners(chunks: Chunks, order: Sequence[int], texts: Mapping[int, str]) -> Chunks:
    if not texts:
        return chunks
    names = {"": 0}
    column = array("I", [names.setdefault(texts.get(handle, ""), len(names)) for handle in order])
    return replace(chunks, owner=column, owners=list(names))


def _counters(raw: RawPool, regions: Sequence[Region]) -> Counters:
    stats = raw.layout.stats
    if stats is None:
        return Counters()
    pool = raw.word(stats.pool) if stats.pool is not None else None
    reserved = None
    if raw.layout.kind == ONNXRUNTIME and pool is not None:
        reserved = max(0, pool - sum(region.size_bytes for region in regions))
    return Counters(
        in_use_bytes=raw.word(stats.in_use),
        peak_in_use_bytes=raw.word(stats.peak),
        pool_bytes=pool,
        allocations=raw.word(stats.allocations),
        largest_allocation_bytes=raw.word(stats.largest),
        reserved_bytes=reserved,
    )


def _options(raw: RawPool) -> Options:
    layout = raw.layout
    limit = raw.word(layout.limit)

    def flag(offset: Optional[int]) -> Optional[bool]:
        return None if offset is None else bool(raw.object[offset])

    growth, split = None, None
    if layout.options is not None:
        growth = bool(raw.object[layout.options])
        (fraction,) = struct.unpack_from("<d", raw.object, layout.options + 8)
        split = int(fraction * limit) if fraction > 0 else 128 << 20
    if layout.split_above is not None:
        split = raw.word(layout.split_above)
    largest = None
    if layout.dead_bytes is not None:
        (split,) = struct.unpack_from("<i", raw.object, layout.dead_bytes)
    if layout.largest_extension is not None:
        value = raw.word(layout.largest_extension)
        largest = value if 0 < value < _SIGN and value % SMALLEST == 0 else None
    collects = layout.options + 2 if layout.options is not None else layout.garbage_collection
    return Options(
        allow_growth=growth,
        next_region_bytes=raw.word(layout.next_region) if layout.next_region is not None else None,
        split_above_bytes=split,
        garbage_collection=flag(collects),
        grows_as_requested=layout.strategy is not None and raw.word(layout.strategy) & 0xFFFFFFFF == 1,
        backpedals_once=layout.started_backpedal is not None,
        started_backpedal=flag(layout.started_backpedal),
        honours_alignment=layout.kind == TENSORFLOW and layout.split_above is not None,
        largest_extension_bytes=largest,
    )


def _notices(raw: RawPool, owner: Optional[int], read_owners: int) -> tuple[Notice, ...]:
    notices = []
    unread = raw.owners.annotated - read_owners if raw.owners is not None else 0
    if unread:
        text = f"the owners of {plural(unread, 'chunk')} were not read: {read_owners:,} were"
        notices.append(Notice("bfc-owners-unread", text))
    if owner is not None:
        who = f" by thread {owner}" if owner else ""
        text = f"the mutex of {raw.name or 'the allocator'} is held{who}: an operation may be in progress"
        notices.append(Notice("bfc-locked", text))
    unchecked = raw.handles.count(None)
    if unchecked:
        text = f"the handles of {plural(unchecked, 'large region')} were not compared with the chunks"
        notices.append(Notice("bfc-handles-unchecked", text))
    known = (56, 64, 72, 104) if raw.layout.kind == TENSORFLOW else (56, 64, 72)
    if raw.layout.chunk_stride not in known:
        text = (
            f"chunks of {raw.layout.chunk_stride} bytes are new: their sizes and states were recognised,"
            " owners and ends of the pool were not"
        )
        notices.append(Notice("bfc-layout-new", text))
    return tuple(notices)


# Owners of chunks: the annotations of XLA since 2026, in each chunk a std::optional of a vector of frames.
#
# The bytes are read level by level while the process is stopped, pieces that lie near each other at once, and
# decoded afterwards.


_FLAG, _VECTOR = 12, 9  # words of a chunk: whether it has an annotation, and the vector's begin and end
_STRING = 32  # bytes of a std::string, of which the last 16 may be its characters
_FRAME, _ARGUMENT = _STRING + 24, 2 * _STRING  # a name and a vector of arguments; a key and a value
_MOST_CHUNKS = 4096  # some 10 µs each, for which the process is stopped
_MOST_ITEMS = 64  # in a vector
_LONGEST = 4096  # bytes of a string
_APART, _RUN = 1 << 12, 1 << 20  # bytes between pieces that are read together, and in all

Pieces = Mapping[tuple[int, int], bytes]  # by address and size; those that can't be read are missing


@dataclass(frozen=True)
class OwnerBytes:
    """The bytes of the annotations of chunks."""

    vectors: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # by handle: address and size
    pieces: Pieces = field(default_factory=dict)
    annotated: int = 0  # chunks that have an annotation; more than `vectors` in a very large pool

    def texts(self) -> dict[int, str]:
        """Return the owners by handle, as in the allocator's own dump; those that can't be read are missing."""
        found = {}
        for handle, vector in self.vectors.items():
            text = self._text(vector)
            if text is not None:
                found[handle] = text
        return found

    def _text(self, vector: tuple[int, int]) -> Optional[str]:
        words = []
        for frame in _items(self.pieces, vector, _FRAME):
            name = self._string(frame, 0)
            arguments = [
                (self._string(one, 0), self._string(one, _STRING))
                for one in _items(self.pieces, _arguments(frame), _ARGUMENT)
            ]
            if name is None or any(None in pair for pair in arguments):
                return None
            inner = ", ".join(f"{key}={value}" for key, value in arguments)
            words.append(f"{name}{{{inner}}}" if inner else name)
        return " / ".join(words) or None

    def _string(self, item: tuple[int, bytes], offset: int) -> Optional[str]:
        inside, outside = _characters(item, offset)
        data = inside if outside is None else self.pieces.get(outside)
        return None if data is None else data.decode("utf-8", "surrogateescape")


def capture_owners(memory: Memory, slots: array[int], step: int) -> OwnerBytes:
    """Read the annotations of the chunks in *slots*, of *step* words each; in a very large pool of the largest."""
    flags = memoryview(slots).cast("B")[8 * _FLAG :: 8 * step].tobytes()
    chosen = [number for number in compress(range(len(flags)), flags) if slots[number * step + 2] != NONE]
    annotated = len(chosen)
    if not annotated:
        return OwnerBytes()
    if annotated > _MOST_CHUNKS:
        chosen = nlargest(_MOST_CHUNKS, chosen, key=lambda number: slots[number * step])
    begins, ends = slots[_VECTOR::step], slots[_VECTOR + 1 :: step]
    vectors = {number: _extent(begins[number], ends[number]) for number in chosen}
    pieces: dict[tuple[int, int], bytes] = {}
    _read(memory, vectors.values(), pieces)
    frames, words = _owner_columns(pieces, vectors.values(), _FRAME)
    strings = _outside(frames, words[0::7], words[1::7])
    arguments = list(map(_extent, words[4::7], words[5::7]))
    _read(memory, arguments, pieces)
    pairs, words = _owner_columns(pieces, arguments, _ARGUMENT)
    strings += _outside(pairs, words[0::8], words[1::8])
    strings += _outside([at + _STRING for at in pairs], words[4::8], words[5::8])
    _read(memory, strings, pieces)
    return OwnerBytes(vectors, pieces, annotated)


def _owner_columns(
    pieces: Pieces, vectors: Iterable[tuple[int, int]], size: int
) -> tuple[Sequence[int], array[int]]:
    """Return the addresses and the words of all items, of *size* bytes each, of *vectors*."""
    good = [one for one in vectors if one in pieces and one[1] % size == 0]
    words = array("Q", b"".join(pieces[one] for one in good))
    return [at for begin, length in good for at in range(begin, begin + length, size)], words


def _outside(
    addresses: Iterable[int], pointers: Iterable[int], sizes: Iterable[int]
) -> list[tuple[int, int]]:
    """Return where the characters are of those strings at *addresses* that are not short ones."""
    return [(at, size) for own, at, size in zip(addresses, pointers, sizes) if at != own + 16]


def _extent(begin: int, end: int) -> tuple[int, int]:
    return begin, max(0, end - begin)


def _arguments(frame: tuple[int, bytes]) -> tuple[int, int]:
    return _extent(*struct.unpack_from("<QQ", frame[1], _STRING))


def _items(pieces: Pieces, vector: tuple[int, int], size: int) -> Iterator[tuple[int, bytes]]:
    """Yield address and bytes of each item of a vector; nothing if it isn't one."""
    data = pieces.get(vector, b"")
    if len(data) % size == 0:
        for at in range(0, len(data), size):
            yield vector[0] + at, data[at : at + size]


def _characters(item: tuple[int, bytes], offset: int) -> tuple[Optional[bytes], Optional[tuple[int, int]]]:
    """Return the characters of the string at *offset* of *item*, or where they are."""
    address, data = item
    pointer, size = struct.unpack_from("<QQ", data, offset)
    if pointer == address + offset + 16:
        return (data[offset + 16 : offset + 16 + size] if size < 16 else None), None
    return None, (pointer, size)


def _read(memory: Memory, wanted: Iterable[tuple[int, int]], pieces: dict[tuple[int, int], bytes]) -> None:
    """Add to *pieces* all of *wanted* that can be read and is not too large."""
    run: list[tuple[int, int]] = []
    for one in sorted({one for one in wanted if one not in pieces}):
        if not 0 < one[1] <= max(_LONGEST, _MOST_ITEMS * _ARGUMENT):
            continue
        last = run[-1] if run else one
        if run and (one[0] > last[0] + last[1] + _APART or one[0] + one[1] > run[0][0] + _RUN):
            _read_run(memory, run, pieces)
            run = []
        run.append(one)
    _read_run(memory, run, pieces)


def _read_run(memory: Memory, run: Sequence[tuple[int, int]], pieces: dict[tuple[int, int], bytes]) -> None:
    if not run:
        return
    start, end = run[0][0], max(address + size for address, size in run)
    try:
        data = memory.read(start, end - start)
    except MemoryUnreadable:
        if len(run) > 1:  # something between them
            for one in run:
                _read_run(memory, [one], pieces)
        return
    for address, size in run:
        pieces[address, size] = data[address - start : address - start + size]
