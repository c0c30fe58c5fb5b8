"""Damage that leaves a file well-formed is found by what its tool writes in each whole file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.opening import open_profile
from tests.unit.massif_texts import massif
from tests.unit.stack_files import CAPTURES, capture, read, tree

MEMCHECK = CAPTURES.parent / "memcheck"
MASSIF = CAPTURES.parent / "massif"


def slugs(file: Path) -> list[str]:
    profile = open_profile(file)
    for totals in profile.snapshots:
        if totals.has_tree:
            profile.tree(totals.index)
    return [notice.slug for notice in profile.notices]


def written(folder: Path, data: bytes) -> Path:
    (folder / "x").write_bytes(data)
    return folder / "x"


@pytest.mark.parametrize("name", ["tc.0001.heap", "exact-first.jeheap", "ht.zst", "samples.heap.gz"])
def test_two_dumps_in_one_file_are_not_read_as_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read(written(tmp_path, capture(name) * 2))
    assert refused.value.slug == "several-dumps" and "csplit -z FILE" in str(refused.value)


def test_the_documents_of_several_processes_in_one_xml_file_are_added_up(tmp_path: Path) -> None:
    one = (MEMCHECK / "lost.xml").read_bytes()
    alone = read(MEMCHECK / "lost.xml").total_bytes
    other = re.sub(rb"<pid>[0-9]+</pid>", b"<pid>7</pid>", one)
    profile = read(written(tmp_path, one + other))
    assert profile.total_bytes == 2 * alone > 0
    assert [notice.slug for notice in profile.notices] == ["several-processes"]
    profile = read(written(tmp_path, one + one))
    assert profile.total_bytes == alone and not profile.notices, "the last search of one process"


def test_a_heaptrack_file_that_ends_with_a_line_but_early_lacks_bytes(tmp_path: Path) -> None:
    lines = capture("ht.zst").split(b"\n")
    for count in range(30, len(lines) - 4, 97):
        assert slugs(written(tmp_path, b"\n".join(lines[:count]) + b"\n")) == ["bytes-missing"], count
    assert slugs(written(tmp_path, capture("ht.zst"))) == []


def test_a_massif_file_that_ends_between_two_snapshots_is_cut_if_it_freed_and_has_no_peak(
    tmp_path: Path,
) -> None:
    load, more = [(1, 100, "0x1: a (x.c:1)")], [(1, 900, "0x1: a (x.c:1)")]
    whole = massif(load, None, more, None, load, sizes=[100, 60, 900, 300, 100])
    cut = whole[: whole.index("#-----------\nsnapshot=2")]
    assert slugs(written(tmp_path, cut.encode())) == ["massif-truncated"]
    assert slugs(written(tmp_path, whole.encode())) == []
    assert slugs(written(tmp_path, massif(load, more).encode())) == [], "nothing was freed: there is no peak"


@pytest.mark.parametrize("file", sorted(MASSIF.glob("*.massif.gz")), ids=lambda file: file.name)
def test_no_whole_file_of_massif_is_called_cut(file: Path) -> None:
    assert not [one for one in open_profile(file).notices if "peak" in one.message]


@pytest.mark.parametrize("key", ["eb", "ebk", "gb", "mb"])
def test_a_record_of_dhat_without_one_of_its_counts_is_damage_not_another_metric(
    key: str, tmp_path: Path
) -> None:
    found = json.loads((CAPTURES / "dhat.json").read_text())
    del found["pps"][1][key]
    with pytest.raises(InputError, match=r"1 of the .* records of .* lack"):
        read(written(tmp_path, json.dumps(found).encode()))


def test_a_memcheck_log_that_ends_before_its_sums_is_incomplete(tmp_path: Path) -> None:
    lines = capture("lost.log").split(b"\n")
    end = next(at for at, line in enumerate(lines) if b"LEAK SUMMARY" in line)
    for count in range(end - 8, end + 3):
        data = b"\n".join(lines[:count]) + b"\n"
        try:
            assert "bytes-missing" in slugs(written(tmp_path, data)), count
        except InputError:
            continue


@pytest.mark.parametrize("name", ["tc.0001.heap", "exact-first.jeheap"])
def test_addresses_outside_a_cut_memory_map_are_counted(name: str, tmp_path: Path) -> None:
    data = capture(name)
    end = data.index(b"\n", data.index(b"MAPPED_LIBRARIES:")) + 1
    profile = read(written(tmp_path, data[:end]))
    assert tree(profile).bytes[0] == tree(read(CAPTURES / name)).bytes[0]
    assert [one.slug for one in profile.notices] == ["addresses-outside"]
