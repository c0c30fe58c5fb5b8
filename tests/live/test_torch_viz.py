"""PyTorch's snapshots against torch's own reader, torch.cuda._memory_viz: its totals are the oracle."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path

import pytest

from gdbmem.formats.bfc.torch_snapshot import read_torch_snapshot
from tests.unit.torch_snapshots import SHAPES, make_snapshot

CAPTURES = Path(__file__).parents[1] / "captures" / "bfc"
_CACHE = os.environ.get("XDG_CACHE_HOME", "")
TORCH = (
    Path(_CACHE) if _CACHE.startswith("/") else Path.home() / ".cache"
) / "gdbmem/python/torch/bin/python"
# segsum() prints sizes for people: as numbers they are exact.
_TOTALS = """
import importlib.util, json, pickle, re, sys
# The module alone: to import torch takes seconds, and this needs nothing of it.
(folder,) = importlib.util.find_spec("torch").submodule_search_locations
place = importlib.util.spec_from_file_location("viz", f"{folder}/cuda/_memory_viz.py")
viz = importlib.util.module_from_spec(place)
place.loader.exec_module(viz)
viz.Bytes = int
found = []
for path in sys.argv[1:]:
    with open(path, "rb") as stream:
        text = viz.segsum(pickle.load(stream))
    words = {name: int(re.search(rf"^{name}: (\\d+)", text, re.M)[1]) for name in ("total_reserved", "total_allocated")}
    free = re.search(r"^total_free: (.*)", text, re.M)[1]
    found.append({**words, "free": free})
print(json.dumps(found))
"""


def _files(folder: Path) -> list[Path]:
    """Return snapshots of ten shapes by both of Python's picklers, and one by torch's own."""
    files = []
    for number, (name, shape) in enumerate(SHAPES.items()):
        if name != "PyTorch 2.0, without addresses":  # which today's segsum can't read
            for protocol in (2, 5):
                path = folder / f"{number}.{protocol}.pickle"
                path.write_bytes(pickle.dumps(make_snapshot(shape), protocol))
                files.append(path)
    return [*files, CAPTURES / "torch-2.13-cpp.pickle"]


def test_reserved_allocated_and_free_are_what_torchs_own_reader_counts(tmp_path: Path) -> None:
    if not TORCH.exists():
        pytest.skip(f"no torch in {TORCH.parents[1]}: 'scripts/setup python' makes it where pip finds one")
    files = _files(tmp_path)
    command = [str(TORCH), "-c", _TOTALS, *map(str, files)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    counted = json.loads(ended.stdout)
    assert len(counted) == len(files) >= 19
    for path, totals in zip(files, counted):
        pools = read_torch_snapshot(path.read_bytes(), path.name).allocators
        asked = [pool.requested_bytes for pool in pools]
        assert None not in asked
        assert sum(pool.pool_bytes for pool in pools) == totals["total_reserved"]
        assert sum(size or 0 for size in asked) == totals["total_allocated"]
        outside = sum(pool.free_bytes + pool.pending_bytes for pool in pools)
        inside = sum(pool.in_use_bytes - (pool.requested_bytes or 0) for pool in pools)
        assert totals["free"] == _report(outside, inside)


def _report(external: int, internal: int) -> str:
    """Return the sums of free bytes as torch prints them."""
    total = external + internal
    return f"{total} ({100 * internal / total:.1f}% internal)" if total else "0"
