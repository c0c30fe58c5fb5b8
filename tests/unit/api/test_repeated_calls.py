"""The judgement on calls of a marked test: no memory that an allocator had free may hide what they keep."""

from __future__ import annotations

import pytest

from gdbmem.api.ledgers import _signed, malloc_count
from gdbmem.api.pytest_plugin import GrowthOfCalls, MeasuredCalls, judged
from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET

KIB = 1024
NOTHING = GrowthOfCalls([0] * 5)
HEALTHY = MeasuredCalls("rss", NOTHING, in_use=NOTHING, reused=NOTHING, python_blocks=NOTHING)


def each(size: int) -> GrowthOfCalls:
    return GrowthOfCalls([size] * 5)


def test_calls_that_keep_nothing_pass_and_a_leak_into_free_memory_does_not() -> None:
    assert judged(HEALTHY, 0).judged == MET
    leak = HEALTHY._replace(in_use=each(976 * KIB), reused=each(976 * KIB))
    assert judged(leak, 100 * KIB).judged == NOT_MET
    assert judged(leak, 1000 * KIB).judged == MET


def test_what_the_process_grew_by_is_not_said_to_have_been_free_before_where_another_count_is_steadier() -> (
    None
):
    grown = HEALTHY._replace(size=GrowthOfCalls([5100 * KIB, 5000 * KIB] * 2), traced=each(5000 * KIB))
    assert "each call adds +4.9 MiB" in judged(grown, KIB).sentence
    partly = grown._replace(size=each(500 * KIB))
    assert "each call keeps +4.9 MiB" in judged(partly, KIB).sentence


def test_halves_of_a_leak_that_only_together_exceed_the_limit_do_not_pass() -> None:
    halves = HEALTHY._replace(size=each(60 * KIB), in_use=each(60 * KIB), reused=each(60 * KIB))
    assert judged(halves, 100 * KIB).judged == NOT_JUDGED
    fresh = halves._replace(reused=NOTHING)  # the blocks lie in memory that made the process bigger
    assert judged(fresh, 100 * KIB).judged == MET


def test_a_malloc_without_a_count_is_not_judged_and_tracemalloc_is_named() -> None:
    uncounted = judged(HEALTHY._replace(in_use=None, reused=None), 100 * KIB)
    assert uncounted.judged == NOT_JUDGED
    assert "backend='tracemalloc'" in uncounted.sentence
    assert judged(MeasuredCalls("tracemalloc", NOTHING), 100 * KIB).judged == MET


@pytest.mark.parametrize(("blocks", "judgement"), [(-3, MET), (100, MET), (201, NOT_JUDGED)])
def test_blocks_of_python_hide_at_most_their_largest_size(blocks: int, judgement: str) -> None:
    assert judged(HEALTHY._replace(python_blocks=each(blocks)), 100 * KIB).judged == judgement


def test_blocks_of_python_hide_no_more_than_was_traced() -> None:
    some = HEALTHY._replace(python_blocks=each(2000))
    assert judged(some._replace(traced=each(70 * KIB)), 100 * KIB).judged == MET
    assert judged(some._replace(traced=each(70 * KIB), size=each(70 * KIB)), 100 * KIB).judged == NOT_JUDGED
    assert judged(some._replace(traced=each(170 * KIB)), 100 * KIB).judged == NOT_MET


def test_the_malloc_of_this_process_counts_a_block_that_is_handed_out() -> None:
    count = malloc_count()
    assert count is not None
    before = count().in_use
    block = bytearray(60_000)
    assert count().in_use - before >= len(block)


def test_counts_of_32_bits_may_wrap_between_two_readings() -> None:
    assert _signed(5 - 0xFFFFFFF0) == 21
    assert _signed(0xFFFFFFF0 - 5) == -21
