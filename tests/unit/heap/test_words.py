"""Which words of a heap lead to blocks, and what blocks begin with."""

from __future__ import annotations

from gdbmem.allocators.glibc.blocks import ChunkTable
from gdbmem.arrays import import_numpy
from gdbmem.heap.blocks import HEADER, Blocks
from gdbmem.heap.links import classify
from gdbmem.heap.unused import Containers
from gdbmem.heap.words import Edges, find_edges
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import BytesMemory

np = import_numpy()

HEAP, FILE, MAPPED = 0x555555559000, 0x7FFFF6000000, 0x7FFFF7000000
VTABLE = FILE + 0x1010


def edges_of(*regions: tuple[int, list[list[int]]], mapped: tuple[tuple[int, int], ...] = ()) -> Edges:
    """Return the edges of *regions*: where each begins, and the words of its blocks, of one size; all are live."""
    tables, parts = [], []
    for base, rows in regions:
        size = 8 * len(rows[0]) + 8  # malloc's header
        words = [word for row in rows for word in (size | 1, *row)]
        table = ChunkTable(
            base, base + size * len(rows), np.arange(len(rows), dtype=np.uint32) * (size >> 4),
            np.ones(len(rows), bool),
        )  # fmt: skip
        tables.append(table)
        parts.append((base, np.array([0, *words, 0], np.uint64).tobytes()))
    areas = [(base, base + len(data)) for base, data in parts]
    files = Ranges([(FILE, FILE + 0x2000)])
    return find_edges(
        BytesMemory(parts), Blocks(tables), files, Ranges([*areas, *files.items, *mapped]),
        Containers(),
    )  # fmt: skip


def test_objects_keep_their_class_where_a_block_is_mapped_above_the_libraries() -> None:
    objects = (HEAP, [[VTABLE, 0, 0]] * 3)
    for others in ((), ((MAPPED, [[0, 0, 0]]),)):
        edges = edges_of(objects, *others)
        assert edges.objects[0].tolist() == [0, 1, 2]
        assert edges.objects[1].tolist() == [VTABLE] * 3


def test_hashes_beside_the_upper_half_of_an_older_pointer_hold_no_block() -> None:
    rng = np.random.default_rng(5)
    half = HEAP & ~0xFFFFFFFF
    hashes = (half + rng.integers(1, 1 << 32, 400)).tolist()
    some = (
        HEAP + HEADER + 48 * 7 + 13,
        HEAP + HEADER + 48 * 9 + 16,
    )  # by chance in blocks, one of them aligned
    rows = [[HEAP + HEADER + 48 * min(n + 1, 399), word, 0, 0, 0] for n, word in enumerate(hashes)]
    rows[100][1], rows[200][1] = some
    edges = edges_of((HEAP, rows))
    assert sorted(zip(*(column.tolist() for column in edges.text_ends))) == [(100, 7), (200, 9)]
    assert (edges.offsets == 1).sum() == 0
    # Texts that blocks have a pointer into may be anywhere, but where nothing is mapped.
    pointers = [[row[0], word, 0, 0, 0] for row, word in zip(rows, (half + np.arange(400) * 16 + 1).tolist())]
    pointers[100][1], pointers[200][1] = some
    elsewhere = (half, half + 0x10000)
    edges = edges_of((HEAP, pointers), mapped=(elsewhere,))
    assert len(edges.text_ends[0]) == 0
    assert (edges.offsets == 1).sum() == 2


def test_pointers_of_a_block_count_although_a_pointer_to_it_stands_before_two_numbers_as_that_of_a_text() -> (
    None
):
    first = HEAP + HEADER
    pointers = [first, 0, 0, 0, 0]
    edges = edges_of((HEAP, [[first + 48, 12, 39, 0, 0], pointers]))
    assert edges.first.tolist() == [0, 1, 2]
    text = int.from_bytes(b"a text, ", "little")
    edges = edges_of((HEAP, [[first + 48, 12, 39, 0, 0], [text, text & 0xFFFFFFFF, first, 0, 0]]))
    assert [column.tolist() for column in edges.text_ends] == [[1], [0]]


def test_a_list_of_which_malloc_made_some_nodes_larger_leads_back_by_one_of_its_pointers() -> None:
    sizes = [64 if n % 20 == 9 else 48 for n in range(400)]
    starts = [HEAP + sum(sizes[:n]) for n in range(len(sizes))]
    words = [0]
    for n, size in enumerate(sizes):
        links = [starts[(n + step) % len(sizes)] + HEADER for step in (1, -1)]
        words += [size | 1, 0, 0, *links, *[0] * (size // 8 - 5)]
    table = ChunkTable(
        HEAP, HEAP + sum(sizes), np.array([(start - HEAP) >> 4 for start in starts], np.uint32),
        np.ones(len(sizes), bool),
    )  # fmt: skip
    memory = BytesMemory([(HEAP, np.array([*words, 0], np.uint64).tobytes())])
    blocks = Blocks([table])
    edges = find_edges(memory, blocks, Ranges(), Ranges(), Containers())
    found = classify(edges, blocks.sizes())
    assert not found.back[edges.offsets == 2].any()
    assert found.back[edges.offsets == 3].all()
    assert found.lists.all()


def test_links_of_malloc_behind_what_was_asked_for_hold_no_block_however_many_there_are() -> None:
    count = 400
    chunks = [HEAP + 48 * (n * 7 % (count - 1) + 1) for n in range(count)]
    rows = [[HEAP + HEADER + 48 * ((n + 1) % count), n, 0, 0, chunk] for n, chunk in enumerate(chunks)]
    edges = edges_of((HEAP, rows))
    assert edges.weak[edges.offsets == 4].all()
    assert not edges.weak[edges.offsets == 0].any()
    edges = edges_of((HEAP, [[*row[:4], row[4] + HEADER] for row in rows]))
    assert (edges.offsets == 4).sum() > 390
    assert not edges.weak.any()
