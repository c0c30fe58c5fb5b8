"""Walks of a small allocator in the layouts of four libraries: what it prints and does itself is the oracle."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.errors import TargetError
from gdbmem.inspection.pools import ProcessPools, read_pools
from gdbmem.model.bfc import EXTENDS, FAILS, FITS, IN_USE, LOWER, ONNXRUNTIME, TENSORFLOW, UPPER, Allocator
from gdbmem.pools.decision import Request, decide
from tests.conftest import Program
from tests.cover import cover
from tests.live.pools import Server, serving

PLAIN, STAMPED, BOTH_ENDS, STREAMS = 0, 1, 2, 3
# (layout, option): 1,000 sequences in all.
KINDS = [
    (110, PLAIN, 160),
    (2024, PLAIN, 160),
    (2024, STAMPED, 200),
    (2026, PLAIN, 120),
    (2026, STAMPED, 80),
    (2026, BOTH_ENDS, 140),
    (1320, PLAIN, 60),
    (1320, STREAMS, 80),
]
LAYOUTS = (110, 2024, 2026, 1320)
REQUESTS = 50


@contextlib.contextmanager
def pool_program(program: Program, layout: int) -> Iterator[Server]:
    process = subprocess.Popen(
        [program("bfc_pool", f"-DLAYOUT={layout}")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with serving(process) as one:
        yield one


def made(one: Server, *words: object) -> tuple[list[int], list[list[int]]]:
    """Return the sums and the chunks of a fresh pool, as it prints them."""
    one.send("new", *words)
    return printed(one)


def printed(one: Server) -> tuple[list[int], list[list[int]]]:
    """Return the sums and the chunks of the pool that the program prints."""
    sums = [int(word) for word in one.receive().split()[1:]]
    rows: list[list[int]] = []
    while True:
        line = one.receive()
        if line == "end":
            return sums, rows
        rows.append([int(word) for word in line.split()])


def the_pool(pools: ProcessPools) -> Allocator:
    (pool,) = pools.read().allocators
    pool.check()
    assert not pool.violations and pool.is_complete and not pool.is_locked
    return pool


@pytest.mark.parametrize(
    ("layout", "option", "count"),
    cover(KINDS, lambda layout, option, count: layout == 1320 or count in (80, 140)),
)
def test_sums_bins_chunks_and_answers_are_the_allocators_own(
    program: Program, layout: int, option: int, count: int
) -> None:
    rng = random.Random(layout * 10 + option)
    outcomes: dict[str, int] = {}
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, option, 40, 1)
        with ProcessPools(one.pid) as pools:
            for _ in range(count):
                growth = 0 if option == BOTH_ENDS else rng.randrange(2)
                limit = rng.choice([1 << 20, 5_000_000, 1 << 24, 1 << 26])
                collects = rng.randrange(2) if layout in (2024, 2026) else 0
                operations = rng.randrange(1, 150)
                sums, rows = made(one, limit, growth, collects, option, operations, rng.randrange(1 << 30))
                pool = the_pool(pools)
                _check_chunks(pool, sums, rows)
                _check_answers(one, pool, option, rng, outcomes)
    expected = (FITS, FAILS) if option == BOTH_ENDS else (FITS, EXTENDS, FAILS)  # that is one region
    assert all(outcomes.get(name, 0) > 20 for name in expected), outcomes


def _check_chunks(pool: Allocator, sums: list[int], rows: list[list[int]]) -> None:
    assert [pool.pool_bytes, pool.in_use_bytes, len(pool.regions)] == sums
    chunks = pool.chunks
    assert list(chunks.address) == [row[0] for row in rows]
    assert list(chunks.size) == [row[1] for row in rows]
    assert [chunks.requested_of(n) or 0 for n in range(len(rows))] == [row[2] for row in rows]
    assert [state == IN_USE for state in chunks.state] == [bool(row[3]) for row in rows]
    assert chunks.bin is not None and list(chunks.bin) == [row[4] for row in rows]
    if chunks.tag is not None:
        assert list(chunks.tag) == [row[5] for row in rows]
    if chunks.freed_at is not None:
        assert list(chunks.freed_at) == [row[6] for row in rows]
    if chunks.stream is not None:
        assert list(chunks.stream) == [row[7] for row in rows]
    for one in pool.bins():
        free = [row for row in rows if not row[3] and one.floor_bytes <= row[1] < 2 * one.floor_bytes]
        assert one.number == 20 or (one.free, one.free_bytes) == (len(free), sum(row[1] for row in free))


def _check_answers(
    one: Server, pool: Allocator, option: int, rng: random.Random, outcomes: dict[str, int]
) -> None:
    requests = [_request(option, rng) for _ in range(REQUESTS)]
    one.send("try", *(word for r in requests for word in (r.bytes, r.alignment, r.end, r.stream or 0)))
    for request in requests:
        address, grown, taken = map(int, one.receive().split())
        decision = decide(pool, request)
        outcomes[decision.outcome] = outcomes.get(decision.outcome, 0) + 1
        assert bool(address) == (decision.outcome in (FITS, EXTENDS)), (request, decision)
        if decision.outcome == EXTENDS:
            assert (decision.extends_bytes or 0) - decision.gives_back_bytes == grown
        else:
            assert grown == 0
        if decision.chunk is not None and address:
            start, size = pool.chunks.address[decision.chunk], pool.chunks.size[decision.chunk]
            assert start <= address and address + taken <= start + size
            assert taken == decision.taken_bytes


def _request(option: int, rng: random.Random) -> Request:
    size = rng.choice(
        [1, 256, 257, rng.randrange(1, 10_000), rng.randrange(1, 1 << 20), rng.randrange(1, 1 << 26)]
    )
    alignment = 64 if rng.randrange(4) else 256 << rng.randrange(8)
    end = rng.choice([LOWER, UPPER]) if option == BOTH_ENDS else LOWER
    stream = rng.randrange(1, 4) if option == STREAMS else None
    return Request(size, alignment, end, stream)


def owners(one: Server, *words: object) -> dict[int, str]:
    """Return the owners of chunks by address, as the program prints them."""
    one.send("owners", *words)
    found: dict[int, str] = {}
    while True:
        address, _, text = one.receive().partition(" ")
        if address == "end":
            return found
        found[int(address)] = text


def test_owners_of_chunks_are_those_that_the_allocators_own_dump_would_name(program: Program) -> None:
    with pool_program(program, 2026) as one:
        made(one, 1 << 32, 1, 0, PLAIN, 40, 1)
        with ProcessPools(one.pid) as pools:
            assert the_pool(pools).chunks.owner is None
            for seed in range(10):
                expected = owners(one, 300, seed)
                chunks = the_pool(pools).chunks
                named = {
                    chunks.address[n]: chunks.owner_of(n) for n in range(len(chunks)) if chunks.owner_of(n)
                }
                assert named == expected and len(expected) > 20
            one.ask("break", "owner")
            (pool,) = pools.read().allocators
    lost = [
        n
        for n in range(len(pool.chunks))
        if pool.chunks.address[n] in expected and not pool.chunks.owner_of(n)
    ]
    assert len(lost) == 3  # a vector, a name and a value that lead nowhere
    assert [notice.slug for notice in pool.notices] == ["bfc-owners-unread"]


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2026)))
def test_options_are_read_and_a_name_and_a_class(program: Program, layout: int) -> None:
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 1, PLAIN, 40, 1)
        (pool,) = read_pools(one.pid).allocators
    classes = {110: "tensorflow::BFCAllocator", 1320: "onnxruntime::BFCArena"}
    assert pool.class_name == classes.get(layout, "tsl::BFCAllocator")
    assert pool.name == "the_pool_of_a_test"
    assert pool.kind == (ONNXRUNTIME if layout == 1320 else TENSORFLOW)
    assert pool.options.split_above_bytes in (None, 128 << 20)
    if layout in (2024, 2026):
        assert (pool.options.allow_growth, pool.options.garbage_collection) == (True, True)


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2026)))
@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("cycle", "no-cycle"),
        ("range", "handle-in-range"),
        ("gap", "chunks-adjoin"),
        ("prev", "prev-mirrors-next"),
        ("size", "chunk-in-region"),
        ("bin", "bin-by-size"),
        ("counter", "in-use-counted"),
        ("total", "pool-counted"),
        ("handle", "handles-name-chunks"),
        ("stray", "handles-name-chunks"),
        ("short", "chunks-fill-region"),
        ("twin", "ids-unique"),
        ("late", "ids-below-next"),
        ("halves", "neighbours-merged"),
    ],
)
def test_damage_is_named_by_the_rule_that_it_breaks(
    program: Program, layout: int, what: str, rule: str
) -> None:
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        with ProcessPools(one.pid) as pools:
            assert one.ask("break", what) == "broken"
            (pool,) = pools.read().allocators
    if layout == 1320 and what == "total":  # more would be reserved then, which is in use
        rule = "in-use-counted"
    assert pool.violations[0].rule == rule
    assert decide(pool, Request(1 << 40)).cause in ("", "full")


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2026)))
def test_a_held_mutex_is_reported(program: Program, layout: int) -> None:
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        one.ask("break", "lock")
        pools = read_pools(one.pid)
    assert pools.allocators[0].is_locked
    assert [notice.slug for notice in pools.allocators[0].notices] == ["bfc-locked"]


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2026)))
def test_what_is_no_pool_any_more_is_not_guessed_at(program: Program, layout: int) -> None:
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        with ProcessPools(one.pid) as pools:
            one.ask("break", "vectors")
            (pool,) = pools.read().allocators
            assert pool.violations[0].rule == "handle-in-range" and not pool.is_complete
        with pytest.raises(TargetError, match="the rest can't be derived"):
            read_pools(one.pid)
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        one.ask("break", "bins")
        with pytest.raises(TargetError, match="has no BFC allocator"):
            read_pools(one.pid)


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2026)))
def test_a_pool_whose_constructor_has_made_some_of_its_bins_is_none_yet(
    program: Program, layout: int
) -> None:
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        with ProcessPools(one.pid) as pools:
            one.ask("break", "unmade")
            with pytest.raises(TargetError, match="its 21 bins are gone"):
                pools.read()
        with pytest.raises(TargetError, match="has no BFC allocator"):
            read_pools(one.pid)


def test_chunks_that_were_moved_to_a_larger_vector_under_the_mutex_are_read_where_they_are(
    program: Program,
) -> None:
    with pool_program(program, 2024) as one:
        sums, rows = made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        with ProcessPools(one.pid) as pools:  # which has found them where they were
            one.ask("break", "lock")
            one.ask("break", "grow")
            (pool,) = pools.read().allocators
    assert pool.is_locked and not pool.violations
    _check_chunks(pool, sums, rows)


def test_a_pool_that_was_moved_is_found_again_and_its_old_place_is_none(program: Program) -> None:
    with pool_program(program, 2024) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        with ProcessPools(one.pid) as pools:
            (old,) = pools.read().allocators
            one.send("move")
            sums, rows = printed(one)
            with pytest.raises(TargetError):
                pools.read()
        (pool,) = read_pools(one.pid).allocators
    assert pool.address != old.address
    _check_chunks(pool, sums, rows)


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2024)))
def test_a_stripped_program_has_the_same_pool(program: Program, layout: int, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["strip", "-o", bare, program("bfc_pool", f"-DLAYOUT={layout}")], check=True)
    with pool_program(lambda *words: bare, layout) as one:
        sums, rows = made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        (pool,) = read_pools(one.pid).allocators
    assert pool.class_name.endswith(("BFCAllocator", "BFCArena"))
    _check_chunks(pool, sums, rows)


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout == 2026))
def test_without_type_information_and_symbols_a_pool_is_known_by_its_shape(
    program: Program, layout: int, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    built = program("bfc_pool", f"-DLAYOUT={layout}", "-fno-rtti")
    subprocess.run(["strip", "-o", bare, built], check=True)
    with pool_program(lambda *words: bare, layout) as one:
        sums, rows = made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        (pool,) = read_pools(one.pid).allocators
        _check_chunks(pool, sums, rows)
        assert (pool.class_name, pool.name) == ("", "the_pool_of_a_test")
        assert pool.kind == (ONNXRUNTIME if layout == 1320 else TENSORFLOW)
        one.ask("break", "vectors")
        with pytest.raises(TargetError, match="has no BFC allocator"):
            read_pools(one.pid)


@pytest.mark.parametrize("layout", cover([2024, 2026, 1320], lambda layout: layout == 2026))
def test_of_a_newer_chunk_sizes_and_states_are_read_and_the_rest_is_not_guessed(
    program: Program, layout: int
) -> None:
    with pool_program(lambda *words: program(*words, "-DNEWER=3"), layout) as one:
        sums, rows = made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        (pool,) = read_pools(one.pid).allocators
    assert "bfc-layout-new" in [notice.slug for notice in pool.notices]
    assert pool.chunks.tag is None and pool.chunks.stream is None and pool.chunks.owner is None
    _check_chunks(pool, sums, rows)


def test_before_and_after_its_life_there_is_no_pool(program: Program) -> None:
    with pool_program(program, 2024) as one:
        with pytest.raises(TargetError, match="has no BFC allocator"):
            read_pools(one.pid)
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        read_pools(one.pid)
        one.ask("destroy")
        with pytest.raises(TargetError, match="has no BFC allocator"):
            read_pools(one.pid)


@pytest.mark.parametrize("layout", cover(LAYOUTS, lambda layout: layout in (110, 2026)))
def test_a_pool_that_has_no_memory_yet_is_empty_not_unknown(program: Program, layout: int) -> None:
    with pool_program(program, layout) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 0, 9)
        (pool,) = read_pools(one.pid).allocators
    assert (pool.pool_bytes, pool.in_use_bytes, pool.limit_bytes) == (0, 0, 1 << 26)
    assert decide(pool, Request(1 << 20)).outcome == EXTENDS


@pytest.mark.slow
@pytest.mark.parametrize("layout", cover([2024, 2026], lambda layout: layout == 2026))
def test_a_million_chunks_are_walked_within_ten_seconds(program: Program, layout: int) -> None:
    with pool_program(program, layout) as one:
        assert one.ask("many", 1_000_000) == "made"
        before = time.process_time()
        (pool,) = read_pools(one.pid).allocators
        used = time.process_time() - before
    assert len(pool.chunks) == 1_000_000 and not pool.violations
    assert used < 10


def test_the_process_waits_for_milliseconds(program: Program) -> None:
    with pool_program(program, 2024) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 149, 9)
        seconds = read_pools(one.pid).pause_seconds
    assert seconds is not None
    assert seconds < 0.1 or os.getloadavg()[0] > 2
