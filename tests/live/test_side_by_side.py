"""Big files are read at once, one a processor: what comes of it is what reading them in turn would give."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gdbmem.formats.heap_profilers import heaptrack
from gdbmem.formats.opening import DEFAULT
from gdbmem.runs import operand
from gdbmem.runs.parallel import side_by_side

CAPTURES = Path(__file__).parent.parent / "captures/stacks"

_HERE = os.getpid()


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make four, and leave no process behind; orphans of other tests may have come to this one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    counted, others = threading.active_count, threading.active_count() - 1  # threads of what runs the tests
    monkeypatch.setattr(threading, "active_count", lambda: counted() - others)
    before = _children()
    yield
    assert _children() <= before


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def _pid_with(number: int) -> tuple[int, int]:
    return number, os.getpid()


def _fail(number: int) -> int:
    if number == 5:
        raise ValueError(f"task {number}, {'here' if os.getpid() == _HERE else 'elsewhere'}")
    return number


def _die_elsewhere(number: int) -> int:
    if os.getpid() != _HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _interrupt(number: int) -> int:
    if number == 0:
        raise KeyboardInterrupt
    signal.pause()
    return number


def test_results_stand_in_the_order_of_the_tasks_though_several_processes_made_them() -> None:
    found = side_by_side([partial(_pid_with, number) for number in range(10)])
    assert [number for number, _ in found] == list(range(10))
    assert len({pid for _, pid in found}) == 4


def test_an_error_elsewhere_is_raised_here_as_it_is() -> None:
    with pytest.raises(ValueError, match="task 5, here"):
        side_by_side([partial(_fail, number) for number in range(8)])


def test_a_process_that_is_killed_costs_time_but_no_result() -> None:
    assert side_by_side([partial(_die_elsewhere, number) for number in range(6)]) == list(range(6))


def test_no_process_stays_when_the_user_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt):
        side_by_side([partial(_interrupt, number) for number in range(4)])


def test_where_no_process_is_to_be_had_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    assert side_by_side([partial(_pid_with, number) for number in range(3)]) == [(n, _HERE) for n in range(3)]


def test_nothing_is_forked_beside_a_thread_whose_locks_would_stay_locked() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert {pid for _, pid in side_by_side([partial(_pid_with, n) for n in range(3)])} == {_HERE}
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("least, imports", [(1, 1), (1 << 30, 0)])
def test_a_pair_of_large_recordings_imports_numpy_once_not_in_each_process(
    least: int, imports: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[int] = []
    monkeypatch.setattr(operand, "has_numpy", lambda: imported.append(os.getpid()))
    monkeypatch.setattr(heaptrack, "NUMPY_FROM_BYTES", least)
    files = [str(CAPTURES / f"heaptrack.{name}.zst") for name in ("ls", "sort")]
    first, second = operand.load_all(files, DEFAULT)
    assert imported == [_HERE] * imports
    assert first.snapshot.totals.heap_bytes != second.snapshot.totals.heap_bytes
