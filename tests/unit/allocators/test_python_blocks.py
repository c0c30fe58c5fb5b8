"""pymalloc's tables and lists possibly hostile: damaged ones are counted as such, and nothing hangs."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from gdbmem.allocators.cpython.arenas import PythonArenas, find_arenas
from gdbmem.allocators.cpython.blocks import Unsure, live_blocks
from gdbmem.allocators.cpython.objects import read_str
from gdbmem.allocators.cpython.traces import Traceback, Traces
from gdbmem.inspection.python_queries import TracedProcess
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import BytesMemory

np = pytest.importorskip("numpy")

HEAP, ARENA, POOL, BLOCK = 0x10000, 0x7F0000000000, 1 << 14, 64
CAPACITY = (POOL - 48) // BLOCK


def mapping(start: int, size: int, name: str = "") -> Mapping:
    return Mapping(start, start + size, "rw-p", 0, "00:00", 0, name, rss_bytes=size)


def memory_with(free: Sequence[int], live: int, *, entries: int = 1, index: int = 0) -> BytesMemory:
    """Return a heap with a table of *entries* entries and an arena of one pool, whose list holds blocks *free*."""
    arena = bytearray(1 << 20)
    addresses = [ARENA + 48 + number * BLOCK for number in free]
    first = addresses[0] if addresses else 0
    header = (live, first, 0, 0, index, BLOCK // 16 - 1, 48 + CAPACITY * BLOCK, POOL - BLOCK)
    struct.pack_into("<IxxxxQQQIIII", arena, 0, *header)
    for address, following in zip(addresses, [*addresses[1:], 0]):
        struct.pack_into("<Q", arena, address - ARENA, following)
    table = struct.pack("<QQIIQQQ", ARENA, ARENA + POOL, 63, 64, 0, 0, 0) * entries
    return BytesMemory([(HEAP, bytes(64) + table + bytes(4096)), (ARENA, bytes(arena))])


def arenas_in(memory: BytesMemory) -> PythonArenas:
    return find_arenas(memory, [mapping(HEAP, 4096, "[heap]"), mapping(ARENA, 1 << 20)])


def test_blocks_in_the_list_of_free_ones_are_not_live() -> None:
    memory = memory_with([3, 1, 7], CAPACITY - 3)
    unsure = Unsure()
    found = arenas_in(memory)
    addresses = [a for blocks in live_blocks(memory, found.arenas, unsure) for a in blocks.addresses.tolist()]
    expected = {ARENA + 48 + n * BLOCK for n in range(CAPACITY)} - {ARENA + 48 + n * BLOCK for n in (1, 3, 7)}
    assert set(addresses) == expected
    assert unsure == Unsure()
    assert found.live_bytes == (CAPACITY - 3) * BLOCK
    assert found.inconsistent == 0


def test_a_list_that_bites_its_tail_ends_and_is_counted_as_unsure() -> None:
    memory = memory_with([3, 1, 3], CAPACITY - 3)
    unsure = Unsure()
    assert [len(blocks.at) for blocks in live_blocks(memory, arenas_in(memory).arenas, unsure)] == [0]
    assert unsure == Unsure(1, CAPACITY - 3)


def test_a_list_that_leaves_its_pool_is_counted_as_unsure() -> None:
    memory = memory_with([3, CAPACITY + 5], CAPACITY - 2)
    unsure = Unsure()
    assert [len(blocks.at) for blocks in live_blocks(memory, arenas_in(memory).arenas, unsure)] == [0]
    assert unsure.pools == 1


def test_a_count_that_the_list_denies_is_counted_as_unsure() -> None:
    memory = memory_with([3, 1, 7], CAPACITY - 4)
    unsure = Unsure()
    assert [len(blocks.at) for blocks in live_blocks(memory, arenas_in(memory).arenas, unsure)] == [0]
    assert unsure.blocks == CAPACITY - 4


def test_an_entry_that_its_pools_deny_is_no_arena() -> None:
    data = memory_with([], CAPACITY)
    blank = BytesMemory([(HEAP, data.read(HEAP, 4096)), (ARENA, bytes(1 << 20))])
    assert not arenas_in(blank).arenas


def test_a_table_that_realloc_left_behind_counts_nothing_twice() -> None:
    # The same entry stands twice: in the table, and in an older copy of it.
    found = arenas_in(memory_with([], CAPACITY, entries=2))
    assert len(found.arenas) == 1
    assert found.live_blocks == CAPACITY


def test_arenas_are_found_without_numpy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError

    expected = arenas_in(memory_with([3], CAPACITY - 1))
    monkeypatch.setattr("gdbmem.allocators.cpython.arenas.import_numpy", missing)
    assert arenas_in(memory_with([3], CAPACITY - 1)) == expected


@pytest.mark.parametrize(
    ("at", "text", "kind"), [(40, "abc", 1), (48, "abc", 1), (56, "ñu", 1), (72, "世界", 2)]
)
def test_text_is_read_wherever_a_version_has_it(at: int, text: str, kind: int) -> None:
    encoded = text.encode({1: "latin-1", 2: "utf-16-le"}[kind]) + bytes(kind)
    head = struct.pack("<QQqqI", 1, 0x1000, len(text), 0, kind << 2 | 0b100000)
    data = head.ljust(at, b"\0") + encoded
    assert read_str(BytesMemory([(0x5000, data.ljust(400, b"\0"))]), 0x5000) == text


def test_a_str_whose_length_is_nonsense_is_no_text() -> None:
    data = struct.pack("<QQqqI", 1, 0x1000, 1 << 60, 0, 4).ljust(400, b"\0")
    assert read_str(BytesMemory([(0x5000, data)]), 0x5000) == ""


def test_untraced_memory_is_unknown_not_zero_where_traced_blocks_are_not_resident() -> None:
    traces = Traces([Traceback([], 5000, 1)], tables=1, own_bytes=100)
    assert TracedProcess("python3", 7, traces, 4096).untraced_bytes is None
    assert TracedProcess("python3", 7, traces, 8192).untraced_bytes == 8192 - 5100
