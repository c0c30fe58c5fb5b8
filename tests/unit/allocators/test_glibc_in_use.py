"""glibc's malloc, made up in bytes: what is in use and what is free."""

from __future__ import annotations

import struct

import pytest

from gdbmem.allocators.glibc.in_use import MOST_CHUNKS, GlibcHeap, InUse, tcache_offset
from gdbmem.allocators.glibc.layout import STATES, LibcFacts, Struct, locate, parameters_of
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import Buffer

ARENA, HEAP, TCACHE_POINTER = 0x10000, 0x100000, 0x20000
FASTBINS = STATES[0][1]


class Bytes:
    """A process's memory: zeros, and what was written."""

    def __init__(self) -> None:
        self.words: dict[int, int] = {}

    def put(self, address: int, *words: int) -> None:
        for number, word in enumerate(words):
            self.words[address + 8 * number] = word

    def read(self, address: int, size: int) -> bytes:
        first = address & ~7
        data = b"".join(struct.pack("<Q", self.words.get(a, 0)) for a in range(first, address + size + 8, 8))
        return data[address - first : address - first + size]

    def read_into(self, address: int, buffer: Buffer) -> None:
        memoryview(buffer).cast("B")[:] = self.read(address, len(buffer))


def arena(memory: Bytes, *, layout: Struct = FASTBINS, system: int = 0x10000, top: int = 0x4000) -> None:
    for number in range(127):
        at = ARENA + layout["bins"] + 16 * number
        memory.put(at, at - 16, at - 16)
    memory.put(ARENA + layout["top"], HEAP + system - top)
    memory.put(HEAP + system - top + 8, top | 1)
    memory.put(ARENA + layout["next"], ARENA)
    memory.put(ARENA + layout["system_mem"], system)


@pytest.fixture(params=[struct for _, struct in STATES], ids=[name for name, _ in STATES])
def layout(request: pytest.FixtureRequest) -> Struct:
    found: Struct = request.param
    return found


def test_what_is_neither_top_nor_free_is_in_use(layout: Struct) -> None:
    memory = Bytes()
    arena(memory, layout=layout)
    heap = GlibcHeap(memory, ARENA, layout, None)
    assert heap.in_use([]) == InUse(0x10000 - 0x4000, 0)
    # Two chunks in the unsorted bin.
    head = ARENA + layout["bins"] - 16
    one, two = HEAP + 0x1000, HEAP + 0x2FF0
    memory.put(head + 16, one, two)
    memory.put(one, 0, 0x101, two, head)
    memory.put(two, 0, 0x211, head, one)
    assert heap.in_use([]).bytes == 0x10000 - 0x4000 - 0x100 - 0x210


def test_fastbins_and_tcaches_are_free_with_protected_links_too() -> None:
    memory = Bytes()
    arena(memory)
    one, two = HEAP + 0x1000, HEAP + 0x2000
    memory.put(ARENA + 16, one)
    memory.put(one, 0, 0x21, two ^ ((one + 16) >> 12))
    memory.put(two, 0, 0x21, (two + 16) >> 12)  # a protected null
    cache = HEAP + 0x10
    memory.put(cache - 8, 0x291)
    memory.put(cache, 3 | 2 << 16)  # three of 32 bytes, two of 48
    memory.put(TCACHE_POINTER, cache)
    found = GlibcHeap(memory, ARENA, FASTBINS, None).in_use([TCACHE_POINTER])
    assert found.bytes == 0x10000 - 0x4000 - 0x290 - 2 * 0x20 - 3 * 32 - 2 * 48


@pytest.mark.parametrize("page", [0x555555610000, 0x555555611000, 0x410000], ids=hex)
@pytest.mark.parametrize("protected", [True, False])
def test_links_are_followed_whether_protected_or_not_wherever_they_lie(page: int, protected: bool) -> None:
    memory = Bytes()
    arena(memory)
    chunks = [page + 0x20 * number for number in range(5)] + [
        page + 0x1000 + 0x20 * number for number in range(5)
    ]
    memory.put(ARENA + 16, chunks[0])
    for chunk, following in zip(chunks, [*chunks[1:], 0]):
        memory.put(chunk, 0, 0x21, following ^ ((chunk + 16) >> 12 if protected else 0))
    assert GlibcHeap(memory, ARENA, FASTBINS, None).in_use([]).bytes == 0x10000 - 0x4000 - 10 * 0x20


def test_the_tcache_of_glibc_2_42_is_walked_slot_by_slot() -> None:
    memory = Bytes()
    arena(memory)
    cache, one, two = HEAP + 0x10, HEAP + 0x1010, HEAP + 0x2010
    memory.put(cache - 8, 0x301)
    memory.put(cache + 152 + 8, one)
    memory.put(one - 8, 0x31, two ^ (one >> 12))
    memory.put(two - 8, 0x31, two >> 12)
    memory.put(TCACHE_POINTER, cache)
    assert GlibcHeap(memory, ARENA, FASTBINS, None).in_use([TCACHE_POINTER]).bytes == (
        0x10000 - 0x4000 - 0x300 - 0x60
    )


def test_very_many_free_chunks_are_not_walked_and_the_answer_reports_it() -> None:
    memory = Bytes()
    arena(memory, system=0x100000)
    head = ARENA + FASTBINS["bins"] - 16
    chunks = [HEAP + 0x20 * number for number in range(MOST_CHUNKS + 1)]
    memory.put(head + 16, chunks[0])
    for chunk, following in zip(chunks, [*chunks[1:], head]):
        memory.put(chunk + 8, 0x21, following)
    assert GlibcHeap(memory, ARENA, FASTBINS, None).in_use([]) == InUse(0x100000 - 0x4000, None)


def test_blocks_with_a_mapping_of_their_own_count_where_libc_states_how_much_they_are() -> None:
    memory = Bytes()
    arena(memory)
    memory.put(0x30000, 5 << 20)
    assert GlibcHeap(memory, ARENA, FASTBINS, 0x30000).in_use([]).bytes == 0x10000 - 0x4000 + (5 << 20)


def test_a_mapped_block_that_grows_by_a_page_gains_a_page_though_mallocs_count_drifts_by_a_header() -> None:
    before, after = InUse(0x20000, 0x100, 0x10000), InUse(0x21010, 0x100, 0x11010)
    assert after.since(before) == (0x1000, True)
    shrunk = InUse(0x1F010, 0x100, 0xF010)
    assert shrunk.since(before) == (-0x1000, True)


@pytest.mark.slow
def test_a_list_of_arenas_that_never_closes_is_an_error_and_no_number() -> None:
    memory = Bytes()
    arena(memory)
    memory.put(ARENA + FASTBINS["next"], ARENA + 0x100000)
    with pytest.raises(ValueError, match="does not close"):
        GlibcHeap(memory, ARENA, FASTBINS, None).in_use([])


@pytest.mark.parametrize("drift", [0, 16, 4096 + 32])
def test_the_main_arena_is_found_by_its_bins_and_what_is_mapped_by_where_the_heap_begins(
    layout: Struct, drift: int
) -> None:
    memory = Bytes()
    arena(memory, layout=layout)
    memory.put(ARENA + layout["max_system_mem"], 0x10000)
    memory.put(HEAP + 8, 0x101, *[0] * 31, 0xBF01)  # the two chunks before the top
    memory.put(ARENA - 0x180, HEAP + 0x100)  # a variable that points to the second one, as sbrk_base would
    for used in (0, 1, 7):  # bins that hold something
        place, chunk = ARENA + layout["bins"] + 16 * used, HEAP + 0x1000 + 0x100 * used
        memory.put(place, chunk, chunk)
        memory.put(chunk + 16, place - 16, place - 16)
    parameters = parameters_of(layout)[0]
    memory.put(ARENA + 0x900 + parameters["mmapped_mem"], drift)
    memory.put(ARENA + 0x900 + parameters["sbrk_base"], HEAP)
    memory.put(
        ARENA + 0x900 + (parameters["n_mmaps_max"] & ~7), 0x10000 << 8 * (parameters["n_mmaps_max"] & 7)
    )
    heap, data = (
        Mapping(HEAP, HEAP + 0x10000, "rw-p", 0, "00:00", 0, "[heap]"),
        (ARENA - 0x200, ARENA + 0xE00),
    )
    found = locate(memory, [heap], [data], 0, LibcFacts({}, None))
    assert found is not None
    assert (found.main_arena, found.layout.state, found.parameters) == (ARENA, layout, ARENA + 0x900)
    assert found.layout.parameters is parameters
    assert locate(Bytes(), [heap], [data], 0, LibcFacts({}, None)) is None


def test_the_threads_tcaches_are_found_where_all_agree() -> None:
    memory = Bytes()
    for fs_base, cache in ((0x50000, HEAP + 0x10), (0x60000, 0), (0x70000, HEAP + 0x1010)):
        memory.put(fs_base - 0x48, cache)
        if cache:
            memory.put(cache - 8, 0x291)
    memory.put(0x50000 - 0x40, HEAP + 0x10)  # in one thread only, another word looks like it
    memory.put(0x70000 - 0x40, 0x1234)
    assert tcache_offset([0x50000, 0x60000, 0x70000], memory) == 0x48
    assert tcache_offset([0x60000], memory) is None


def test_a_thread_that_has_freed_nothing_yet_hides_no_other_threads_tcache() -> None:
    memory = Bytes()
    nobodys = 0x30000  # glibc 2.43: an empty tcache in its constants, which such threads share
    for fs_base, cache in ((0x50000, nobodys), (0x60000, HEAP + 0x10), (0x70000, nobodys)):
        memory.put(fs_base - 0x48, cache)
    memory.put(nobodys - 8, 0x64)
    memory.put(HEAP + 8, 0x311, 0x0010_0010_0010_0010)
    assert tcache_offset([0x50000, 0x60000, 0x70000], memory) == 0x48
    assert tcache_offset([0x50000, 0x70000], memory) is None
