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


@pytest.mark.parametrize("steps", [algorithm._STEPS_PER_EDGE, 0])  # 0: nothing by vectors
def test_dominators_of_random_graphs_are_those_of_the_definition(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm, "_STEPS_PER_EDGE", steps)
    for seed in range(400):
        graph = random_graph(seed)
        assert tree_of(*graph) == by_definition(*graph), f"seed {seed}"


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [algorithm._STEPS_PER_EDGE, 0])
def test_dominators_of_many_random_graphs_are_those_of_the_definition(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm, "_STEPS_PER_EDGE", steps)
    for seed in range(400, 100_000):
        graph = random_graph(seed)
        assert tree_of(*graph) == by_definition(*graph), f"seed {seed}"


def test_a_chain_deeper_than_any_stack_is_summed_up() -> None:
    count = 100_000
    dominator = np.concatenate(([0], np.arange(count))).astype(np.int32)
    own = np.ones(count + 1, np.int64)
    own[0] = 0
    sums = own.copy()
    algorithm.retain(dominator, sums)
    assert sums[:3].tolist() == [count, count, count - 1]
    assert sums[-1] == 1


def test_a_list_held_at_both_ends_is_left_to_the_second_algorithm() -> None:
    count = 30_000
    edges = [[node + 1] for node in range(count - 1)] + [[]]
    for node in range(1, count):
        edges[node].append(node - 1)
    found = tree_of(edges, [0, count - 1])
    assert set(found) == {-1}


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
