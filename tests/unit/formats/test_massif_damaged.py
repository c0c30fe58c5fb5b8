"""A massif file with damaged lines: the sound parts are read, lost ones are reported and counted, never a traceback."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.formats.opening import open_profile

PERL = gzip.decompress((Path(__file__).parents[2] / "captures" / "massif" / "perl.massif.gz").read_bytes())
SNAPSHOTS = PERL.count(b"\nsnapshot=")


def write(folder: Path, data: bytes) -> Path:
    path = folder / "bad.massif"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("line", [b"mem_heap_B=", b"mem_stacks_B=", b"time=", b"heap_tree=empty"])
def test_snapshots_with_damaged_totals_are_left_out_and_counted(
    line: bytes, count: int, tmp_path: Path
) -> None:
    profile = open_profile(write(tmp_path, PERL.replace(b"\n" + line, b"\nQ" + line[1:], count)))
    assert len(profile.snapshots) == SNAPSHOTS - count
    (notice,) = profile.notices
    assert notice.slug == "massif-damaged" and re.search(rf", line \d+: .* {count} snapshot", notice.message)


def damaged_peak() -> bytes:
    at = PERL.index(b"0x", PERL.index(b"heap_tree=peak") + 300)
    return PERL[:at] + b"Qx" + PERL[at + 2 :]


def test_where_the_peaks_tree_is_damaged_the_next_one_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = open_profile(write(tmp_path, PERL)).peak_tree_index
    path = write(tmp_path, damaged_peak())
    assert main(["show", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    shown = re.search(r"heap holds .* at snapshot (\d+)", out)
    assert shown is not None and int(shown[1]) != whole
    assert f"the call tree of snapshot {whole} is left out" in out


def test_a_damaged_tree_that_is_asked_for_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, damaged_peak())
    index = open_profile(path).peak_tree_index
    assert main(["show", f"{path}:{index}"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"gdbmem: {path}, line ") and err.count("\n") == 1


LAST = PERL.rindex(b" n1: ")


@pytest.mark.parametrize(
    "data", [PERL[: LAST + 1] + b"q" + PERL[LAST + 2 :], PERL[:LAST]], ids=["damaged", "cut"]
)
def test_a_file_whose_last_tree_is_lost_is_compared_by_another_and_not_judged(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, data)
    assert main(["diff", str(path), str(path)]) == 0
    assert "is left out" in " ".join(capsys.readouterr().out.split())
    assert main(["diff", str(path), str(path), "--fail-on", "1KiB"]) == 125
    assert "gdbmem: not judged: it changed by 0 B, but " in capsys.readouterr().err


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_damaged_tree_hides_none_of_the_others_from_a_series_and_a_report(
    which: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = [
        match.start()
        for match in re.finditer(rb"^ n[0-9]", PERL, re.M)
        if PERL[: match.start()].endswith(b"etc.\n")
    ]
    path = write(tmp_path, PERL[: at[which] + 1] + b"q" + PERL[at[which] + 2 :])
    assert main(["diff", "--series", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"({len(at) - 1} snapshots)" in out and "is left out" in out
    assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert "is left out" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_any_one_byte_leaves_most_of_the_file_or_one_sentence(tmp_path: Path) -> None:
    chance = random.Random(13)
    refused = 0
    for _ in range(60):
        at = chance.randrange(len(PERL))
        changed = PERL[:at] + bytes([chance.randrange(256)]) + PERL[at + 1 :]
        try:
            profile = open_profile(write(tmp_path, changed))
            assert len(profile.snapshots) >= SNAPSHOTS - 2
            assert profile.peak_tree_index is not None
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused <= 1, "only the header's lines are needed"
