"""BFC allocators in memory: where they are, and the offsets of their members, by possible contents, never by a version.

The 21 sizes of the bins identify an object, with the type information before them; no symbol is needed. An object
without type information is named by the symbol of its vtable, if the caller has one. The members after the bins are
checked against the data that they point to. An inconsistent object is refused, with the recognised parts.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.model.bfc import BINS, ONNXRUNTIME, SMALLEST, TENSORFLOW, bin_floor
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text

BEHIND_BINS = 1024  # bytes of an object that may contain the members after the bins
_BEFORE_BINS = 256
_PAGE = 4096
_BIN_STRIDES = range(16, 129, 8)
_REGION_STRIDES = (48, 40, 32)  # with a vector of handles; with an id and a pointer; with a pointer
_CHUNK_STRIDES = range(56, 513, 8)
_MOST_REGIONS = 1 << 20
MOST_BYTES = 1 << 31  # of a vector: more chunks than any pool has
_LONGEST_NAME = 256
NONE = (1 << 64) - 1  # a handle
ABSL, NSYNC, PTHREAD = "absl", "nsync", "pthread"  # mutexes


# Finding the objects, by the sizes of their 21 bins, and by the type information before them.


_LAST = struct.pack("<Q", bin_floor(BINS - 1))
_PIECE = 32 << 20
_FARTHEST = 512  # of the bins from the beginning of their object
_FOUND_STRIDES = range(16, 129, 8)
_LONGEST_CLASS = 512
_NESTED = re.compile(r"N((?:\d+\w+?)+)E$")


class FoundObject(NamedTuple):
    """An object with the bins of a BFC allocator."""

    address: int
    class_name: str  # demangled; "" if unknown


def find_objects(
    memory: Memory,
    areas: Iterable[tuple[int, int]],
    constants: Callable[[int], bool],
    vtable_name: Callable[[int], str],
    code: Callable[[int], bool],
) -> Iterator[FoundObject]:
    """Yield the allocators in *areas*, in order of address.

    *constants* returns whether an address is in read-only data of files, which contains vtables, *code* whether it is
    in their code. *vtable_name* returns the mangled class by its vtable's symbol, for programs without type
    information.
    """
    for at in _bins(memory, areas):
        found = _owner(memory, at, constants, vtable_name, code)
        if found is not None:
            yield found


def _bins(memory: Memory, areas: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the address of the first of 21 bins."""
    before = (BINS - 1) * _FOUND_STRIDES[-1]
    for start, end in areas:
        for low in range(start, end, _PIECE):
            begin = max(start, low - before)
            try:
                data = memory.read(begin, min(end, low + _PIECE) - begin)
            except MemoryUnreadable:
                continue
            at = data.find(_LAST, low - begin)
            while at >= 0:
                if (begin + at) % 4 == 0:  # character arrays to the compiler
                    for stride in _FOUND_STRIDES:
                        if _is_table(data, at, stride):
                            yield begin + at - (BINS - 1) * stride
                at = data.find(_LAST, at + 1)


def _is_table(data: bytes, last: int, stride: int) -> bool:
    """Return whether the bins before the one at *last* are *stride* bytes apart."""
    return last >= (BINS - 1) * stride and all(
        data[last - back * stride : last - back * stride + 8] == struct.pack("<Q", bin_floor(BINS - 1 - back))
        for back in range(1, BINS)
    )


def _owner(
    memory: Memory,
    bins: int,
    constants: Callable[[int], bool],
    vtable_name: Callable[[int], str],
    code: Callable[[int], bool],
) -> Optional[FoundObject]:
    """Return the object with the bins at *bins*: it begins at the nearest pointer to a vtable before them."""
    bins &= -8
    try:
        data = memory.read(bins - _FARTHEST, _FARTHEST)
    except MemoryUnreadable:
        return None
    for at in range(_FARTHEST - 16, -1, -8):
        (vtable,) = struct.unpack_from("<Q", data, at)
        if vtable % 8 or not constants(vtable):
            continue
        name = class_of(memory, vtable, constants) or class_name(vtable_name(vtable))
        if name or _is_bare_vtable(memory, vtable, code):
            return FoundObject(bins - _FARTHEST + at, name)
    return None


def _is_bare_vtable(memory: Memory, vtable: int, code: Callable[[int], bool]) -> bool:
    """Return whether functions begin at *vtable*, without type information before them."""
    try:
        top, info, *functions = struct.unpack("<QQ3Q", memory.read(vtable - 16, 40))
    except MemoryUnreadable:
        return False
    return not top and not info and all(map(code, functions))


def class_of(memory: Memory, vtable: int, constants: Callable[[int], bool]) -> str:
    """Return the class of objects with *vtable*, by its type information; "" if it has none."""
    try:
        (top, info) = struct.unpack("<QQ", memory.read(vtable - 16, 16))
        if top or info % 8 or not constants(info):
            return ""
        (text,) = struct.unpack("<Q", memory.read(info + 8, 8))
        if not constants(text):
            return ""
        mangled = (read_text(memory, text, _LONGEST_CLASS) or b"").decode("ascii")
    except (MemoryUnreadable, UnicodeDecodeError, struct.error):
        return ""
    return class_name(mangled.lstrip("*"))


def class_name(mangled: str) -> str:
    """Return N3tsl12BFCAllocatorE as tsl::BFCAllocator; "" for other forms except plain names."""
    nested = _NESTED.match(mangled)
    rest = nested[1] if nested else mangled
    parts = []
    while rest:
        digits = re.match(r"\d+", rest)
        if digits is None:
            return ""
        size = int(digits[0])
        part, rest = rest[digits.end() : digits.end() + size], rest[digits.end() + size :]
        if len(part) != size or not part.isidentifier():
            return ""
        parts.append(part)
    return "::".join(parts)


# The offsets of the members of an object.


class LayoutUnknown(TargetError):  # noqa: N818  (what it says is the condition)
    """An object that is, or was, a BFC allocator, and could not be recognised completely."""

    def __init__(self, address: int, recognised: str, missing: str) -> None:
        super().__init__(
            f"the object at 0x{address:x} has {recognised}, but {missing}: the rest can't be derived",
            slug="bfc-layout-unknown",
            hint="it may be partly constructed, destroyed, or newer than the versions that gdbmem knows",
        )


class StatsLayout(NamedTuple):
    """Offsets of the counters, in bytes from the beginning of the object."""

    allocations: int
    in_use: int
    peak: int
    largest: int
    pool: Optional[int] = None
    requested: Optional[int] = None


class Layout(NamedTuple):
    """Offsets in bytes from the beginning of the object; None for members that this version lacks, or unknown ones."""

    class_name: str  # demangled; "" without type information
    kind: str
    bins: int
    bin_stride: int
    limit: int
    regions: int
    region_stride: int
    handles: int  # in a region
    chunks: int
    chunk_stride: int
    next_region: Optional[int] = None
    options: Optional[int] = None
    split_above: Optional[int] = None  # 8 bytes, in bytes
    dead_bytes: Optional[int] = None  # onnxruntime's split rule, 4 bytes
    largest_extension: Optional[int] = None
    strategy: Optional[int] = None  # onnxruntime's arena_extend_strategy
    started_backpedal: Optional[int] = None
    garbage_collection: Optional[int] = None
    name: Optional[int] = None
    name_is_pointer: bool = False  # pointer to characters
    mutex: Optional[int] = None
    mutex_kind: str = ""
    next_id: Optional[int] = None
    stats: Optional[StatsLayout] = None
    size: int = 0

    @property
    def has_timestamps(self) -> bool:
        return self.kind == TENSORFLOW and self.chunk_stride >= 64

    @property
    def has_tags(self) -> bool:
        """True if chunks belong to an end of the pool (2026)."""
        return self.kind == TENSORFLOW and self.chunk_stride in (72, 104)

    @property
    def has_owners(self) -> bool:
        """True if chunks have annotations (since some days later)."""
        return self.kind == TENSORFLOW and self.chunk_stride == 104

    @property
    def has_streams(self) -> bool:
        return self.kind == ONNXRUNTIME and self.chunk_stride in (64, 72)


class _Object(NamedTuple):
    """The bytes of a possible allocator."""

    memory: Memory
    address: int
    words: array[int]
    class_name: str
    bins: int
    stride: int

    def word(self, offset: int) -> int:
        return self.words[offset >> 3]

    @property
    def bins_start(self) -> int:
        """End of the member before the bins, in whole words: bins are characters, and may be between two words."""
        return self.bins + 7 & -8

    @property
    def bins_end(self) -> int:
        return self.bins + BINS * self.stride + 7 & -8

    def text(self, offset: int) -> str:
        return string_at(self.memory, self.address + offset)


def find_bins(words: array[int]) -> Optional[tuple[int, int]]:
    """Return the offset and the spacing, in bytes, of the sizes of all bins in *words*; None if they are not there."""
    data = words.tobytes()
    for shift in (0, 4):
        shifted = array("Q")
        shifted.frombytes(data[shift : len(data) - 8 + shift])
        for index, value in enumerate(shifted):
            if value != SMALLEST:
                continue
            for stride in _BIN_STRIDES:
                step = stride >> 3
                if shifted[index : index + BINS * step : step].tolist() == _SIZES:
                    return (index << 3) + shift, stride
    return None


_SIZES = [bin_floor(number) for number in range(BINS)]


def calibrate(memory: Memory, address: int, class_name: str) -> Layout:
    """Return the layout of the allocator at *address*; raises LayoutUnknown with the recognised parts."""
    longest = _BEFORE_BINS + BINS * _BIN_STRIDES[-1] + BEHIND_BINS
    words = read_words(memory, address, longest)
    found = find_bins(words)
    if found is None:
        raise LayoutUnknown(
            address, f"the type of {class_name or 'an allocator'}", "not the sizes of its 21 bins"
        )
    subject = _Object(memory, address, words, class_name, *found)
    empty = None
    for regions in range(subject.bins_end, min(subject.bins_end + BEHIND_BINS, len(words) * 8 - 256), 8):
        layout = _with_vectors(subject, regions)
        if layout is None:
            continue
        if words[regions >> 3] == words[(regions >> 3) + 1]:
            # Vectors without elements are ambiguous: the counters have to show that nothing was ever in use.
            if words[regions >> 3] or layout.stats is None or not subject.word(layout.stats.peak):
                empty = empty or layout._replace(mutex=None)
            continue
        return layout
    if empty is not None:
        return empty
    raise LayoutUnknown(
        address,
        f"the bins of {class_name or 'a BFC allocator'}",
        "its regions and chunks don't fit any layout",
    )


def _with_vectors(subject: _Object, regions: int) -> Optional[Layout]:
    """Return the layout with the vector of regions at *regions*, followed by that of chunks."""
    chunks = regions + 24
    if not (_is_vector(subject, regions) and _is_vector(subject, chunks)):
        return None
    limit = _limit(subject, chunks)
    if limit is None:
        return None
    strides = _strides(subject, regions, chunks)
    if strides is None:
        return None
    region_stride, handles, chunk_stride = strides
    limit_at, stats = limit
    kind = ONNXRUNTIME if _is_onnxruntime(subject, limit_at) else TENSORFLOW
    common = Layout(
        class_name=subject.class_name,
        kind=kind,
        bins=subject.bins,
        bin_stride=subject.stride,
        limit=limit_at,
        regions=regions,
        region_stride=region_stride,
        handles=handles,
        chunks=chunks,
        chunk_stride=chunk_stride,
        stats=_stats(subject, kind, stats, chunks),
        size=stats + 256,
    )
    return _onnxruntime(subject, common) if kind == ONNXRUNTIME else _tensorflow(subject, common)


def _is_vector(subject: _Object, offset: int) -> bool:
    begin, end, limit = subject.words[offset >> 3 : (offset >> 3) + 3]
    if begin == end == limit == 0:
        return True
    return bool(begin) and begin % 8 == 0 and begin <= end <= limit and limit - begin <= MOST_BYTES


def _limit(subject: _Object, chunks: int) -> Optional[tuple[int, int]]:
    """Return the offsets of the limit and of its copy among the counters.

    The limit is one of the two words before the bins; the counters have it too.
    """
    for limit_at in (subject.bins_start - 8, subject.bins_start - 16):
        value = subject.word(limit_at)
        if limit_at < 8 or value < SMALLEST:
            continue
        for offset in range(chunks + 24 + 16, min(chunks + 24 + 200, len(subject.words) * 8), 8):
            if subject.word(offset) == value:
                return limit_at, offset
    return None


def _is_onnxruntime(subject: _Object, limit_at: int) -> bool:
    if subject.class_name:
        return subject.class_name.startswith("onnxruntime::")
    strategy = subject.word(subject.bins_start - 8) & 0xFFFFFFFF
    return limit_at == subject.bins_start - 16 and strategy in (0, 1)


def _stats(subject: _Object, kind: str, limit: int, chunks: int) -> StatsLayout:
    """Return the offsets of the counters, from the offset of the limit among them."""
    if kind == TENSORFLOW:
        # An optional of C++14's Abseil has its flag before the value; sizes end with a byte of zeros.
        first = limit - (40 if subject.word(limit - 8) & 0xFF == 1 else 32)
        pool = None
        # After the optional limit: reserved, its peak, an optional, the largest free block, the optional pool.
        if subject.word(limit + 8) & 0xFF == 1 and limit + 64 < len(subject.words) * 8:
            pool = limit + 56 if subject.word(limit + 64) & 0xFF == 1 else None
        return StatsLayout(first, first + 8, first + 16, first + 24, pool)
    first = chunks + 40
    words = (limit - first) >> 3
    if words == 5:  # 0.5: allocations, in use, total, peak, largest
        return StatsLayout(first, first + 8, first + 24, first + 32, first + 16)
    requested = limit - 32 if words >= 9 else None  # 2025 and later count that
    in_use = limit - 40 if words >= 9 else limit - 32
    return StatsLayout(first, in_use, limit - 16, limit - 8, limit - 24, requested)


def _strides(subject: _Object, regions: int, chunks: int) -> Optional[tuple[int, int, int]]:
    """Return the sizes of a region and a chunk, and the offset of a region's handles, by walking all regions."""
    begin, end = subject.words[regions >> 3 : (regions >> 3) + 2]
    first, last = subject.words[chunks >> 3 : (chunks >> 3) + 2]
    if begin == end:
        return (48, 24, 64)
    if first == last:
        return None
    try:
        slots = read_words(subject.memory, first, last - first)
        for stride in _REGION_STRIDES:
            if (end - begin) % stride or (end - begin) // stride > _MOST_REGIONS:
                continue
            table = read_words(subject.memory, begin, end - begin)
            if any(base + size != top for base, size, top in region_rows(table, stride)):
                continue
            for handles in range(24, stride, 8):
                found = _chunk_stride(subject, table, stride, handles, slots, subject.word(chunks + 24))
                if found is not None:
                    return stride, handles, found
    except MemoryUnreadable:
        pass
    return None


def region_rows(table: array[int], stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield (address, size, end) of each region in *table*."""
    step = stride >> 3
    return zip(table[0::step], table[1::step], table[2::step])


def _chunk_stride(
    subject: _Object, table: array[int], stride: int, handles: int, slots: array[int], unused: int
) -> Optional[int]:
    firsts = []
    for index in range(0, len(table), stride >> 3):
        pointer = table[index + (handles >> 3)]
        if pointer % 8 or not pointer:
            return None
        try:
            firsts.append(read_words(subject.memory, pointer, 8)[0])
        except MemoryUnreadable:
            return None
    bases = table[0 :: stride >> 3]
    good = [
        size
        for size in _CHUNK_STRIDES
        if len(slots) * 8 % size == 0 and _chains_close(slots, size >> 3, firsts, bases)
    ]
    if len(good) > 1:  # checked by unused slots: with the used ones they are all
        good = [size for size in good if _accounts_for_all(slots, size >> 3, firsts, unused)] or good[:0]
    return good[0] if len(good) == 1 else None


def _chains_close(slots: array[int], step: int, firsts: list[int], bases: array[int]) -> bool:
    """Return whether each region's first chunk begins at its start, and each next one at the end of its predecessor."""
    count = len(slots) // step
    for handle, base in zip(firsts, bases):
        at = base
        for _ in range(64):
            if handle == NONE:
                break
            if handle >= count:
                return False
            size, _, _, pointer, _, following = slots[handle * step : handle * step + 6]
            if pointer != at or not size:
                return False
            at += size
            handle = following
    return True


def _accounts_for_all(slots: array[int], step: int, firsts: list[int], unused: int) -> bool:
    count = len(slots) // step
    seen = bytearray(count)
    for handle in [*firsts, unused]:
        while handle != NONE:
            if handle >= count or seen[handle]:
                return False
            seen[handle] = 1
            handle = slots[handle * step + 5]
    return all(seen)


def _tensorflow(subject: _Object, layout: Layout) -> Layout:
    """Add the members of TensorFlow and XLA between the bins and the regions."""
    found: dict[str, object] = {}
    if layout.limit == subject.bins_start - 16:  # 2026: the split rule is in between
        found["split_above"] = subject.bins_start - 8
    name = next((at for at in range(subject.bins_end, layout.regions, 8) if subject.text(at)), None)
    found["name"] = name
    if _counts_regions_beside(subject, layout):
        found["next_region"] = subject.bins_end
        assert layout.stats is not None
        found["stats"] = layout.stats._replace(pool=subject.bins_end + 8)
        found["started_backpedal"] = subject.bins_end + 16
        found["garbage_collection"] = subject.bins_end + 17 if layout.has_timestamps else None
    elif name is not None and _has_options(subject):
        found["options"] = subject.bins_end
        total, following = subject.word(name - 24), subject.word(name - 32)
        if total == _pool_sum(subject, layout) and following and following % SMALLEST == 0:  # until 2.10
            assert layout.stats is not None
            found["stats"] = layout.stats._replace(pool=name - 24)
            found["next_region"], found["started_backpedal"] = name - 32, name - 16
        else:
            found["next_region"] = name - 24
    absl = layout.limit == 32
    found["mutex_kind"] = ABSL if absl else NSYNC
    found["mutex"] = layout.regions - (8 if absl else 16)
    found["next_id"] = (layout.stats.allocations if layout.stats else 0) - 8
    return _replaced(layout, found)


def _counts_regions_beside(subject: _Object, layout: Layout) -> bool:
    """Return whether the next region and the sum of the regions follow the bins, as until TensorFlow 2.10."""
    following, total = subject.words[subject.bins_end >> 3 : (subject.bins_end >> 3) + 2]
    is_sum = total == _pool_sum(subject, layout) and not subject.class_name.startswith("tsl::")
    return is_sum and following > 0 and following % SMALLEST == 0


def _has_options(subject: _Object) -> bool:
    """Return whether three booleans and a fraction follow the bins."""
    flags = subject.words[subject.bins_end >> 3 : (subject.bins_end >> 3) + 1].tobytes()
    (fraction,) = struct.unpack("<d", subject.words[(subject.bins_end >> 3) + 1 :][:1].tobytes())
    is_fraction = math.isfinite(fraction) and (fraction == 0 or 1e-6 <= fraction <= 1)
    return max(flags[:3]) <= 1 and any(flags) and is_fraction


def _onnxruntime(subject: _Object, layout: Layout) -> Layout:
    """Add the members of onnxruntime around the bins, and after the counters."""
    found: dict[str, object] = {"next_region": subject.bins_end, "next_id": layout.chunks + 32}
    if layout.limit == subject.bins_start - 16:
        found["strategy"] = subject.bins_start - 8
    found["name"] = next((at for at in range(8, subject.bins, 8) if subject.text(at)), None)
    if found["name"] is None and characters_at(subject.memory, subject.address + 8):
        found["name"], found["name_is_pointer"] = 8, True
    lock = subject.bins_end + 16
    found["mutex"] = lock
    found["mutex_kind"] = {40: PTHREAD, 16: NSYNC}.get(layout.regions - lock, "")
    assert layout.stats is not None
    for at in range(layout.stats.largest + 16, layout.stats.largest + 120, 8):
        if at + 32 > len(subject.words) * 8:
            break
        first, dead, growth, _ = struct.unpack("<iiii", subject.words[at >> 3 : (at >> 3) + 2].tobytes())
        if first > 0 and dead > 0 and growth > 0 and first % 256 == 0 and growth % 256 == 0:
            found["dead_bytes"] = at + 4
            found["largest_extension"] = at + 16
            break
    return _replaced(layout, found)


def _pool_sum(subject: _Object, layout: Layout) -> int:
    begin, end = subject.words[layout.regions >> 3 : (layout.regions >> 3) + 2]
    if begin == end:
        return 0
    table = read_words(subject.memory, begin, end - begin)
    return sum(size for _, size, _ in region_rows(table, layout.region_stride))


def _replaced(layout: Layout, found: dict[str, object]) -> Layout:
    return layout._replace(**found)  # type: ignore[arg-type]  # members by name


def read_words(memory: Memory, address: int, size: int) -> array[int]:
    """Return *size* bytes from *address* as words; fewer if a mapping ends before."""
    try:
        data = memory.read(address, size)
    except MemoryUnreadable:
        data = memory.read(address, min(size, _PAGE - address % _PAGE))
        while len(data) < size:
            try:
                data += memory.read(address + len(data), min(_PAGE, size - len(data)))
            except MemoryUnreadable:
                break
    words = array("Q")
    words.frombytes(data[: len(data) & -8])
    return words


def string_at(memory: Memory, address: int) -> str:
    """Return the std::string of libstdc++ at *address*, new or old ABI; "" if there is no printable string."""
    return _text(memory, address, is_old=False) or _text(memory, address, is_old=True)


def characters_at(memory: Memory, address: int) -> str:
    """Return the short text at the pointer at *address*; "" if there is no printable string."""
    try:
        (pointer,) = struct.unpack("<Q", memory.read(address, 8))
        text, end, _ = memory.read(pointer, 32).partition(b"\0")
    except MemoryUnreadable:
        return ""
    return text.decode("ascii") if end and text.isalnum() else ""


def _text(memory: Memory, address: int, *, is_old: bool) -> str:
    try:
        if is_old:  # one pointer; length, capacity and the reference count precede the text
            (pointer,) = struct.unpack("<Q", memory.read(address, 8))
            size, capacity, owners = struct.unpack("<QQq", memory.read(pointer - 24, 24))
            is_sound = size <= capacity <= 16 * _LONGEST_NAME and -1 <= owners < 1 << 20
        else:
            pointer, size = struct.unpack("<QQ", memory.read(address, 16))
            is_sound = pointer != address + 16 or size <= 15
        if not is_sound or not 0 < size <= _LONGEST_NAME:
            return ""
        data = memory.read(pointer, size + 1)
    except (MemoryUnreadable, struct.error):
        return ""
    text = data[:-1].decode("ascii", "replace")
    return text if data[-1] == 0 and text.isprintable() and text.isascii() else ""
