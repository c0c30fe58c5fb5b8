from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from gdbmem.model.calltree import PRUNED, ROOT, CallTree, Frame
from gdbmem.model.diff import Diff
from gdbmem.profiles.diff import as_growth, diff_snapshots
from gdbmem.profiles.own_code import growing_site
from tests.unit.cli.test_big_files import grows_with_its_size
from tests.unit.trees import PRUNED_NODE, at, snapshot, tree

MAIN = at("main", "main.cpp:9")
LEAK = at("leak", "leak.cpp:3")
LOAD = at("load", "load.cpp:7")


def diff(before: CallTree, after: CallTree) -> Diff:
    result = diff_snapshots(snapshot(before, "A"), snapshot(after, "B"))
    result.check()
    return result


def find(result: Diff, *path: Any) -> int:
    """Return the node at *path*, given as frames (or PRUNED) from the root down."""
    node = 0
    for wanted in path:
        (node,) = [n for n in range(1, len(result)) if result.parent[n] == node and _is(result, n, wanted)]
    return node


def _is(result: Diff, node: int, wanted: Any) -> bool:
    number = result.frame[node]
    return number == PRUNED if wanted == PRUNED else number >= 0 and result.frames[number].key == wanted.key


def row(result: Diff, *path: Any) -> tuple[int, int, int]:
    node = find(result, *path)
    return result.before[node], result.after[node], result.uncertain[node]


def test_a_path_that_grew_carries_both_sizes_and_certainty() -> None:
    result = diff(tree(10, (LEAK, 10, (MAIN, 10))), tree(70, (LEAK, 70, (MAIN, 70))))
    assert row(result, LEAK, MAIN) == (10, 70, 0)
    assert result.delta_bytes == 60


def test_new_and_vanished_paths_both_appear() -> None:
    result = diff(tree(10, (LOAD, 10, (MAIN, 10))), tree(7, (LEAK, 7, (MAIN, 7))))
    assert row(result, LOAD, MAIN) == (10, 0, 0)
    assert row(result, LEAK, MAIN) == (0, 7, 0)


def test_one_line_at_two_addresses_is_one_path() -> None:
    result = diff(tree(30, (LEAK, 10, (MAIN, 10)), (LEAK, 20, (MAIN, 20))), tree(35, (LEAK, 35, (MAIN, 35))))
    assert row(result, LEAK, MAIN) == (30, 35, 0)


def test_two_lines_of_one_function_stay_apart() -> None:
    other = at("leak", "leak.cpp:4")
    result = diff(tree(3, (LEAK, 3)), tree(4, (other, 4)))
    assert row(result, LEAK) == (3, 0, 0)
    assert row(result, other) == (0, 4, 0)


def test_functions_without_a_file_are_distinguished_by_their_library() -> None:
    one, two = at("start", "liba.so"), at("start", "libb.so")
    result = diff(tree(3, (one, 3)), tree(4, (two, 4)))
    assert row(result, one) == (3, 0, 0)
    assert row(result, two) == (0, 4, 0)


def test_an_inlined_copy_of_a_line_is_still_that_line() -> None:
    result = diff(tree(3, (at("f", "f.h:1", inlined=True), 3)), tree(4, (at("f", "f.h:1"), 4)))
    assert row(result, at("f", "f.h:1")) == (3, 4, 0)


def test_a_path_under_the_threshold_is_uncertain_not_gone() -> None:
    before = tree(1000, (LOAD, 600, (MAIN, 600)), (LEAK, 400, (MAIN, 400)))
    after = tree(607, (LOAD, 600, (MAIN, 600)), (PRUNED_NODE, 7), threshold_bytes=10)
    result = diff(before, after)
    assert row(result, LEAK) == (400, 0, 7)
    assert row(result, LEAK, MAIN) == (400, 0, 7)
    assert row(result, LOAD, MAIN) == (600, 600, 0)


def test_a_new_path_that_may_have_been_under_the_threshold_is_uncertain() -> None:
    before = tree(160, (LOAD, 100), (PRUNED_NODE, 60), threshold_bytes=20)
    after = tree(400, (LOAD, 100), (LEAK, 300))
    assert row(diff(before, after), LEAK) == (0, 300, 20)


def test_the_bound_is_the_threshold_where_many_small_places_are_hidden() -> None:
    before = tree(1000, (LEAK, 1000))
    after = tree(90, (PRUNED_NODE, 90), threshold_bytes=10)
    assert row(diff(before, after), LEAK) == (1000, 0, 10)


def test_two_call_sites_of_one_line_may_hide_twice_as_much() -> None:
    before = tree(1000, (LEAK, 600), (LEAK, 400))
    after = tree(90, (PRUNED_NODE, 90), threshold_bytes=10)
    assert row(diff(before, after), LEAK) == (1000, 0, 20)


def test_a_line_of_which_one_call_site_is_hidden_is_uncertain_too() -> None:
    before = tree(1000, (LEAK, 600), (LEAK, 400))
    after = tree(605, (LEAK, 600), (PRUNED_NODE, 5), threshold_bytes=10)
    assert row(diff(before, after), LEAK) == (1000, 600, 5)


def test_without_a_pruned_node_a_vanished_path_is_certain() -> None:
    before = tree(500, (LOAD, 100), (LEAK, 400))
    assert row(diff(before, tree(100, (LOAD, 100), threshold_bytes=1)), LEAK) == (400, 0, 0)


def test_a_threshold_elsewhere_in_the_tree_leaves_a_path_certain() -> None:
    before = tree(500, (LOAD, 100, (MAIN, 100)), (LEAK, 400, (MAIN, 300), (at("f", "f.c:1"), 100)))
    after = tree(400, (LOAD, 100, (PRUNED_NODE, 100)), (LEAK, 300, (MAIN, 300)), threshold_bytes=1000)
    result = diff(before, after)
    assert row(result, LEAK, at("f", "f.c:1")) == (100, 0, 0)
    assert row(result, LOAD, MAIN) == (100, 0, 100)


def test_an_inlined_chain_may_be_hidden_beside_its_first_frame() -> None:
    # Two call sites share the inlined allocate(); the pruned one lies beside it, not under it.
    allocate = at("allocate", "new_allocator.h:137", inlined=True)
    before = tree(110, (allocate, 100, (LOAD, 100)), (PRUNED_NODE, 10), threshold_bytes=20)
    after = tree(600, (allocate, 100, (LOAD, 100)), (allocate, 500, (LEAK, 500)))
    result = diff(before, after)
    assert row(result, allocate, LEAK) == (0, 500, 10)
    assert row(result, allocate, LOAD) == (100, 100, 0)


def test_two_frames_without_a_name_are_not_taken_for_the_same_call_site() -> None:
    nameless = at(None, "/usr/bin/stripped")
    before = tree(110, (nameless, 100, (LOAD, 100)), (PRUNED_NODE, 10), threshold_bytes=20)
    after = tree(130, (nameless, 120, (LOAD, 120)), (PRUNED_NODE, 10), threshold_bytes=20)
    result = diff(before, after)
    assert row(result, nameless) == (100, 120, 20)
    assert row(result, nameless, LOAD) == (100, 120, 20)


def test_what_was_pruned_stays_its_own_path() -> None:
    before = tree(110, (LOAD, 100), (PRUNED_NODE, 10), threshold_bytes=20)
    after = tree(115, (LOAD, 100), (PRUNED_NODE, 15), threshold_bytes=20)
    assert row(diff(before, after), PRUNED) == (10, 15, 0)


def test_a_file_that_hides_its_threshold_is_bounded_by_what_it_pruned() -> None:
    result = diff(tree(400, (LEAK, 400)), tree(90, (PRUNED_NODE, 90)))
    assert row(result, LEAK) == (400, 0, 90)


def test_the_reader_is_told_that_a_threshold_hides_paths() -> None:
    result = diff(tree(400, (LEAK, 400)), tree(90, (PRUNED_NODE, 90), threshold_bytes=100))
    assert [notice.slug for notice in result.notices] == ["threshold-hides"]
    assert "100 B" in result.notices[0].message


def test_base_names_are_compared_where_one_side_has_no_folders() -> None:
    full, bare = at("f", "/src/a.cpp:1"), at("f", "a.cpp:1")
    for before, after in ((full, bare), (bare, full)):
        result = diff(tree(3, (before, 3)), tree(5, (after, 5)))
        assert row(result, full) == (3, 5, 0)
        assert [notice.slug for notice in result.notices] == ["compared-on-base-names"]


def test_a_program_that_was_installed_elsewhere_is_still_that_program() -> None:
    old, new = (Frame("grow", object=f"{folder}/server") for folder in ("/usr/bin", "/opt/new/bin"))
    result = diff(tree(10, (old, 10)), tree(30, (new, 30)))
    assert len(result) == 2 and row(result, old) == (10, 30, 0)


def test_a_library_is_the_same_by_its_link_and_by_its_file() -> None:
    # valgrind names the file; gperftools, by /proc/PID/maps, what Debian's next release calls differently.
    names = ("libsqlite3.so.0", "libsqlite3.so.0.8.6", "libsqlite3.so.1")
    link, file, other = (Frame("sqlite3_exec", object=f"/usr/lib/{name}") for name in names)
    result = diff(tree(10, (link, 10)), tree(30, (file, 30)))
    assert len(result) == 2 and row(result, link) == (10, 30, 0)
    assert len(diff(tree(10, (link, 10)), tree(30, (other, 30)))) == 3, (
        "another major version is another library"
    )


def test_equal_names_in_different_folders_stay_apart_where_both_sides_have_folders() -> None:
    one, two = at("f", "/src/one/a.cpp:1"), at("f", "/src/two/a.cpp:1")
    result = diff(tree(3, (one, 3)), tree(5, (two, 5)))
    assert row(result, one) == (3, 0, 0)
    assert not result.notices


def test_blocks_are_unknown_unless_both_sides_count_them() -> None:
    counted, uncounted = tree(8, (LEAK, 8), blocks=[2, 2]), tree(9, (LEAK, 9))
    assert diff(counted, uncounted).after_blocks is None
    both = diff(counted, tree(9, (LEAK, 9), blocks=[5, 5]))
    assert both.before_blocks is not None and both.after_blocks is not None
    assert (both.before_blocks[1], both.after_blocks[1]) == (2, 5)


def test_a_snapshot_against_nothing_is_all_growth_and_certain() -> None:
    only = as_growth(snapshot(tree(50, (LEAK, 40, (MAIN, 40)), (PRUNED_NODE, 10), threshold_bytes=20)))
    only.check()
    assert only.delta_bytes == 50
    assert not any(only.uncertain)


def test_the_growing_site_is_the_one_that_grew_most_not_the_largest() -> None:
    assert growing_site({"big": 900, "small": 1}, {"big": 905, "small": 80, "new": 30}) == ("small", 79)
    assert growing_site({"big": 900}, {"big": 800}) is None


def _random_tree(seed: int, count: int, *, threshold_bytes: int = 0) -> CallTree:
    dice = random.Random(seed)
    frames = [Frame(f"f{n}", f"file{n % 7}.cpp", n) for n in range(max(count // 8, 3))]
    parent, frame, stack = [-1], [ROOT], [0]
    pruned_of = set()
    while len(parent) < count:
        top = stack[-1]
        prune = threshold_bytes and top not in pruned_of and dice.random() < 0.1
        if prune:
            pruned_of.add(top)
        parent.append(top)
        frame.append(PRUNED if prune else dice.randrange(len(frames)))
        if not prune:
            stack.append(len(parent) - 1)
        while len(stack) > 1 and (len(stack) > 30 or dice.random() < 0.45):
            stack.pop()
    sizes = array("q", [0]) * count
    inner = set(parent)
    for node in range(count - 1, -1, -1):
        if node not in inner:
            sizes[node] = dice.randrange(1, threshold_bytes or 5000)
        if node:
            sizes[parent[node]] += sizes[node]
    return CallTree(
        frames, parent, frame, sizes, places=[1] * len(pruned_of), threshold_bytes=threshold_bytes
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_paths_add_up_to_the_total_on_any_two_trees(seed: int) -> None:
    before = _random_tree(seed, 400, threshold_bytes=seed % 3 * 50)
    after = _random_tree(seed // 2 + 50, 300, threshold_bytes=seed % 2 * 40)
    result = diff(before, after)
    assert all(result.parent[node] < node for node in range(1, len(result)))
    depth = [0] * len(result)
    for node in range(1, len(result)):  # pre-order: a node follows its parent or its parent's descendants
        depth[node] = depth[result.parent[node]] + 1
        assert depth[node] <= depth[node - 1] + 1
    back = diff(after, before)
    assert back.delta_bytes == -result.delta_bytes
    assert sum(back.uncertain) == sum(result.uncertain)


def test_equal_trees_differ_nowhere() -> None:
    result = diff(_random_tree(1, 500), _random_tree(1, 500))
    assert list(result.before) == list(result.after)


@pytest.mark.slow
def test_comparing_two_trees_grows_with_their_size() -> None:
    trees = {count: [snapshot(_random_tree(seed, count)) for seed in (1, 2)] for count in (12_500, 50_000)}
    assert grows_with_its_size(lambda count: diff_snapshots(*trees[count]), 12_500)
