"""The picture of a pool: every chunk to scale, the refused request beside them, strangers' words escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from gdbmem.api.pools import answer_failed, read_pools
from gdbmem.cli.main import main
from gdbmem.model.bfc import Allocator
from gdbmem.pools.output import render_pools

CAPTURES = Path(__file__).parents[2] / "captures" / "bfc"
_RECT, _TITLE = "{http://www.w3.org/2000/svg}rect", "{http://www.w3.org/2000/svg}title"


def _second() -> Allocator:
    return read_pools(CAPTURES / "tensorflow-2.21.log").allocators[1]


def _widths(allocator: Allocator) -> dict[str, float]:
    root = ET.fromstring(render_pools([allocator], [answer_failed(allocator)], "svg"))
    return {
        str(title.text): float(rect.attrib["width"])
        for rect in root.iter(_RECT)
        for title in rect.iter(_TITLE)
    }


def test_the_request_is_drawn_to_the_scale_of_the_holes() -> None:
    widths = _widths(_second())
    request = widths["the request of 120.0 MiB"]
    hole = next(width for title, width in widths.items() if "32.0 MiB, free" in title)
    assert hole / request == pytest.approx(32 / 120, rel=0.01)


def test_what_stands_in_the_way_is_marked() -> None:
    first = read_pools(CAPTURES / "tensorflow-2.21.log").allocators[0]
    drawn = render_pools([first], [answer_failed(first)], "svg")
    assert drawn.count("#c0392b") == 2  # in the legend, and the one chunk


def test_words_of_strangers_are_escaped() -> None:
    allocator = replace(_second(), name="<script>alert(1)</script>\x1b[31m")
    drawn = render_pools([allocator], [None], "html")
    assert "<script" not in drawn and "\x1b" not in drawn
    ET.fromstring(render_pools([allocator], [None], "svg"))


def test_another_ending_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bfc", "nowhere.log", "--map", "x.png"]) == 2
    assert "--map makes .svg and .html" in capsys.readouterr().err


def test_the_picture_is_written_beside_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pool.svg"
    assert main(["bfc", str(CAPTURES / "tensorflow-2.21.log"), "--map", str(path)]) == 0
    assert path.read_text().startswith("<svg") and "in use" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_bars_of_regions_are_not_broken_in_a_narrow_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    main(["bfc", str(CAPTURES / "tensorflow-2.21.log")])
    bars = [line for line in capsys.readouterr().out.splitlines() if line.startswith("0x")]
    assert len(bars) > 10
    assert {len(line) for line in bars} == {min(columns, 29 + 64)}
