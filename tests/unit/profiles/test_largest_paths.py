"""A page of very many paths shows the smallest ones as one: counted, reported, and nothing else is changed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.formats.valgrind.massif import read_massif
from gdbmem.model.calltree import Snapshot
from gdbmem.model.diff import Diff
from gdbmem.page import explorer
from gdbmem.page.explorer import profile_data
from gdbmem.profiles.diff import as_growth, diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import Row, rank
from gdbmem.profiles.tree_from_main import large_paths
from gdbmem.runs.operand import load_from_profile
from tests.unit.massif_texts import Line, massif, path


def snapshot(sizes: dict[str, int], *more: Line) -> Snapshot:
    lines = [line for name, size in sizes.items() for line in path(size, f"{name} (a.c:{int(name[1:]) + 1})")]
    return load_from_profile(read_massif(massif([*lines, *more]).encode(), "wide.ms"), "0").snapshot


def rows(diff: Diff) -> dict[str, Row]:
    found = rank(diff, Query(by="path")).rows
    return {str(row.frames[0].function): row for row in found}


def test_paths_that_are_too_many_and_too_small_are_one_and_the_total_stays() -> None:
    before = as_growth(snapshot({f"f{n}": 1000 + n for n in range(10)}))
    large = large_paths(before, Query(), most=3, least_share=1008 / before.after[0])
    large.diff.check()
    assert large.diff.after[0] == before.after[0]
    kept = rows(large.diff)
    (other,) = [name for name in kept if "smaller paths" in name]
    assert sorted(set(kept) - {other}) == ["f7", "f8", "f9"]
    assert (large.merged, large.largest_bytes) == (7, 1006)
    assert kept[other].amount.after_bytes == sum(1000 + n for n in range(7))
    assert other == "7 smaller paths, each of at most 1,006 B"


def test_a_path_that_holds_its_share_is_kept_apart_however_many_there_are() -> None:
    diff = as_growth(snapshot({f"f{n}": 1000 + n for n in range(10)}))
    assert large_paths(diff, Query(), most=3, least_share=0.01).diff is diff


def test_what_shrank_is_as_large_as_it_was() -> None:
    sizes = {f"f{n}": 10 for n in range(10)}
    diff = diff_snapshots(snapshot({**sizes, "f20": 5000}), snapshot(sizes))
    large = large_paths(diff, Query(), most=2, least_share=0.5)
    large.diff.check()
    assert rows(large.diff)["f20"].amount.delta_bytes == -5000


def test_known_paths_and_what_a_file_leaves_out_are_not_among_the_others() -> None:
    merged = (1, 60, "in 3 places, below massif's threshold (1.00%)")
    diff = as_growth(snapshot({f"f{n}": 100 for n in range(10)}, merged))
    query = Query(known=[re.compile("^f9$")])
    large = large_paths(diff, query, most=2, least_share=0.9)
    large.diff.check()
    assert large.merged == 7
    ranking = rank(large.diff, query)
    assert ranking.known.after_bytes == 100
    assert [row.amount.after_bytes for row in ranking.rows if row.site is None] == [60]


def test_the_page_states_how_many_paths_it_shows_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "large_paths", partial(large_paths, most=3, least_share=0.5))
    file, page = tmp_path / "wide.ms", tmp_path / "page.html"
    file.write_text(massif([line for n in range(10) for line in path(100, f"f{n} (a.c:{n + 1})")]))
    assert main(["report", str(file), "-o", str(page)]) == 0
    assert "show the 7 smallest paths, each of at most 100 B, as one" in page.read_text()


def test_ordinary_files_lose_no_path() -> None:
    diff = as_growth(snapshot({f"f{n}": 1 for n in range(200)}))
    large = large_paths(diff, Query())
    assert large.diff is diff and not large.merged
    ends = profile_data(diff, Query())["ends"]
    assert isinstance(ends, list) and len(ends) == 200
