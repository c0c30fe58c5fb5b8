"""`gdbmem bfc` on stock onnxruntime: the lines of its own log about extensions are the oracle."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from gdbmem.inspection.bfc.pools import ProcessPools
from tests.live.pools import NEWEST, server


@pytest.mark.parametrize("release", [NEWEST, "2.15", "2.9"])
def test_regions_and_pool_are_those_of_the_log_at_50_random_moments(release: str, scratch: Path) -> None:
    rng = random.Random(31)
    with (scratch / "log").open("w") as log, server(release, "onnxruntime_server", stderr=log) as one:
        one.ask("run", 1000)
        with ProcessPools(one.pid) as pools:
            for _ in range(50):
                one.ask(*rng.choice([("run", rng.randrange(1, 500_000)), ("drop", rng.randrange(100))]))
                (pool,) = pools.read().allocators
                pool.check()
                assert not pool.violations
                text = (scratch / "log").read_text(errors="replace")
                regions = re.findall(r"Allocated memory at (0x[0-9a-f]+) to (0x[0-9a-f]+)", text)
                assert sorted((int(a, 16), int(b, 16)) for a, b in regions) == [
                    (region.address, region.end) for region in pool.regions
                ]
                reserved = sum(
                    map(int, re.findall(r"Reserving memory in BFCArena for Cpu size: (\d+)", text))
                )
                assert pool.reserved_bytes == reserved
                totals = re.findall(r"Total allocated bytes: (\d+)", text)
                assert pool.pool_bytes + pool.reserved_bytes >= int(totals[-1])
                assert pool.counters.in_use_bytes == pool.in_use_bytes
    assert pool.class_name.startswith("onnxruntime::") and pool.name == "Cpu"
    assert len(pool.regions) >= 3
