"""Stacks made into a call tree, against sums made the slow way."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from gdbmem.formats.heap_profilers.jemalloc import read_jemalloc
from gdbmem.formats.stacks import Content, Hidden, PackedStacks, Singles, Stack, build_tree, pack_path
from gdbmem.model.calltree import CallTree, Frame, Frames, Snapshot, Totals
from gdbmem.profiles.diff import as_growth, diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import rank

CAPTURES = Path(__file__).parents[2] / "captures" / "stacks"
FUNCTIONS = 5


def stacks_of(seed: int, *, count: int = 200) -> list[Stack]:
    """Return stacks of which many share a beginning, some are another's beginning, and some are there twice."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        frames = tuple(chance.randrange(FUNCTIONS) for _ in range(chance.randrange(7)))
        blocks = chance.randrange(1, 9)
        found.append(Stack(frames, blocks * chance.randrange(1, 500), blocks, chance.random()))
    return found


def content_of(stacks: list[Stack], *, hidden: int = 0) -> Content:
    chains = [(Frame(f"f{n}", "f.c", n),) for n in range(FUNCTIONS)]
    return Content(stacks, chains, is_sampled=True, hidden=Hidden(hidden) if hidden else None)


def by_path(tree: CallTree, column: str) -> dict[tuple[str, ...], float]:
    values = getattr(tree, column)
    return {
        tuple((tree.frame_of(step) or Frame()).function or "hidden" for step in tree.path(node)): values[node]
        for node in range(len(tree))
    }


def snapshot_of(tree: CallTree, name: str) -> Snapshot:
    return Snapshot(name, name, Totals(0, 0, tree.bytes[0], 0, 0, True), tree)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("column", ["bytes", "blocks"])
def test_a_path_holds_what_all_stacks_that_begin_with_it_hold(seed: int, column: str) -> None:
    stacks = stacks_of(seed)
    expected: Counter[tuple[str, ...]] = Counter()
    for stack in stacks:
        names = tuple(f"f{number}" for number in stack.frames)
        for end in range(len(names) + 1):
            expected[names[:end]] += getattr(stack, column)
    tree = build_tree(content_of(stacks), "file")
    tree.check()
    assert by_path(tree, column) == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_error_of_a_path_is_that_of_the_stacks_that_end_there(seed: int) -> None:
    stacks = stacks_of(seed)
    expected: Counter[tuple[str, ...]] = Counter()
    for stack in stacks:
        expected[tuple(f"f{number}" for number in stack.frames)] += stack.variance  # type: ignore[assignment]
    found = {
        path: value
        for path, value in by_path(build_tree(content_of(stacks), "x"), "variance").items()
        if value
    }
    assert found == pytest.approx(dict(expected))


@pytest.mark.parametrize("hidden", [0, 77])
@pytest.mark.parametrize("seed", range(5))
def test_a_tree_names_all_nodes_at_which_paths_end(seed: int, hidden: int) -> None:
    tree = build_tree(content_of(stacks_of(seed), hidden=hidden), "file")
    assert tree.ends is not None
    assert list(tree.ends) == [node for node, own in enumerate(tree.self_bytes()) if own]


@pytest.mark.parametrize("seed", range(5))
def test_packed_stacks_are_the_stacks_that_they_were_made_of(seed: int) -> None:
    # 300 frames: numbers of more than one byte
    stacks = [Stack((*stack.frames, 299 - at), stack.bytes) for at, stack in enumerate(stacks_of(seed))]
    packed = PackedStacks()
    for part in (stacks[:4], stacks[4:]):
        frames_of_all = [number for stack in part for number in stack.frames]
        packed.extend(frames_of_all, [len(stack.frames) for stack in part], [stack.bytes for stack in part])
    assert list(packed) == stacks
    assert packed[-1] == stacks[-1]
    assert packed.paths() == [pack_path(stack.frames) for stack in stacks]
    assert list(packed[3:9]) == stacks[3:9]
    frames = Frames.of([Frame(f"f{n}" if n % 7 else "main", "f.c", n) for n in range(300)])
    frames.distinct = True
    trees = [build_tree(Content(each, Singles(frames), has_blocks=False), "x") for each in (stacks, packed)]
    assert trees[0] == trees[1]


@pytest.mark.parametrize("by", ["path", "line", "function"])
@pytest.mark.parametrize("seed", range(5))
def test_a_diff_is_the_same_whether_or_not_its_trees_name_their_ends(seed: int, by: str) -> None:
    trees = [build_tree(content_of(stacks_of(n, count=60)), "file") for n in (seed, seed + 100)]
    sides = [snapshot_of(tree, name) for tree, name in zip(trees, "ab")]
    plain = [snapshot_of(tree.with_columns(ends=None), name) for tree, name in zip(trees, "ab")]
    for ours, slow in (
        (diff_snapshots(*sides), diff_snapshots(*plain)),
        (as_growth(sides[0]), as_growth(plain[0])),
    ):
        ours.check()
        assert ours.ends is not None and slow.ends is None
        assert rank(ours, Query(by=by)) == rank(slow, Query(by=by))
        assert (ours.own_before, ours.own_after) == (slow.own_before, slow.own_after)
        assert ours.own_delta_blocks == slow.own_delta_blocks


def test_jemallocs_stacks_are_the_same_however_their_counts_are_spaced() -> None:
    usual = (CAPTURES / "sampled-second.jeheap").read_bytes()
    spaced = usual.replace(b"  t*: ", b" t*:  ").replace(b"@ 0x", b"@  0x", 3)
    trees = [read_jemalloc(data, "file", None, None).tree(0) for data in (usual, spaced)]
    assert trees[0] == trees[1]
    assert trees[0] is not None and trees[0].bytes[0] > 0
