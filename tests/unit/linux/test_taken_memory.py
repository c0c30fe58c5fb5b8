"""The memory that was taken from a process: its contents of that moment, whatever it writes afterwards."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.linux.memory.process_memory import ProcMemory, TakenMemory
from gdbmem.model.memory import Buffer, MemoryUnreadable

PAGES = 64


@pytest.fixture
def area() -> Iterator[tuple[int, memoryview]]:
    memory = mmap.mmap(-1, PAGES * PAGE)
    for number in range(PAGES):
        memory[number * PAGE : (number + 1) * PAGE] = bytes([number + 1]) * PAGE
    view = memoryview(memory)
    yield ctypes.addressof(ctypes.c_char.from_buffer(memory)), view
    view.release()


@pytest.mark.parametrize("expected", [PAGES * PAGE, 0])
def test_what_was_taken_stays_and_the_rest_is_read_later(area: tuple[int, memoryview], expected: int) -> None:
    start, view = area
    pages = [(start + n * PAGE, start + (n + 1) * PAGE) for n in range(0, PAGES // 2, 2)]
    blank = Ranges([(start + PAGE, start + PAGES // 4 * PAGE)])
    with ProcMemory(os.getpid()) as memory:
        taken = TakenMemory(memory, expected)
        taken.take(Ranges(pages), blank, lambda: None)
        view[:] = bytes([255]) * len(view)
        whole = taken.read(start, len(view))
        for number in range(PAGES):
            page = whole[number * PAGE : (number + 1) * PAGE]
            wanted = 255
            if number < PAGES // 2 and number % 2 == 0:
                wanted = number + 1
            elif 0 < number < PAGES // 4:
                wanted = 0
            assert page == bytes([wanted]) * PAGE, number
            assert taken.read(start + number * PAGE + 8, PAGE - 16) == page[8:-8]
        across = taken.read(start + 2 * PAGE - 5, 10)
        assert across == bytes(5) + bytes([3]) * 5
        with pytest.raises(MemoryUnreadable):
            taken.read(8, 8)
        with pytest.raises(MemoryUnreadable):
            taken.read(start, 1 << 60)


def test_a_page_that_can_not_be_read_is_left_out(area: tuple[int, memoryview]) -> None:
    start, _ = area
    with ProcMemory(os.getpid()) as memory:
        taken = TakenMemory(memory, 0)
        taken.take(Ranges([(PAGE, 2 * PAGE), (start, start + PAGE)]), Ranges(), lambda: None)
        assert taken.read(start, 3) == bytes([1, 1, 1])
        with pytest.raises(MemoryUnreadable):
            taken.read(PAGE, 8)


class Meeting:
    """A memory that is read only if two threads read it at the same time; *address* can't be read."""

    def __init__(self, address: int = 0) -> None:
        self.together, self.address = threading.Barrier(2, timeout=20), address

    def read(self, address: int, size: int) -> bytes:
        raise MemoryUnreadable(address)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self.together.wait()
        if address == self.address:
            raise MemoryUnreadable(address)
        memoryview(buffer).cast("B")[:8] = address.to_bytes(8, "little")


def test_a_process_is_not_held_longer_because_one_processor_takes_all_of_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    begin, size, absent = 1 << 30, 4 << 20, (1 << 30) + (8 << 20)
    taken = TakenMemory(Meeting(absent), 0)
    taken.take(Ranges([(begin, begin + 4 * size)]), Ranges(), lambda: None)
    for address in range(begin, begin + 4 * size, size):
        if address != absent:
            assert taken.read(address, 8) == address.to_bytes(8, "little")


def test_taking_too_long_ends_all_threads_that_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    before, is_checked = threading.active_count(), threading.Event()

    def check() -> None:
        is_checked.set()
        raise TimeoutError

    class Slow:
        def read_into(self, address: int, piece: memoryview) -> None:
            assert is_checked.wait(60)

    with pytest.raises(TimeoutError):
        taken = TakenMemory(cast(ProcMemory, Slow()), 0)
        taken.take(Ranges([(1 << 46, (1 << 46) + (64 << 20))]), Ranges(), check)
    assert threading.active_count() == before
