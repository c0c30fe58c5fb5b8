"""`gdbmem bfc --what-if`: what an allocator with these settings really does with the same requests is the oracle."""

from __future__ import annotations

import random

import pytest

from gdbmem.errors import InputError
from gdbmem.inspection.pools import ProcessPools, read_pools
from gdbmem.model.bfc import EXTENDS, FITS, IN_USE, Allocator
from gdbmem.pools.decision import Request, decide
from gdbmem.pools.replay import WhatIf, replay
from tests.conftest import Program
from tests.cover import cover
from tests.live.pools import NEWEST, server
from tests.live.test_bfc_pool import PLAIN, made, pool_program, printed

MIB = 1 << 20
Shape = list[
    tuple[int, list[tuple[int, bool]]]
]  # of each region: its size, its chunks' sizes and whether in use


def shape(pool: Allocator) -> Shape:
    chunks = pool.chunks
    return [
        (region.size_bytes, [(chunks.size[n], chunks.state[n] == IN_USE) for n in region.indices])
        for region in pool.regions  # in the order in which they came
    ]


def asked_in_order(pool: Allocator) -> list[int]:
    """Return what clients asked for of the chunks in use, the oldest first."""
    ids, asked = pool.chunks.allocation_id, pool.chunks.requested
    assert ids is not None and asked is not None
    used = [n for n in range(len(pool.chunks)) if pool.chunks.state[n] == IN_USE]
    return [asked[n] for n in sorted(used, key=ids.__getitem__)]


@pytest.mark.parametrize("layout", cover([110, 2024, 2026, 1320], lambda layout: layout in (110, 2026)))
def test_other_settings_make_the_pool_that_the_allocator_makes_under_them(
    program: Program, layout: int
) -> None:
    rng = random.Random(layout)
    fitted = failed = 0
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 40, 1)
        with ProcessPools(one.pid) as pools:
            for _ in range(60):
                made(one, 1 << 26, rng.randrange(2), 0, PLAIN, rng.randrange(1, 150), rng.randrange(1 << 30))
                (pool,) = pools.read().allocators
                settings = WhatIf(
                    rng.choice([True, False]), rng.choice([2 * MIB, 8 * MIB, 20 * MIB, 64 * MIB])
                )
                assert settings.limit_bytes is not None
                one.send(
                    "refill", settings.limit_bytes, int(bool(settings.allow_growth)), *asked_in_order(pool)
                )
                has_room = one.receive() == "all"
                printed(one)
                (real,) = pools.read().allocators
                if not has_room:
                    with pytest.raises(InputError, match="don't fit into a limit"):
                        replay(pool, settings)
                    failed += 1
                    continue
                tried = replay(pool, settings)
                tried.check()
                if list(tried.chunks.address[:1]) == list(pool.chunks.address[:1]):
                    continue  # as it is: these settings change nothing of what is there
                assert shape(tried) == shape(real)
                _same_answers(tried, real, rng)
                fitted += 1
    assert fitted > 10 and failed > 5


def _same_answers(tried: Allocator, real: Allocator, rng: random.Random) -> None:
    for _ in range(20):
        request = Request(rng.choice([1, 5000, rng.randrange(1, MIB), rng.randrange(1, 64 * MIB)]))
        ours, theirs = decide(tried, request), decide(real, request)
        assert (ours.outcome, ours.cause, ours.extends_bytes) == (
            theirs.outcome,
            theirs.cause,
            theirs.extends_bytes,
        )
        assert (ours.outcome in (FITS, EXTENDS)) == (theirs.outcome in (FITS, EXTENDS))


# Two more TensorFlows: the allocator's own code, in bfc_pool.cpp, is asked the same by the test above.
@pytest.mark.thorough
def test_a_smaller_limit_makes_the_pool_that_tensorflow_makes_under_it() -> None:
    rng = random.Random(4)
    with server(NEWEST, "tensorflow_server") as one:
        (pool,) = read_pools(one.pid).allocators
        at_first = len(asked_in_order(pool))
        held = []
        for _ in range(120):
            held.append(one.ask("alloc", pool.address, rng.randrange(1, 6 * MIB)))
            if rng.random() < 0.7:
                one.ask("free", pool.address, held.pop(rng.randrange(len(held))))
        (pool,) = read_pools(one.pid).allocators
        assert "0" not in held
    asked = asked_in_order(pool)[at_first:]
    limit = (pool.pool_bytes - 1) // MIB  # less than it holds: so the pool is filled anew
    tried = replay(pool, WhatIf(limit_bytes=limit * MIB))
    with server(NEWEST, "tensorflow_server", TF_CPU_BFC_MEM_LIMIT_IN_MB=str(limit)) as other:
        (fresh,) = read_pools(other.pid).allocators
        assert len(asked_in_order(fresh)) == at_first
        assert "0" not in [other.ask("alloc", fresh.address, size) for size in asked]
        (real,) = read_pools(other.pid).allocators
    assert [region.size_bytes for region in tried.regions] == [size for size, _ in sorted_shape(real)]
    assert [chunks for _, chunks in shape(tried)[1:]] == [chunks for _, chunks in sorted_shape(real)[1:]]


def sorted_shape(pool: Allocator) -> Shape:
    """Return shape() with the regions in the order in which a pool that grows gets them."""
    return sorted(shape(pool), key=lambda region: region[0])
