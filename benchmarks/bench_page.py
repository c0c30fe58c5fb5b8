"""A report's page in headless Chromium without a GPU, beside libraries that draw the same tree of calls."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.bench_page_peers import SPEEDSCOPE, opening_speedscope, speedscope_page
from benchmarks.massif_files import write_wide
from benchmarks.racing import Ratio, cpu_of, ratios, seconds_of
from gdbmem.page.explorer import Explored
from gdbmem.page.page import Page as Report
from gdbmem.page.page import render

TITLE = "A report's page in Chromium, wall time: opening it, and the longest task of a zoom"
SIZES = ((50_000, 2.5, 0.9), (1_000_000, 1.9, 0.07))  # calls, and the bars beside d3-flame-graph: open, zoom
ROUNDS, ZOOMS = 3, 5
_BEST_KNOWN = "d3-flame-graph"
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


def race() -> Sequence[Ratio]:
    if shutil.which("chromium") is None or shutil.which("node") is None:
        print("bench: chromium or node is missing", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        rows = _writing(Path(name))
        rows += [row for size in SIZES for row in _rows(browser, Path(name), *size)]
        browser.close()
        return rows


def _rows(browser: Browser, here: Path, size: int, most_open: float, most_zoom: float) -> Iterator[Ratio]:
    page = here / f"{size}.html"
    page.write_text(_page(size))
    times = [
        (_ours(browser, page), {peer: _theirs(browser, here, peer, size) for peer in _PEERS})
        for _ in range(ROUNDS)
    ]
    for peer in _PEERS:
        found = [(ours, theirs[peer]) for ours, theirs in times]
        for number, what, most in ((0, "open", most_open), (1, "zoom", most_zoom)):
            bar = most if peer == _BEST_KNOWN else None
            yield Ratio(f"{size:,} calls, {what} / {peer}", [a[number] / b[number] for a, b in found], bar)
    if SPEEDSCOPE.is_dir() and size == SIZES[0][0]:  # it takes long for a large one
        opened = [ours[0] / _speedscope_opens(browser, here, size) for ours, _ in times]
        yield Ratio(f"{size:,} calls, open / speedscope", opened)


def _speedscope_opens(browser: Browser, here: Path, size: int) -> float:
    stacks = here / f"{size}.speedscope.json"
    stacks.write_bytes(_tree(size, "asSpeedscope"))
    shutil.rmtree(here / "speedscope", ignore_errors=True)
    return seconds_of(opening_speedscope(browser, *speedscope_page(stacks, here)))


def _writing(here: Path) -> list[Ratio]:
    """Return what it takes to make the page of a file."""
    massif, page = here / "wide.massif", here / "wide.html"
    nodes = write_wide(massif, trees=1, nodes=SIZES[0][0])
    words = [sys.executable, "-m", "gdbmem.cli.main", "report", massif, "-o", page, "--force"]
    found = ratios(
        lambda: cpu_of(words), lambda: cpu_of(["ms_print", "--threshold=0", massif]), rounds=ROUNDS
    )
    name = f"massif file of {nodes:,} nodes, read and written, processor time / `ms_print`"
    return [Ratio(name, found, 5)]


def _tree(size: int, form: str) -> bytes:
    made = f"require({json.dumps(str(_TREES))}).{form}({size})"
    code = f"const made = {made}; console.log(typeof made === 'string' ? made : JSON.stringify(made))"
    return subprocess.run(["node", "-e", code], capture_output=True, check=True).stdout


def _page(size: int) -> str:
    packed = base64.b64encode(gzip.compress(_tree(size, "asProfile"), 6)).decode()
    return render(Report("a tree", explored=Explored(packed)))


def _ours(browser: Browser, path: Path) -> tuple[float, float]:
    """Return the seconds in which the page opens, and the longest task of a zoom, the median of some."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    begin = time.monotonic()
    page.goto(path.as_uri(), wait_until="commit")
    page.locator("#exploring").wait_for(state="visible", timeout=120_000)
    opened = time.monotonic() - begin
    box = page.locator("#graph canvas").bounding_box()
    assert box is not None
    longest = []
    for turn in range(ZOOMS):
        at = (box["x"] + 100 + 150 * turn, box["y"] + 18 * (3 + turn) + 5)
        longest.append(_longest_task(browser, page, lambda at=at: page.mouse.click(*at)))
        page.keyboard.press("Home")
        page.wait_for_timeout(100)
    page.close()
    return opened, statistics.median(longest)


def _theirs(browser: Browser, here: Path, peer: str, size: int) -> tuple[float, float]:
    files, begin, zoom = _PEERS[peer]
    parts = "".join(f"<script>{text}</script>" for text in [*map(_npm, files), _TREES.read_text()])
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
        _longest_task(browser, page, lambda turn=turn: page.evaluate(zoom, turn)) for turn in range(ZOOMS)
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
    tasks = [one for one in events if one["name"].endswith("RunTask") and one["tid"] in main]
    return float(max(one.get("dur", 0) for one in tasks)) / 1e6


def _npm(file: str) -> str:
    name = file.partition("/")[0]
    folder = _CACHE / name
    if not (folder / "package").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        words = ["npm", "pack", "--silent", f"{name}@{_PACKAGES[name]}"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
        subprocess.run(["tar", "-xzf", done.stdout.split()[-1]], cwd=folder, check=True)
    return (folder / "package" / file.partition("/")[2]).read_text()
