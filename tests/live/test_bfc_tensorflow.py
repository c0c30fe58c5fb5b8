"""`gdbmem bfc` on stock TensorFlow: its own numbers, its own dump and its next allocations are the oracle."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator

import pytest

from gdbmem.inspection.pools import ProcessPools
from gdbmem.model.bfc import EXTENDS, FAILS, FITS, IN_USE, Allocator
from gdbmem.pools.decision import Request, decide
from tests.cover import cover
from tests.live.pools import NEWEST, OLDER, Server, server
from tests.live.user import GDBMEM

_SET_PIPE_SIZE = 1031
RELEASES = (NEWEST, *OLDER)


@pytest.fixture(scope="module")
def stock() -> Iterator[Server]:
    with server(NEWEST, "tensorflow_server") as one:
        yield one


def the_pool(pools: ProcessPools) -> Allocator:
    (one,) = pools.read().allocators
    one.check()
    assert not one.violations
    return one


def busy(one: Server, rng: random.Random) -> None:
    """Let tensors come and go."""
    for _ in range(rng.randrange(1, 5)):
        if rng.random() < 0.6:
            one.ask("grow", rng.choice([rng.randrange(1, 300), rng.randrange(1, 400_000)]))
        else:
            one.ask("drop", rng.randrange(1000))
        one.ask("grow", 1)  # never empty


@pytest.mark.parametrize("release", cover(RELEASES, lambda release: release in (NEWEST, "2.4")))
def test_the_bytes_in_use_are_tensorflows_own_at_50_random_moments(
    release: str, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(15)
    newest = contextlib.nullcontext(request.getfixturevalue("stock")) if release == NEWEST else None
    with newest or server(release, "tensorflow_server") as one, ProcessPools(one.pid) as pools:
        for _ in range(50):
            busy(one, rng)
            pool = the_pool(pools)
            if release != "2.4":  # which has no get_memory_info
                current, peak = map(int, one.ask("info").split())
                assert (pool.in_use_bytes, pool.counters.peak_in_use_bytes) == (current, peak)
            assert pool.in_use_bytes == pool.counters.in_use_bytes
            assert pool.pool_bytes == pool.counters.pool_bytes
            assert pool.limit_bytes == 300 << 20
            assert pool.requested_bytes is not None and pool.requested_bytes <= pool.in_use_bytes


@pytest.mark.thorough
@pytest.mark.parametrize("release", RELEASES)
def test_200_predictions_are_what_the_next_allocation_did(release: str) -> None:
    rng = random.Random(200)
    outcomes: dict[str, int] = {}
    held: list[int] = []
    with server(release, "tensorflow_server") as one, ProcessPools(one.pid) as pools:
        pool = the_pool(pools)
        for _ in range(200):
            if held and rng.random() < (0.35 if pool.free_bytes > 8 << 20 else 0.5):
                one.ask("free", pool.address, held.pop(rng.randrange(len(held))))
                pool = the_pool(pools)
            size = rng.choice([1, 255, 256, 257, 4096, rng.randrange(1, 1 << 20), rng.randrange(1, 48 << 20)])
            decision = decide(pool, Request(size))
            address = int(one.ask("alloc", pool.address, size))
            after = the_pool(pools)
            outcomes[decision.outcome] = outcomes.get(decision.outcome, 0) + 1
            grown = after.pool_bytes - pool.pool_bytes
            if decision.outcome == FITS:
                assert decision.chunk is not None
                assert (address, grown) == (pool.chunks.address[decision.chunk], 0)
            elif decision.outcome == EXTENDS:
                assert address and grown == decision.extends_bytes
            else:
                assert (decision.outcome, address, grown) == (FAILS, 0, 0)
            if address:
                held.append(address)
                index = list(after.chunks.address).index(address)
                assert after.chunks.size[index] == decision.taken_bytes
                assert after.chunks.requested_of(index) == size
            pool = after
    assert min(outcomes.get(name, 0) for name in (FITS, EXTENDS, FAILS)) >= 4, outcomes


def test_freeing_the_chunks_that_are_named_makes_the_request_fit(stock: Server) -> None:
    with ProcessPools(stock.pid) as pools:
        pool = the_pool(pools)
        blocks = []
        while True:
            address = int(stock.ask("alloc", pool.address, 4 << 20))
            if not address:
                break
            blocks.append(address)
        for address in blocks[::2]:
            stock.ask("free", pool.address, address)
        held = set(blocks[1::2])
        pool = the_pool(pools)
        decision = decide(pool, Request(11 << 20))
        assert (decision.outcome, decision.cause) == (FAILS, "fragmentation")
        assert int(stock.ask("alloc", pool.address, 11 << 20)) == 0
        assert decision.obstacle is not None
        for index in decision.obstacle.in_use:
            stock.ask("free", pool.address, pool.chunks.address[index])
            held.remove(pool.chunks.address[index])
        address = int(stock.ask("alloc", pool.address, 11 << 20))
        assert address
        for one in (address, *held):
            stock.ask("free", pool.address, one)


@pytest.mark.parametrize("release", cover(RELEASES, lambda release: release in (NEWEST, "2.4")))
def test_a_walk_in_the_midst_of_the_dump_equals_that_chunk_by_chunk(release: str) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(reader, _SET_PIPE_SIZE, 4096)  # the dump blocks when that is full, with the mutex held
    with (
        os.fdopen(reader, "rb") as lines,
        os.fdopen(writer, "wb") as end,
        server(release, "tensorflow_server", stderr=end) as one,
        ProcessPools(one.pid) as pools,
    ):
        end.close()
        rng = random.Random(7)
        for _ in range(60):
            one.ask("grow", rng.randrange(1, 300_000))
        for _ in range(20):
            one.ask("drop", rng.randrange(1000))
        one.send("fill", 299 << 20)
        dumped = _until(lines.fileno(), rb"Chunk State")
        (pool,) = pools.read().allocators
        assert pool.is_locked
        assert [notice.slug for notice in pool.notices] == ["bfc-locked"]
        text = _until(lines.fileno(), rb"Stats:", dumped)
    rows = re.findall(rb"(InUse|Free ) at (?:0x)?([0-9a-f]+) of size (\d+)", text)
    assert len(rows) > 50
    assert [(int(at, 16), int(size), state == b"InUse") for state, at, size in rows] == [
        (address, size, state == IN_USE)
        for address, size, state in zip(pool.chunks.address, pool.chunks.size, pool.chunks.state)
    ]


def _until(descriptor: int, pattern: bytes, text: bytes = b"") -> bytes:
    while not re.search(pattern, text):
        piece = os.read(descriptor, 512)
        assert piece, "no dump"
        text += piece
    return text


def test_a_stock_process_is_found_and_walked_soon_and_waits_little(stock: Server) -> None:
    before = os.times()
    done = subprocess.run([GDBMEM, "bfc", str(stock.pid), "--json"], capture_output=True, check=True)
    after = os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
    document = json.loads(done.stdout)
    assert document["allocators"][0]["class"] == "tsl::BFCAllocator"
    assert document["pause_seconds"] < 0.1 or os.getloadavg()[0] > 2
    assert used < 2.0


def test_the_command_states_what_becomes_of_a_request(stock: Server) -> None:
    done = subprocess.run(
        [GDBMEM, "bfc", str(stock.pid), "--request", "1GiB"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("bfc_cpu_allocator_for_gpu: 300.0 MiB limit, ")
    assert "a request of 1.0 GiB fails" in done.stdout
    assert "TF_CPU_BFC_MEM_LIMIT_IN_MB" in done.stdout
