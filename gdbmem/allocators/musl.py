"""The heap of musl's malloc (mallocng, 1.2.1 and later), read without symbols, also in static programs.

The root is a secret word in the data of the object, soon followed by a pointer to the first area of descriptors, a page
that begins with the same word; areas are a list. A descriptor is of a group of up to 32 slots of one size, or of one
block with a mapping of its own. Descriptors prove themselves: no free slot is beyond the last one, a group inside a
slot of a larger group ends in that slot, else groups do not overlap, and the first word of a group leads back to its
descriptor. The last is read of `_SAMPLE` groups at most, as reading all would be reading the heap. At most
`_TOLERATED` groups may contradict this, as while a thread is inside malloc; they are CHANGING.

Slots have no caches in front of them. Blocks in gaps of files' data, which musl uses too, are counted apart.

Source: musl 1.2.3, src/malloc/mallocng/meta.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.data_words import DataWords, TouchedMemory, are_in, are_within, data_words, pointers
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.allocators.live_blocks import Blocks
from gdbmem.allocators.malloc_heap import CHANGING, LARGE, METADATA, SLAB, MallocHeap, SearchedMemory, Spans
from gdbmem.arrays import distinct, import_numpy
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import MemoryUnreadable, words_at

_TOLERATED = 2
_AREA = 4096
_WITHIN = 12  # words from the secret to the pointer
_MOST_AREAS = 1 << 20
_AREA_HEADER, _DESCRIPTOR = 3, 5  # words: secret, next, slots; two neighbours, group, masks, bits
_MOST_DESCRIPTORS = (_AREA // 8 - _AREA_HEADER) // _DESCRIPTOR
_UNIT = 16  # bytes of a group's header; slots are multiples
_SLOT_HEADER = 4  # bytes of the next slot's header, in which a block doesn't reach
_IS_MOVED = 7 << 5  # byte 1 of a slot's header: bytes 2 and 3 have the units from there to the block
_SLOTS = 32
_SINGLE = 63  # the class of a block with a mapping of its own
_SAMPLE = 1024
# Sizes of slots by class, in units.
_UNITS = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255,
    292, 340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
)  # fmt: skip


class _Groups(NamedTuple):
    """Groups in order of address, as columns."""

    starts: Any
    ends: Any
    strides: Any  # bytes of a slot
    slots: Any
    used: Any  # bit N: slot N
    are_single: Any  # one block with a mapping of its own


class _Found(NamedTuple):
    groups: _Groups
    changing: Sequence[tuple[int, int]]  # where groups are that contradict others
    odd: int  # of them, in all
    in_files: tuple[int, int] = (0, 0)  # live blocks in gaps of files' data, and their bytes


def read_heap(view: SearchedMemory, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the musl that *image* is, or that is linked into it; None if none is proved."""
    memory = TouchedMemory(view)
    for secret, first in _roots(view, memory, image):
        areas = _areas(memory, secret, first)
        found = _groups(view, memory, areas) if areas else None
        if found is not None:
            return MallocHeap(
                allocator="musl",
                layout="mallocng",
                file=image.name,
                spans=_spans(found.groups, found.changing, areas),
                odd_descriptors=found.odd,
                in_files=found.in_files,
                read_blocks=partial(_blocks, memory, found.groups),
            )
    return None


def _roots(view: SearchedMemory, memory: TouchedMemory, image: Image) -> Iterator[tuple[int, int]]:
    """Yield what may be the secret, and the first area."""
    np = import_numpy()
    words = data_words(view, image.writable)
    found = pointers(words, view.touched)
    is_area = found.values % _AREA == 0
    found = DataWords(found.addresses[is_area], found.values[is_area])
    (secrets,), readable = gather_words(memory, found.values, [0])
    before = words.at(found.addresses[:, None] - 8 * np.arange(1, _WITHIN))
    matches = readable & (secrets != 0) & (before == secrets[:, None]).any(1)
    yield from zip(secrets[matches].astype(np.uint64).tolist(), found.values[matches].tolist())


def _areas(memory: TouchedMemory, secret: int, first: int) -> Sequence[int]:
    """Return the areas on the list that begins at *first*; none if it leads elsewhere."""
    areas: dict[int, None] = {}
    at = first
    try:
        while at:
            check, following = words_at(memory, at, 2)
            if at in areas or at % _AREA or check != secret or len(areas) == _MOST_AREAS:
                return ()
            areas[at] = None
            at = following
    except MemoryUnreadable:
        return ()
    return list(areas)


def _groups(view: SearchedMemory, memory: TouchedMemory, areas: Sequence[int]) -> Optional[_Found]:
    """Return the groups that *areas* describe, and where some are changing; None unless they prove it."""
    np = import_numpy()
    at = np.array(areas, np.int64)
    rows, readable = gather(memory, at, _AREA)
    words = rows.view(np.int64).reshape(len(at), -1)
    width = _MOST_DESCRIPTORS * _DESCRIPTOR
    table = words[:, _AREA_HEADER : _AREA_HEADER + width].reshape(len(at), _MOST_DESCRIPTORS, _DESCRIPTOR)
    descriptors = at[:, None] + 8 * (_AREA_HEADER + _DESCRIPTOR * np.arange(_MOST_DESCRIPTORS))
    # A descriptor that is not in use is zeros.
    kept = readable[:, None] & are_in(view.anonymous, table[..., 2])
    in_files = _in_files(memory, *(column[readable[:, None] & ~kept] for column in (table, descriptors)))
    starts, masks, bits = table[kept][:, 2:].T
    order = np.argsort(starts)
    starts, masks, bits, descriptors = starts[order], masks[order], bits[order], descriptors[kept][order]
    slots, classes, mapped = (bits & 31) + 1, bits >> 6 & 63, np.clip(bits >> 12, -1, 1 << 35) * _AREA
    are_single = classes == _SINGLE
    strides = _UNIT * np.array(_UNITS, np.int64)[np.minimum(classes, len(_UNITS) - 1)]
    strides = np.where((mapped > 0) & (slots == 1), mapped - _UNIT, strides)
    free = (masks | masks >> 32) & 0xFFFFFFFF
    ends = np.where(mapped > 0, starts + mapped, starts + _UNIT + slots * strides)
    are_odd = (
        (free >> slots > 0) | (starts % _UNIT > 0) | (mapped < 0) | (_UNIT + slots * strides > ends - starts)
    )
    are_odd |= ~are_within(view.anonymous, starts, ends) | (
        (classes >= len(_UNITS)) & ~(are_single & (mapped > 0))
    )
    groups = _Groups(starts, ends, strides, slots, ~free & (1 << slots) - 1, are_single)
    are_odd |= _lead_elsewhere(memory, groups, descriptors)
    proved = _proved(view, groups, are_odd)
    return proved._replace(in_files=in_files) if proved is not None else None


def _in_files(memory: TouchedMemory, table: Any, descriptors: Any) -> tuple[int, int]:
    """Return the number and bytes of live blocks of the groups of *table* that lead back to their *descriptors*.

    They are in gaps of files' data, which the dynamic linker gives to malloc, and count as that.
    """
    np = import_numpy()
    starts, masks, bits = table[:, 2:].T
    (back,), readable = gather_words(memory, starts, [0])
    classes = bits >> 6 & 63
    good = readable & (starts != 0) & (back == descriptors) & (classes < len(_UNITS))
    order = np.flatnonzero(good)[np.argsort(starts[good])]
    starts, masks, bits = starts[order], masks[order], bits[order]
    slots, strides = (bits & 31) + 1, _UNIT * np.array(_UNITS, np.int64)[bits >> 6 & 63]
    used = ~(masks | masks >> 32) & (1 << slots) - 1
    groups = _Groups(
        starts, starts + _UNIT + slots * strides, strides, slots, used, np.zeros(len(starts), bool)
    )
    _, parent, _ = _inside(groups)
    counts = (used[:, None] >> np.arange(_SLOTS) & 1).sum(1) - np.bincount(parent, minlength=len(starts))
    return int(counts.sum()), int((counts * strides).sum())


def _lead_elsewhere(memory: TouchedMemory, groups: _Groups, descriptors: Any) -> Any:
    """Return which groups, of a sample and of those inside others, don't lead back to their descriptors."""
    np = import_numpy()
    count = len(groups.starts)
    child, parent, _ = _inside(groups)
    sample = np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64)
    looked_at = distinct(np.concatenate((sample, child, parent)))
    result = np.zeros(count, bool)
    (back,), readable = gather_words(memory, groups.starts[looked_at], [0])
    result[looked_at] = ~readable | (back != descriptors[looked_at])
    return result


def _proved(view: SearchedMemory, groups: _Groups, are_odd: Any) -> Optional[_Found]:
    """Return those of *groups* that prove themselves, and where the others are that overlap none; None if too many."""
    np = import_numpy()
    while True:
        good = _Groups(*(column[~are_odd] for column in groups))
        if int(are_odd.sum()) > _TOLERATED or not len(good.starts):
            return None
        child, _, fit = _inside(good)
        if fit.all():
            break
        are_odd[np.flatnonzero(~are_odd)[child[~fit]]] = True
    are_odd &= are_within(view.anonymous, groups.starts, groups.ends)
    odd = zip(groups.starts[are_odd].tolist(), groups.ends[are_odd].tolist())
    alone = ((start, end) for start, end in odd if not ((good.starts < end) & (good.ends > start)).any())
    return _Found(good, Ranges(alone).items, len(groups.starts) - len(good.starts))


def _inside(groups: _Groups) -> tuple[Any, Any, Any]:
    """Return the groups inside others, the smallest one that each is in, and whether it is in one slot of that."""
    np = import_numpy()
    children, parents = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    left = np.arange(len(groups.starts))
    outer = left[:0]
    while len(left):
        # Those of the next level are in none of those that are left.
        reached = np.concatenate(([0], np.maximum.accumulate(groups.ends[left])[:-1]))
        level = left[groups.starts[left] >= reached]
        if len(outer):
            children.append(level)
            parents.append(outer[np.searchsorted(groups.starts[outer], groups.starts[level], "right") - 1])
        left, outer = left[groups.starts[left] < reached], level
    child, parent = np.concatenate(children), np.concatenate(parents)
    begins, ends = (column[child] - groups.starts[parent] - _UNIT for column in (groups.starts, groups.ends))
    stride = groups.strides[parent]
    fit = (begins >= 0) & (begins % stride < _UNIT) & ((ends - 1) // stride == begins // stride)
    return child, parent, fit & (begins // stride < groups.slots[parent])


def _spans(groups: _Groups, changing: Sequence[tuple[int, int]], areas: Sequence[int]) -> Spans:
    """Return groups as spans; those with groups inside slot by slot, without the slots that these are in."""
    np = import_numpy()
    child, parent, _ = _inside(groups)
    is_outer = np.zeros(len(groups.starts), bool)
    is_outer[parent] = True
    whole, outer = np.flatnonzero(~is_outer), np.flatnonzero(is_outer)
    used = groups.used[whole].astype("<u4").view(np.uint8).reshape(-1, 4)
    live = np.unpackbits(used, axis=1).sum(1).astype(np.int64)
    taken = np.zeros((len(groups.starts), _SLOTS), bool)
    taken[parent, (groups.starts[child] - groups.starts[parent]) // groups.strides[parent]] = True
    row, slot = np.nonzero((np.arange(_SLOTS) < groups.slots[outer][:, None]) & ~taken[outer])
    row = outer[row]
    begins = groups.starts[row] + _UNIT + groups.strides[row] * slot
    sizes = np.where(groups.are_single, groups.ends - groups.starts - _UNIT - _SLOT_HEADER, groups.strides)
    kinds = np.where(groups.are_single, LARGE, SLAB)
    pages = Ranges((area, area + _AREA) for area in areas)
    beside = [(*page, METADATA) for page in pages.items]
    beside += [(*piece, CHANGING) for piece in changing if not pages.within(*piece)]
    columns = (
        np.concatenate((groups.starts[whole], begins)),
        np.concatenate((groups.ends[whole], begins + groups.strides[row])),
        np.concatenate((kinds[whole], kinds[row])),
        np.concatenate((sizes[whole], sizes[row])),
        np.concatenate((live, groups.used[row] >> slot & 1)),
    )
    return Spans.of(columns, beside)


def _blocks(memory: TouchedMemory, groups: _Groups) -> Blocks:
    """Return the blocks in use: of slots, those in which no group is. A block may begin some units into its slot."""
    np = import_numpy()
    child, parent, _ = _inside(groups)
    is_used = groups.used[:, None] >> np.arange(_SLOTS) & 1 == 1
    is_used[parent, (groups.starts[child] - groups.starts[parent]) // groups.strides[parent]] = False
    row, slot = np.nonzero(is_used)
    starts = groups.starts[row] + _UNIT + groups.strides[row] * slot
    single = groups.ends[row] - groups.starts[row] - _UNIT
    sizes = np.where(groups.are_single[row], single, groups.strides[row]) - _SLOT_HEADER
    headers, readable = gather(memory, starts - _SLOT_HEADER, _SLOT_HEADER)
    units = np.ascontiguousarray(headers[:, 2:]).view("<u2")[:, 0].astype(np.int64)
    moved = np.where(readable & (headers[:, 1] == _IS_MOVED), _UNIT * units, 0)
    starts, sizes = starts + moved, sizes - moved
    order = np.argsort(starts)
    return Blocks(starts[order], sizes[order])
