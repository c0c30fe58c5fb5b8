"""The layout of glibc malloc's structures, from debug information or a table of releases, and where they are.

A layout from the table is only a candidate: `locate` accepts it if it matches the heap.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at, words_at

ALIGNMENT = 16
MIN_CHUNK = 32
CHUNK_HEADER = 16  # prev_size and size
# Size of the chunk that holds a tcache → its bins. A bin is a counter of two bytes and a pointer. A free chunk is taken
# whole where less than another one would be left; glibc 2.43 rounds the size up twice where free() makes the tcache.
TCACHE_CHUNKS = {0x290: 64, 0x2A0: 64, 0x300: 76, 0x310: 76, 0x320: 76}
PREV_INUSE, IS_MMAPPED, NON_MAIN_ARENA = 1, 2, 4
_FIELD = re.compile(
    r"^/\*\s+(\d+)(?::\s*\d+)?\s+\|\s+(\d+)\s+\*/\s+.*?(\w+)((?:\[\d+\])*)(?:\s*:\s*\d+)?;\s*$", re.M
)
_TOTAL = re.compile(r"/\* total size.*?:\s+(\d+) \*/")


class Struct:
    """Field name → offset, of one structure."""

    _fields = ("offsets", "size")  # a record of a JSON document, as a named tuple is
    offsets: dict[str, int]
    size: int

    def __init__(self, offsets: dict[str, int], size: int) -> None:
        self.offsets, self.size = offsets, size

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Struct) else NotImplemented

    def __contains__(self, field: str) -> bool:
        return field in self.offsets

    def __getitem__(self, field: str) -> int:
        return self.offsets[field]

    def number(self, raw: bytes, field: str, size: int = 8) -> int:
        """Return the *field*, of *size* bytes, of the structure with the bytes *raw*; 0 if it has no such field."""
        at = self.offsets.get(field)
        return 0 if at is None else int.from_bytes(raw[at : at + size], "little")


class MallocLayout(NamedTuple):
    """The structures of one glibc."""

    state: Struct  # malloc_state
    parameters: Struct  # malloc_par

    @property
    def fastbin_count(self) -> int:
        return 10 if "fastbinsY" in self.state else 0


class LibcFacts(NamedTuple):
    """Facts from a libc's file: the addresses of malloc's variables (as in the file), and their layout."""

    symbols: dict[str, int]
    layout: Optional[MallocLayout]


def parse_ptype(text: str) -> Optional[Struct]:
    """Parse the structure printed by gdb's ``ptype /o``; None if gdb knew none."""
    total = _TOTAL.search(text)
    offsets: dict[str, int] = {}
    for match in _FIELD.finditer(text):
        offsets.setdefault(match[3], int(match[1]))
    return Struct(offsets, int(total[1])) if total and offsets else None


def _state(first: int, fastbins: bool) -> Struct:
    offsets = {"mutex": 0, "flags": 4}
    if fastbins:
        offsets.update(have_fastchunks=8, fastbinsY=16)
    names = ("top", "last_remainder", "bins")
    offsets.update({name: first + 8 * n for n, name in enumerate(names)})
    after = first + 16 + 254 * 8
    offsets["binmap"] = after
    further = ("next", "next_free", "attached_threads", "system_mem", "max_system_mem")
    offsets.update({name: after + 16 + 8 * n for n, name in enumerate(further)})
    return Struct(offsets, after + 56)


def _parameters(counts: int, thp: Optional[int]) -> Struct:
    offsets = {
        "trim_threshold": 0,
        "top_pad": 8,
        "mmap_threshold": 16,
        "arena_test": 24,
        "arena_max": 32,
        "n_mmaps": counts,
        "n_mmaps_max": counts + 4,
        "max_n_mmaps": counts + 8,
        "no_dyn_threshold": counts + 12,
    }
    after = (counts + 16 + 7) & ~7
    offsets.update(mmapped_mem=after, max_mmapped_mem=after + 8, sbrk_base=after + 16)
    if thp is not None:
        offsets.update(thp_pagesize=thp, hp_pagesize=thp + 8)
    return Struct(offsets, after + 24)


# Sources: malloc/malloc.c and malloc/arena.c of the releases named.
STATES = (
    ("glibc 2.27 to 2.42", _state(96, fastbins=True)),
    ("glibc 2.43", _state(8, fastbins=False)),
)
PARAMETERS = (
    ("glibc 2.35 to 2.42", _parameters(60, thp=40)),
    ("glibc 2.43", _parameters(68, thp=48)),
    ("glibc 2.26 to 2.34", _parameters(40, thp=None)),
)


def parameters_of(state: Struct) -> list[Struct]:
    """Return the layouts of malloc_par in the releases of the table whose malloc_state is *state*."""
    has_fastbins = "fastbinsY" in state
    return [struct for name, struct in PARAMETERS if (name != "glibc 2.43") == has_fastbins]


# Finding glibc's malloc in a process: main_arena and mp_, by symbol or by their contents.


_BINS = 127  # pairs of pointers in malloc_state.bins
_MOST_ODD = 2  # bins that a thread in malloc may have changed in part
_HEAP_STEP, _HEAP_INFO = 1 << 20, 0x100  # further arenas are at the start of a heap, after its description
_MOST_ARENAS = 100_000
_FIRST_CHUNKS = 16
_MOST_CHANGING = 64  # threads that are changing mp_ at one moment
_MOST_BYTES = 1 << 47
_PAGE = 4096
HEAP_MAX = 64 << 20  # heaps of further arenas are aligned to this


class Found(NamedTuple):
    """Addresses of malloc's variables in this process."""

    main_arena: int
    layout: MallocLayout
    parameters: Optional[int]  # address of mp_
    source: str  # "debug information" or "layouts"


def locate(
    memory: Memory, mappings: Sequence[Mapping], data: Sequence[tuple[int, int]], bias: int, facts: LibcFacts
) -> Optional[Found]:
    """Return the location of malloc's state; None if none matches the heap.

    *data* are the writable ranges of the object that malloc is part of, loaded at *bias*.
    """
    if facts.layout is not None and "main_arena" in facts.symbols:
        state = bias + facts.symbols["main_arena"]
        if state_is_sound(memory, mappings, state, facts.layout.state):
            mp = bias + facts.symbols["mp_"] if "mp_" in facts.symbols else None
            return Found(state, facts.layout, mp, "debug information")
    for start, end in data:
        for state, struct in _candidates(memory, start, end):
            if state_is_sound(memory, mappings, state, struct):
                return _with_parameters(memory, mappings, state, struct, data)
    return None


def state_is_sound(memory: Memory, mappings: Sequence[Mapping], state: int, struct: Struct) -> bool:
    """Return whether a malloc_state at *state* is consistent with itself and with the heap."""
    try:
        raw = memory.read(state, struct.size)
    except MemoryUnreadable:
        return False

    def word(offset: int) -> int:
        return int.from_bytes(raw[offset : offset + 8], "little")

    bins = state + struct["bins"]
    top, system, most = word(struct["top"]), word(struct["system_mem"]), word(struct["max_system_mem"])
    if max(system, most) > _MOST_BYTES or not _comes_round(
        memory, state, word(struct["next"]), struct["next"]
    ):
        return False
    odd = 0
    for number in range(_BINS):
        own = bins + 16 * number - 16
        forward, backward = word(struct["bins"] + 16 * number), word(struct["bins"] + 16 * number + 8)
        odd += (forward == own) != (backward == own) and bool(forward and backward)
    if odd > _MOST_ODD:
        return False
    if top in (0, bins - 16):
        return system == 0
    # The size of the top chunk says nothing: malloc writes it after moving the top.
    home = next((m for m in mappings if m.start <= top < m.end), None)
    return home is not None and top % 16 == 0 and "w" in home.permissions and system > 0


def _comes_round(memory: Memory, state: int, following: int, offset: int) -> bool:
    """Return whether the ring of arenas is closed, the best test to distinguish the layouts of releases."""
    for _ in range(_MOST_ARENAS):
        if following == state:
            return True
        if not following or following % 8:
            return False
        try:
            following = word_at(memory, following + offset)
        except MemoryUnreadable:
            return False
    return False


def _candidates(memory: Memory, start: int, end: int) -> Iterator[tuple[int, Struct]]:
    """Yield possible main arenas: the word `next` points to itself, or to an arena at the start of a heap."""
    try:
        words = memoryview(memory.read(start, (end - start) & -8)).cast("Q")
    except MemoryUnreadable:
        return
    own = {struct["next"]: struct for _, struct in STATES}
    for index, word in enumerate(words):
        if not word or word & 7:
            continue
        address = start + 8 * index
        if address - word in own:
            chosen = [own[address - word]]
        elif word & (_HEAP_STEP - 1) < _HEAP_INFO and not word & 15:
            chosen = list(own.values())
        else:
            continue
        for struct in chosen:
            state = address - struct["next"]
            if state >= start and _has_bins(memory, state, struct):
                yield state, struct


def _has_bins(memory: Memory, state: int, struct: Struct) -> bool:
    """Return whether the bins of a malloc_state at *state* are rings, except those being changed."""
    first = state + struct["bins"]
    try:
        heads = words_at(memory, first, 2 * _BINS)
    except MemoryUnreadable:
        return False
    odd = 0
    for number in range(_BINS):
        head = first + 16 * number - 16
        forward, backward = heads[2 * number], heads[2 * number + 1]
        if forward == backward == head:
            continue
        try:
            odd += word_at(memory, forward + 24) != head or word_at(memory, backward + 16) != head
        except MemoryUnreadable:
            return False
        if odd > _MOST_ODD:
            return False
    return True


def _with_parameters(
    memory: Memory, mappings: Sequence[Mapping], state: int, struct: Struct, data: Sequence[tuple[int, int]]
) -> Found:
    layouts = parameters_of(struct)
    heap = next((m for m in mappings if m.name == "[heap]"), None)
    candidates: list[tuple[int, int, Struct]] = []
    if heap is not None:
        for start, end in data:
            candidates += _parameter_candidates(memory, start, end, heap, layouts)
    if not candidates:
        return Found(state, MallocLayout(struct, layouts[0]), None, "layouts")
    _, address, parameters = min(candidates, key=lambda one: one[0])
    return Found(state, MallocLayout(struct, parameters), address, "layouts")


def _parameter_candidates(
    memory: Memory, start: int, end: int, heap: Mapping, layouts: Sequence[Struct]
) -> Iterator[tuple[int, int, Struct]]:
    """Yield possible values of sbrk_base, each with the address and the layout that mp_ would have."""
    try:
        words = memoryview(memory.read(start, (end - start) & -8)).cast("Q")
    except MemoryUnreadable:
        return
    # sbrk_base: where the heap begins, or later if something else took the first bytes, as a static program's
    # thread-local variables do. Other variables may point to any block.
    first = heap.start if _begins(memory, heap.start, heap) else None
    for index, value in enumerate(words):
        if value != first if first is not None else not heap.start <= value < heap.end:
            continue
        if first is None and not _begins(memory, value, heap):
            continue
        for struct in layouts:
            address = start + 8 * index - struct["sbrk_base"]
            if address >= start and _parameters_are_sound(memory, address, struct):
                yield value, address, struct


def _begins(memory: Memory, address: int, heap: Mapping) -> bool:
    """Return whether the chunks of *heap* may begin at *address*: the first few have possible sizes."""
    chunk = (address + 15) & ~15
    try:
        word = word_at(memory, chunk + 8)
        if not word & PREV_INUSE:
            return False
        for _ in range(_FIRST_CHUNKS):
            size = word & ~7
            if size < MIN_CHUNK or size & 8 or chunk + size > heap.end:
                return False
            chunk += size
            if chunk + CHUNK_HEADER > heap.end:
                break
            word = word_at(memory, chunk + 8)
    except MemoryUnreadable:
        return False
    return True


def _parameters_are_sound(memory: Memory, address: int, struct: Struct) -> bool:
    try:
        raw = memory.read(address, struct.size)
    except MemoryUnreadable:
        return False
    number = partial(struct.number, raw)
    count, most = number("n_mmaps", 4), number("max_n_mmaps", 4)
    mapped, most_mapped = number("mmapped_mem"), number("max_mmapped_mem")
    # Threads in malloc may have changed one of two numbers. Since glibc 2.43 mmapped_mem grows by 16 bytes, for good,
    # when a mapped block is resized (mremap_chunk).
    return (
        count <= most + _MOST_CHANGING
        and most <= max(number("n_mmaps_max", 4), 1)
        and max(mapped, most_mapped) <= _MOST_BYTES
        and mapped % ALIGNMENT == 0
        and mapped >= (count - _MOST_CHANGING) * _PAGE
        and number("arena_test") <= 1 << 16
        and number("mmap_threshold") <= 1 << 40
        and number("n_mmaps_max", 4) >= 16
    )


class Parameters(NamedTuple):
    """The fields of mp_ that the ledger needs; bytes unless a count."""

    mmapped_chunks: int
    mmapped_bytes: int
    sbrk_base: int
    thp_page: int
    huge_page: int
    trim_threshold: int
    top_pad: int
    mmap_threshold: int


def read_parameters(memory: Memory, found: Found) -> Optional[Parameters]:
    """Return mp_'s fields; None if it wasn't found."""
    if found.parameters is None:
        return None
    struct = found.layout.parameters
    number = partial(struct.number, memory.read(found.parameters, struct.size))
    return Parameters(
        number("n_mmaps", 4),
        number("mmapped_mem"),
        number("sbrk_base"),
        number("thp_pagesize"),
        number("hp_pagesize"),
        number("trim_threshold"),
        number("top_pad"),
        number("mmap_threshold"),
    )


# Finding libc's thread-local variables: at the same distance from every thread pointer, listed in the DTV.
#
# The program's own thread-local memory, which may be megabytes, is in between. Each thread's DTV has the start of
# the block of each module. Source: glibc sysdeps/generic/dl-dtv.h, sysdeps/x86_64/nptl/tls.h, elf/dl-tls.c.


_MOST_MODULES = 4096
_FARTHEST = 1 << 30
_TLS_PAGE = 4096
_ZEROS = bytes(_TLS_PAGE)
_NEAR = (-_TLS_PAGE, _TLS_PAGE)  # if a thread's DTV can't be read
_UNKNOWN_BYTES = 1 << 10  # of libc's own block if its size is unknown


def static_blocks(memory: Memory, pointers: Sequence[int], size: int = 0) -> list[tuple[int, int]]:
    """Return possible starts and ends of blocks of *size* bytes, relative to each of the thread pointers *pointers*.

    These are the blocks at the same distance in every thread; the memory around the pointer if no DTV is readable.
    """
    common: set[int] = set()
    for number, pointer in enumerate(pointers[:4]):
        found = set(_distances(memory, pointer))
        common = found if not number else common & found
    size = size or _UNKNOWN_BYTES
    return [(distance, distance + size) for distance in sorted(common)] or [_NEAR]


def _distances(memory: Memory, pointer: int) -> Iterator[int]:
    try:
        first, second = words_at(memory, pointer, 2)
        table = second if first == pointer else first  # x86: the thread pointer points to itself
        count = word_at(memory, table - 16)
        entries = words_at(memory, table, 2 * min(count, _MOST_MODULES) + 2)
    except MemoryUnreadable:
        return
    for start in entries[2::2]:
        if start % 8 == 0 and abs(start - pointer) < _FARTHEST:
            yield start - pointer


class ThreadVariables:
    """The words of many threads that may be libc's thread-local variables."""

    def __init__(self) -> None:
        self.blocks: dict[int, dict[int, memoryview]] = {}  # tid → distance → words

    @classmethod
    def read(cls, memory: Memory, pointers: dict[int, int], size: int) -> ThreadVariables:
        """Read them; *pointers* are the thread pointers by tid, *size* the bytes of libc's thread-local variables."""
        ranges = static_blocks(memory, list(pointers.values()), size)
        result = cls()
        for tid, pointer in pointers.items():
            blocks: dict[int, memoryview] = {}
            for start, end in ranges:
                blocks.update(_readable(memory, pointer, start, end))
            if blocks:
                result.blocks[tid] = blocks
        return result

    def columns(self) -> Iterator[dict[int, int]]:
        """Yield tid → word for each variable that is a pointer in at least one thread."""
        wanted: dict[tuple[int, int], None] = {}
        for blocks in self.blocks.values():
            for start, words in blocks.items():
                wanted.update(dict.fromkeys((start, index) for index in _pointers(words)))
        for start, index in sorted(wanted):
            yield {
                tid: blocks[start][index]
                for tid, blocks in self.blocks.items()
                if start in blocks and index < len(blocks[start])
            }


def _readable(memory: Memory, pointer: int, start: int, end: int) -> dict[int, memoryview]:
    """Return distance → words of the readable memory from *start* to *end* of *pointer*, if necessary by pages."""
    try:
        return {start: memoryview(memory.read(pointer + start, end - start & -8)).cast("Q")}
    except MemoryUnreadable:
        found: dict[int, memoryview] = {}
    at = start
    while at < end:
        further = min(end, at + _TLS_PAGE - (pointer + at) % _TLS_PAGE)
        with contextlib.suppress(MemoryUnreadable):
            found[at] = memoryview(memory.read(pointer + at, further - at & -8)).cast("Q")
        at = further
    return found


def _pointers(words: memoryview) -> Iterator[int]:
    step = _TLS_PAGE // 8
    for first in range(0, len(words), step):
        piece = words[first : first + step]
        if piece.tobytes() != _ZEROS:
            yield from (first + at for at, word in enumerate(piece) if word and not word & 7)


# Threads with the registers that malloc's readers need.
