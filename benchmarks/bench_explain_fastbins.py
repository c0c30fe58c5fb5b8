"""`gdbmem explain` on 10^7 free blocks in fastbins, freed in random order: the worst order to follow them in."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_explain import HOLD, build, explain, running
from benchmarks.racing import Row

TITLE = "explain: 10^7 free blocks in fastbins, in random order"
FREED = 10**7
ROUNDS = 3


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "hold.c").write_text(HOLD)
        build(folder / "hold.c", folder / "hold")
        with running(folder / "hold", 2 * FREED, 40, "scattered") as process:  # every second one is freed
            runs = [explain(process.pid, FREED, folder) for _ in range(ROUNDS)]
    wall = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu_seconds for run in runs)
    paused = statistics.median(run.pause_seconds for run in runs)
    mib = max(run.mib for run in runs)
    return [
        Row("the whole command", wall, 0, "at most 3 s", at_most=3, value=wall),
        Row("its processor time", cpu, 0),
        Row("the process stands still", paused, 0, "at most 50 ms", at_most=0.05, value=paused),
        Row("its memory", mib, 0, "at most 250 MB", at_most=250e6 / 2**20, value=mib, unit="MiB"),
    ]
