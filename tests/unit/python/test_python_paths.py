"""Paths of references in graphs of odd shapes: long lists, rings, wide ones."""

from __future__ import annotations

from typing import Any

import pytest

from gdbmem.allocators.cpython.nodes import NO_OBJECT, Nodes
from gdbmem.allocators.cpython.references import Reach, References
from gdbmem.model.python import ROOT_MODULE, HolderPath, HolderStep
from gdbmem.python.holders import Kinds, Paths, direct_holders, merge_alike, sum_paths

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


def without(nodes: Nodes, references: References, targets: Any) -> Any:
    """Return the nodes that are reached from the first one without *targets*."""
    reach = Reach(nodes, references, seconds=60)
    reach.avoid(targets)
    reach.add(np.array([0]))
    return reach.is_seen


def test_a_list_of_many_links_is_one_path_that_repeats() -> None:
    nodes, references = graph([0] + [1] * COUNT, [(n, n + 1) for n in range(COUNT)])
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    targets = np.arange(1, COUNT + 1)
    paths = Paths(nodes, reach, NO_KINDS, targets)
    sums = sum_paths(nodes, reach, paths, targets, without(nodes, references, targets))
    assert sorted(sums.objects.values()) == [1, COUNT - 1]
    assert [one.repeats for one in paths.steps] == [False, False, True]
    assert len(reach.path(COUNT)) == COUNT + 1


def test_what_hangs_on_an_object_is_counted_once_though_two_refer_to_it() -> None:
    # root → two objects of type 1, both of which refer to one buffer
    nodes, references = graph([0, 1, 1, NO_OBJECT], [(0, 1), (0, 2), (1, 3), (2, 3)])
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    targets = np.array([1, 2])
    sums = sum_paths(
        nodes, reach, Paths(nodes, reach, NO_KINDS, targets), targets, without(nodes, references, targets)
    )
    assert sum(sums.beyond.values()) == 64
    assert direct_holders(nodes, reach, references.first, references.to, targets) == {0: (2, 1)}


def test_a_pool_that_others_lead_to_does_not_belong_to_the_objects_in_it() -> None:
    # root → two objects of type 1, which refer to a buffer each and to the pool; the root leads to it, too, by C's own
    edges = [(0, 1), (0, 2), (1, 3), (2, 4), (1, 5), (2, 5), (0, 6), (6, 5)]
    nodes, references = graph([0, 1, 1, NO_OBJECT, NO_OBJECT, NO_OBJECT, NO_OBJECT], edges)
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    targets = np.array([1, 2])
    shared = without(nodes, references, targets)
    sums = sum_paths(nodes, reach, Paths(nodes, reach, NO_KINDS, targets), targets, shared)
    assert sum(sums.beyond.values()) == 2 * 64


def test_paths_that_differ_in_the_places_of_items_are_one() -> None:
    def path(place: str, end: str, count: int) -> HolderPath:
        steps = [HolderStep("list", "", 1), HolderStep("dict", place, 1), HolderStep("Row", end, count)]
        return HolderPath(ROOT_MODULE, "app", steps, count, 64 * count, 8)

    merged = merge_alike([path("[9]", "['x']", 1), path("[10]", "['x']", 2), path("[11]", "['y']", 1)])
    assert [(one.count, one.bytes, one.beyond_bytes) for one in merged] == [(3, 192, 16), (1, 64, 8)]
    assert [one.label for one in merged[0].steps] == ["", "", "['x']"]
    assert [one.label for one in merged[1].steps] == ["", "[11]", "['y']"]


def test_a_ring_that_nothing_leads_to_has_no_path_and_hangs_nothing() -> None:
    nodes, references = graph([0, 1, 1], [(1, 2), (2, 1)])
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    assert reach.is_seen.tolist() == [True, False, False]
    targets = np.array([1, 2])
    assert not sum_paths(
        nodes, reach, Paths(nodes, reach, NO_KINDS, targets), targets, without(nodes, references, targets)
    ).objects


def test_roots_that_are_followed_first_get_what_two_lead_to() -> None:
    nodes, references = graph([0, 1], [(0, 1), (2, 1)], roots=1)
    reach = Reach(nodes, references, seconds=60)
    reach.add(np.array([0]))
    reach.add(np.array([2]))
    assert reach.path(1) == [0, 1]
