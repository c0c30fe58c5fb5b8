"""The text of ms_print is read like the massif file that it was made of."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.formats.opening import open_profile
from gdbmem.model.calltree import BYTES_MISSING, Profile
from tests.ms_print_output import assert_same, from_profile
from tests.unit.massif_files import CAPTURES

TEXTS = sorted(path.name for path in CAPTURES.glob("*.ms_print.gz"))


def text_of(name: str) -> bytes:
    return gzip.decompress((CAPTURES / name).read_bytes())


def read_text(text: bytes, folder: Path) -> Profile:
    file = folder / "text"
    file.write_bytes(text)
    return open_profile(file)


@pytest.mark.parametrize("name", TEXTS)
def test_every_snapshot_and_tree_is_that_of_the_text(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    profile = read_text(text, tmp_path)
    assert profile.source_format == "ms_print"
    assert_same(profile, text)
    massif = open_profile(CAPTURES / name.replace(".ms_print", ".massif"))
    assert [totals[1:6] for totals in profile.snapshots] == [totals[1:6] for totals in massif.snapshots]
    assert (profile.time_unit, profile.marked_peak_index) == (massif.time_unit, massif.marked_peak_index)


@pytest.mark.parametrize("name", ["shop.ms_print.gz", "odd.ms_print.gz"])
def test_a_cut_text_has_no_wrong_snapshot_and_no_half_of_a_tree(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    whole = list(from_profile(read_text(text, tmp_path)))
    lines = text.splitlines(keepends=True)
    for count in range(1, len(lines), 10):
        for part in (b"", lines[count][: len(lines[count]) // 2]):
            try:
                profile = read_text(b"".join(lines[:count]) + part, tmp_path)
            except InputError:
                continue
            found = list(from_profile(profile))
            assert BYTES_MISSING in {notice.slug for notice in profile.notices}
            assert [one.totals for one in found] == [one.totals for one in whole[: len(found)]]
            for one, full in zip(found[:-1], whole):
                assert one.nodes == full.nodes
            # Nodes of no bytes at the end may be missing.
            sizes = [[node for node in one.nodes if node.bytes] for one in (found[-1], whole[len(found) - 1])]
            assert sizes[0] in ([], sizes[1])


def test_a_row_that_was_edited_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_text(
            text_of("shop.ms_print.gz").replace(b"72,704             8", b"72,705             8"), tmp_path
        )
    assert caught.value.slug == "totals-differ"


def test_what_the_text_shows_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_bytes(text_of("shop.ms_print.gz"))
    assert main(["show", str(tmp_path / "text")]) == 0
    assert "shop.cpp:44" in capsys.readouterr().out
    assert main(["diff", str(tmp_path / "text:3"), str(tmp_path / "text:peak")]) in (0, 1)
