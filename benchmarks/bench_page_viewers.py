"""A report's page, made and opened, beside massif-visualizer and heaptrack_gui on the same files."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

from playwright.sync_api import Browser, sync_playwright

from benchmarks.massif_files import write_wide
from benchmarks.profile_files import heaptrack_file
from benchmarks.racing import Row

TITLE = "A page, made and opened in Chromium, beside viewers that open the same file"
ROUNDS = 3
QUIET_SECONDS = 1.0  # without work: then everything visible is drawn
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def race() -> Sequence[Row]:
    if shutil.which("chromium") is None:
        print("bench: chromium is missing", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name:
        return [
            row for viewer, what, file in _files(Path(name)) for row in _rows(viewer, what, file, Path(name))
        ]


def _files(here: Path) -> Iterator[tuple[str, str, Path]]:
    if shutil.which("massif-visualizer") is not None:
        for nodes in (5_000, 50_000):
            file = here / f"{nodes}.massif"
            count = write_wide(file, trees=10, nodes=nodes)
            yield "massif-visualizer", f"massif, {count:,} nodes in 10 snapshots", file
    if shutil.which("heaptrack_gui") is not None:
        program = Path(__file__).with_name("page_program.py")
        file = heaptrack_file([sys.executable, str(program), "1000"], here, "recorded")
        yield "heaptrack_gui", f"heaptrack, {file.stat().st_size / 1e6:.1f} MB", file


def _rows(viewer: str, what: str, file: Path, here: Path) -> list[Row]:
    label = f"{what} / {viewer} (load average {os.getloadavg()[0]:.1f})"
    turns = [(*_ours(file, here), _viewed(viewer, file, here)) for _ in range(ROUNDS)]
    whole, opened, theirs = (statistics.median(one) for one in zip(*turns))
    return [
        Row(f"made, and opened in a new Chromium: {label}", whole, theirs),
        Row(f"opened in a Chromium that runs: {label}", opened, theirs),
    ]


def _ours(file: Path, here: Path) -> tuple[float, float]:
    """Return the seconds until the page of *file* is made and seen, and those of opening it again."""
    page = here / "page.html"
    begun = time.monotonic()
    words = [sys.executable, "-m", "gdbmem.cli.main", "report", str(file), "-o", str(page), "--force"]
    subprocess.run(words, check=True, capture_output=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        _open(browser, page)
        whole = time.monotonic() - begun
        begun = time.monotonic()
        _open(browser, page)
        opened = time.monotonic() - begun
        browser.close()
    return whole, opened


def _open(browser: Browser, page: Path) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 1000})
    tab.goto(page.as_uri(), wait_until="commit")
    tab.locator("#exploring").wait_for(state="visible", timeout=120_000)
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _viewed(viewer: str, file: Path, here: Path) -> float:
    """Return the seconds until *viewer* has read and drawn *file*, without a screen, and does no more."""
    environment = {
        **os.environ,
        "QT_QPA_PLATFORM": "offscreen",
        "HOME": str(here),
        "XDG_RUNTIME_DIR": str(here),
    }
    begun = time.monotonic()
    with subprocess.Popen(
        [viewer, str(file)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        rested = _rests(lambda: _cpu_ticks(process.pid))
        if process.poll() is not None:
            raise RuntimeError(f"{viewer} ended by itself")
        process.kill()
    return rested - begun


def _rests(work: Callable[[], int]) -> float:
    """Return the moment of the last change of *work*, as soon as that is QUIET_SECONDS ago."""
    last, changed = -1, time.monotonic()
    while time.monotonic() - changed < QUIET_SECONDS:
        time.sleep(0.02)
        now = work()
        if now != last:
            last, changed = now, time.monotonic()
    return changed


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
