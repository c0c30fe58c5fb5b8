"""Results of the script of a report's page, by node's own test runner, and its types."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "gdbmem/page/web"
NODE_TESTS = sorted((Path(__file__).parent / "web").glob("*.test.mjs"))
TSC = Path(__file__).parents[2] / ".cache/typescript/package/bin/tsc"


def node_version() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    text = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(text.lstrip("v").partition(".")[0])


def test_what_a_page_computes_is_right() -> None:
    if node_version() < 18:
        pytest.skip("node 18, whose test runner runs these, is not here")
    done = subprocess.run(
        ["node", "--test", *map(str, NODE_TESTS)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_scripts_types_fit() -> None:
    if not TSC.exists() or node_version() < 18:
        pytest.skip("TypeScript, which scripts/setup unpacks where npm is, is not here")
    done = subprocess.run(["node", str(TSC), "-p", str(WEB)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
