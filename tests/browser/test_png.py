"""`gdbmem report --png`: a picture of a page as a file of pixels, drawn by the Chromium that is installed."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gdbmem.cli.main import main

pytest.importorskip("playwright", reason="playwright, which reads the pixels here, is not installed")

from playwright.sync_api import Browser

from tests.browser.explorer import CAPTURES, massif_capture

pytestmark = pytest.mark.needs("chromium")

LEDGER = CAPTURES / "documents/churn-thin.json"
RECT = "{http://www.w3.org/2000/svg}rect"
PIXELS = """
async ([text, places]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], {type: "image/png"}));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const color = ([x, y]) => "#" + [...context.getImageData(x, y, 1, 1).data.slice(0, 3)]
    .map((part) => part.toString(16).padStart(2, "0")).join("");
  return [bitmap.width, bitmap.height, places.map(color)];
}
"""


def pixels(browser: Browser, file: Path, places: list[tuple[int, int]]) -> tuple[int, int, list[str]]:
    """Return the width and the height of a PNG, and the colours at *places*."""
    page = browser.contexts[0].pages[0]
    page.goto("about:blank")
    width, height, colors = page.evaluate(PIXELS, [base64.b64encode(file.read_bytes()).decode(), places])
    return width, height, colors


def draw(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    status, said = main(["report", *words]), capsys.readouterr().err
    if "No usable sandbox" in said:
        pytest.skip("an ordinary user's Chromium has no sandbox here, and gdbmem starts none without")
    assert status == 0, said


def test_a_png_has_the_same_bars_in_the_same_colours_as_the_svg(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg, png = tmp_path / "bar.svg", tmp_path / "bar.png"
    assert main(["report", str(LEDGER), "--svg", str(svg)]) == 0
    draw(capsys, str(LEDGER), "--png", str(png))
    drawn = ElementTree.parse(svg).getroot()
    places, fills = [], []
    for part in (one for one in drawn.iter(RECT) if one.get("data-value")):
        x, y, width, height = (float(part.get(name) or 0) for name in ("x", "y", "width", "height"))
        if width > 2:
            places.append((round(2 * x + width), round(2 * y + height)))  # two pixels a unit
            fills.append(part.get("fill"))
    assert len(fills) > 2
    size = [2 * round(float(number)) for number in drawn.attrib["viewBox"].split()[2:]]
    assert pixels(browser, png, places) == (*size, fills)


def test_which_picture_a_png_has_can_be_chosen(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = massif_capture(tmp_path, "sqlite")
    for words in ([], ["--picture", "course"]):
        png = tmp_path / f"{len(words)}.png"
        draw(capsys, file, "--png", str(png), *words)
        width, height, colors = pixels(browser, png, [(2, 2)])
        assert width == 1920 and height > 600 and colors == ["#ffffff"]
    assert (tmp_path / "0.png").read_bytes() != (tmp_path / "2.png").read_bytes()


def test_a_chromium_that_draws_nothing_is_named_with_what_it_said_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "chromium"
    fake.write_text(f"#!{shutil.which('sh')}\necho 'no \033[31mlibrary' >&2\nexit 127\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert main(["report", str(LEDGER), "--png", str(tmp_path / "bar.png")]) != 0
    said = capsys.readouterr().err
    assert f"{fake} drew nothing: no" in said and "library" in said and "\033" not in said
    assert "--svg FILE" in said and not (tmp_path / "bar.png").exists()


def test_without_a_chromium_one_sentence_states_what_to_install_or_to_write_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["report", str(LEDGER), "--png", str(tmp_path / "bar.png")]) == 3
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0 and "none is installed" in said and "apt install chromium" in said
    assert list(tmp_path.iterdir()) == []
