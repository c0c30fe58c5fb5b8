"""The man pages in docs/man are made from the parsers, and man accepts them without warnings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "man").glob("*.1"))


def test_the_pages_are_as_the_parsers_have_it() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "man"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout + checked.stderr == "", checked.stdout


@pytest.mark.needs("man")
def test_man_reads_them_without_a_warning() -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
    assert len(PAGES) > 10
    for page in PAGES:
        shown = subprocess.run(
            ["man", "--warnings", "-l", str(page)], capture_output=True, text=True, check=True, env=environment
        )  # fmt: skip
        assert shown.stderr == "", page.name
        assert "SYNOPSIS" in shown.stdout, page.name


@pytest.mark.needs("man")
def test_man_shows_every_option_of_a_command() -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
    shown = subprocess.run(
        ["man", "-l", str(ROOT / "docs" / "man" / "gdbmem-diff.1")],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert "--fail-on" in shown.stdout and "--normalize" in shown.stdout
