"""Queries on a profile: groupings, hidden frames, blocks, percentages, scaled totals."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.stacks import size_class
from gdbmem.profiles.diff import as_growth, diff_snapshots, normalized
from gdbmem.profiles.paths import GROUPINGS, Query, read_known
from gdbmem.profiles.ranking import rank
from gdbmem.runs.operand import load_from_profile, load_operand
from gdbmem.text import format_size
from tests.unit.massif_texts import massif, path
from tests.unit.stack_files import CAPTURES
from tests.unit.trees import at, snapshot, tree

ALL = [
    "tc.0001.heap", "exact-first.jeheap", "sampled-second.jeheap", "xtree.kcg", "xtleak.kcg", "dhat.json",
    "ht.zst", "go1.pb.gz", "go2.txt",
]  # fmt: skip
PAIRS = [
    ("tc.0001.heap", "tc.0002.heap"), ("exact-first.jeheap", "exact-second.jeheap"), ("go1.pb.gz", "go2.pb.gz"),
    ("sampled-first.jeheap", "sampled-second.jeheap"), ("go1.txt", "go2.txt"), ("dhat.json", "xtree.kcg"),
]  # fmt: skip


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("by", [by for by in GROUPINGS if by != "thread"])
@pytest.mark.parametrize("pair", PAIRS)
def test_every_grouping_of_every_format_adds_up(pair: tuple[str, str], by: str) -> None:
    reading = OpenOptions(by_size=by == "size")
    before, after = (load_operand(str(CAPTURES / name), reading).snapshot for name in pair)
    diff = diff_snapshots(before, after)
    diff.check()
    ranking = rank(diff, Query(by=by, top=3))
    listed = sum(row.amount.delta_bytes for row in ranking.rows) + ranking.rest.delta_bytes
    assert listed == diff.delta_bytes == after.tree.bytes[0] - before.tree.bytes[0]


# A pair of each format; where there is one capture only, with one of another format.
EVERY = [
    *PAIRS, ("tc.raw", "xtree.kcg"), ("growth.heap", "samples.heap.gz"),
    ("ht.zst", "dhat.json"), ("xtleak.kcg", "lost.kcg"), ("lost.log", "xtleak.kcg"),
    ("../massif/perl.massif.gz", "../massif/python.massif.gz"), ("../massif/xtree.ms.gz", "ht.zst"),
]  # fmt: skip


def listed(found: Any) -> int:
    """Return what the rows of *found* and all that it leaves out of them come to."""
    parts = [*found["paths"], *(found.get(key) for key in ("rest", "unmatched", "known"))]
    return sum(part["delta_bytes"] for part in parts if part)


@pytest.mark.slow
@pytest.mark.parametrize("pair", EVERY)
def test_no_option_loses_a_byte_in_any_format(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(CAPTURES / name) for name in pair]
    whole = document(capsys, "diff", *files)
    change = whole["delta_bytes"]
    assert change == whole["after"]["total_bytes"] - whole["before"]["total_bytes"]
    for words in (
        ["--min", "1KiB"], ["--hide", "a"], ["--focus", "main"], ["--ignore", "main"], ["--compare"], ["--top", "1"],
        *(["--by", by] for by in GROUPINGS if by not in ("size", "thread")),
    ):  # fmt: skip
        found = document(capsys, "diff", *files, *words)
        assert (found["delta_bytes"], listed(found)) == (change, change), words
    focused, ignored = (document(capsys, "diff", *files, word, "main") for word in ("--focus", "--ignore"))
    assert focused["unmatched"]["delta_bytes"] == sum(row["delta_bytes"] for row in ignored["paths"])
    scaled = document(capsys, "diff", *files, "--normalize")
    assert scaled["delta_bytes"] == listed(scaled) == 0


@pytest.mark.parametrize("pair", EVERY)
def test_a_series_of_any_format_adds_up_at_each_snapshot(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, "diff", *(str(CAPTURES / pair[at]) for at in (0, 1, 0, 1)), "--top", "2")
    totals = [side["total_bytes"] for side in found["snapshots"]]
    rows = [*found["paths"], found["rest"]]
    assert [sum(column) for column in zip(*(row["course_bytes"] for row in rows if row))] == totals
    assert totals[:2] == totals[2:] and "named-twice" in {warning["slug"] for warning in found["warnings"]}


@pytest.mark.parametrize("name", ALL)
def test_hidden_frames_hide_no_bytes(name: str) -> None:
    growth = as_growth(load_operand(str(CAPTURES / name)).snapshot)
    for regex in ("keep|order", "main", "."):
        ranking = rank(growth, Query(hide=re.compile(regex)))
        assert sum(row.amount.delta_bytes for row in ranking.rows) == growth.delta_bytes


def test_a_hidden_frame_gives_its_bytes_to_its_caller() -> None:
    wrap, user, start = at("wrap", "/a.cpp:1"), at("user", "/a.cpp:2"), at("main", "/a.cpp:3")
    growth = as_growth(snapshot(tree(30, (wrap, 30, (user, 20, (start, 20)), (start, 10)))))
    rows = rank(growth, Query(by="line", hide=re.compile("^wrap"))).rows
    assert [(row.site, row.amount.delta_bytes) for row in rows] == [(user, 20), (start, 10)]
    with_all = rank(growth, Query(all_frames=True, hide=re.compile("^wrap"))).rows
    assert [list(row.frames) for row in with_all] == [[user, start], [start]]


def test_the_library_of_a_path_is_that_of_the_users_own_frame(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "show", str(CAPTURES / "ht.zst"), "--by", "library")
    (row,) = found["sites"]["paths"]
    assert row["site"]["object"].endswith("/shop") and row["site"]["file"].endswith("shop.cpp")


def test_heaptrack_knows_the_size_of_each_block(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "show", str(CAPTURES / "ht.zst"), "--by", "size")
    rows = {
        row["block_bytes_at_most"]: (row["delta_blocks"], row["after_bytes"])
        for row in found["sites"]["paths"]
    }
    # shop 100 keeps 2 x 100 blocks of 100 bytes and one of 5,000.
    assert rows[128] == (200, 20_000) and rows[8192] == (1, 5000)
    assert found["warnings"] == []


def test_where_only_the_mean_size_is_known_it_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "show", str(CAPTURES / "dhat.json"), "--by", "size", "--metric", "in-use")
    assert [warning["slug"] for warning in found["warnings"]] == ["block-sizes-averaged"]
    assert {row["block_bytes_at_most"] for row in found["sites"]["paths"]} >= {128, 8192}


@pytest.mark.parametrize(
    ("size", "most"), [(0, 16), (16, 16), (17, 32), (32, 32), (33, 64), (4096, 4096), (4097, 8192)]
)
def test_a_block_belongs_to_the_class_that_ends_at_the_next_power_of_two(size: int, most: int) -> None:
    assert size_class(size).line == most


def test_a_file_that_counts_bytes_only_has_no_sizes_of_blocks(tmp_path: Path) -> None:
    massif_file, folded = tmp_path / "a.ms", tmp_path / "folded"
    massif_file.write_text(massif(path(10, "f (a.cpp:1)")))
    folded.write_text("main;f 10\nmain;g 5\n")
    for file in (massif_file, folded):
        with pytest.raises(InputError) as caught:
            load_from_profile(open_profile(file, OpenOptions(by_size=True)), None)
        assert caught.value.slug == "no-block-sizes"
    with pytest.raises(InputError, match="has no block sizes"):
        rank(as_growth(load_operand(str(massif_file)).snapshot), Query(by="size"))


def test_most_blocks_come_first_where_blocks_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for metric in ("blocks", "allocated-blocks", "in-use-blocks", "peak-blocks"):
        found = document(capsys, "show", str(CAPTURES / "dhat.json"), "--metric", metric)
        blocks = [row["delta_blocks"] for row in found["sites"]["paths"]]
        assert blocks == sorted(blocks, reverse=True) and blocks[0] > 1
    assert main(["show", str(CAPTURES / "dhat.json"), "--metric", "allocated-blocks"]) == 0
    assert " blocks; most blocks at " in capsys.readouterr().out.splitlines()[0]


def test_what_counts_no_blocks_cannot_be_listed_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.ms"
    file.write_text(massif(path(10, "f (a.cpp:1)")))
    assert main(["show", str(file), "--metric", "blocks"]) == 1
    assert "has no block counts" in capsys.readouterr().err


def test_a_comparison_in_percent_tells_new_from_grown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "a.ms", tmp_path / "b.ms"
    before.write_text(massif([*path(100, "f (a.cpp:1)"), *path(40, "g (a.cpp:2)"), *path(9, "k (a.cpp:4)")]))
    after.write_text(massif([*path(150, "f (a.cpp:1)"), *path(30, "h (a.cpp:3)"), *path(6, "k (a.cpp:4)")]))
    assert main(["diff", str(before), str(after), "--compare"]) == 0
    text = capsys.readouterr().out
    assert "+50 B    +50.0 %  a.cpp:1" in text
    assert "new  a.cpp:3" in text and "gone  a.cpp:2" in text and "-33.3 %  a.cpp:4" in text
    found = document(capsys, "diff", str(before), str(after))
    assert {row["site"]["line"]: (row["change"], row["percent"]) for row in found["paths"]} == {
        1: ("grew", 50.0), 2: ("vanished", -100.0), 3: ("appeared", None), 4: ("shrank", -33.333),
    }  # fmt: skip


def test_the_same_at_twice_the_size_is_no_change_when_normalized() -> None:
    small = tree(30, (at("f"), 20, (at("m"), 20)), (at("g"), 10), blocks=[3, 2, 2, 1])
    large = tree(60, (at("f"), 40, (at("m"), 40)), (at("g"), 20), blocks=[3, 2, 2, 1])
    diff = diff_snapshots(*normalized([snapshot(small), snapshot(large)]))
    diff.check()
    assert not rank(diff, Query()).rows and diff.delta_bytes == 0


def test_scaling_leaves_every_tree_sound_and_its_total_exact() -> None:
    chance = random.Random(2)
    for _ in range(100):
        sides = []
        for _ in range(2):
            parts = [(at(f"f{n}"), chance.randrange(1, 10**6)) for n in range(chance.randrange(1, 9))]
            sides.append(snapshot(tree(sum(size for _, size in parts), *parts)))
        first, last = normalized(sides)
        first.tree.check()
        assert first.tree.bytes[0] == last.tree.bytes[0] == sides[1].tree.bytes[0]


def test_nothing_cannot_be_scaled() -> None:
    with pytest.raises(InputError, match="is empty and can't be scaled"):
        normalized([snapshot(tree(0)), snapshot(tree(5, (at("f"), 5)))])


def test_a_scaled_profile_is_not_reported_to_have_been_as_large(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(CAPTURES / f"tc.000{n}.heap") for n in (1, 2)]
    found = document(capsys, "diff", *files, "--normalize")
    assert found["answer"].startswith("scaled to the ") and "as large" not in found["answer"]
    true_size = load_operand(files[0]).snapshot.tree.bytes[0]
    (said,) = [warning["message"] for warning in found["warnings"] if warning["slug"] == "scaled"]
    assert f"tc.0001.heap holds {format_size(true_size)}, here scaled to" in said
    assert (
        " has its heap in the same places"
        in document(capsys, "diff", files[0], files[0], "--normalize")["answer"]
    )


@pytest.mark.parametrize("words", [["--metric", "blocks"], ["--fail-on", "1MiB"]])
def test_what_scaling_would_make_meaningless_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(CAPTURES / f"tc.000{n}.heap") for n in (1, 2)]
    assert main(["diff", *files, "--normalize", *words]) == 2
    assert "--normalize makes all sides equally large" in capsys.readouterr().err


def test_a_sampled_path_that_is_new_reports_it_only_when_that_is_sure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(capsys, "diff", *(str(CAPTURES / f"go{n}.pb.gz") for n in (1, 2)))
    for row in found["paths"]:
        if row["before_bytes"] == 0 and row["delta_bytes"]:
            sure = 3 * row["standard_error_bytes"] <= row["delta_bytes"]
            assert row["change"] == ("appeared" if sure else "grew")
    assert {row["change"] for row in found["paths"]} >= {"appeared"}


def test_the_regexes_of_a_file_of_known_paths_may_hold_bytes_that_are_no_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_bytes(b"# a comment\n\xff_leak\n")
    (pattern,) = read_known(str(file))
    assert pattern.search("\udcff_leak (a.cpp:1)")


def test_an_export_by_blocks_is_refused_for_it_holds_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(CAPTURES / "dhat.json"), "--to", "csv", "--metric", "blocks"]) == 2
    assert "leave 'blocks' out" in capsys.readouterr().err


def test_the_answer_by_blocks_has_a_sign_only_where_something_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = str(CAPTURES / "go1.pb.gz"), str(CAPTURES / "go2.pb.gz")
    assert main(["show", second, "--metric", "blocks"]) == 0
    assert re.search(r"in [\d,]+ blocks; most blocks at .*, \d", capsys.readouterr().out.splitlines()[0])
    assert main(["diff", first, second, "--metric", "blocks"]) == 0
    assert re.search(
        r", [+-][\d,]+ blocks; most blocks at .*, [+-]\d", capsys.readouterr().out.splitlines()[0]
    )
