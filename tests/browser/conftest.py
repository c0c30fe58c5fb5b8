"""One Chromium for all tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven through playwright."""
    pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        found.new_context().new_page()  # which tests share
        yield found
        found.close()
