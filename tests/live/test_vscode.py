"""Tests of the extension for VS Code by node's own test runner: its logic, and against a stub of the editor.

`scripts/vscode` also checks its types, and runs the protocol with a gdb of 14 or later.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.test_page_types import TSC, node_version

EXTENSION = Path(__file__).parents[2] / "editors/vscode"


def test_the_extension_shows_what_gdbmem_says_and_starts_only_a_gdb_that_is_fit(tmp_path: Path) -> None:
    if not TSC.exists() or node_version() < 18:
        pytest.skip("TypeScript, which scripts/setup unpacks where npm is, or node 18 is not here")
    for name in ("src", "test"):
        shutil.copytree(EXTENSION / name, tmp_path / name)
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(EXTENSION / name, tmp_path)
    untyped = tmp_path / "untyped.json"  # the types of the editor are not here
    untyped.write_text('{"extends": "./tsconfig.json", "compilerOptions": {"noCheck": true, "types": []}}')
    compiled = subprocess.run(
        ["node", str(TSC), "-p", str(untyped)], capture_output=True, text=True, timeout=100
    )
    assert compiled.returncode == 0, compiled.stdout
    tests = [str(tmp_path / f"test/{name}.test.mjs") for name in ("logic", "extension")]
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
