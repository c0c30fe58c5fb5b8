"""The model of a BFC pool: sums, bins, and what is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gdbmem.model.bfc import FREE, IN_USE, PENDING, UNKNOWN, Counters, Region, bin_of
from tests.unit.built_pools import pool


def test_what_a_free_chunk_was_once_asked_for_is_not_summed() -> None:
    one = pool((1024, 1000, IN_USE), (512, 500, FREE), (256, 3, IN_USE))
    one.check()
    assert (one.in_use_bytes, one.requested_bytes, one.free_bytes) == (1280, 1003, 512)


def test_an_unknown_request_makes_the_sum_unknown_not_smaller() -> None:
    assert pool((1024, UNKNOWN, IN_USE), (256, 3, IN_USE)).requested_bytes is None


def test_a_chunk_that_the_device_still_uses_is_neither_free_nor_in_use() -> None:
    one = pool((1024, 1000, PENDING), (512, 500, FREE))
    assert (one.in_use_bytes, one.pending_bytes, one.free_bytes) == (0, 1024, 512)
    assert not list(one.idle_regions())


def test_the_fragmentation_of_a_full_pool_is_unknown_not_zero() -> None:
    assert pool((1024, 1000, IN_USE)).fragmentation is None
    assert pool((768, 0, FREE), (256, 1, IN_USE), (256, 0, FREE)).fragmentation == 0.25


@pytest.mark.parametrize(
    ("size", "number"), [(0, 0), (256, 0), (511, 0), (512, 1), (1 << 28, 20), (1 << 40, 20), (1071461, 12)]
)
def test_sizes_go_into_the_allocators_own_bins(size: int, number: int) -> None:
    assert bin_of(size) == number


def test_bins_hold_every_chunk_once() -> None:
    bins = pool((1024, 1000, IN_USE), (512, 500, FREE), (768, 3, IN_USE)).bins()
    assert (bins[1].in_use, bins[1].in_use_bytes, bins[1].free, bins[1].free_bytes) == (1, 768, 1, 512)
    assert sum(one.in_use + one.free for one in bins) == 3


def test_where_chunks_are_missing_the_allocators_own_count_stands() -> None:
    cut = replace(
        pool((1024, 1000, IN_USE)), is_complete=False, counters=Counters(in_use_bytes=4096, pool_bytes=8192)
    )
    assert (cut.in_use_bytes, cut.pool_bytes) == (4096, 8192)


def test_regions_that_lose_a_chunk_are_an_error() -> None:
    one = pool((1024, 1000, IN_USE), (512, 500, FREE))
    with pytest.raises(ValueError, match="the regions have 1 chunks of 2"):
        replace(one, regions=[Region(0x10000, 1024, 0, 1)]).check()
