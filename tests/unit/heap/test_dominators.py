"""Dominators are those of the definition: without which node another one can't be reached."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Optional

import pytest

from gdbmem.arrays import import_numpy
from gdbmem.heap import dominators as algorithm

np = import_numpy()

Edges = Sequence[Sequence[int]]


def reached(edges: Edges, roots: Sequence[int], without: int = -1) -> set[int]:
    found = {root for root in roots if root != without}
    todo = list(found)
    while todo:
        for target in edges[todo.pop()]:
            if target != without and target not in found:
                found.add(target)
                todo.append(target)
    return found


def by_definition(edges: Edges, roots: Sequence[int]) -> list[Optional[int]]:
    """Return the nearest dominator of each node: the one that itself is dominated by all the others."""
    everything = reached(edges, roots)
    above: dict[int, set[int]] = {node: set() for node in everything}
    for node in everything:
        for lost in everything - reached(edges, roots, node) - {node}:
            above[lost].add(node)
    return [
        None if node not in above else max(above[node], key=lambda one: len(above[one]), default=-1)
        for node in range(len(edges))
    ]


def tree_of(edges: Edges, roots: Sequence[int]) -> list[Optional[int]]:
    """Return the dominator of each node: -1 for what none but *roots* lead to, None if nothing does."""
    order = list(dict.fromkeys(roots))  # breadth first
    parent = dict.fromkeys(order, -1)
    for node in order:
        for target in edges[node]:
            if target not in parent:
                parent[target] = node
                order.append(target)
    number = {-1: 0, **{node: n for n, node in enumerate(order, 1)}}
    arcs = [(0, number[root]) for root in roots]
    arcs += [(number[node], number[target]) for node in order for target in edges[node]]
    tree = np.array([0, *(number[parent[node]] for node in order)], np.int32)
    sources, targets = (np.array(column, np.int32) for column in zip(*arcs))
    found = algorithm.dominators(tree, sources, targets)
    nodes = [-1, *order]
    above = {node: nodes[int(found[number[node]])] for node in order}
    return [above.get(node) for node in range(len(edges))]


def random_graph(seed: int) -> tuple[Edges, Sequence[int]]:
    chance = random.Random(seed)
    count = chance.randint(1, 24)
    edges = [
        [chance.randrange(count) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 6)))] for _ in range(count)
    ]
    if seed % 3 == 0:  # a list that is held at both ends, beside
        for node in range(count - 1):
            edges[node].append(node + 1)
            edges[node + 1].append(node)
    return edges, chance.sample(range(count), chance.randint(1, min(3, count)))


@pytest.fixture(
    params=[
        "as usual",
        "along lists",
        "by insertions",
        "by semidominators",
        "by some insertions, then by semidominators",
    ]
)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave as much as can be to one of the algorithms."""
    if request.param == "along lists":
        monkeypatch.setattr(algorithm, "_SELDOM", 0)
        monkeypatch.setattr(algorithm, "_ROUNDS", 0)
        monkeypatch.setattr(algorithm, "_OFTEN", 0)
        monkeypatch.setattr(algorithm, "_WIDE", 0)
    elif request.param == "by insertions":
        monkeypatch.setattr(algorithm, "_ROUNDS", 0)
        monkeypatch.setattr(algorithm, "_OFTEN", 0)
    elif request.param == "by semidominators":
        monkeypatch.setattr(algorithm, "_STEPS_PER_EDGE", 0)
        monkeypatch.setattr(algorithm, "_LOOKS_PER_EDGE", 0)
    elif request.param == "by some insertions, then by semidominators":
        monkeypatch.setattr(algorithm, "_STEPS_PER_EDGE", 0)
        monkeypatch.setattr(algorithm, "_LOOKS_PER_EDGE", 0.05)


@pytest.mark.usefixtures("way")
def test_dominators_of_random_graphs_are_those_of_the_definition() -> None:
    for seed in range(400):
        graph = random_graph(seed)
        assert tree_of(*graph) == by_definition(*graph), f"seed {seed}"


@pytest.mark.thorough
@pytest.mark.usefixtures("way")
def test_dominators_of_many_random_graphs_are_those_of_the_definition() -> None:
    for seed in range(400, 100_000):
        graph = random_graph(seed)
        assert tree_of(*graph) == by_definition(*graph), f"seed {seed}"


def many_structures(seed: int) -> tuple[Edges, Sequence[int]]:
    """Return lists in one or both directions, rings and trees of the same some hundred nodes, in any order."""
    chance = random.Random(seed)
    count = chance.choice((50, 300, 1000))
    edges: list[list[int]] = [[] for _ in range(count)]
    for _ in range(chance.randint(1, 6)):
        begin = chance.randrange(count - 10)
        nodes = list(range(begin, chance.randint(begin + 5, count)))
        if chance.random() < 0.5:
            chance.shuffle(nodes)
        width, back, ring = chance.choice((1, 1, 2, 20)), chance.random() < 0.5, chance.random() < 0.2
        for at, node in enumerate(nodes):
            if at or ring:
                parent = nodes[(at - 1) // width]
                edges[parent].append(node)
                if back:
                    edges[node].append(parent)
    return edges, chance.sample(range(count), chance.randint(1, 4))


@pytest.mark.usefixtures("way")
def test_dominators_of_lists_and_trees_are_those_of_a_search_without_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [tree_of(*many_structures(seed)) for seed in range(40)]
    monkeypatch.setattr(algorithm, "_STEPS_PER_EDGE", 0)
    monkeypatch.setattr(algorithm, "_LOOKS_PER_EDGE", 0)
    for seed, dominators in enumerate(found):
        assert dominators == tree_of(*many_structures(seed)), f"seed {seed}"


def test_a_chain_deeper_than_any_stack_is_summed_up() -> None:
    count = 100_000
    dominator = np.concatenate(([0], np.arange(count))).astype(np.int32)
    own = np.ones(count + 1, np.int64)
    own[0] = 0
    sums = own.copy()
    algorithm.retain(dominator, sums)
    assert sums[:3].tolist() == [count, count, count - 1]
    assert sums[-1] == 1


@pytest.fixture
def no_semidominators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if semidominators, which take several times as long, are computed."""

    def fail(*_: Any) -> None:
        pytest.fail("semidominators were computed")

    monkeypatch.setattr(algorithm, "semi_nca", fail)


@pytest.mark.usefixtures("no_semidominators")
@pytest.mark.parametrize("header", [False, True])
def test_a_list_held_at_both_ends_takes_no_longer_than_its_length(header: bool) -> None:
    count = 30_000
    edges = [[node + 1] for node in range(count - 1)] + [[]]
    for node in range(1, count):
        edges[node].append(node - 1)
    if not header:
        assert set(tree_of(edges, [0, count - 1])) == {-1}
    else:
        assert tree_of([*edges, [0, count - 1]], [count]) == [count] * count + [-1]


@pytest.mark.usefixtures("no_semidominators")
def test_objects_in_a_table_and_in_a_list_as_those_of_lua_take_no_round_for_each() -> None:
    count = 20_000
    table, string = range(1, count + 1), range(count + 1, 2 * count + 1)
    edges: list[list[int]] = [list(table)]
    edges += [[string[n], table[max(n - 1, 0)], string[n - 1]] for n in range(count)]
    edges += [[table[n]] for n in range(count)]
    edges.append(list(string[:5]))
    found = tree_of(edges, [0, 2 * count + 1])
    assert set(found) == {-1}


def test_a_hash_table_takes_no_step_for_each_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "_insert", lambda *_: pytest.fail("one block was looked at after another"))
    count = 20_000
    table, header, element = 0, 1, range(2, count + 2)
    edges: list[list[int]] = [list(element), [element[-1]]]
    edges += [[], *([before] for before in element[:-1])]
    edges.append([table, header])
    found = tree_of(edges, [count + 2])
    assert found == [count + 2] * (count + 2) + [-1]


def deep_trees(seed: int) -> tuple[Any, Any]:
    """Return dominators of lists beside each other, with other blocks between and below; and sizes."""
    chance = random.Random(seed)
    t = [0, *(0 for _ in range(chance.randint(1, 40)))]
    while len(t) < 30_000:
        step = chance.choice((1, 2, 3, len(t) - 1, chance.randint(1, len(t) - 1)))
        t += [len(t) - step + n for n in range(chance.choice((1, 50, 300, 10_000)))]
        t += [chance.randrange(len(t)) for _ in range(chance.randint(0, 30))]
    return np.array(t, np.int32), np.array([chance.randrange(1000) for _ in t], np.int64)


@pytest.mark.parametrize(
    ("deep", "at_a_time"), [(50, 1 << 14), (algorithm._DEEP, 100), (0, 1 << 14), (1 << 30, 5000)]
)
def test_deep_trees_are_summed_up_as_they_are_one_by_one(
    deep: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm, "_DEEP", deep)
    monkeypatch.setattr(algorithm, "_AT_A_TIME", at_a_time)
    for seed in range(3):
        t, own = deep_trees(seed)
        below = own.tolist()
        for number in range(len(t) - 1, 0, -1):
            below[t[number]] += below[number]
        top = list(range(len(t)))
        for number, dominator in enumerate(t.tolist()):
            top[number] = top[dominator] if dominator else number
        sums = own.copy()
        algorithm.retain(t, sums)
        assert sums.tolist() == below, f"seed {seed}"
        assert algorithm.highest(t).tolist() == top, f"seed {seed}"
