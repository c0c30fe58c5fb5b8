"""Pictures of the heap and of monitors in a real browser: they are drawn, and nothing of a stranger's runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.ledger.heap_map import render_html
from gdbmem.model.heap_blocks import HeapMap, MapRegion
from gdbmem.model.series import Mark
from gdbmem.page.page import Page, course_section, render
from gdbmem.series.charts import Curve, Picture

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser

from tests.browser.explorer import opened

pytestmark = pytest.mark.needs("chromium")

EVIL = (
    "</pre><script>document.title='ran'</script><img src=http://127.0.0.1:9/x onerror=document.title='ran'>"
)


def test_nothing_in_the_names_or_marks_of_a_monitors_picture_runs_in_the_browser(
    browser: Browser, tmp_path: Path
) -> None:
    times = [float(t) for t in range(20)]
    curve = Curve(EVIL, times, [float(t << 20) for t in range(20)])
    file = tmp_path / "course.html"
    picture = Picture(EVIL, [curve] * 9, [Mark(3.0, EVIL)], [EVIL])
    file.write_text(render(Page(EVIL, sections=[course_section(picture)])))
    with opened(browser, file) as page:
        page.page.locator("figure.timeline.live svg").hover(position={"x": 300, "y": 250})
        assert EVIL[:60] in page.page.inner_text(".reading")
        assert page.page.locator("script").count() == 2, "the numbers, and what zooms them"
        assert page.page.locator("img").count() == 0 and page.page.title() == EVIL
        assert page.page.locator("svg").count() == 1 and "document.title" in page.text()
        assert page.complaints == [] and page.requests == [file.as_uri()]


@pytest.mark.parametrize("cells", [3, 20_000])
def test_the_heap_is_drawn_without_a_complaint(cells: int, browser: Browser, tmp_path: Path) -> None:
    region = MapRegion("main heap", 0x1000, 0x1000 + 4096 * cells, [[2096, 0, 2000, 0, 0]] * cells)
    file = tmp_path / "heap.html"
    file.write_text(render_html(HeapMap(4096, [region]), EVIL))
    with opened(browser, file) as page:
        assert page.complaints == []
        width, height = page.page.locator("#map").evaluate("canvas => [canvas.width, canvas.height]")
        assert (width, height) != (300, 150), "the canvas is as it was"
        assert page.page.title() != "ran" and page.page.locator("img").count() == 0
