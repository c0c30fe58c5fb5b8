"""Pages in a real browser: what is unfolded, and that nothing of a stranger's runs or is fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.model.series import Mark
from gdbmem.report.series.series_plot import Curve, Picture, html
from tests.unit.massif_files import capture
from tests.unit.massif_texts import massif, path

pytestmark = pytest.mark.needs("chromium")

EVIL = (
    "</pre><script>document.title='ran'</script><img src=http://127.0.0.1:9/x onerror=document.title='ran'>"
)


def opened(page: Path, tmp_path: Path) -> tuple[str, str]:
    """Return what Chromium made of *page*, and what it complained of."""
    done = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom", page.as_uri(),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
        timeout=100,
    )  # fmt: skip
    return done.stdout, "\n".join(line for line in done.stderr.split("\n") if "CONSOLE" in line)


def test_a_report_opens_without_a_complaint_and_shows_the_answer(tmp_path: Path) -> None:
    (tmp_path / "sqlite.ms").write_bytes(capture("sqlite"))
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "sqlite.ms"), "-o", str(page)]) == 0
    dom, complaints = opened(page, tmp_path)
    assert complaints == ""
    assert "heap holds" in dom and "<svg" in dom and dom.count("<details") > 5


def test_nothing_in_a_strangers_profile_runs_in_the_browser(tmp_path: Path) -> None:
    (tmp_path / "evil.ms").write_text(massif(path(700, f"{EVIL} (evil.cpp:1)", "main (main.cpp:9)")))
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "evil.ms"), "-o", str(page)]) == 0
    dom, complaints = opened(page, tmp_path)
    assert "<title>evil.ms</title>" in dom
    assert "<script" not in dom and "<img" not in dom
    assert complaints == ""


def test_nothing_in_the_names_or_marks_of_a_monitors_picture_runs_in_the_browser(tmp_path: Path) -> None:
    times = [float(t) for t in range(20)]
    curve = Curve(EVIL, times, [float(t << 20) for t in range(20)])
    page = tmp_path / "course.html"
    page.write_text(html(Picture(EVIL, [curve] * 9, [Mark(3.0, EVIL)], [EVIL])))
    dom, complaints = opened(page, tmp_path)
    assert "<script" not in dom and "<img" not in dom and "<title>ran" not in dom
    assert dom.count("<svg") == 1 and "&lt;script&gt;" in dom
    assert complaints == ""
