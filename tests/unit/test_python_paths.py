"""Paths of references in graphs of odd shapes: long lists, rings, wide ones."""

from __future__ import annotations

import pytest

from gdbmem.allocators.cpython.nodes import NO_OBJECT, Nodes
from gdbmem.allocators.cpython.reach import Reach
from gdbmem.allocators.cpython.references import References
from gdbmem.analysis.python_paths import Kinds, Paths, direct_holders, sum_paths

np = pytest.importorskip("numpy")

COUNT = 10_000
NO_KINDS = Kinds(frozenset({0}), frozenset(), frozenset())


def graph(kinds: list[int], edges: list[tuple[int, int]], roots: int = 0) -> tuple[Nodes, References]:
    starts = np.arange(len(kinds)) * 64 + 4096
    nodes = Nodes(starts, np.full(len(kinds), 64), np.array(kinds, np.int32), starts, [])
    edges = sorted(edges)
    counts = np.bincount([one for one, _ in edges], minlength=len(kinds) + roots)
    to = np.array([one for _, one in edges], np.int32)
    return nodes, References(np.append(0, np.cumsum(counts)), to)


def test_a_list_of_many_links_is_one_path_that_repeats() -> None:
    nodes, references = graph([0] + [1] * COUNT, [(n, n + 1) for n in range(COUNT)])
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    targets = np.arange(1, COUNT + 1)
    paths = Paths(nodes, reach, NO_KINDS, targets)
    sums = sum_paths(nodes, reach, paths, targets)
    assert sorted(sums.objects.values()) == [1, COUNT - 1]
    assert [one.repeats for one in paths.steps] == [False, False, True]
    assert len(reach.path(COUNT)) == COUNT + 1


def test_what_hangs_on_an_object_is_counted_once_though_two_refer_to_it() -> None:
    # root → two objects of type 1, both of which refer to one buffer
    nodes, references = graph([0, 1, 1, NO_OBJECT], [(0, 1), (0, 2), (1, 3), (2, 3)])
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    targets = np.array([1, 2])
    sums = sum_paths(nodes, reach, Paths(nodes, reach, NO_KINDS, targets), targets)
    assert sum(sums.beyond.values()) == 64
    assert direct_holders(nodes, reach, references.first, references.to, targets) == {0: (2, 1)}


def test_a_ring_that_nothing_leads_to_has_no_path_and_hangs_nothing() -> None:
    nodes, references = graph([0, 1, 1], [(1, 2), (2, 1)])
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    assert reach.is_seen.tolist() == [True, False, False]
    targets = np.array([1, 2])
    assert not sum_paths(nodes, reach, Paths(nodes, reach, NO_KINDS, targets), targets).objects


def test_roots_that_are_followed_first_get_what_two_lead_to() -> None:
    nodes, references = graph([0, 1], [(0, 1), (2, 1)], roots=1)
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    reach.add(np.array([2]))
    assert reach.path(1) == [0, 1]
