"""Which thread of a process has page faults."""

from __future__ import annotations

import mmap
import os

import pytest

from gdbmem.linux.process import threads
from gdbmem.linux.process.threads import ThreadFaults


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
    assert before.most_since() == os.getpid()
