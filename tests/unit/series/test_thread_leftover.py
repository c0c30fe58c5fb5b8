"""Threads are blamed for what they leave behind only where the data proves it."""

from __future__ import annotations

import random

import pytest

from gdbmem.series.levelling import left_by_each
from tests.series_set import KIB, MIB

Points = list[tuple[float, float]]


def churn(left: float, leak: float, *, always: bool = False) -> tuple[Points, Points]:
    """Return memory, and threads started, 20 a second in every other ten seconds; *left* and *leak* are bytes."""
    rng = random.Random(1)
    started, memory, count = [], [], 0
    for number in range(600):
        t = 0.2 * number
        count += 4 if always or int(t / 10) % 2 else 0
        started.append((t, float(count)))
        memory.append((t, 50 * MIB + left * count + leak * t + rng.gauss(0, 4 * KIB)))
    return memory, started


def test_memory_that_grows_with_each_thread_started_and_only_then_is_left_by_threads() -> None:
    assert left_by_each(*churn(12 * KIB, 0)) == pytest.approx(12 * KIB, rel=0.05)


def test_threads_that_are_counted_in_one_sample_of_15_are_charged_with_what_they_leave() -> None:
    memory, started = churn(12 * KIB, 0)
    assert left_by_each(memory, started[13::15]) == pytest.approx(12 * KIB, rel=0.05)


def test_a_leak_that_goes_on_while_no_thread_is_started_is_not_blamed_on_threads() -> None:
    assert left_by_each(*churn(0, 200 * KIB)) is None
    assert left_by_each(*churn(12 * KIB, 200 * KIB)) is None


def test_threads_that_are_started_all_the_time_prove_nothing() -> None:
    assert left_by_each(*churn(12 * KIB, 0, always=True)) is None


def test_threads_that_leave_nothing_and_no_threads_are_not_blamed() -> None:
    assert left_by_each(*churn(0, 0)) is None
    assert left_by_each(churn(0, 0)[0], []) is None
