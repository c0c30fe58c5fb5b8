"""Pictures over time in a browser, by mouse, fingers and keys: what is read of them stays what was measured."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser, Locator, Page

from tests.browser.explorer import massif_capture, opened, report
from tests.zoo.keeping import wait_until

pytestmark = pytest.mark.needs("chromium")

PROGRAM = """
import time
held = []
for turn in range(20):
    held.append(bytearray(1 << 20))
    if turn == 10:
        held.clear()
    time.sleep(0.05)
"""
EDGE = 90 / 960, 940 / 960  # of the part that is zoomed, in the picture's width


class Timeline:
    """The first picture over time of a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.figure: Locator = page.locator("figure.timeline.live").first
        self.figure.wait_for(state="visible")
        self.svg = self.figure.locator("svg")
        self.svg.scroll_into_view_if_needed()
        box = self.svg.bounding_box()
        assert box is not None
        self.box = box

    def at(self, share: float, height: float = 0.3) -> tuple[float, float]:
        """Return where *share* of the axis of time is on the screen."""
        x = EDGE[0] + share * (EDGE[1] - EDGE[0])
        return self.box["x"] + x * self.box["width"], self.box["y"] + height * self.box["height"]

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def labels(self, axis: str) -> list[str]:
        """Return what stands on an axis, levels or times."""
        self.settle()
        return self.figure.locator(f"g.{axis} text").all_text_contents()

    def moment(self) -> float:
        """Return the moment that is read."""
        return float(self.figure.locator(".reading b").get_attribute("data-value") or "nan")

    def values(self) -> dict[str, float]:
        """Return the exact values that are read."""
        rows = self.figure.locator(".reading > span").evaluate_all(
            "all => all.map(one => [one.childNodes[1].textContent.trim(), Number(one.lastChild.dataset.value)])"
        )
        return dict(rows)

    def picked(self) -> list[int]:
        """Return the snapshots that are chosen."""
        found = self.figure.locator(".pick.picked")
        numbers: list[int] = found.evaluate_all("all => all.map(one => Number(one.dataset.snapshot))")
        return numbers


@contextmanager
def timeline(browser: Browser, target: Path, **context: Any) -> Iterator[Timeline]:
    with opened(browser, target, **context) as page:
        yield Timeline(page.page)
        assert page.complaints == []


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a massif file of sqlite with ten snapshots that have trees."""
    folder = tmp_path_factory.mktemp("sqlite")
    return report(folder, massif_capture(folder, "sqlite"))


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a real program."""
    run = tmp_path_factory.mktemp("monitored") / "run"
    command = [
        sys.executable,
        "-m",
        "gdbmem.cli.main",
        "monitor",
        "--interval",
        "50ms",
        "-q",
        "--run",
        str(run),
    ]
    subprocess.run(
        [*command, "--", sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60
    )
    return run


def size_of(text: str) -> float:
    """Return the bytes that a label of the axis stands for."""
    number, unit = text.split()
    return float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


def totals_of(target: Path, capsys: pytest.CaptureFixture[str]) -> list[int]:
    capsys.readouterr()
    assert main(["show", str(target), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    return [one["heap_bytes"] for one in said["snapshots"] if one["has_tree"]]


def test_what_is_read_by_the_arrow_keys_is_what_json_states_of_each_snapshot(
    browser: Browser, sqlite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = totals_of(sqlite.parent / "sqlite.ms", capsys)
    with timeline(browser, sqlite) as picture:
        picture.svg.focus()
        for total in totals:
            picture.page.keyboard.press("ArrowRight")
            values = picture.values()
            assert values.pop("together") == total
            assert sum(values.values()) == total


def test_zoomed_by_the_wheel_a_click_chooses_the_snapshot_that_is_under_it(
    browser: Browser, sqlite: Path
) -> None:
    with timeline(browser, sqlite) as picture:
        before = picture.labels("times")
        # Five snapshots stand within 3 % of the axis: unzoomed they are a few pixels apart.
        x, y = picture.at(0.79)
        picture.page.mouse.move(x, y)
        picture.page.keyboard.down("Control")
        for _ in range(4):
            picture.page.mouse.wheel(0, -240)
        picture.page.keyboard.up("Control")
        assert picture.labels("times") != before
        near = picture.figure.locator(".pick rect").evaluate_all(
            "all => all.map(one => Number(one.getAttribute('width')))"
        )
        assert sorted(near)[-4] > 30, "they are far apart now"
        pick = picture.figure.locator(".pick").nth(6).locator("line").bounding_box()
        assert pick is not None and picture.at(0)[0] < pick["x"] < picture.at(1)[0]
        picture.page.mouse.move(pick["x"], y)
        picture.page.mouse.click(pick["x"], y)
        assert picture.picked() == [6]
        picture.page.mouse.click(picture.at(0.999)[0], y)
        assert len(picture.picked()) == 2


def test_the_wheel_alone_scrolls_the_page(browser: Browser, sqlite: Path) -> None:
    with timeline(browser, sqlite) as picture:
        before = picture.labels("times"), picture.labels("levels")
        picture.page.mouse.move(*picture.at(0.5))
        picture.page.mouse.wheel(0, 200)
        # Not by wait_for_function(), whose later looks the page's policy refuses.
        assert wait_until(lambda: picture.page.evaluate("scrollY") > 0, 20)
        assert (picture.labels("times"), picture.labels("levels")) == before


def test_a_drag_moves_the_picture_and_chooses_no_snapshot(browser: Browser, sqlite: Path) -> None:
    with timeline(browser, sqlite) as picture:
        chosen = picture.picked()
        picture.figure.get_by_role("button", name="zoom in").click()
        picture.figure.get_by_role("button", name="zoom in").click()
        picture.settle()
        before = picture.figure.locator(".pick line").nth(4).get_attribute("x1") or ""
        picture.page.mouse.move(*picture.at(0.3))
        picture.page.mouse.down()
        picture.page.mouse.move(*picture.at(0.5), steps=4)
        picture.page.mouse.up()
        picture.settle()
        after = picture.figure.locator(".pick line").nth(4).get_attribute("x1") or ""
        assert float(after) - float(before) == pytest.approx(0.2 * 850, abs=2)
        assert picture.picked() == chosen
        picture.page.mouse.click(*picture.at(0.5))
        assert len(picture.picked()) == 1, "the next click is a click again"


def test_shift_and_a_drag_zoom_to_a_part_and_whole_brings_all_back(browser: Browser, sqlite: Path) -> None:
    with timeline(browser, sqlite) as picture:
        picture.figure.get_by_role("button", name="whole").click()
        whole = picture.labels("times"), picture.labels("levels")
        picture.page.keyboard.down("Shift")
        picture.page.mouse.move(*picture.at(0.25, 0.2))
        picture.page.mouse.down()
        picture.page.mouse.move(*picture.at(0.5, 0.4), steps=3)
        picture.page.mouse.up()
        picture.page.keyboard.up("Shift")
        zoomed = picture.labels("times"), picture.labels("levels")
        assert zoomed[0] != whole[0] and zoomed[1] != whole[1]
        # A quarter of the axis is as wide as all of it now.
        lines = picture.figure.locator(".pick line")
        third, fourth = (float(lines.nth(at).get_attribute("x1") or "") for at in (2, 3))
        picture.figure.get_by_role("button", name="whole").click()
        assert (picture.labels("times"), picture.labels("levels")) == whole
        first, second = (float(lines.nth(at).get_attribute("x1") or "") for at in (2, 3))
        assert (fourth - third) == pytest.approx(4 * (second - first), rel=0.02)


def test_by_keys_alone_one_zooms_reads_on_and_chooses(browser: Browser, sqlite: Path) -> None:
    with timeline(browser, sqlite) as picture:
        picture.figure.get_by_role("button", name="whole").click()
        whole = picture.labels("times")
        picture.svg.focus()
        for key in ("ArrowRight", "ArrowRight", "+", "+", "+"):
            picture.page.keyboard.press(key)
        assert picture.labels("times") != whole
        for _ in range(8):
            picture.page.keyboard.press("ArrowRight")
        moment = picture.moment()
        cursor = picture.figure.locator("line.cursor")
        picture.settle()
        assert cursor.get_attribute("display") == "inline", "the picture moved along"
        picture.page.keyboard.press("Enter")
        assert picture.picked() == [9]
        assert picture.page.inner_text("#explored").startswith(
            picture.figure.locator(".reading b").inner_text().partition(",")[0]
        )
        levels = picture.labels("levels")
        picture.page.keyboard.press("*")
        assert picture.labels("levels") != levels
        picture.page.keyboard.press("0")
        assert (picture.labels("times"), picture.labels("levels")) == (whole, levels)
        assert picture.moment() == moment


def test_on_a_logarithmic_scale_each_line_is_drawn_at_its_own_size(browser: Browser, sqlite: Path) -> None:
    with timeline(browser, sqlite) as picture:
        picture.figure.get_by_label("log scale").check()
        sizes = [size_of(text) for text in picture.labels("levels")]
        heights = picture.figure.locator("g.levels line").evaluate_all(
            "all => all.map(one => Number(one.getAttribute('y1')))"
        )
        ratio = sizes[1] / sizes[0]
        assert [other / one for one, other in zip(sizes, sizes[1:])] == [ratio] * (len(sizes) - 1)
        picture.svg.focus()
        for _ in range(picture.figure.locator(".pick").count()):
            picture.page.keyboard.press("ArrowRight")
        values = picture.values()
        del values["together"]
        ends = picture.figure.locator("path.curve").evaluate_all(
            "all => all.map(path => path.getPointAtLength(path.getTotalLength()).y)"
        )
        gap = heights[0] - heights[1]
        for size, y in zip(values.values(), ends):
            if size:
                assert y == pytest.approx(heights[0] - gap * math.log(size / sizes[0], ratio), abs=0.5)


def test_two_fingers_zoom_and_one_moves_on_a_touch_screen(browser: Browser, sqlite: Path) -> None:
    with timeline(browser, sqlite, has_touch=True, viewport={"width": 900, "height": 800}) as picture:
        picture.figure.get_by_role("button", name="whole").click()
        whole = picture.labels("times")
        wire = picture.page.context.new_cdp_session(picture.page)

        def touch(kind: str, *shares: float) -> None:
            points = [dict(zip("xy", picture.at(share)), id=number) for number, share in enumerate(shares)]
            wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 0.4, 0.6)
        for step in range(1, 6):
            touch("touchMove", 0.4 - 0.04 * step, 0.6 + 0.04 * step)
        touch("touchEnd")
        zoomed = picture.labels("times")
        assert zoomed != whole
        # The part under the fingers, a fifth of the axis, takes three fifths.
        lines = picture.figure.locator(".pick line")
        before = float(lines.nth(4).get_attribute("x1") or "")
        touch("touchStart", 0.3)
        for step in range(1, 6):
            touch("touchMove", 0.3 + 0.04 * step)
        touch("touchEnd")
        picture.settle()
        after = float(lines.nth(4).get_attribute("x1") or "")
        assert after - before == pytest.approx(0.2 * 850, abs=25)  # the browser takes the first pixels
        picture.page.touchscreen.tap(*picture.at(0.5))
        assert len(picture.picked()) == 1


def test_what_is_read_of_a_monitored_program_was_measured(
    browser: Browser, monitored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = report(tmp_path, str(monitored))
    capsys.readouterr()
    assert main(["monitor", str(monitored), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    measured = {one["t"]: one for one in said["samples"] if one["pid"] is None}
    with timeline(browser, target) as picture:
        for key in ("", "l", "+", "+", "*", "0"):
            if key:
                picture.svg.focus()
                picture.page.keyboard.press(key)
            for share in (0.1, 0.35, 0.5, 0.8):
                picture.page.mouse.move(*picture.at(share, 0.5))
                sample, values = measured[picture.moment()], picture.values()
                fields = {name: f"{name.lower().replace(' ', '_')}_bytes" for name in values}
                sizes = {
                    name: sample[field] for name, field in fields.items() if sample.get(field) is not None
                }
                # Not every sample has every size, and only the curve that is judged ends before memory is released.
                assert sizes
                assert {name: values[name] for name in sizes} == sizes


def test_a_browser_that_cannot_unpack_states_that_it_cannot_zoom(browser: Browser, sqlite: Path) -> None:
    with opened(browser, sqlite, color_scheme="light") as page:
        page.page.add_init_script("delete window.DecompressionStream")
        page.page.reload()
        page.page.get_by_text("The picture can't be zoomed: this browser can't unpack").first.wait_for(
            state="attached"
        )
        assert page.page.locator("figure.timeline svg path.curve").count() > 3
