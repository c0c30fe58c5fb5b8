"""Exports of gdbmem, opened by the tools that they are meant for."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.user import GDBMEM, environment, shell

SPEEDSCOPE = (
    Path(__file__).parents[2] / ".cache/speedscope/package/dist/release/index.html"
)  # by scripts/setup
STACKS = Path(__file__).parents[1] / "captures" / "stacks"
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="go (a large package) is not here")

needs_speedscope = pytest.mark.skipif(
    not SPEEDSCOPE.exists(), reason="npm, which fetches speedscope, is not here"
)

pytestmark = pytest.mark.usefixtures("no_process_left")


def export(kind: str, target: Path, *operands: str) -> Path:
    words = [GDBMEM, "export", "--to", kind, "-o", str(target), *(str(STACKS / name) for name in operands)]
    shell(*words, check=True)
    return target


def shown(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.needs("ms_print")
@pytest.mark.parametrize(("name", "total"), [("dhat.json", "25,000"), ("many.0001.heap.gz", "155,643")])
def test_ms_print_opens_a_snapshot_of_any_format(tmp_path: Path, name: str, total: str) -> None:
    text = shown("ms_print", str(export("massif", tmp_path / "out.massif", name)))
    assert f"({total}B) (heap allocation functions)" in text


@needs_go
@pytest.mark.parametrize(
    ("name", "total"), [("dhat.json", 25_000), ("xtree.kcg", 25_000), ("ht.zst", 29_129)]
)
def test_go_tool_pprof_opens_a_snapshot_of_any_format(tmp_path: Path, name: str, total: int) -> None:
    text = shown("go", "tool", "pprof", "-top", "-unit=B", str(export("pprof", tmp_path / "out.pb.gz", name)))
    assert f"of {total}B total" in text
    assert re.search(r"^ +0 +0% .* main$", text, re.M)


@needs_go
def test_go_tool_pprof_shows_what_shrank_as_negative(tmp_path: Path) -> None:
    file = export("pprof", tmp_path / "out.pb.gz", "tc.0002.heap", "tc.0001.heap")
    text = shown("go", "tool", "pprof", "-top", "-unit=B", "-nodefraction=0", str(file))
    sizes = [int(size) for size in re.findall(r"^ *(-?\d+)B? +-?[\d.]+%", text, re.M)]
    assert sum(sizes) == -42_300


@pytest.mark.needs("massif-visualizer")
def test_massif_visualizer_finds_the_same_peak_in_a_snapshot_of_any_format(tmp_path: Path) -> None:
    file, said = export("massif", tmp_path / "out.massif", "dhat.json"), tmp_path / "said"
    with said.open("wb") as log:
        viewer = subprocess.Popen(
            ["massif-visualizer", str(file)],
            stdout=log,
            stderr=log,
            env={**environment(), "HOME": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"},
        )
        try:
            deadline = time.monotonic() + 60
            while b"peak cost" not in said.read_bytes() and time.monotonic() < deadline:
                assert viewer.poll() is None, said.read_text()
                time.sleep(0.05)
        finally:
            viewer.kill()
            viewer.wait()
    assert 'peak cost: "24.4 KiB" heap' in said.read_text()  # 25,000 bytes


@needs_speedscope
@pytest.mark.needs("chromium")
def test_speedscope_opens_a_snapshot_of_any_format(tmp_path: Path) -> None:
    # As speedscope's own command does it.
    data = base64.b64encode(export("speedscope", tmp_path / "out.json", "ht.zst").read_bytes()).decode()
    loader = tmp_path / "load.js"
    loader.write_text(f"speedscope.loadFileFromBase64('out.json', {json.dumps(data)})")
    done = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--allow-file-access-from-files", "--virtual-time-budget=20000", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            f"{SPEEDSCOPE.as_uri()}#localProfilePath={loader}",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
        timeout=100,
    )  # fmt: skip
    assert "<title>ht.zst - speedscope</title>" in done.stdout
    assert "Importing as speedscope json file" in done.stderr
