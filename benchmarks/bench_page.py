"""A report's page in headless Chromium without a GPU, beside libraries that draw the same tree of calls."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.bench_page_peers import SPEEDSCOPE, opening_speedscope, speedscope_page
from benchmarks.massif_files import write_wide
from benchmarks.racing import Row, seconds_of
from gdbmem.report.page.explorer import Explored
from gdbmem.report.page.page import Page as Report
from gdbmem.report.page.page import render

TITLE = "A report's page in Chromium: opening it, and the longest task of a zoom (the median of five)"
SIZES = ((50_000, 1.0), (1_000_000, 6.0))  # calls, and the seconds in which they are to be there
ZOOM_SECONDS = 0.016
ROUNDS = 5
_CACHE = Path(__file__).parents[1] / ".cache" / "bench-npm"
_TREES = Path(__file__).with_name("page_trees.js")
_PACKAGES = {"d3": "7.9.2", "d3-flame-graph": "5.0.0", "flame-chart-js": "3.3.0"}
_PEERS = {
    "d3-flame-graph": (
        ("d3/dist/d3.min.js", "d3-flame-graph/dist/d3-flamegraph.umd.min.js"),
        "const graph = flamegraph.default().width(1200).cellHeight(16).minFrameSize(1);"
        "graph.transitionDuration(0).inverted(true);"
        'd3.select("#c").datum(asNested(N, "value")[0]).call(graph);',
        "(k) => { const all = document.querySelectorAll('g.frame');"
        " all[Math.min(5 + 3 * k, all.length - 1)].dispatchEvent(new MouseEvent('click', {bubbles: true})); }",
    ),
    "flame-chart-js": (
        ("flame-chart-js/dist/index.min.js",),
        'window.nodes = asNested(N, "duration");'
        'const canvas = document.getElementById("k");'
        "window.chart = new flameChartJs.FlameChart({canvas, data: [nodes[0]], settings: {}}); chart.render();",
        "(k) => { const node = nodes[1 + 3 * k]; chart.setZoom(node.start, node.start + node.duration); }",
    ),
}


def race() -> Sequence[Row]:
    if shutil.which("chromium") is None or shutil.which("node") is None:
        print("bench: chromium or node is missing", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        rows = _writing(Path(name))
        rows += [row for size, limit in SIZES for row in _rows(browser, Path(name), size, limit)]
        browser.close()
        return rows


def _rows(browser: Browser, here: Path, size: int, limit_seconds: float) -> list[Row]:
    page = here / f"{size}.html"
    page.write_text(_page(size))
    megabytes = page.stat().st_size / 1e6
    open_seconds, zoom_seconds = _ours(browser, page)
    rows = []
    for peer in _PEERS:
        theirs = _theirs(browser, here, peer, size)
        opened, zoomed = theirs or (0.0, 0.0)
        label = f"{size:,} calls, open; {megabytes:.2f} MB / {peer}"
        bar = f"at most {limit_seconds:g} s"
        rows.append(Row(label, open_seconds, opened, bar, at_most=limit_seconds, value=open_seconds))
        bar = f"at most {ZOOM_SECONDS * 1000:.0f} ms"
        label = f"{size:,} calls, zoom / {peer}"
        rows.append(Row(label, zoom_seconds, zoomed, bar, at_most=ZOOM_SECONDS, value=zoom_seconds))
    if SPEEDSCOPE.is_dir():
        label = f"{size:,} calls, open; {megabytes:.2f} MB / speedscope"
        rows.append(Row(label, open_seconds, _speedscope_opens(browser, here, size)))
    return rows


def _speedscope_opens(browser: Browser, here: Path, size: int) -> float:
    stacks = here / f"{size}.speedscope.json"
    stacks.write_bytes(_tree(size, "asSpeedscope"))
    shutil.rmtree(here / "speedscope", ignore_errors=True)
    open_it = opening_speedscope(browser, *speedscope_page(stacks, here))
    return statistics.median(seconds_of(open_it) for _ in range(ROUNDS))


def _writing(here: Path) -> list[Row]:
    """Return the CPU seconds in which the pages of two files are made."""
    massif, stacks = here / "wide.massif", here / "stacks.folded"
    nodes = write_wide(massif, trees=1, nodes=SIZES[0][0])
    stacks.write_bytes(_tree(SIZES[0][0], "asFolded"))
    seconds, megabytes = _written(massif)
    label = f"massif file of {nodes:,} nodes, read and written, CPU; {megabytes:.2f} MB"
    rows = [Row(label, seconds, 0.0, "at most 1 s", at_most=1.0, value=seconds)]
    seconds, megabytes = _written(stacks)
    label = f"the tree of {SIZES[0][0]:,} calls as folded stacks, read and written, CPU; {megabytes:.2f} MB"
    return [*rows, Row(label, seconds, 0.0)]


def _written(file: Path) -> tuple[float, float]:
    """Return the CPU seconds in which the page of *file* is made, and its megabytes."""
    page = file.with_suffix(".html")
    words = [sys.executable, "-m", "gdbmem.cli.main", "report", str(file), "-o", str(page), "--force"]
    taken = []
    for _ in range(ROUNDS):
        before = os.times()
        subprocess.run(words, check=True, capture_output=True)
        after = os.times()
        taken.append(sum(after[2:4]) - sum(before[2:4]))
    return statistics.median(taken), page.stat().st_size / 1e6


def _tree(size: int, form: str) -> bytes:
    made = f"require({json.dumps(str(_TREES))}).{form}({size})"
    code = f"const made = {made}; console.log(typeof made === 'string' ? made : JSON.stringify(made))"
    return subprocess.run(["node", "-e", code], capture_output=True, check=True).stdout


def _page(size: int) -> str:
    packed = base64.b64encode(gzip.compress(_tree(size, "asProfile"), 6)).decode()
    return render(Report("a tree", explored=Explored(packed)))


def _ours(browser: Browser, path: Path) -> tuple[float, float]:
    opened = []
    for _ in range(ROUNDS):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        begin = time.monotonic()
        page.goto(path.as_uri(), wait_until="commit")
        page.locator("#exploring").wait_for(state="visible", timeout=120_000)
        opened.append(time.monotonic() - begin)
        if len(opened) < ROUNDS:
            page.close()
    box = page.locator("#graph canvas").bounding_box()
    assert box is not None
    longest = []
    for turn in range(ROUNDS):
        at = (box["x"] + 100 + 150 * turn, box["y"] + 18 * (3 + turn) + 5)
        longest.append(_longest_task(browser, page, lambda at=at: page.mouse.click(*at)))
        page.keyboard.press("Home")
        page.wait_for_timeout(100)
    page.close()
    return statistics.median(opened), statistics.median(longest)


def _theirs(browser: Browser, here: Path, peer: str, size: int) -> Optional[tuple[float, float]]:
    files, begin, zoom = _PEERS[peer]
    scripts = [_npm(file) for file in files]
    if None in scripts:
        return None
    parts = "".join(f"<script>{text}</script>" for text in [*scripts, _TREES.read_text()])
    begin = begin.replace("asNested(N,", f"asNested({size},")
    path = here / f"{peer}-{size}.html"
    path.write_text(
        f'<!doctype html><meta charset=utf-8><body><div id=c></div><canvas id=k width=1200 height=900></canvas>{parts}'
        f"<script>window.begin = () => {{ {begin} }};</script>"
    )  # fmt: skip
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(120_000)
    page.goto(path.as_uri())
    opened = page.evaluate(
        "() => new Promise(done => { const t = performance.now(); begin();"
        " requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - t) / 1000))); })"
    )
    longest = [
        _longest_task(browser, page, lambda turn=turn: page.evaluate(zoom, turn)) for turn in range(ROUNDS)
    ]
    page.close()
    return opened, statistics.median(longest)


def _longest_task(browser: Browser, page: Page, act: Any) -> float:
    """Return the seconds of the longest task of the page's main thread while *act* is done and a moment after."""
    browser.start_tracing(
        page=page, categories=["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"]
    )
    act()
    page.wait_for_timeout(300)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    main = {
        one["tid"]
        for one in events
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    return (
        float(
            max(
                one["dur"]
                for one in events
                if one["name"].endswith("RunTask") and one["tid"] in main and "dur" in one
            )
        )
        / 1e6
    )


def _npm(file: str) -> Optional[str]:
    name = file.partition("/")[0]
    folder = _CACHE / name
    if not (folder / "package").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        packed = f"{name}@{_PACKAGES[name]}"
        done = subprocess.run(
            ["npm", "pack", "--silent", packed], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"bench: {packed} can't be fetched", file=sys.stderr)
            return None
        subprocess.run(["tar", "-xzf", done.stdout.split()[-1]], cwd=folder, check=True)
    return (folder / "package" / file.partition("/")[2]).read_text()
