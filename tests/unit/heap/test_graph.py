"""What holds a block: the strongest words that reach it; and the fewest heads of what nothing reaches."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gdbmem.allocators.glibc.blocks import ChunkTable
from gdbmem.arrays import import_numpy
from gdbmem.heap import graph as graph_module
from gdbmem.heap import holders, links
from gdbmem.heap import words as words_module
from gdbmem.heap.allocated import block_paths
from gdbmem.heap.blocks import Blocks
from gdbmem.heap.graph import Graph, Place, hold, lost_blocks, lost_structures, make_graph, numbered, search
from gdbmem.heap.holders import Answers, HeapGraph
from gdbmem.heap.links import classify
from gdbmem.heap.places import Outside, grouped
from gdbmem.heap.words import Edges
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_graph import BY_OBJECT, BY_THREAD, HeapQuery
from gdbmem.model.leaks import INTERIOR_POINTER, NO_POINTER, POINTER

np = import_numpy()

VARIABLE, OTHER, STACK = (
    Place("variable", "data", 0x1000),
    Place("other", "data", 0x2000),
    Place("stack of thread 1", "stack", 0x3000),
)
SIZE = 64


def graph_of(
    edges: Sequence[Sequence[tuple[int, int]]],
    words: Sequence[tuple[int, int]],
    places: Sequence[Place] = (VARIABLE, OTHER, STACK),
    size: int = SIZE,
) -> Graph:
    """Return the graph of *edges*: of each block, (offset in words, block); *words*: (place, block)."""
    count = len(edges)
    first = np.cumsum([0, *map(len, edges)]).astype(np.int64)
    to = np.array([to for row in edges for _, to in row], np.int32)
    offsets = np.array([offset for row in edges for offset, _ in row], np.uint8)
    none = np.zeros(0, np.int32)
    read = Edges(first, to, offsets, np.zeros(len(to), bool), (none, none), (none, np.zeros(0, np.uint64)))
    sizes = np.full(count, size, np.int64)
    numbers, blocks = (np.array(column, np.int64) for column in zip(*words)) if words else (none, none)
    unit = np.arange(count + 1, dtype=np.uint32) * (size >> 4)
    return make_graph(read, classify(read, sizes), np.ones(count, bool), unit, places, (numbers, blocks))


def retained(graph: Graph) -> dict[str, int]:
    held = hold(graph, numbered(graph, search(graph)))
    return {
        place.name: int(held.retained[held.number[graph.blocks + number]]) // SIZE
        for number, place in enumerate(graph.places)
    }


def tree(count: int) -> list[list[tuple[int, int]]]:
    """Return a binary tree whose nodes lead to their parents (word 1) and their children (2 and 3)."""
    rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for child in range(1, count):
        rows[child].insert(0, (1, (child - 1) // 2))
        rows[(child - 1) // 2].append((2 + (child - 1) % 2, child))
    return rows


def test_a_stale_word_to_a_leaf_takes_only_the_leaf_from_the_owner_of_a_tree() -> None:
    graph = graph_of(tree(127), [(0, 0), (1, 126)])
    assert retained(graph) == {"variable": 126, "other": 0, "stack of thread 1": 0}
    assert graph.trees.all()


@pytest.mark.parametrize("left_out", [(), (3,)])
def test_what_two_variables_of_one_library_share_is_retained_by_the_library(left_out: Sequence[int]) -> None:
    places = (
        VARIABLE._replace(object="a.so"),
        OTHER._replace(object="a.so"),
        VARIABLE._replace(object="b.so"),
        STACK,
    )
    whole = graph_of([[(0, 1)], [], []], [(0, 0), (1, 0), (1, 2), (2, 2), (3, 1)], places)
    graph = whole.without([whole.blocks + number for number in left_out])
    # Blocks 0 and 1 are led to by the one library, and 2 by both.
    assert retained(graph.merged(*grouped(places, BY_OBJECT))) == {
        "a.so": 2,
        "b.so": 0,
        "stack of thread 1": 0,
    }
    others = (STACK._replace(thread="thread 1"), STACK._replace(thread="thread 2"))
    threads = graph_of([[], []], [(0, 0), (1, 0), (1, 1)], others)
    assert retained(threads.merged(*grouped(others, BY_THREAD))) == {"thread 1": 0, "thread 2": 1}


def test_the_pools_of_a_map_are_not_called_tree_nodes_of_a_mebibyte() -> None:
    graph = graph_of(tree(127), [(0, 0), (1, 126)], size=1 << 20)
    assert not graph.trees.any()
    assert not graph.lists.any()


def test_a_word_on_a_stack_takes_nothing_from_a_variable_and_holds_what_only_it_leads_to() -> None:
    rows = [*tree(31), [(0, 3)], [(0, 31)]]  # 32 leads to 31, and that into the tree
    assert retained(graph_of(rows, [(0, 0), (2, 20), (2, 32)])) == {
        "variable": 31, "other": 0, "stack of thread 1": 2,
    }  # fmt: skip


def test_a_list_held_at_both_ends_belongs_to_its_variable_and_is_a_list() -> None:
    count = 2000
    rows = [[(0, node + 1)] * (node + 1 < count) + [(1, node - 1)] * (node > 0) for node in range(count)]
    graph = graph_of(rows, [(0, 0), (0, count - 1)])
    assert retained(graph)["variable"] == count
    assert graph.lists.all()


def test_lists_of_any_order_are_found_each_block_once_and_behind_the_one_that_leads_to_it() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        count, lists = 5_000, chance.randint(1, 4)
        step = chance.choice((1, -1, lists, -lists))
        rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for node in range(count):
            if chance.random() < 0.9997 and 0 <= node + step < count:
                rows[node].append((0, node + step))
            if chance.random() < 0.0005:
                rows[node].append((1, chance.randrange(count)))
        words = [(0, at if step > 0 else count - 1 - at) for at in range(lists)]
        graph = graph_of(rows, words)
        found = search(graph)
        order = [int(node) for node in found.order if node < count]
        assert sorted(order) == sorted(_below(rows, [node for _, node in words], [True] * count)), (
            f"seed {seed}"
        )
        at = {node: place for place, node in enumerate(order)}
        for node in order:
            parent = int(found.parent[node])
            assert parent >= count or (at[parent] < at[node] and node in [to for _, to in rows[parent]])
        depth = dict.fromkeys(order, 0)  # the shortest way
        for node in order:
            parent = int(found.parent[node])
            depth[node] = 1 if parent >= count else depth[parent] + 1
        assert [depth[node] for node in order] == sorted(depth.values()), f"seed {seed}"


@pytest.mark.parametrize("length", [2, 3, 4, 5])
@pytest.mark.parametrize("skipped", range(5))
def test_no_block_of_a_list_is_lost_whose_blocks_were_allocated_a_few_at_a_time(
    length: int, skipped: int
) -> None:
    runs = [list(range(begin, begin + length)) for begin in range(0, 6_000, length)]
    random.Random(length).shuffle(runs)
    order = [node for run in runs for node in run][skipped:]
    rows: list[list[tuple[int, int]]] = [[] for _ in range(6_000 + length)]
    for node, following in zip(order, order[1:]):
        rows[node].append((0, following))
    graph = graph_of(rows, [(0, order[0])])
    assert [node for node in search(graph).order.tolist() if node < graph.blocks] == order


def test_nodes_that_only_links_back_lead_to_are_held_all_the_same() -> None:
    count = 100
    rows = [[(0, node + 1)] * (node + 1 < count) + [(1, node - 1)] * (node > 0) for node in range(count)]
    graph = graph_of(rows, [(0, 50)])  # the middle of the list alone is known
    lost, _ = lost_blocks(graph, search(graph))
    assert not lost.any()
    assert retained(graph)["variable"] == count


def test_lost_structures_have_as_few_heads_as_lead_to_all_of_their_blocks() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        count = chance.randint(1, 20)
        rows = [
            [(word, chance.randrange(count)) for word in range(chance.choice((0, 1, 1, 2)))]
            for _ in range(count)
        ]
        graph = graph_of(rows, [(0, chance.randrange(count))] * chance.randint(0, 1))
        lost, _ = lost_blocks(graph, search(graph))
        found = lost_structures(graph, lost)
        below = {node: _below(rows, [node], lost) for node in range(count) if lost[node]}
        heads = [int(head) for head in found.heads]
        assert set().union(*(below[head] for head in heads)) == set(below), f"seed {seed}"
        assert not any(a != b and a in below[b] for a in heads for b in heads), f"seed {seed}"
        assert found.blocks.sum() == len(below)
        assert found.bytes.sum() == SIZE * len(below)


def _below(
    rows: Sequence[Sequence[tuple[int, int]]], starts: Sequence[int], lost: Sequence[bool]
) -> set[int]:
    found, todo = set(starts), list(starts)
    while todo:
        for _, to in rows[todo.pop()]:
            if lost[to] and to not in found:
                found.add(to)
                todo.append(to)
    return found


def test_who_holds_a_long_list_takes_a_few_numbers_for_each_block() -> None:
    rows = 1 << 19
    number = np.arange(rows, dtype=np.int32)
    # Each leads to the next one and to the one before.
    to = np.stack((np.minimum(number + 1, rows - 1), np.maximum(number - 1, 0)), 1).ravel()
    none = np.zeros(0, np.int32)
    first = np.arange(0, 2 * rows + 1, 2, dtype=np.int32)
    offsets = np.tile(np.array([0, 1], np.uint8), rows)
    read = Edges(first, to, offsets, np.zeros(len(to), bool), (none, none), (none, np.zeros(0, np.uint64)))
    sizes, live = np.full(rows, SIZE, np.int32), np.ones(rows, bool)
    words = np.zeros(1, np.int64), np.zeros(1, np.int64)
    taken = []
    tracemalloc.start()
    try:
        links = classify(read, sizes)
        taken.append(tracemalloc.get_traced_memory()[1])
        unit = np.arange(rows + 1, dtype=np.uint32) * (SIZE >> 4)
        graph = make_graph(read, links, live, unit, [VARIABLE], words)
        reached = search(graph)
        tracemalloc.reset_peak()
        held = hold(graph, numbered(graph, reached))
        taken.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert held.blocks[1] == rows
    assert graph.lists.sum() == rows
    per_block = [size / rows for size in taken]
    assert per_block[0] < 70, per_block
    assert per_block[1] < 80, per_block


def test_the_holders_of_a_large_heap_take_fewer_numbers_than_its_edges_and_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (graph_module, holders, links):
        monkeypatch.setattr(module, "_ROWS", 1 << 13)
    rows = 1 << 17
    number = np.arange(rows, dtype=np.int64)
    # A tree of nodes of three sizes: each leads to two others, and some to one of another branch.
    to = np.stack((2 * number + 1, 2 * number + 2, (7 * number + 5) % rows), 1)
    here = (to < rows) & (to != number[:, None])
    here[number % 8 > 0, 2] = False
    first = np.append(0, np.cumsum(here.sum(1))).astype(np.int32)
    offsets = np.tile(np.arange(3, dtype=np.uint8), (rows, 1))[here]
    none = np.zeros(0, np.int32)
    objects = none, np.zeros(0, np.uint64)
    read = Edges(
        first, to[here].astype(np.int32), offsets, np.zeros(len(offsets), bool), (none, none), objects
    )
    units = np.append(0, np.cumsum(2 + number % 3)).astype(np.uint32)
    blocks = Blocks([ChunkTable(0x10000, 0x10000 + 16 * int(units[-1]), units[:-1], np.ones(rows, bool))])
    outside = Outside([VARIABLE], np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int64), 0, 0)
    found = HeapGraph("made", None, blocks, read, outside, {}, [])
    del to, here, first, offsets, units, number, read, blocks
    tracemalloc.start()
    try:
        view = Answers(found, found.graph(), for_one_view=True).view(HeapQuery())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert view.holders[0].retained_blocks == rows
    assert peak / rows < 60, peak / rows


def test_blocks_that_a_tcache_which_was_not_read_may_have_are_not_lost_for_certain() -> None:
    units = np.append(0, np.cumsum([13] * 10 + [4] * 5)).astype(np.uint32)
    count, none = len(units) - 1, np.zeros(0, np.int32)
    empty = Edges(
        np.zeros(count + 1, np.int32), none, np.zeros(0, np.uint8), np.zeros(0, bool), (none, none),
        (none, np.zeros(0, np.uint64)),
    )  # fmt: skip
    blocks = Blocks([ChunkTable(0x10000, 0x10000 + 16 * int(units[-1]), units[:-1], np.ones(count, bool))])
    outside = Outside([VARIABLE], none, none, none, 0, 0)
    found = HeapGraph("made", None, blocks, empty, outside, {}, [], hidden={208: 7, 32: 7})
    leaks = Answers(found, found.graph()).leaks(9)
    assert (leaks.least_blocks, leaks.least_bytes) == (3 + 5, 3 * 208 + 5 * 64)
    assert (leaks.most_blocks, leaks.most_bytes) == (15, 10 * 208 + 5 * 64)


def known_heap(
    edges: Sequence[tuple[int, int]],
    doubtful: Sequence[tuple[int, int]],
    words: Sequence[int],
    kinds: Sequence[int],
) -> HeapGraph:
    """Return a heap of blocks of which memcheck has found *kinds*; a variable has *words* that lead to blocks."""
    count, none = len(kinds), np.zeros(0, np.int32)
    first = np.searchsorted([own for own, _ in edges], np.arange(count + 1)).astype(np.int32)
    to = np.array([to for _, to in edges], np.int32)
    ends = np.array(doubtful, np.int32).reshape(-1, 2).T
    offsets, weak = np.arange(len(to)).astype(np.uint8) % 4, np.zeros(len(to), bool)
    read = Edges(first, to, offsets, weak, (ends[0], ends[1]), (none, np.zeros(0, np.uint64)))
    units = np.arange(count + 1, dtype=np.uint32) * (SIZE >> 4)
    blocks = Blocks([ChunkTable(0x10000, 0x10000 + 16 * int(units[-1]), units[:-1], np.ones(count, bool))])
    at = np.arange(len(words)) * 8 + VARIABLE.address
    outside = Outside([VARIABLE], np.zeros(len(words), np.int64), np.array(words, np.int64), at, 0, 0)
    columns = blocks.addresses(np.arange(count)), np.full(count, 48), np.zeros(count), np.array(kinds)
    paths = block_paths(blocks, "memcheck", columns, [()], Ranges())
    return HeapGraph("made", None, blocks, read, outside, {}, [], paths=paths)


def test_words_that_memcheck_knows_to_be_pointers_hold_blocks_and_older_contents_hide_no_lost_one() -> None:
    # Block 1 has an older pointer to 4, which is lost; nothing leads to 6.
    edges = [(0, 1), (1, 4), (2, 3), (4, 5)]
    doubtful = [(0, 2), (0, 7), (0, 8)]
    kinds = [POINTER] * 4 + [NO_POINTER] * 2 + [POINTER, INTERIOR_POINTER, NO_POINTER]
    found = known_heap(edges, doubtful, [0], kinds)
    answers = Answers(found, found.graph())
    leaks = answers.leaks(9)
    assert (leaks.least_blocks, leaks.most_blocks) == (3, 4)
    assert [one.message.split(",")[0] for one in found.notices] == ["2 blocks"]
    held = {row.holder.name: row.holder.retained_blocks for row in answers.by_root}
    assert held == {"variable": 5, "memory that only memcheck tells from its own": 1}


@pytest.mark.parametrize("seed", range(20))
def test_the_blocks_that_are_certainly_lost_are_those_that_memcheck_finds_lost(seed: int) -> None:
    rng = random.Random(seed)
    count = 60
    rows = sorted({(rng.randrange(count), rng.randrange(count)) for _ in range(90)})
    edges = [row for row in rows if row[0] != row[1]]
    doubtful = [edges.pop(rng.randrange(len(edges))) for _ in range(20)]
    kinds = [rng.choice((NO_POINTER, INTERIOR_POINTER, POINTER)) for _ in range(count)]
    found = known_heap(edges, doubtful, [rng.randrange(count) for _ in range(5)], kinds)
    graph = found.graph()
    lost, in_doubt = lost_blocks(graph, search(graph))
    assert lost.tolist() == [kind == NO_POINTER for kind in kinds]
    assert all(kinds[block] == INTERIOR_POINTER for block in np.flatnonzero(in_doubt))


def chained(count: int, *, is_cycle: bool) -> Graph:
    """Return the graph of *count* blocks each of which leads to the next; a cycle is lost."""
    to = np.arange(1, count + 1, dtype=np.int32)
    to[-1] = 0 if is_cycle else count - 1
    none = np.zeros(0, np.int32)
    objects = none, np.zeros(0, np.uint64)
    first = np.arange(count + 1, dtype=np.int32)
    read = Edges(first, to, np.zeros(count, np.uint8), np.zeros(count, bool), (none, none), objects)
    live, sizes = np.ones(count, bool), np.full(count, SIZE, np.int32)
    words = (none, none) if is_cycle else (np.zeros(1, np.int64), np.zeros(1, np.int64))
    unit = np.arange(count + 1, dtype=np.uint32) * (SIZE >> 4)
    return make_graph(read, classify(read, sizes), live, unit, [VARIABLE], words)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.thorough)])
def test_a_chain_of_ten_million_is_held_by_its_variable(count: int) -> None:
    graph = chained(count, is_cycle=False)
    assert retained(graph) == {"variable": count}
    assert not lost_blocks(graph, search(graph))[0].any()


@pytest.mark.slow
def test_a_block_that_a_million_lead_to_is_held_by_what_holds_them_all() -> None:
    count, none = 1_000_000, np.zeros(0, np.int32)
    to = np.zeros(2 * count, np.int32)  # block 0 is the shared one, block 1 leads to all others
    to[:count] = np.arange(2, count + 2)
    first = np.append([0, 0], np.arange(count, 2 * count + 1)).astype(np.int32)
    edges = Edges(
        first, to, np.zeros(2 * count, np.uint8), np.zeros(2 * count, bool), (none, none),
        (none, np.zeros(0, np.uint64)),
    )  # fmt: skip
    live, sizes = np.ones(count + 2, bool), np.full(count + 2, SIZE, np.int32)
    unit = np.arange(count + 3, dtype=np.uint32) * (SIZE >> 4)
    for words, shared in (([1], 1), ([1, 0], 0)):
        outside = np.arange(len(words)), np.array(words)
        graph = make_graph(edges, classify(edges, sizes), live, unit, [VARIABLE, OTHER], outside)
        assert retained(graph)["variable"] == count + 1 + shared
        assert not lost_blocks(graph, search(graph))[0].any()


@pytest.mark.slow
def test_a_lost_cycle_of_a_million_is_one_structure() -> None:
    count = 1_000_000
    graph = chained(count, is_cycle=True)
    found = lost_structures(graph, lost_blocks(graph, search(graph))[0])
    assert (len(found.heads), found.blocks.tolist(), found.bytes.tolist()) == (1, [count], [count * SIZE])


@pytest.mark.parametrize("seed", range(20))
def test_leaks_that_are_asked_for_alone_are_those_of_the_whole_answer(seed: int) -> None:
    rng = random.Random(seed)
    count = 300
    rows = [
        sorted((word, rng.randrange(count)) for word in rng.sample(range(6), rng.randrange(3)))
        for _ in range(count)
    ]
    lists = [[(0, min(n + 1, count - 1)), (1, max(n - 1, 0))] for n in range(count)]
    for edges in (rows, [*lists, *rows]):
        words = [(rng.randrange(3), rng.randrange(len(edges))) for _ in range(4)]
        whole = graph_of(edges, words)
        plain = replace(whole, to=np.where(whole.to < 0, ~whole.to, whole.to), trees=None, lists=None)
        for one, other in zip(lost_blocks(whole, search(whole)), lost_blocks(plain, search(plain))):
            assert (one == other).all()


def test_a_list_is_searched_in_the_same_order_at_once_as_one_block_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 5000
    rows = [[(0, min(n + 1, count - 1)), (1, max(n - 1, 0)), (2, 0)] for n in range(count)]
    graph = graph_of(rows, [(0, 0), (1, 2500)])
    graph.to = np.where(graph.to < 0, ~graph.to, graph.to)
    graph.trees = graph.lists = None
    single = search(graph)
    monkeypatch.setattr(graph_module, "_BEFORE_AHEAD", 8)
    assert (search(graph).order == single.order).all()
    assert len(single.order) == graph.nodes


@pytest.mark.parametrize("seed", range(20))
def test_a_block_of_many_words_is_searched_in_the_same_order_at_once_as_word_by_word(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    rows = [[(word, rng.randrange(90)) for word in range(rng.choice((0, 1, 30)))] for _ in range(90)]
    graph = graph_of(rows, [(0, 0), (1, 1), (2, 2)])
    single = search(graph)
    monkeypatch.setattr(graph_module, "_WIDE", 8)
    found = search(graph)
    for name in ("order", "parent", "phases"):
        assert (getattr(found, name) == getattr(single, name)).all()


def test_edges_beyond_what_31_bits_count_give_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, words = [*tree(31), [(0, 3)], [(0, 31)]], [(0, 0), (2, 20), (2, 32)]
    narrow = retained(graph_of(rows, words))
    for module in (graph_module, words_module):
        monkeypatch.setattr(module, "index_type", lambda _: np.int64)
    assert retained(graph_of(rows, words)) == narrow


def test_an_observer_takes_only_what_it_leads_to_from_the_owner_of_objects_whose_children_are_in_vectors() -> (
    None
):
    count, children = 121, 3
    rows: list[list[tuple[int, int]]] = []  # object, its own part, and the vector of its children
    for number in range(count):
        own, vector = 3 * number + 1, 3 * number + 2
        below = [3 * child for child in range(children * number + 1, children * number + children + 1)]
        to_parent = [(1, 3 * ((number - 1) // children))] if number else []
        rows += [[(0, own)], [(0, 3 * number), *to_parent, (2, vector)]]
        rows.append([(n, child) for n, child in enumerate(below) if child < 3 * count])
    leaf = 3 * (count - 1)
    assert retained(graph_of(rows, [(0, 0), (1, leaf)])) == {
        "variable": 3 * count - 3, "other": 0, "stack of thread 1": 0,
    }  # fmt: skip
