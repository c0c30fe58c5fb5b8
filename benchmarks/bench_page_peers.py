"""The page of a memray recording beside memray's own flame graph and speedscope: size, writing, opening in Chromium."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.racing import Ratio, cpu_of, ratios, seconds_of

TITLE = "A report's page beside memray's and speedscope's, of one memray recording"
STACKS = 500  # of 31 calls
ROUNDS = 3
MEMRAY = "1.20.0"
_ROOT = Path(__file__).parents[1]
_MEMRAY = _ROOT / ".cache/bench-memray"
SPEEDSCOPE = _ROOT / ".cache/speedscope/package/dist/release"
_PROGRAM = Path(__file__).with_name("page_program.py")
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def race() -> Sequence[Ratio]:
    packages = _memray()
    if packages is None or shutil.which("chromium") is None:
        print("bench: memray or chromium is missing", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        rows = _race(browser, Path(name), packages)
        browser.close()
    return rows


def _race(browser: Browser, here: Path, packages: Path) -> list[Ratio]:
    recording, ours, theirs, stacks = (
        here / name for name in ("a.bin", "ours.html", "memray.html", "a.json")
    )
    memray, gdbmem = [str(_MEMRAY / "bin/memray")], [sys.executable, "-m", "gdbmem.cli.main"]
    # gdbmem reads the file by memray's package, as memray does.
    environment = {"PYTHONPATH": f"{_ROOT}:{packages}"}

    def run(*words: object) -> float:
        return cpu_of(words, more=environment)

    run(*memray, "run", "-q", "-o", recording, _PROGRAM, STACKS)
    # --no-web: otherwise its page needs fetched scripts, and shows nothing offline.
    writing = ratios(
        lambda: run(*gdbmem, "report", recording, "-o", ours, "--force"),
        lambda: run(*memray, "flamegraph", "--no-web", "-f", "-o", theirs, recording),
        rounds=ROUNDS, warmups=0,
    )  # fmt: skip
    name = "memray flamegraph --no-web"
    open_ours = _opening(browser, ours, lambda page: page.locator("#exploring").wait_for(state="visible"))
    # memray's page draws each call as an element.
    open_theirs = _opening(
        browser, theirs, lambda page: page.locator("g.frame").first.wait_for(state="attached")
    )
    opening = ratios(lambda: seconds_of(open_ours), lambda: seconds_of(open_theirs), rounds=ROUNDS)
    rows = [
        Ratio(f"page, size in bytes / {name}", [ours.stat().st_size / theirs.stat().st_size], 0.1),
        Ratio(f"page, written / {name}", writing),
        Ratio(f"page, opened, wall time / {name}", opening),
    ]
    if SPEEDSCOPE.is_dir():
        run(*gdbmem, "export", recording, "--to", "speedscope", "-o", stacks)
        page, code = speedscope_page(stacks, here)
        parts = (
            one.stat().st_size for one in page.parent.iterdir() if one.suffix in (".html", ".js", ".css")
        )
        name = "speedscope with the file in it"
        rows.append(Ratio(f"page, size in bytes / {name}", [ours.stat().st_size / sum(parts)], 0.1))
        open_it = opening_speedscope(browser, page, code)
        opening = ratios(lambda: seconds_of(open_ours), lambda: seconds_of(open_it), rounds=ROUNDS)
        rows.append(Ratio(f"page, opened, wall time / {name}", opening))
    return rows


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


def _memray() -> Optional[Path]:
    """Return the packages of an environment with memray; None where it can't be installed."""
    if not (_MEMRAY / "bin/memray").exists():
        venv.create(_MEMRAY, with_pip=True)
        words = [str(_MEMRAY / "bin/python"), "-m", "pip", "install", "-q", f"memray=={MEMRAY}"]
        if subprocess.run(words, check=False).returncode:
            return None
    return next(iter((_MEMRAY / "lib").glob("python*/site-packages")), None)
