"""The picture of a heap in a real browser: it is drawn, and nothing of a stranger's runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.model.heap_map import HeapMap, MapRegion
from gdbmem.report.ledger.heap_map import render_html
from tests.browser.test_pages import EVIL, opened

pytestmark = pytest.mark.needs("chromium")


@pytest.mark.parametrize("cells", [3, 20_000])
def test_the_heap_is_drawn_without_a_complaint(cells: int, tmp_path: Path) -> None:
    region = MapRegion("main heap", 0x1000, 0x1000 + 4096 * cells, [[2096, 0, 2000, 0, 0]] * cells)
    page = tmp_path / "heap.html"
    page.write_text(render_html(HeapMap(4096, [region]), EVIL))
    dom, complaints = opened(page, tmp_path)
    assert complaints == ""
    assert 'width="300" height="150"' not in dom, "the canvas is as it was"
    assert '<canvas id="map" width="' in dom, "the script gave it its size"
    assert "<title>ran" not in dom and "<img" not in dom
