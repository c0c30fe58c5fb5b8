"""Which thread of a process has page faults."""

from __future__ import annotations

import mmap
import os

import pytest

from gdbmem.linux.process import threads
from gdbmem.linux.process.threads import Grower, SizeLimit, ThreadFaults


def _touch(pages: int) -> None:
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as area:
        for at in range(0, len(area), mmap.PAGESIZE):
            area[at] = 1


def test_growth_of_a_living_thread_is_not_said_to_be_of_one_that_has_ended_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_thread = threads.faults_by_thread

    def preempted(pid: int) -> dict[int, int]:
        counts = by_thread(pid)
        _touch(1000)  # while the reader of the counts waits for a processor
        return counts

    before = ThreadFaults(os.getpid())
    _touch(10)
    monkeypatch.setattr(threads, "faults_by_thread", preempted)
    assert before.most_since() == Grower(os.getpid(), has_ended=False)


def test_a_limit_passed_just_before_page_faults_were_counted_names_its_thread() -> None:
    size_bytes = 10

    def size() -> int:
        return size_bytes

    for samples in range(1, 60):
        size_bytes = 0
        watch = SizeLimit(os.getpid(), size, 100)
        for _ in range(samples):
            assert not watch.is_past()
        _touch(1)
        size_bytes = 101
        assert watch.is_past() and watch.grower == Grower(os.getpid(), has_ended=False), samples


def test_a_limit_passed_without_page_faults_is_not_charged_to_an_ended_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "faults_by_thread", lambda _pid: {1: 7})
    monkeypatch.setattr(threads, "page_faults", lambda _pid, _tid=None: 7)
    assert ThreadFaults(1).most_since() == Grower(None, has_ended=False)
