"""The unmanaged memory of a worker, asked in its event loop as by a client of Dask; the worker is a stand-in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.live.user import shell

pytest.importorskip("numpy")
pytestmark = pytest.mark.usefixtures("no_process_left")

MIB = 1 << 20
# Results as a worker has them, with the sizes that a scheduler would count; and what they really are.
WORKER = """
import asyncio, json, sys, types
import numpy
from gdbmem.dask_memory import explain_worker
junk = [str(n) * 3 for n in range(400_000)]
kept = junk[::5000]
data = {"ones": numpy.ones(2_000_000), "zeros": numpy.zeros(10_000_000), "bytes": bytearray(20_000_000)}
data["strings"] = [str(n) * 3 for n in range(200_000)]
del junk
sizes = {"ones": 16_000_000, "zeros": 80_000_000, "bytes": 20_000_000, "strings": 1_000}
tasks = {key: types.SimpleNamespace(nbytes=size) for key, size in sizes.items()}
worker = types.SimpleNamespace(data=data, state=types.SimpleNamespace(tasks=tasks), address="tcp://here")
found = asyncio.run(explain_worker(worker))
blocks = [sys.getsizeof(one) + 15 & -16 for one in data["strings"]]  # as Python's allocator gives them
strings = sys.getsizeof(data["strings"]) + sum(blocks)
print(json.dumps({"found": found, "strings": strings}))
"""


def test_the_unmanaged_memory_of_a_worker_adds_up_with_the_error_of_sizeof(scratch: Path) -> None:
    done = shell(sys.executable, "-c", WORKER, folder=scratch)
    assert not done.stderr, done.stderr
    said = json.loads(done.stdout)
    found = said["found"]
    results = {one["key"]: one for one in found["results"]}
    assert results["zeros"]["resident_bytes"] < MIB, "nobody has written them"
    assert results["ones"]["resident_bytes"] == pytest.approx(16_000_000, rel=0.01)
    assert results["bytes"]["resident_bytes"] == pytest.approx(20_000_000, rel=0.01)
    assert results["strings"]["resident_bytes"] == pytest.approx(said["strings"], rel=0.02)
    terms = sum(term["size_bytes"] for term in found["terms"])
    error = found["managed_resident_bytes"] - found["managed_bytes"]
    assert terms + error == found["process_bytes"] - found["managed_bytes"], "to the byte"
    assert all(term["size_bytes"] > 0 for term in found["terms"])
    live = next(
        term for term in found["terms"] if (term["category"], term["label"]) == ("allocator.pymalloc", "live")
    )
    assert live["size_bytes"] < said["strings"], "without the strings, which are a result"
    free = [term["size_bytes"] for term in found["terms"] if term["label"] in ("free pools", "free in pools")]
    assert sum(free) > 10 * MIB, "of the objects that were thrown away"
