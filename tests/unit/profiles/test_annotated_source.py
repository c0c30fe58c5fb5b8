"""A source file line by line: every byte is on a line or said to be elsewhere, and another version is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main
from gdbmem.formats.opening import OpenOptions
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import annotate
from gdbmem.runs.operand import load_operand
from tests.unit.stack_files import CAPTURES

SOURCE = """\
#include <vector>
void fill() {
\tkeep(new char[100]);
}
int main() {
\tfill();
\tfill();
}
"""
# main (6) → fill (3): 100; main (7) → fill (3): 40; main (6) itself: 7; another file: 1000; fill calls itself: 5.
FOLDED = """\
main (app/a.cpp:6);fill (app/a.cpp:3) 100
main (app/a.cpp:7);fill (app/a.cpp:3) 40
main (app/a.cpp:6) 7
main (app/a.cpp:6);other (app/b.cpp:1) 1000
main (app/a.cpp:7);fill (app/a.cpp:3);fill (app/a.cpp:3) 5
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app").mkdir()
    source = tmp_path / "app" / "a.cpp"
    source.write_text(SOURCE)
    os.utime(source, (1000, 1000))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "profile.folded"
    file.write_text(FOLDED)
    return file


def annotated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["show", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    part: dict[str, Any] = found["annotated"]
    assert part["inside"]["delta_bytes"] + part["elsewhere"]["delta_bytes"] == found["sites"]["total_bytes"]
    assert sum(line["delta_bytes"] for line in part["lines"]) == part["inside"]["delta_bytes"]
    return part


def test_each_line_has_its_own_bytes_and_those_of_calls_from_it(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = annotated(capsys, str(profile), "--annotate", "app/a.cpp")
    assert {
        one["line"]: (one["delta_bytes"], one["through_bytes"], one["text"]) for one in found["lines"]
    } == {
        3: (145, 145, "    keep(new char[100]);"),
        6: (7, 1107, "    fill();"),
        7: (0, 45, "    fill();"),
    }
    assert found["elsewhere"]["delta_bytes"] == 1000 and found["doubts"] == []


def test_the_text_adds_up_and_keeps_the_order_of_the_file(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(profile), "--annotate", "app/a.cpp"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("app/a.cpp: 152 B of 1.1 KiB at")
    numbers = [int(line.split("│")[0].split()[-1]) for line in text.splitlines() if "│" in line]
    assert numbers == list(range(1, 9)) and "1 place not in this file" in text
    assert main(["show", str(profile), "--annotate", "app/a.cpp", "--ignore", "other"]) == 0
    assert "1 path not selected" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "slug"),
    [
        (SOURCE[:40], "source-differs"),  # fewer lines
        (SOURCE.replace("\tkeep(new char[100]);", ""), "source-differs"),  # an empty one
        (SOURCE.replace("\n", "\r\n"), ""),
        (SOURCE.rstrip("\n"), ""),
        (SOURCE.replace("keep", "\x1b]8;;file:///etc\x07\u202ekeep"), ""),
        (SOURCE.replace("keep", "\udcff\udcfe\x00"), ""),
        ("", "source-differs"),
    ],
)
def test_a_source_that_is_another_or_hostile_is_told_and_moves_no_cursor(
    source: str, slug: str, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("app/a.cpp").write_bytes(source.encode("utf-8", "surrogateescape"))
    os.utime("app/a.cpp", (1000, 1000))
    found = annotated(capsys, str(profile), "--annotate", "app/a.cpp")
    assert [one["slug"] for one in found["doubts"]] == ([slug] if slug else [])
    assert main(["show", str(profile), "--annotate", "app/a.cpp"]) == 0
    text = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\r", "\t", "\u202e", "\x00"} & set(text)


def test_a_source_that_was_changed_after_the_profile_is_told(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.utime(profile, (500, 500))
    found = annotated(capsys, str(profile), "--annotate", "app/a.cpp")
    assert [one["slug"] for one in found["doubts"]] == ["source-newer"]


def test_without_its_source_the_numbers_are_shown_and_that_it_is_missing(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("app/a.cpp").unlink()
    found = annotated(capsys, str(profile), "--annotate", "app/a.cpp")
    assert [one["slug"] for one in found["doubts"]] == ["source-missing"] and found["source"] is None
    assert [one["text"] for one in found["lines"]] == [None, None, None]


def test_a_file_that_is_none_of_the_profile_or_several_is_refused(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile.open("a") as stream:
        stream.write("main (lib/a.cpp:6) 1\n")
    for wanted, slug in (("a.cpp", "ambiguous-source"), ("c.cpp", "no-such-source"), ("/", "no-such-source")):
        assert main(["show", str(profile), "--annotate", wanted]) == 1
        assert f"[{slug}]" in capsys.readouterr().err
    assert annotated(capsys, str(profile), "--annotate", "/elsewhere/lib/a.cpp")["file"] == "lib/a.cpp"
    assert main(["show", str(profile), "--annotate", "a.cpp", "--by", "file"]) == 2


@pytest.mark.parametrize("name", ["dhat.json", "xtree.kcg", "tc.raw", "go1.pb.gz"])
def test_every_line_of_every_file_of_a_capture_adds_up(name: str) -> None:
    diff = as_growth(load_operand(str(CAPTURES / name), OpenOptions()).snapshot)
    files = {frame.file for frame in diff.frames if frame.file}
    for file in files:
        found = annotate(diff, Query(), file)
        assert found.inside.delta_bytes + found.elsewhere.delta_bytes == diff.delta_bytes
        assert sum(one.amount.delta_bytes for one in found.lines if one.amount) == found.inside.delta_bytes
        assert all(one.amount is None or one.through_bytes >= one.amount.delta_bytes for one in found.lines)
    assert sum(annotate(diff, Query(), file).inside.delta_bytes for file in files) <= diff.delta_bytes


def test_the_page_has_the_source_beside_the_numbers(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("app/a.cpp").write_text(SOURCE.replace("keep", "</td><script>keep"))
    assert main(["report", str(profile), "--annotate", "app/a.cpp", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "app/a.cpp" in page and "not in this file" in page and "<script>keep" not in page
    assert '<span data-value="1107">' in page
