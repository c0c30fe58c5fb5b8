"""`gdbmem bfc` on stock onnxruntime: the lines of its own log about extensions are the oracle."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from gdbmem.inspection.pools import ProcessPools
from gdbmem.model.bfc import EXTENDS, Allocator
from gdbmem.pools.decision import Request, decide
from tests.live.pools import NEWEST, server


@pytest.mark.parametrize("release", [NEWEST, "2.15", "2.9"])
def test_regions_and_pool_are_those_of_the_log_at_50_random_moments(release: str, scratch: Path) -> None:
    rng, foretold = random.Random(31), 0
    with (scratch / "log").open("w") as log, server(release, "onnxruntime_server", stderr=log) as one:
        one.ask("run", 1000)
        with ProcessPools(one.pid) as pools:
            for _ in range(50):
                verb, number = rng.choice([("run", rng.randrange(1, 500_000)), ("drop", rng.randrange(100))])
                (pool,), before = pools.read().allocators, (scratch / "log").read_text(errors="replace")
                one.ask(verb, number)
                told = (scratch / "log").read_text(errors="replace")[len(before) :]
                foretold += verb == "run" and _extension_is_foretold(pool, 4 * number, told)
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
    assert len(pool.regions) >= 3 and foretold >= 1


def _extension_is_foretold(pool: Allocator, size: int, told: str) -> bool:
    """Return whether the pool was to grow for *size* bytes; then the log's first extension has to be that one."""
    decision = decide(pool, Request(size))
    if decision.outcome != EXTENDS:
        return False
    extended = re.search(r"num_bytes: (\d+).*?Extended allocation by (\d+) bytes", told, re.DOTALL)
    assert extended is not None
    assert (int(extended[1]), int(extended[2])) == (size, decision.extends_bytes)
    return True
