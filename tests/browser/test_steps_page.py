"""The page of `memwatch plot` in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gdbmem.model.step import Step
from gdbmem.report.steps.steps_plot import steps_html
from tests.browser.test_pages import opened

pytestmark = pytest.mark.needs("chromium")

# Headless Chromium's window is 800 pixels wide.
_MEASURE = """<script>
const rows = [...document.querySelectorAll("td:first-child")].map(cell => cell.firstChild);
const range = document.createRange();
const broken = rows.filter(text => { range.selectNode(text); return range.getClientRects().length > 1; }).length;
document.title = `${document.documentElement.scrollWidth} of ${innerWidth}, ${broken} broken`;
</script>"""


def test_the_page_fits_a_narrow_window_and_breaks_no_number(tmp_path: Path) -> None:
    file = "/home/somebody/" + "a_folder_with_a_long_name/" * 6 + "decoder.cpp"
    steps = [
        Step("next", f"ns::Decoder<{'int, ' * 30}>::f", file, n, 1, 23 << 20, None, "statm", True)
        for n in range(9)
    ]
    page = tmp_path / "steps.html"
    page.write_text(steps_html(steps, "memwatch of it").replace("</body>", f"{_MEASURE}</body>"))
    dom, complaints = opened(page, tmp_path)
    measured = re.search(r"<title>(\d+) of (\d+), (\d+) broken</title>", dom)
    assert complaints == "" and measured is not None
    width, window, broken = map(int, measured.groups())
    assert width <= window and broken == 0
