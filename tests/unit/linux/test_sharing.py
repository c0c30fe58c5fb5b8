"""A change of the resident set, divided among the threads that ran."""

from __future__ import annotations

import mmap
import os
import threading

from gdbmem.linux.memory.resident import PAGE_BYTES, ProcessMemory
from gdbmem.linux.memory.thread_shares import Part, Sharing, divide
from gdbmem.linux.process.threads import page_faults

PAGE = PAGE_BYTES


def divided(change: int, own: int, everybody: int, *, gave_back: int = 0, all_gave_back: int = 0) -> Part:
    return divide(
        change * PAGE,
        own_faults=own,
        faults=everybody,
        own_released=gave_back * PAGE,
        released=all_gave_back * PAGE,
        sees_releases=True,
    )


def test_what_others_took_is_not_charged_to_the_thread() -> None:
    assert divided(30, 10, 30) == Part(10 * PAGE, 20 * PAGE, is_exact=True)


def test_what_nobody_else_can_have_taken_is_its_own_to_the_page() -> None:
    # 16 pages of a file come with one fault, and a huge page too.
    assert divided(16, 1, 1) == Part(16 * PAGE, 0, is_exact=True)


def test_a_release_is_charged_to_the_thread_that_made_it() -> None:
    assert divided(0, 0, 10, gave_back=10, all_gave_back=10) == Part(-10 * PAGE, 10 * PAGE, is_exact=True)
    assert divided(0, 10, 10, all_gave_back=10) == Part(10 * PAGE, -10 * PAGE, is_exact=True)


def test_a_thread_that_did_nothing_is_not_charged_for_a_release_that_came_late() -> None:
    assert divided(-10, 0, 0) == Part(0, -10 * PAGE, is_exact=True)


def test_where_faults_and_pages_disagree_the_division_is_doubtful() -> None:
    assert not divided(10, 10, 30).is_exact


def test_the_parts_of_two_threads_of_this_process_are_what_each_touched() -> None:
    pid = os.getpid()
    sharing = Sharing(ProcessMemory(pid).resident_bytes, pid, lambda: False)
    go, done = threading.Event(), threading.Event()
    areas = [mmap.mmap(-1, 600 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2)]
    for area in areas:
        area.madvise(mmap.MADV_NOHUGEPAGE)

    def touch(area: mmap.mmap, pages: int) -> None:
        for number in range(pages):
            area[number * PAGE] = 1

    def other() -> None:
        go.wait()
        touch(areas[1], 600)
        done.set()
        go.clear()
        go.wait()

    thread = threading.Thread(target=other)
    thread.start()
    own = threading.get_native_id()
    assert sharing.part(own) is None
    touch(areas[0], 100)
    go.set()
    done.wait()
    part = sharing.part(own)
    go.set()
    thread.join()
    assert part is not None and part.own_bytes + part.others_bytes >= 700 * PAGE
    assert 100 * PAGE <= part.own_bytes < 120 * PAGE  # and some of Python's own


def test_the_faults_of_a_process_that_has_gone_are_unknown() -> None:
    assert page_faults(1 << 30) is None
    assert (page_faults(os.getpid()) or 0) >= (page_faults(os.getpid(), os.getpid()) or 0) > 0
