"""The data loader of examples/dataloader: teeth in the tree's PSS that no RSS shows."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.test_monitor import monitor

pytestmark = pytest.mark.usefixtures("no_process_left")
LOADER = Path(__file__).parents[2] / "examples" / "dataloader" / "loader.py"


def python_with_torch() -> str:
    """Return the Python of 'scripts/setup python', or this one where it has a torch; "" where neither is there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    own = cache / "gdbmem/python/torch"
    if (own / "ready").exists():
        return str(own / "bin/python")
    return sys.executable if importlib.util.find_spec("torch") is not None else ""


TORCH = python_with_torch()  # each test has a cache folder of its own


def watch(scratch: Path, *words: str, python: str = sys.executable) -> dict[str, Any]:
    done = monitor(
        "-q", "--interval", "50ms", "--pss-budget", "50", "--json", "--", python, str(LOADER), "1", "2", *words,
        folder=scratch,
    )  # fmt: skip
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_workers_that_only_read_copy_what_they_have_inherited(scratch: Path) -> None:
    document = watch(scratch, "--names", "200000", "--seconds", "1")
    kept = watch(scratch, "--names", "200000", "--seconds", "1", "--bytes")
    strings = 200_000 * 81  # a str of 32 characters takes 81: a worker copies its share of their pages
    assert document["copied_bytes"] - kept["copied_bytes"] > strings


@pytest.mark.skipif(not TORCH, reason="torch isn't installed: scripts/setup python")
def test_so_do_the_workers_of_a_torch_data_loader(scratch: Path) -> None:
    document = watch(scratch, "--names", "100000", "--torch", python=TORCH)
    assert document["copied_bytes"] > 10 << 20
    assert any(line["name"] == "pt_data_worker" for line in document["processes"])
