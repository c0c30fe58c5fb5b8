"""`gdbmem grow -- PROGRAM` beside `perf record`, and until its answer beside heap profilers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_grow_attached import STORM, compiled
from benchmarks.grow_beside_perf import beside_perf
from benchmarks.grow_peers import LEAK_C, answers
from benchmarks.racing import Ratio

TITLE = "grow: a program started by it, beside perf and heap profilers"


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        yield from beside_perf(compiled(STORM, Path(folder) / "storm"), Path(folder))
        yield from answers(compiled(LEAK_C, Path(folder) / "leak"), Path(folder))
