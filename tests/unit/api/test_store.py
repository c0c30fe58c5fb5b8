"""A store of profiles: what grew most, on which rank and since when, equal to differences; nothing lost or mixed."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem import api
from gdbmem.api import store
from gdbmem.api.store_queries import opened, since
from gdbmem.cli.main import main
from gdbmem.errors import InputError, MissingToolError, UsageError
from gdbmem.model.calltree import Frame
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.export import encode, encode_for_server
from tests.unit.massif_texts import massif, path
from tests.unit.trees import at, snapshot, tree

pytest.importorskip("pyarrow", reason="an optional dependency: pip install gdbmem[store]")
pytest.importorskip("duckdb", reason="an optional dependency: pip install gdbmem[store]")

pytestmark = pytest.mark.slow

KEEP, CACHE, MAIN = at("keep", "/src/solver.c:12"), at("cache", "/src/cache.c:7"), at("main", "/src/main.c:3")
Path_ = tuple[Sequence[Frame], int]


def profile(file: Path, *paths: Path_, t: Optional[float] = None) -> Path:
    """Write a pprof profile of *paths*, taken at *t*."""
    nodes: list[Any] = []
    for frames, size in paths:
        node: Any = None
        for frame in reversed(frames):
            node = (frame, size) if node is None else (frame, size, node)
        nodes.append(node)
    whole = as_growth(snapshot(tree(sum(size for _, size in paths), *nodes)))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encode(whole, "pprof", is_change=False) if t is None else encode_for_server(whole, t))
    return file


def ranks(folder: Path, count: int = 6, times: int = 5, odd: int = 4) -> Path:
    """Write profiles of ranks: the path of KEEP grows on rank *odd* from the third profile on, that of CACHE on all."""
    for rank in range(count):
        for time in range(times):
            grown = (time - 1) << 20 if rank == odd and time >= 2 else 0
            profile(
                folder / f"rank{rank}" / f"heap.{time + 8}.pb.gz",  # as text, 10 comes before 9
                ((KEEP, MAIN), 1000 + grown),
                ((CACHE, MAIN), 5000 + 10 * time),
                t=1_800_000_000 + 60 * time,
            )
    return folder


def grew(where: Path, top: int = 10, **options: Any) -> Any:
    with opened(where) as found:
        return found.grew(top=top, **options)


def rows_of(where: Path, query: str) -> Sequence[Sequence[Any]]:
    with opened(where) as found:
        return found.sql(query).rows


def test_the_path_that_grew_most_is_named_with_its_rank_and_since_when(tmp_path: Path) -> None:
    added = store.add(tmp_path / "s", [ranks(tmp_path / "p")], names="rank%r/heap.*")
    assert (added.added, added.paths, added.rows, added.unreadable) == (30, 2, 60, [])
    first, second = grew(tmp_path / "s").grown
    assert (first.frames[0].function, first.grew_bytes, first.rank) == ("keep", 3 << 20, 4)
    assert (first.since.profile, first.since.t, first.since.before_bytes) == (3, 1_800_000_120, 1000)
    assert (second.grew_bytes, second.all_bytes, second.series_grown) == (40, 240, 6)
    assert [frame.key for frame in second.frames] == [CACHE.key, MAIN.key]
    with opened(tmp_path / "s") as found:
        (odd,) = found.odd(top=5).odd
        assert (odd.rank, odd.grew_bytes, odd.others_bytes, odd.since.profile) == (4, 3 << 20, 0, 3)  # type: ignore[union-attr]


def test_growth_equals_that_of_diff_path_by_path(tmp_path: Path) -> None:
    folder = Path("tests/captures/stacks").resolve()
    files = [folder / "tc.0001.heap", folder / "tc.0002.heap"]
    store.add(tmp_path / "s", files)
    change = api.rank(api.diff(*files), api.Query(top=None, unchanged=True))
    expected = sorted(row.amount.delta_bytes for row in change.rows)
    found = [row[0] for row in rows_of(tmp_path / "s", "select grew_bytes from growth order by 1")]
    assert [size for size in found if size] == [size for size in expected if size]
    assert rows_of(tmp_path / "s", "select sum(grew_bytes), count(distinct path_id) from growth") == [
        (change.total.delta_bytes, len(found))
    ]


def test_what_massif_has_merged_counts_as_doubt_and_never_as_nothing(tmp_path: Path) -> None:
    def snapshot_of(keep: int, merged: int) -> list[Any]:
        tool = (1, merged, "in 3 places, all below massif's threshold (1.00%)")
        return [*path(90_000, "cache (cache.c:7)"), *(path(keep, "keep (solver.c:12)") if keep else ()), tool]

    file = tmp_path / "massif.out.1"
    file.write_text(
        massif(snapshot_of(0, 900), snapshot_of(5000, 400)).replace("--threshold=0", "--threshold=1.0")
    )
    store.add(tmp_path / "s", [file])
    change = api.rank(api.diff(f"{file}:0", f"{file}:1"), api.Query(top=None))
    (expected,) = (row.amount for row in change.rows if row.frames and row.frames[0].function == "keep")
    (found,) = (row for row in grew(tmp_path / "s").grown if row.frames[0].function == "keep")
    assert found.grew_bytes == expected.delta_bytes == 5000
    assert 0 < expected.uncertain_bytes <= found.uncertain_bytes <= 900
    assert [row.grew_bytes for row in grew(tmp_path / "s").grown] == [5000]


def test_an_interrupted_add_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, more = tmp_path / "s", ranks(tmp_path / "p")
    store.add(where, [more / "rank0"])
    before = rows_of(where, "select count(*), sum(bytes) from facts")
    listed = (where / "store.json").read_bytes()

    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(store._Writer, "commit", interrupted)
        store.add(where, [more])
    assert (where / "store.json").read_bytes() == listed
    assert rows_of(where, "select count(*), sum(bytes) from facts") == before
    assert len(list(where.glob("*.parquet"))) == 3, "what was written is removed"
    (where / "facts-000099.parquet").write_bytes(b"of an add that was killed")
    assert store.add(where, [more]).added == 25
    assert rows_of(where, "select count(*) from facts") == [(60,)]
    names = {
        name for table in store.TABLES for name, _ in json.loads((where / "store.json").read_text())[table]
    }
    assert names == {one.name for one in where.glob("*.parquet")}


def test_a_full_disk_is_said_in_one_sentence_and_nothing_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, more = tmp_path / "s", ranks(tmp_path / "p")
    store.add(where, [more / "rank0"])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left on device") as caught:
            store.add(where, [more])
    assert caught.value.slug == "store-unwritable"
    assert rows_of(where, "select count(*) from facts") == [(10,)]


def test_profiles_added_one_by_one_or_twice_are_as_those_added_at_once(tmp_path: Path) -> None:
    files = sorted(ranks(tmp_path / "p", count=5, times=3).glob("*/*"), key=lambda one: (len(one.name), one))
    for file in files:
        store.add(tmp_path / "one", [file], names="rank%r/heap.*")
    store.add(tmp_path / "all", [tmp_path / "p"], names="rank%r/heap.*")
    again = store.add(tmp_path / "all", [tmp_path / "p"], names="rank%r/heap.*")
    assert (again.added, again.known) == (0, 15)
    assert grew(tmp_path / "one").grown == grew(tmp_path / "all").grown
    assert len(list((tmp_path / "one").glob("*.parquet"))) <= 12
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in (tmp_path / "one").iterdir()} == {0o600}


@pytest.mark.parametrize("question", ["grew", "odd"])
def test_focus_in_the_shell_leaves_the_paths_that_match(
    question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "s")
    store.add(where, [ranks(tmp_path / "p")])
    assert main(["store", "query", where, question, "--focus", "keep"]) == 0
    printed = capsys.readouterr().out
    assert "keep" in printed and "cache" not in printed
    assert main(["store", "query", where, question, "--focus", "(keep"]) == 2


def test_names_with_quotes_patterns_and_bytes_are_data(tmp_path: Path) -> None:
    nasty = at("f'); drop table facts; --", "/src/a'\"*.c:1")
    where = tmp_path / "s[1]*'; --"
    for time in range(2):
        profile(tmp_path / f"p'x[0]*/heap.{time}.pb", ((nasty, MAIN), 100 + 50 * time), t=1000.0 + time)
    store.add(where, [tmp_path / "p'x[0]*"])
    (only,) = grew(where).grown
    assert (only.frames[0].function, only.grew_bytes) == (nasty.function, 50)
    assert grew(where, focus=re.compile(r"drop table facts; --")).grown[0].grew_bytes == 50
    assert not grew(where, focus=re.compile("' or 1=1")).grown
    assert not grew(where, unit="bytes of heap", ranks=[3]).grown


@pytest.mark.parametrize(
    "query",
    [
        "delete from profiles",
        "select 1; select 2",
        "copy (select 1) to '{outside}'",
        "select * from read_text('/proc/self/environ')",
        "select * from read_parquet('{outside}')",
        "attach '{outside}' as other",
        "install httpfs",
        "set memory_limit = '9GB'",
    ],
)
def test_sql_reads_the_store_and_nothing_else(tmp_path: Path, query: str) -> None:
    for time in range(2):
        profile(tmp_path / f"heap.{time}.pb", ((KEEP, MAIN), 100 + 50 * time), t=1000.0 + time)
    store.add(tmp_path / "s", [tmp_path / "heap.0.pb", tmp_path / "heap.1.pb"])
    before = {one.name: one.read_bytes() for one in (tmp_path / "s").iterdir()}
    with pytest.raises((UsageError, InputError)):
        rows_of(tmp_path / "s", query.format(outside=tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    assert {one.name: one.read_bytes() for one in (tmp_path / "s").iterdir()} == before


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (lambda text: text.replace('"format_version": 1', '"format_version": 9'), "store-version"),
        (lambda text: text.replace('"format_version": 1', '"format_version": 0'), "store-version"),
        (lambda text: text.replace("facts-", "../facts-"), "store-damaged"),
        (lambda text: text[:40], "store-damaged"),
        (lambda text: "[1]", "store-version"),
        (lambda text: text.replace('"profiles"', '"others"'), "store-damaged"),
    ],
)
def test_a_store_of_another_layout_or_damaged_is_refused_and_left_alone(
    tmp_path: Path, change: Any, slug: str
) -> None:
    file = profile(tmp_path / "heap.0.pb", ((KEEP, MAIN), 100))
    store.add(tmp_path / "s", [file])
    listed = tmp_path / "s" / "store.json"
    listed.write_text(change(listed.read_text()))
    before = {one.name: one.read_bytes() for one in (tmp_path / "s").iterdir()}
    for use in (lambda: grew(tmp_path / "s"), lambda: store.add(tmp_path / "s", [file])):
        with pytest.raises(InputError) as caught:
            use()
        assert caught.value.slug == slug
    assert {one.name: one.read_bytes() for one in (tmp_path / "s").iterdir()} == before


def test_a_damaged_table_is_one_sentence(tmp_path: Path) -> None:
    for time in range(2):
        profile(tmp_path / "p" / f"heap.{time}.pb", ((KEEP, MAIN), 100 + 50 * time), t=1000.0 + time)
    for name in store.TABLES:
        where = tmp_path / name
        store.add(where, [tmp_path / "p"])
        (file,) = where.glob(f"{name}-*.parquet")
        file.write_bytes(file.read_bytes()[:-30])
        with pytest.raises(InputError) as caught:
            grew(where)
        assert caught.value.slug == "store-damaged" and "\n" not in str(caught.value)


def test_profiles_of_different_programs_and_units_are_never_compared(tmp_path: Path) -> None:
    for number, (program, size) in enumerate((("a", 100), ("b", 90_000))):
        text = massif(path(size, "keep (solver.c:12)")).replace("cmd: ./decoder", f"cmd: ./{program}")
        (tmp_path / f"massif.out.{number}").write_text(text)
    store.add(tmp_path / "s", [tmp_path / "massif.out.0", tmp_path / "massif.out.1"])
    found = grew(tmp_path / "s")
    assert not found.grown and found.series == 2
    assert {notice.slug for notice in found.notices} == {"series-of-one"}


def test_a_missing_rank_and_a_file_that_cannot_be_read_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ranks(tmp_path / "p", count=4, odd=0)
    (folder / "rank2" / "heap.9.pb.gz").write_bytes(b"\x1f\x8b cut")
    for file in (folder / "rank1").iterdir():
        file.unlink()
    where = str(tmp_path / "s")
    assert main(["store", "add", where, "--names", "rank%r/heap.*", str(folder)]) == 1
    said = capsys.readouterr()
    assert "14 profiles added" in said.out and "1 file left out" in said.out
    assert "left out: " in said.err and "heap.9.pb.gz" in said.err
    assert main(["store", "query", where, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["missing"]) == ("store", [1])
    assert document["grown"][0]["since"]["profile"] == 3
    assert document["answer"].startswith("solver.c:12  keep grew most: +3.0 MiB on rank 0, since ")


def test_the_folder_in_which_a_program_was_built_does_not_part_its_paths(tmp_path: Path) -> None:
    for time, folder in enumerate(("/build-1/x", "/build-2/y")):
        keep = at("keep", f"{folder}/solver.c:12")
        init = at("<module>", f"{folder}/pack/__init__.py:1")
        other = at("<module>", f"{folder}/other/__init__.py:1")
        paths = (((keep, MAIN), 100 + 50 * time), ((init, MAIN), 10), ((other, MAIN), 20))
        profile(tmp_path / f"heap.{time}.pb", *paths, t=1000.0 + time)
    store.add(tmp_path / "s", [tmp_path / "heap.0.pb", tmp_path / "heap.1.pb"])
    assert rows_of(tmp_path / "s", "select grew_bytes from growth order by 1") == [(0,), (0,), (50,)]


def test_a_folder_that_is_no_store_is_never_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    file = profile(tmp_path / "heap.0.pb", ((KEEP, MAIN), 100))
    for where in (tmp_path / "mine", file):
        with pytest.raises(InputError, match="is not a store") as caught:
            store.add(where, [file])
        assert caught.value.slug == "no-store"
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["notes"]
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="writable by others"):
        store.add(tmp_path / "open", [file])


def test_without_its_packages_a_store_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="a store needs pyarrow") as caught:
        store.add(tmp_path / "s", [tmp_path])
    assert caught.value.hint == "pip install 'gdbmem[store]'"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5, 5, 5, 8, 11, 14], 3),  # a ramp
        ([5, 5, 5, 9, 9, 9], 3),  # a step
        ([1, 2, 3, 4, 5], 1),  # from the beginning
        ([100, 103, 98, 101, 99, 150, 201, 248, 302], 5),
        ([97, 103, 98, 101, 99, 102, 98, 101], None),
        ([0, 7], 1),
        ([3], None),
    ],
)
def test_growth_begins_where_the_values_leave_their_level(
    values: Sequence[float], expected: Optional[int]
) -> None:
    found = since(values)
    assert (None if found is None else found[0]) == expected


def test_ctrl_c_ends_a_query_that_takes_forever(tmp_path: Path) -> None:
    for time in range(2):
        profile(tmp_path / "p" / f"heap.{time}.pb", ((KEEP, MAIN), 100 + 50 * time), t=1000.0 + time)
    store.add(tmp_path / "s", [tmp_path / "p"])
    typed = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    typed.start()
    with pytest.raises(KeyboardInterrupt):
        rows_of(tmp_path / "s", "select count(*) from range(1000000000000) a, range(1000) b")
    assert rows_of(tmp_path / "s", "select count(*) from facts") == [(2,)]
