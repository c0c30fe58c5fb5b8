from __future__ import annotations

import random
import re
from typing import Any

import pytest

from gdbmem.model.calltree import CallTree
from gdbmem.model.diff import Diff
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.documents import diff_document
from gdbmem.profiles.paths import GROUPINGS, Query
from gdbmem.profiles.ranking import Ranking, rank
from tests.unit.trees import PRUNED_NODE, at, snapshot, tree

ALLOCATE = at("allocate", "/usr/include/c++/12/bits/new_allocator.h:137")
INSERT = at("operator[]", "/usr/include/c++/12/bits/stl_map.h:511")
REMEMBER = at("Decoder::remember(long)", "/src/decoder.cpp:120")
DECODE = at("Decoder::decode()", "/src/decoder.cpp:88")
MAIN = at("main", "/src/main.cpp:9")
OTHER_MAIN = at("main", "/src/main.cpp:12")
BELOW_MAIN = at("(below main)", "libc_start_call_main.h:58")


def diff(before: CallTree, after: CallTree) -> Diff:
    return diff_snapshots(snapshot(before, "A"), snapshot(after, "B"))


def grown(*children: Any) -> Diff:
    total = sum(child[1] for child in children)
    return diff(tree(0), tree(total, *children))


def parts(ranking: Ranking) -> int:
    listed = sum(row.amount.delta_bytes for row in ranking.rows)
    return listed + ranking.rest.delta_bytes + ranking.unmatched.delta_bytes + ranking.known.delta_bytes


def test_the_library_is_folded_and_the_users_line_is_named() -> None:
    path = (ALLOCATE, 50, (INSERT, 50, (REMEMBER, 50, (DECODE, 50, (MAIN, 50, (BELOW_MAIN, 50))))))
    (row,) = rank(grown(path), Query()).rows
    assert (row.site, row.call, row.allocator) == (REMEMBER, INSERT, ALLOCATE)
    assert list(row.frames) == [REMEMBER, DECODE, MAIN]
    assert row.folded == 3


def test_all_frames_shows_the_library_too() -> None:
    path = (ALLOCATE, 50, (INSERT, 50, (REMEMBER, 50, (BELOW_MAIN, 50))))
    (row,) = rank(grown(path), Query(all_frames=True)).rows
    assert list(row.frames) == [ALLOCATE, INSERT, REMEMBER, BELOW_MAIN]
    assert row.site == REMEMBER


def test_paths_that_differ_in_the_library_only_are_one_row() -> None:
    first = (ALLOCATE, 30, (INSERT, 30, (REMEMBER, 30)))
    second = (ALLOCATE, 20, (REMEMBER, 20))
    (row,) = rank(grown(first, second), Query()).rows
    assert (row.amount.delta_bytes, row.amount.paths) == (50, 2)
    assert row.call == INSERT, "the larger of the two speaks for the row"
    assert len(rank(grown(first, second), Query(all_frames=True)).rows) == 2


@pytest.mark.parametrize(("by", "count"), [("path", 2), ("line", 1), ("function", 1), ("file", 1)])
def test_rows_stand_for_what_was_asked_for(by: str, count: int) -> None:
    result = grown((REMEMBER, 70, (MAIN, 40), (OTHER_MAIN, 30)))
    rows = rank(result, Query(by=by)).rows
    assert len(rows) == count
    assert sum(row.amount.delta_bytes for row in rows) == 70


def test_two_functions_of_a_file_are_one_row_by_file_and_two_by_function() -> None:
    result = grown((REMEMBER, 70), (DECODE, 30))
    assert len(rank(result, Query(by="file")).rows) == 1
    assert len(rank(result, Query(by="function")).rows) == 2


def test_a_path_of_the_library_alone_still_has_a_place() -> None:
    loader = at("call_init", "elf/./elf/dl-init.c:74")
    (row,) = rank(grown((at(None, "/lib/libstdc++.so.6"), 9, (loader, 9))), Query()).rows
    assert row.site == at(None, "/lib/libstdc++.so.6")


def test_a_frame_without_a_name_is_a_place_only_where_there_is_no_other() -> None:
    nameless, named = at(None, "/usr/bin/sqlite3"), at("sqlite3Malloc", "/usr/lib/libsqlite3.so.0")
    (row,) = rank(grown((nameless, 9, (named, 9))), Query()).rows
    assert row.site == named
    (row,) = rank(grown((nameless, 9, (BELOW_MAIN, 9))), Query()).rows
    assert row.site == nameless


def test_shrinking_paths_rank_by_their_size_too() -> None:
    before, after = tree(100, (REMEMBER, 100)), tree(30, (DECODE, 30))
    rows = rank(diff(before, after), Query()).rows
    assert [row.amount.delta_bytes for row in rows] == [-100, 30]


def test_what_did_not_change_is_no_row() -> None:
    same = tree(100, (REMEMBER, 100))
    ranking = rank(diff(same, tree(101, (REMEMBER, 100), (DECODE, 1))), Query())
    assert [row.site for row in ranking.rows] == [DECODE]
    assert ranking.rest.paths == 0


def test_rows_beyond_top_and_under_min_are_counted_in_the_rest() -> None:
    frames = [at(f"f{n}", f"/src/a.cpp:{n}") for n in range(1, 8)]
    result = grown(*((frame, frame.line) for frame in frames))
    ranking = rank(result, Query(top=3, min_bytes=6))
    assert [row.amount.delta_bytes for row in ranking.rows] == [7, 6]
    assert (ranking.rest.paths, ranking.rest.delta_bytes) == (5, 15)
    assert [row.amount.delta_bytes for row in rank(result, Query(top=3)).rows] == [7, 6, 5]


def test_focus_and_ignore_look_at_every_frame_of_a_path() -> None:
    result = grown((REMEMBER, 70, (MAIN, 40), (OTHER_MAIN, 30)))
    focused = rank(result, Query(focus=re.compile(r"main\.cpp:12")))
    assert [row.amount.delta_bytes for row in focused.rows] == [30]
    assert focused.unmatched.delta_bytes == 40
    ignored = rank(result, Query(ignore=re.compile(r"main\.cpp:12")))
    assert [row.amount.delta_bytes for row in ignored.rows] == [40]
    assert focused.delta_matched_bytes == 30


def test_known_paths_are_set_apart_not_dropped() -> None:
    result = grown((REMEMBER, 70, (MAIN, 70)), (DECODE, 30, (MAIN, 30)))
    ranking = rank(result, Query(known=[re.compile("remember")]))
    assert [row.site for row in ranking.rows] == [DECODE]
    assert (ranking.known.delta_bytes, ranking.known.paths) == (70, 1)


def test_what_is_under_the_threshold_is_the_callers_or_nobodys() -> None:
    result = grown(
        (REMEMBER, 70, (MAIN, 50), (PRUNED_NODE, 20)), (ALLOCATE, 9, (PRUNED_NODE, 9)), (PRUNED_NODE, 4)
    )
    rows = rank(result, Query()).rows
    assert [(row.site, row.is_pruned, row.amount.delta_bytes) for row in rows] == [
        (REMEMBER, False, 50),
        (REMEMBER, True, 20),
        (None, True, 13),
    ]
    assert [(row.site, row.amount.delta_bytes) for row in rank(result, Query(by="line")).rows] == [
        (REMEMBER, 70),
        (None, 13),
    ]


def test_paths_hidden_by_one_call_site_share_one_bound() -> None:
    before = tree(900, (REMEMBER, 900, (MAIN, 500), (OTHER_MAIN, 400)))
    result = diff(before, tree(7, (PRUNED_NODE, 7), threshold_bytes=10))
    (by_line, _) = rank(result, Query(by="line")).rows
    assert by_line.amount.uncertain_bytes == 7
    assert [row.amount.uncertain_bytes for row in rank(result, Query()).rows if row.site] == [7, 7]


def test_blocks_are_summed_where_they_are_known() -> None:
    before = tree(10, (REMEMBER, 10), blocks=[1, 1])
    after = tree(50, (REMEMBER, 50), blocks=[6, 6])
    ranking = rank(diff(before, after), Query())
    assert ranking.rows[0].amount.delta_blocks == 5
    assert ranking.total.delta_blocks == 5
    assert rank(grown((REMEMBER, 1)), Query()).total.delta_blocks is None


@pytest.mark.parametrize(
    "by", [by for by in GROUPINGS if by not in ("size", "thread")]
)  # which need other trees
@pytest.mark.parametrize("seed", range(6))
def test_rows_and_the_rest_add_up_to_the_total_in_every_grouping(by: str, seed: int) -> None:
    dice = random.Random(seed)
    frames = [REMEMBER, DECODE, MAIN, OTHER_MAIN, ALLOCATE, INSERT, at(None, "libx.so"), at("f", "libc.so.6")]

    def branch(size: int, depth: int) -> Any:
        frame = PRUNED_NODE if dice.random() < 0.1 else dice.choice(frames)
        if frame == PRUNED_NODE or depth > 4 or size < 4:
            return (frame, size)
        cut = dice.randrange(1, size)
        return (frame, size, branch(cut, depth + 1), branch(size - cut, depth + 1))

    sides = [tree(2000, branch(1200, 0), branch(800, 0), threshold_bytes=60) for _ in range(2)]
    result = diff(*sides)
    for query in (
        Query(by=by),
        Query(by=by, top=2, min_bytes=20, all_frames=True),
        Query(
            by=by, top=3, focus=re.compile("remember"), ignore=re.compile("libx"), known=[re.compile("12")]
        ),
    ):
        ranking = rank(result, query)
        assert parts(ranking) == result.delta_bytes == ranking.total.delta_bytes
        before = sum(row.amount.before_bytes for row in ranking.rows)
        before += sum(a.before_bytes for a in (ranking.rest, ranking.unmatched, ranking.known))
        assert before == 2000


def test_json_has_the_paths_that_did_not_change_and_a_text_does_not() -> None:
    same, more = (at("same", "/src/a.cpp:1"), 600), at("more", "/src/a.cpp:2")
    found = diff(tree(1000, same, (more, 400)), tree(1400, same, (more, 800)))
    paths: Any = diff_document(found, Query())["paths"]
    assert [(row["change"], row["before_bytes"], row["delta_bytes"], row["percent"]) for row in paths] == [
        ("grew", 400, 400, 100.0),
        ("unchanged", 600, 0, 0.0),
    ]
    assert [row.site for row in rank(found, Query()).rows] == [more]
