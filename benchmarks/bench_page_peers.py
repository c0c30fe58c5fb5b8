"""The page of a memray recording beside memray's own flame graph and speedscope: size, writing, opening in Chromium."""

from __future__ import annotations

import base64
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.racing import Row, seconds_of

TITLE = "A report's page beside memray's and speedscope's, of one memray recording"
STACKS = 3000  # of 31 calls
ROUNDS = 3
MEMRAY = "1.20.0"
_ROOT = Path(__file__).parents[1]
_MEMRAY = _ROOT / ".cache/bench-memray"
SPEEDSCOPE = _ROOT / ".cache/speedscope/package/dist/release"
_PROGRAM = Path(__file__).with_name("page_program.py")
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def race() -> Sequence[Row]:
    packages = _memray()
    if packages is None or shutil.which("chromium") is None:
        print("bench: memray or chromium is missing", file=sys.stderr)
        return []
    load = f"load average {os.getloadavg()[0]:.1f}"
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        rows = _race(browser, Path(name), packages)
        browser.close()
    return [Row(f"{row.name} ({load})", row.ours_seconds, row.peer_seconds, unit=row.unit) for row in rows]


def _race(browser: Browser, here: Path, packages: Path) -> list[Row]:
    recording, ours, theirs, stacks = (
        here / name for name in ("a.bin", "ours.html", "memray.html", "a.json")
    )
    memray, gdbmem = [str(_MEMRAY / "bin/memray")], [sys.executable, "-m", "gdbmem.cli.main"]
    # gdbmem reads the file by memray's package, as memray does.
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}:{packages}"}

    def run(*words: str) -> None:
        subprocess.run(words, env=environment, check=True, capture_output=True)

    run(*memray, "run", "-q", "-o", str(recording), str(_PROGRAM), str(STACKS))
    # --no-web: otherwise its page needs fetched scripts, and shows nothing offline.
    writing = _medians(
        lambda: run(*gdbmem, "report", str(recording), "-o", str(ours), "--force"),
        lambda: run(*memray, "flamegraph", "--no-web", "-f", "-o", str(theirs), str(recording)),
    )
    rows = [
        Row("page, size / memray flamegraph --no-web", _megabytes(ours), _megabytes(theirs), unit="MB"),
        Row("page, written / memray flamegraph --no-web", *writing),
    ]
    open_ours = _opening(browser, ours, lambda page: page.locator("#exploring").wait_for(state="visible"))
    # memray's page draws each call as an element.
    open_theirs = _opening(
        browser, theirs, lambda page: page.locator("g.frame").first.wait_for(state="attached")
    )
    rows.append(Row("page, opened / memray flamegraph --no-web", *_medians(open_ours, open_theirs)))
    if SPEEDSCOPE.is_dir():
        run(*gdbmem, "export", str(recording), "--to", "speedscope", "-o", str(stacks))
        page, stacks_code = speedscope_page(stacks, here)
        size = (
            sum(
                file.stat().st_size
                for file in page.parent.iterdir()
                if file.suffix in (".html", ".js", ".css")
            )
            / 1e6
        )
        open_it = opening_speedscope(browser, page, stacks_code)
        rows.append(Row("page, size / speedscope with the file in it", _megabytes(ours), size, unit="MB"))
        rows.append(Row("page, opened / speedscope with the file in it", *_medians(open_ours, open_it)))
    return rows


def _medians(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of *ours* and *peer*, which take turns."""
    pairs = [(seconds_of(ours), seconds_of(peer)) for _ in range(ROUNDS)]
    first, second = zip(*pairs)
    return statistics.median(first), statistics.median(second)


def opening_speedscope(browser: Browser, page: Path, code: Path) -> Callable[[], None]:
    """Return the function that opens speedscope's *page* until it has read *code*."""
    # Until then it shows a greeting on the same canvas; then its title names the profile.
    read = "document.title !== 'speedscope'"
    return _opening(browser, page, lambda tab: tab.wait_for_function(read), f"#localProfilePath={code}")


def _opening(
    browser: Browser, file: Path, shown: Callable[[Page], object], fragment: str = ""
) -> Callable[[], None]:
    def action() -> None:
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(120_000)
        page.goto(file.as_uri() + fragment, wait_until="commit")
        shown(page)
        page.evaluate(_DRAWN)
        page.close()

    return action


def speedscope_page(stacks: Path, here: Path) -> tuple[Path, Path]:
    """Return speedscope's page and *stacks* as its own command writes them for it."""
    folder = here / "speedscope"
    shutil.copytree(SPEEDSCOPE, folder)
    text = base64.b64encode(stacks.read_bytes()).decode()
    code = folder / "stacks.js"
    code.write_text(f"speedscope.loadFileFromBase64('a.json', '{text}')")
    return folder / "index.html", code


def _megabytes(file: Path) -> float:
    return file.stat().st_size / 1e6


def _memray() -> Optional[Path]:
    """Return the packages of an environment with memray; None where it can't be installed."""
    if not (_MEMRAY / "bin/memray").exists():
        venv.create(_MEMRAY, with_pip=True)
        words = [str(_MEMRAY / "bin/python"), "-m", "pip", "install", "-q", f"memray=={MEMRAY}"]
        if subprocess.run(words, check=False).returncode:
            return None
    return next(iter((_MEMRAY / "lib").glob("python*/site-packages")), None)
