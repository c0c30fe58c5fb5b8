"""Following fastbins with numpy: the same blocks as one by one, even if other words look like members."""

from __future__ import annotations

import functools
import random
from array import array
from collections.abc import Sequence

import pytest

from gdbmem.allocators.glibc import fast_lists
from gdbmem.allocators.glibc.arenas import ArenaState, HeapRegion
from gdbmem.allocators.glibc.fast_lists import FastLists, read_fast_lists
from gdbmem.model.memory import BytesMemory

START, SIZE, COUNT = 0x555555559000, 48, 40_000
TOP = START + SIZE * COUNT


@pytest.fixture(autouse=True, params=["dense", "huge"])
def _rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a huge heap only the words with a node have a row of slots."""
    if request.param == "huge":
        monkeypatch.setattr(fast_lists, "_MOST_ROWS", 0)


def chunk(number: int) -> int:
    return START + SIZE * number


@functools.cache
def shuffled() -> Sequence[int]:
    """Return the numbers of all chunks in any order, the same each time."""
    return random.Random(1).sample(range(COUNT), COUNT)


def lists(order: Sequence[int], stale: Sequence[int], *, protected: bool, last: int = 0) -> FastLists:
    """Follow a list of the chunks *order*, which ends with the link *last*; *stale* ones lead into it."""
    words = array("Q", bytes(TOP + 64 - START))
    words[1 : SIZE // 8 * COUNT + 2 : SIZE // 8] = array("Q", [SIZE | 1]) * (COUNT + 1)
    links = [*zip(order, [*map(chunk, order[1:]), last])]
    links += zip(stale, [*map(chunk, stale[1:]), chunk(order[0])])
    for number, link in links:
        words[number * SIZE // 8 + 2] = link ^ (chunk(number) + 16 >> 12 if protected else 0)
    memory = BytesMemory([(START, words.tobytes()), (START & -4096, bytes(START % 4096))])
    arena = ArenaState(0, 0x1000, TOP, SIZE, TOP - START, locked=False, fastbins=[0, chunk(order[0]), 0])
    arena.regions = [HeapRegion(START, TOP, TOP + SIZE, START)]
    found = read_fast_lists(memory, arena, protected)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize("length", [1, 2, 20_000, 35_000])
def test_blocks_in_any_order_are_found_and_those_that_no_list_leads_to_are_not(
    length: int, protected: bool
) -> None:
    pytest.importorskip("numpy")
    numbers = shuffled()
    found = lists(numbers[:length], numbers[length : length + 9000], protected=protected)
    assert found.chunks.tolist() == [*map(chunk, sorted(numbers[:length]))]
    assert not found.broken


@pytest.mark.slow
@pytest.mark.parametrize("turn", [0, 1, 17, 19_999])
def test_a_list_that_leads_back_into_itself_is_named(turn: int) -> None:
    pytest.importorskip("numpy")
    numbers = shuffled()[:20_000]
    found = lists(numbers, [], protected=True, last=chunk(numbers[turn]))
    assert [(one.bin, one.is_circle) for one in found.broken] == [(1, True)]
    assert found.chunks.tolist() == [*map(chunk, sorted(numbers))]


@pytest.mark.parametrize("last", [0x4141414141414140, 0x4242, TOP + 4096, START + 16])
@pytest.mark.parametrize("length", [1, 20_000])
def test_a_list_that_leads_to_no_block_is_named_with_its_last_one(last: int, length: int) -> None:
    pytest.importorskip("numpy")
    numbers = shuffled()[:length]
    found = lists(numbers, [], protected=False, last=last)
    (broken,) = found.broken
    named = (broken.to, broken.chunk) if broken.to else (broken.chunk, broken.to)
    assert broken.bin == 1 and named[0] == chunk(numbers[-1]) and not broken.is_circle
    assert set(found.chunks.tolist()) <= {*map(chunk, numbers)}


@pytest.mark.parametrize("apart", [0x10000, 4096 + 16])
def test_lists_of_a_thread_go_on_from_one_of_its_heaps_to_another(apart: int) -> None:
    pytest.importorskip("numpy")
    count = 30_000
    starts = [START, START + SIZE * count + 48 + apart]
    words = [memoryview(bytearray(SIZE * count + 48)).cast("Q") for _ in starts]
    for mine in words:
        for number in range(count):
            mine[number * SIZE // 8 + 1] = SIZE | 5
    words[0][-5], words[0][-3] = 16 | 5, 16 | 5  # the fencepost of a heap that is full
    words[1][-5] = 32 | 5  # the top chunk
    numbers = random.Random(apart).sample(range(2 * count), 40_000)
    order = [starts[number // count] + SIZE * (number % count) for number in numbers]
    for at, to in zip(order, [*order[1:], 0]):
        mine = words[at >= starts[1]]
        mine[(at - starts[at >= starts[1]]) // 8 + 2] = to ^ (at + 16 >> 12)
    pieces = [
        (start & -4096, bytes(start % 4096) + bytes(mine.cast("B"))) for start, mine in zip(starts, words)
    ]
    arena = ArenaState(
        1, 0x1000, starts[1] + SIZE * count, SIZE, SIZE * count, locked=False, fastbins=[0, order[0], 0]
    )
    end = starts[0] + SIZE * count + 48
    arena.regions = [
        HeapRegion(starts[1], starts[1] + SIZE * count, starts[1] + SIZE * count + 48, starts[1]),
        HeapRegion(starts[0], end, end, starts[0]),
    ]
    found = read_fast_lists(BytesMemory(pieces), arena, True)
    assert found is not None
    assert found.chunks.tolist() == sorted(order)
    assert found.counts == {1: 40_000}
    assert not found.broken
    assert {start: trail.end for start, trail in found.trails.items()} == dict(
        zip(starts, [start + SIZE * count for start in starts])
    )
