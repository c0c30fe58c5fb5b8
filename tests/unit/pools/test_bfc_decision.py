"""The outcome of a request to an allocator, by the rules of the published design."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Optional

import pytest

from gdbmem.model.bfc import (
    ALIGNMENT,
    DEVICE,
    EXTENDS,
    FAILS,
    FITS,
    FRAGMENTATION,
    FREE,
    FULL,
    GAP,
    IDLE_REGIONS,
    IN_USE,
    LOWER,
    NOTHING,
    ONNXRUNTIME,
    OTHER_END,
    OTHER_STREAM,
    TENSORFLOW,
    UNDECIDED,
    UPPER,
    Advice,
    Allocator,
    Chunks,
    Options,
    Region,
)
from gdbmem.pools.decision import Request, decide
from gdbmem.pools.explanation import headline, with_advice
from tests.unit.built_pools import pool

MIB = 1 << 20


def full(*chunks: tuple[int, int, int]) -> Allocator:
    """Return a pool that has reached its limit."""
    one = pool(*chunks)
    return replace(
        one, limit_bytes=one.pool_bytes, options=Options(allow_growth=False, next_region_bytes=MIB)
    )


def growing(limit: Optional[int], **options: object) -> Allocator:
    """Return a pool of 1 MiB that is in use, and may grow."""
    one = pool((MIB, MIB, IN_USE))
    return replace(one, limit_bytes=limit, options=Options(allow_growth=True, **options))  # type: ignore[arg-type]


def test_the_story_of_a_fragmented_pool_is_reported_in_one_sentence() -> None:
    used = [(4 * MIB, 4 * MIB, IN_USE)]
    one = full(
        (14 * MIB, 0, FREE), *used, (2 * MIB, 0, FREE), *used, (6 * MIB, 0, FREE), (264 * MIB, MIB, IN_USE)
    )
    decision = decide(one, Request(22 * MIB))
    assert (decision.outcome, decision.cause) == (FAILS, FRAGMENTATION)
    assert headline(one, decision) == (
        "294.0 MiB limit, 272.0 MiB in use, 22.0 MiB free in 3 pieces, the largest 14.0 MiB: a request of 22.0 MiB"
        " fails by fragmentation; freeing these 2 chunks of 4.0 MiB would be enough"
    )
    assert decision.obstacle is not None
    assert [one.chunks.size[index] for index in decision.obstacle.in_use] == [4 * MIB, 4 * MIB]


def test_nothing_is_asked_for_and_nothing_is_searched() -> None:
    assert decide(full((256, 0, FREE)), Request(0)).outcome == NOTHING


def test_the_smallest_chunk_that_fits_is_taken_the_first_of_equals() -> None:
    one = full((8192, 0, FREE), (256, 1, IN_USE), (4096, 0, FREE), (256, 1, IN_USE), (4096, 0, FREE))
    assert decide(one, Request(4000)).chunk == 2
    assert decide(one, Request(4097)).chunk == 0


@pytest.mark.parametrize(
    ("size", "asked", "is_split", "taken"),
    [(1024, 512, True, 512), (1024, 513, False, 1024), (200 * MIB, 72 * MIB, True, 72 * MIB)],
)
def test_a_chunk_is_split_from_twice_the_size_or_128_mib_on(
    size: int, asked: int, is_split: bool, taken: int
) -> None:
    decision = decide(full((size, 0, FREE)), Request(asked))
    assert (decision.outcome, decision.is_split, decision.taken_bytes) == (FITS, is_split, taken)


def test_what_is_below_twice_the_size_is_wasted_and_reported() -> None:
    one = full((97844992, 0, FREE))
    decision = decide(one, Request(50 * MIB))
    assert decision.wasted_bytes == 97844992 - 50 * MIB
    assert "43.3 MiB of it stay unused" in headline(one, decision)


def test_a_pool_grows_by_its_next_region_doubled_as_often_as_needed() -> None:
    decision = decide(growing(1 << 40, next_region_bytes=2 * MIB), Request(5 * MIB))
    assert (decision.outcome, decision.extends_bytes) == (EXTENDS, 8 * MIB)
    assert decision.retries[0] == 7549952  # RoundedBytes(0.9f * 8 MiB), as the allocator has it
    assert decision.retries[-1] >= 5 * MIB


def test_the_limit_cuts_the_next_region() -> None:
    assert decide(growing(6 * MIB + 100, next_region_bytes=8 * MIB), Request(MIB)).extends_bytes == 5 * MIB


def test_an_old_allocator_that_once_went_back_tries_one_size_only() -> None:
    old = growing(1 << 40, next_region_bytes=8 * MIB, backpedals_once=True, started_backpedal=True)
    assert list(decide(old, Request(MIB)).retries) == []


def test_a_small_region_that_the_device_refuses_comes_to_an_end() -> None:
    one = growing(1 << 40, next_region_bytes=2560)
    assert list(decide(one, Request(256)).retries) == list(range(2304, 0, -256))
    assert list(decide(replace(one, kind=ONNXRUNTIME), Request(256)).retries) == []


def test_where_the_limit_leaves_room_it_was_the_device_that_refused() -> None:
    decision = decide(growing(1 << 30, next_region_bytes=2 * MIB), Request(5 * MIB, has_failed=True))
    assert (decision.outcome, decision.cause) == (FAILS, DEVICE)


def test_without_a_known_limit_nothing_is_claimed() -> None:
    assert decide(growing(None), Request(5 * MIB)).outcome == UNDECIDED


def test_a_full_pool_is_not_called_fragmented() -> None:
    one = full((4 * MIB, MIB, IN_USE), (MIB, 0, FREE))
    decision = with_advice(one, decide(one, Request(2 * MIB)), Request(2 * MIB))
    assert (decision.outcome, decision.cause) == (FAILS, FULL)
    assert {advice.slug for advice in decision.advice} == {"smaller-request", "limit", "internal-waste"}


def advice_of(one: Allocator, request: Request) -> dict[str, Advice]:
    """Return the advice on a request that fails, by its name."""
    return {advice.slug: advice for advice in with_advice(one, decide(one, request), request).advice}


def test_the_largest_request_that_does_not_fail_is_named_if_it_is_near() -> None:
    one = full((14 * MIB, 0, FREE), (MIB, MIB, IN_USE), (6 * MIB, 0, FREE))
    found = advice_of(one, Request(16 * MIB))["smaller-request"]
    assert found.is_tried and found.text.startswith("a request of at most 14.0 MiB, 2.0 MiB less")
    assert decide(one, Request(14 * MIB)).outcome == FITS
    assert "smaller-request" not in advice_of(one, Request(100 * MIB))  # another thing altogether


def test_waste_is_named_where_it_is_what_lacks() -> None:
    one = full((10 * MIB, 7 * MIB, IN_USE), (6 * MIB, 0, FREE))
    assert "internal-waste" in advice_of(one, Request(8 * MIB))  # 2 MiB lack, 3 MiB are wasted
    assert "internal-waste" not in advice_of(one, Request(10 * MIB))


def two_regions(name: str, kind: str = TENSORFLOW) -> Allocator:
    """Return a pool that may hold no more than its two regions of 8 MiB, in each of which 1 MiB is in use."""
    sizes, states = array("Q", [MIB, 7 * MIB, MIB, 7 * MIB]), bytes((IN_USE, FREE, IN_USE, FREE))
    addresses = array("Q", [1 << 30, (1 << 30) + MIB, 1 << 31, (1 << 31) + MIB])
    chunks = Chunks(addresses, sizes, states, requested=array("q", [MIB, 0, MIB, 0]))
    regions = [Region(1 << 30, 8 * MIB, 0, 2), Region(1 << 31, 8 * MIB, 2, 2)]
    options = Options(allow_growth=True, next_region_bytes=MIB)
    base = replace(pool((256, 1, IN_USE)), name=name, kind=kind, chunks=chunks, regions=regions)
    return replace(base, limit_bytes=16 * MIB, options=options)


@pytest.mark.parametrize(
    ("name", "kind", "setting"),
    [
        ("GPU_0_bfc", TENSORFLOW, "XLA_PYTHON_CLIENT_PREALLOCATE"),
        ("Cuda", ONNXRUNTIME, "initial_chunk_size_bytes"),
    ],
)
def test_one_region_is_advised_where_what_is_in_use_would_leave_room_in_it(
    name: str, kind: str, setting: str
) -> None:
    one = two_regions(name, kind)
    found = advice_of(one, Request(10 * MIB))["allow-growth"]
    assert setting in found.text and not found.is_tried  # the best case of it
    assert "allow-growth" not in advice_of(one, Request(15 * MIB))
    assert "allow-growth" not in advice_of(two_regions("bfc_cpu_allocator_for_gpu"), Request(10 * MIB))
    grown = replace(one, options=one.options._replace(allow_growth=False))
    assert "allow-growth" not in advice_of(grown, Request(10 * MIB))


def test_a_limit_of_a_gpu_comes_with_how_it_is_made_and_its_fraction_of_the_device() -> None:
    one = two_regions("GPU_0_bfc")
    text = advice_of(one, Request(10 * MIB))["limit"].text
    assert "TF_DEVICE_MIN_SYS_MEMORY_IN_MB" in text and "fraction=" not in text
    text = advice_of(one, Request(10 * MIB, device_bytes=40 * MIB))["limit"].text
    assert "fraction=0.65 of the device" in text
    assert (
        "more than the device has" in advice_of(one, Request(10 * MIB, device_bytes=20 * MIB))["limit"].text
    )


def test_an_alignment_needs_room_where_it_is_honoured() -> None:
    one = full((256, 1, IN_USE), (1024, 0, FREE))
    assert decide(one, Request(1024, alignment=4096)).outcome == FITS
    one = replace(one, options=one.options._replace(honours_alignment=True))
    assert decide(one, Request(1024, alignment=4096)).cause == ALIGNMENT


def test_chunks_of_the_other_end_are_not_taken_and_the_gap_is_last() -> None:
    one = full((1024, 0, FREE), (256, 1, IN_USE), (4096, 0, FREE), (2048, 0, FREE))
    one = replace(one, chunks=replace(one.chunks, tag=bytes((LOWER, LOWER, GAP, UPPER))))
    assert decide(one, Request(1024)).chunk == 0
    decision = decide(one, Request(2048 + 1))
    assert (decision.chunk, decision.is_split, decision.taken_bytes) == (2, False, 4096)
    decision = decide(one, Request(2048 + 1, end=UPPER))  # which never takes more than it needs
    assert (decision.chunk, decision.is_split, decision.taken_bytes) == (2, True, 2304)
    no_gap = replace(one, chunks=replace(one.chunks, tag=bytes((LOWER, LOWER, LOWER, UPPER))))
    assert decide(no_gap, Request(4096, end=UPPER)).cause == OTHER_END


def test_free_neighbours_of_two_streams_do_not_add_up() -> None:
    one = full((1024, 0, FREE), (1024, 0, FREE))
    one = replace(one, chunks=replace(one.chunks, stream=array("Q", [7, 8])))
    assert decide(one, Request(2048, stream=7)).cause == OTHER_STREAM
    assert decide(one, Request(1024, stream=8)).chunk == 1


def test_chunks_that_wait_for_the_device_are_merged_before_it_fails() -> None:
    one = full((1024, 0, FREE), (1024, 0, FREE))
    one = replace(one, chunks=replace(one.chunks, freed_at=array("Q", [7, 8])))
    decision = decide(one, Request(2048))
    assert (decision.outcome, decision.chunk) == (FITS, None)


def test_a_pool_that_would_grow_may_first_merge_what_the_device_has_finished_with() -> None:
    one = replace(
        full((1024, 0, FREE), (1024, 0, FREE)), limit_bytes=MIB, options=Options(next_region_bytes=4096)
    )
    assert len(decide(one, Request(2048)).steps) == 2
    one = replace(one, chunks=replace(one.chunks, freed_at=array("Q", [7, 0])))
    decision = decide(one, Request(2048))
    assert decision.outcome == EXTENDS
    assert decision.steps[-1].endswith("these are merged first, into one of 2.0 KiB")


def two_idle_regions() -> Allocator:
    columns = Chunks(array("Q", [0x10000, 0x90000]), array("Q", [4096, 4096]), bytes((FREE, FREE)))
    regions = [Region(0x10000, 4096, 0, 1), Region(0x90000, 4096, 1, 1)]
    options = Options(allow_growth=True, next_region_bytes=4096, garbage_collection=False)
    return replace(pool((256, 1, IN_USE)), chunks=columns, regions=regions, limit_bytes=8192, options=options)


def test_idle_regions_do_not_join_and_collecting_them_is_tried_before_it_is_advised() -> None:
    one = two_idle_regions()
    decision = with_advice(one, decide(one, Request(8192)), Request(8192))
    assert (decision.outcome, decision.cause) == (FAILS, IDLE_REGIONS)
    assert [advice.slug for advice in decision.advice if advice.is_tried] == [
        "smaller-request",
        "garbage-collection",
        "limit",
    ]
    collecting = replace(one, options=one.options._replace(garbage_collection=True))
    decision = decide(collecting, Request(8192))
    assert (decision.outcome, decision.extends_bytes, decision.gives_back_bytes) == (EXTENDS, 8192, 8192)


def test_where_chunks_are_missing_the_cause_of_a_failure_is_not_guessed() -> None:
    one = replace(full((1024, 1, IN_USE)), is_complete=False)
    decision = decide(one, Request(2048, has_failed=True))
    assert (decision.outcome, decision.cause) == (FAILS, "")
    assert decide(one, Request(2048)).outcome == UNDECIDED
