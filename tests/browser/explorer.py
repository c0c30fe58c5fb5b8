"""A report page in Chromium, driven through playwright: its text, its complaints, its requests to the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from gdbmem.cli.main import main
from tests.unit.massif_files import capture

CAPTURES = Path(__file__).parents[1] / "captures"


@dataclass
class Opened:
    """A page that is open, and what came of it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def number(self, selector: str) -> int:
        """Return the exact value of the element at *selector*."""
        return int(self.page.locator(selector).get_attribute("data-value") or "")

    def rows(self) -> list[tuple[int, int, int]]:
        """Return change, before and after of all rows of the table, the rest of them asked for."""
        self.page.locator("#more").evaluate("more => { while (!more.hidden) more.click(); }")
        cells = self.page.locator("#rows tbody tr").evaluate_all(
            "rows => rows.map(row => [0, 2, 3].map(at => Number(row.cells[at].dataset.value)))"
        )
        return [tuple(row) for row in cells]

    def text(self) -> str:
        """Return what can be read on the page."""
        return self.page.inner_text("body")


@contextmanager
def opened(browser: Browser, path: Path, **context: Any) -> Iterator[Opened]:
    """Open the page at *path*: in the one tab that tests share, or, with options of a context, in a separate one."""
    shared = not context
    # A tab takes longer to make than most pages to show.
    page = browser.contexts[0].pages[0] if shared else browser.new_context(**context).new_page()
    page.set_viewport_size({"width": 1200, "height": 1000})
    state = Opened(page)
    listeners: list[tuple[Any, Any]] = [
        ("console", lambda message: state.complaints.append(message.text)),
        ("pageerror", lambda error: state.complaints.append(str(error))),
        ("request", lambda request: state.requests.append(request.url)),
    ]
    for event, listener in listeners:
        page.on(event, listener)
    try:
        page.goto(path.as_uri())
        if context.get("java_script_enabled", True) and page.locator("#profile").count():
            page.locator("body.explored").wait_for(state="attached")
        yield state
    finally:
        for event, listener in listeners:
            page.remove_listener(event, listener)
        if not shared:
            page.context.close()


def report(tmp_path: Path, *operands: str) -> Path:
    """Return the page that `gdbmem report` makes of *operands*."""
    target = tmp_path / "page.html"
    assert main(["report", *operands, "-o", str(target), "--force"]) == 0
    return target


def massif_capture(tmp_path: Path, name: str) -> str:
    """Return the unpacked capture of massif's *name*."""
    path = tmp_path / f"{name}.ms"
    path.write_bytes(capture(name))
    return str(path)
