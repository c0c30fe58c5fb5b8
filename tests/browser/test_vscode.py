"""The extension for VS Code by node's own test runner and a stub of the editor, and its table in a real browser.

`scripts/vscode` also checks its types, and runs the protocol with a gdb of 14 or later.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.test_page_types import TSC, node_version

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

EXTENSION = Path(__file__).parents[2] / "editors/vscode"
SITE = "https://extension"
EDITOR = "window.told = []; window.acquireVsCodeApi = () => ({postMessage: (one) => window.told.push(one)})"


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the extension, compiled."""
    if not TSC.exists() or node_version() < 18:
        pytest.skip("TypeScript, which scripts/setup unpacks where npm is, or node 18 is not here")
    folder = tmp_path_factory.mktemp("vscode")
    for name in ("src", "test"):
        shutil.copytree(EXTENSION / name, folder / name)
    for name in ("package.json", "tsconfig.json", "page.css"):
        shutil.copy(EXTENSION / name, folder)
    untyped = folder / "untyped.json"  # the types of the editor are not here
    untyped.write_text('{"extends": "./tsconfig.json", "compilerOptions": {"noCheck": true, "types": []}}')
    words = ["node", str(TSC), "-p", str(untyped)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    return folder


def test_the_extension_shows_what_gdbmem_says_and_starts_only_a_gdb_that_is_fit(extension: Path) -> None:
    tests = [str(extension / f"test/{name}.test.mjs") for name in ("logic", "extension")]
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_its_table_shows_names_as_text_runs_nothing_of_them_and_leads_to_lines(
    browser: Browser, extension: Path
) -> None:
    evil = "<img src=x onerror='window.evil=1'>\x1b[31m"
    frame = {"function": evil, "file": f"/src/{evil}.c", "line": 7, "object": None}
    row = {
        "delta_bytes": 2048,
        "before_bytes": 0,
        "after_bytes": 2048,
        "site": frame,
        "frames": [frame, frame],
    }
    diff = {
        "answer": f"grew in {evil}",
        "unit": "bytes of heap",
        "delta_bytes": 2048,
        "before": {"name": "a", "total_bytes": 0},
        "after": {"name": "b", "total_bytes": 2048},
        "paths": [row],
    }
    addresses = ", ".join(f"'{SITE}{path}'" for path in ("/out/page.js", "/page.css", ""))
    make = (
        "const {page, diffTable} = require('./out/tables.js');"
        f"console.log(JSON.stringify({{html: page({addresses}, 'abc'), table: diffTable({json.dumps(diff)})}}))"
    )
    words = ["node", "-e", make]
    made = json.loads(subprocess.run(words, cwd=extension, capture_output=True, check=True).stdout)

    def serve(route: Route) -> None:
        name = route.request.url[len(SITE) + 1 :]
        if name == "table":
            route.fulfill(body=made["html"], content_type="text/html")
        else:
            route.fulfill(path=extension / name)

    page = browser.contexts[0].new_page()
    try:
        page.add_init_script(EDITOR)
        page.route(f"{SITE}/**", serve)
        page.goto(f"{SITE}/table")
        assert page.evaluate("window.told") == [{"ready": True}]
        page.evaluate("(table) => window.postMessage(table, '*')", made["table"])
        page.wait_for_selector("tbody tr")
        cells = page.eval_on_selector_all(
            "tbody tr:first-child > td", "all => all.map(one => one.textContent)"
        )
        shown = evil.replace("\x1b", "\\x1b")
        assert cells[:3] == ["+2.0 KiB", "0 B", "2.0 KiB"]
        assert cells[3] == f"{shown} {shown}.c:7called by{shown} {shown}.c:7"
        assert page.text_content("#answer") == f"grew in {shown}"
        assert page.query_selector("img") is None
        page.click("tbody button")
        place = made["table"]["rows"][0]["place"]
        assert page.evaluate("window.told").pop() == {"open": place}
        assert made["table"]["places"][place] == {"file": frame["file"], "line": 7}
        # Even what would get into the page would not run.
        page.evaluate("(html) => document.body.insertAdjacentHTML('beforeend', html)", evil)
        page.wait_for_timeout(100)
        assert page.evaluate("window.evil") is None
        assert page.eval_on_selector("table", "one => getComputedStyle(one).borderCollapse") == "collapse"
    finally:
        page.close()
