"""The data loader of examples/dataloader: teeth in the tree's PSS that no RSS shows."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.explaining import gdbmem, running
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


NAMES = 200_000
# The workers of an epoch have read as much as was asked for, and wait.
WAITING = f"""
import os, sys, time
sys.path.insert(0, {str(LOADER.parent)!r})
from loader import Names
kind, in_one_buffer = sys.argv[1], sys.argv[2] == "bytes"
data = Names({NAMES}, in_one_buffer=in_one_buffer)
children = []
if kind == "torch":
    from torch.utils.data import DataLoader
    batches = iter(DataLoader(data, batch_size=256, num_workers=2, shuffle=True))
    for _ in range(len(data) // 256 * 9 // 10):
        next(batches)
else:
    read, write = os.pipe()
    for first in range(2):
        children.append(os.fork())
        if not children[-1]:
            for index in range(first, len(data), 2):
                data[index]
            os.write(write, b"x")
            time.sleep(600)
            os._exit(0)
    for _ in children:
        os.read(read, 1)
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
batches = None
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""


TORCH = python_with_torch()  # each test has its own cache folder


def watch(scratch: Path, *words: str) -> dict[str, Any]:
    done = monitor(
        "-q", "--interval", "50ms", "--pss-budget", "50", "--json", "--", sys.executable, str(LOADER), "1", "2", *words,
        folder=scratch,
    )  # fmt: skip
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_workers_that_only_read_copy_what_they_have_inherited(scratch: Path) -> None:
    document = watch(scratch, "--names", "200000", "--seconds", "1")
    kept = watch(scratch, "--names", "200000", "--seconds", "1", "--bytes")
    strings = 200_000 * 81  # a str of 32 characters takes 81: a worker copies its share of their pages
    assert document["copied_bytes"] - kept["copied_bytes"] > strings


# Each worker writes at its end what it has written to since the fork.
COUNTING = f"""
import sys
from multiprocessing import util
from pathlib import Path
sys.path.insert(0, {str(LOADER.parent)!r})
from loader import Names
from torch.utils.data import DataLoader
def count():
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kib = next(row.split()[1] for row in rows if row.startswith("Private_Dirty:"))
    with open("own", "a") as own:
        own.write(kib + "\\n")
def at_end(number):
    util.Finalize(None, count, exitpriority=100)
data = Names(300_000, in_one_buffer=False)
for _ in range(2):
    for _ in DataLoader(data, batch_size=256, num_workers=2, shuffle=True, worker_init_fn=at_end):
        pass
"""


# Torch starts twelve times; the workers of the test above copy, too, and tests/live/test_python_cow.py counts copies.
@pytest.mark.thorough
@pytest.mark.skipif(not TORCH, reason="torch isn't installed: scripts/setup python")
def test_workers_of_a_torch_data_loader_copy_what_they_count_themselves(scratch: Path) -> None:
    words = ["-q", "--interval", "50ms", "--pss-budget", "50", "--json", "--"]
    document = json.loads(monitor(*words, TORCH, "-c", COUNTING, folder=scratch).stdout)
    own = [int(kib) << 10 for kib in (scratch / "own").read_text().split()]
    assert len(own) == 4
    assert document["copied_bytes"] == pytest.approx(sum(own), rel=0.05)
    assert any(line["name"] == "pt_data_worker" for line in document["processes"])


@pytest.mark.parametrize(
    ("kind", "python"),
    [
        ("fork", sys.executable),
        pytest.param(
            "torch",
            TORCH,
            marks=(
                pytest.mark.thorough,
                pytest.mark.skipif(not TORCH, reason="torch isn't installed: scripts/setup python"),
            ),
        ),
    ],
)
def test_the_copied_type_is_named_and_a_single_buffer_is_the_cure(
    kind: str, python: str, tmp_path: Path
) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    copied, strings = {}, {}
    for data in ("strings", "bytes"):
        with running([python, script, kind, data]) as target:
            done = gdbmem("python", "cow", "--json", target.pid)
            target.type("x")
            target.process.wait()
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert len(document["workers"]) == 2
        copied[data] = document["copied_bytes"]
        strings[data] = sum(one["copied_bytes"] for one in document["types"] if one["type"] == "str")
        if data == "strings":
            assert document["types"][0]["type"] == "str" and "'str'" in document["answer"]
    # A str of 32 characters takes 81 bytes, some 40 are in a page: a worker that reads half of them reads of each page.
    assert strings["strings"] > 2 * NAMES * 81 * 0.9
    assert strings["bytes"] < strings["strings"] / 4
    assert copied["strings"] - copied["bytes"] > 2 * NAMES * 81 * 0.8
