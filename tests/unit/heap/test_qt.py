"""Lists and hash tables of Qt hold what they use, and not what their blocks have of older contents."""

from __future__ import annotations

import tracemalloc

from gdbmem.allocators.glibc.blocks import ChunkTable
from gdbmem.arrays import import_numpy
from gdbmem.heap.blocks import HEADER, Blocks
from gdbmem.heap.unused import Containers
from gdbmem.heap.words import find_edges
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import BytesMemory

np = import_numpy()

HEAP = 0x555555559000


def weak_words(*rows: list[int]) -> set[tuple[int, int]]:
    """Return the words that lead to blocks weakly, as number of the block and of the word; each row is a live block."""
    sizes = [8 * len(row) + 8 for row in rows]
    starts = [sum(sizes[:n]) for n in range(len(rows))]
    words = [word for size, row in zip(sizes, rows) for word in (size | 1, *row)]
    memory = BytesMemory([(HEAP, np.array([0, *words, 0], np.uint64).tobytes())])
    table = ChunkTable(HEAP, HEAP + sum(sizes), np.array(starts, np.uint32) >> 4, np.ones(len(rows), bool))
    blocks = Blocks([table])
    edges = find_edges(memory, blocks, Ranges(), Ranges(), Containers(of_qt=blocks))
    holders = np.repeat(np.arange(len(rows)), np.diff(edges.first))
    return {
        (holder, number)
        for holder, number, weak in zip(holders.tolist(), edges.offsets.tolist(), edges.weak.tolist())
        if weak
    }


def address(block: int, words: int = 5) -> int:
    """Return the address of a block, those before which have so many words."""
    return HEAP + HEADER + block * (8 * words + 8)


def test_a_list_holds_the_elements_between_its_first_and_its_last_one() -> None:
    objects = [[0] * 5 for _ in range(7)]
    pointers = [address(n) for n in range(7)]
    head = [1 | 7 << 32, 2 | 7 << 32]  # room for 7 elements, of which the first two have been taken away
    assert weak_words(*objects, [*head, *pointers]) == {(7, 2), (7, 3)}
    assert {word for _, word in weak_words(*objects, [1, 2, *pointers])} <= {7, 8}, "no list"


def test_a_node_of_a_hash_table_holds_nothing_by_its_hash() -> None:
    count = 20
    head, array = 2 * count, 2 * count + 1
    nodes = [
        [
            address(head if n % 4 == 3 else n + 1),
            address(count + n) & ~0xFFFF | 7 * n,
            address(count + n),
            0,
            0,
        ]
        for n in range(count)
    ]
    for n, node in enumerate(nodes):
        node[1] = address(count + (n + 3) % count) + 5  # beside the upper half of an older pointer
    values = [[0] * 5 for _ in range(count)]
    table = [
        0,
        address(array, 5) + 16,
        1 | count << 32,
        32 | 3 << 48,
        5,
        0,
        0,
    ]  # larger than the others by 16 bytes
    chains = [address(4 * n) for n in range(5)]
    found = weak_words(*nodes, *values, table, [*chains, 0, 0])
    assert {(n, 1) for n in range(count)} <= found
    assert not {(n, word) for n in range(count) for word in (0, 2)} & found
    table[2] = 1 | (count - 1) << 32
    assert not {(n, 1) for n in range(count)} & weak_words(*nodes, *values, table, [*chains, 0, 0]), (
        "no table"
    )


def test_chains_that_lead_in_rings_and_tables_that_share_an_array_take_no_more_memory_than_the_heap() -> None:
    count = 400
    head, array = count, count + 300
    ring = [[address(n), 0, 0, 0, 0] for n in range(count)]
    tables = [[0, HEAP, 1 | 1000 << 32, 32, count, 0, 0] for _ in range(300)]
    at = address(head) + 64 * 300  # behind the tables, which are larger by 16 bytes
    for table in tables:
        table[1] = at
    chains = [address(n) for n in range(count)]
    tracemalloc.start()
    try:
        found = weak_words(*ring, *tables, [*chains, 0])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not {block for block, _ in found} - {array}, "no node of a table"
    assert peak < 20 << 20
