"""Files of /proc, read from texts and from this process."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from gdbmem.linux.memory import maps
from gdbmem.linux.memory.maps import FILE, parse_rss, scan_resident
from gdbmem.linux.memory.resident import (
    PAGE_BYTES,
    Exactness,
    ProcessMemory,
    Statm,
    error_pages,
    fresh_pages,
    parse_parts,
    parse_statm,
)
from gdbmem.linux.process.threads import Activity, parse_syscall, ran_between

SMAPS = b"""00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a [heap] b
Rss:                 128 kB
Pss:                  64 kB
0153d000-0155e000 rw-p 00000000 00:00 0              [heap]
Rss:                  12 kB
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
Rss:                   8 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0      [stack]
Rss:                  16 kB
7ffd000f0000-7ffd000f4000 r--p 00000000 00:00 0      [vvar]
Rss:                   4 kB
"""


def test_statm_is_read_in_pages_and_a_strange_text_is_no_number() -> None:
    assert parse_statm(b"5 3 2 1 0 9 0\n") == Statm(5 * PAGE_BYTES, 3 * PAGE_BYTES, 2 * PAGE_BYTES)
    assert parse_statm(b"") is None and parse_statm(b"a b c") is None


def test_the_parts_of_smaps_add_up_to_its_rss() -> None:
    parts = parse_parts(SMAPS)
    assert parts == {"heap": 12288, "mmap": 8192, "stack": 16384, "file": 131072, "other": 4096}
    assert sum(parts.values()) == parse_rss(SMAPS)
    assert parse_rss(b"") is None


def test_a_page_that_is_touched_counts_in_every_source() -> None:
    memory = ProcessMemory(os.getpid())
    area = mmap.mmap(-1, 300 * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.parts(), memory.present_bytes(), memory.rollup_bytes()
    before = (memory.rollup_bytes() or 0, memory.present_bytes() or 0)
    for page in range(300):
        area[page * PAGE_BYTES] = 1
    after = (memory.rollup_bytes() or 0, memory.present_bytes() or 0)
    assert after[0] - before[0] >= 300 * PAGE_BYTES and after[1] - before[1] >= 300 * PAGE_BYTES
    memory.close()


@pytest.mark.slow
def test_smaps_is_exact_wherever_this_runs() -> None:
    memory = ProcessMemory(os.getpid())
    # Meanwhile Python itself, or another thread of pytest's, may touch or return pages.
    assert any(error_pages(memory.rollup_bytes, fresh_pages(200)) == 0 for _ in range(10))
    memory.close()


def test_a_counter_that_lags_behind_is_not_called_exact() -> None:
    readings = iter([PAGE_BYTES * (64 * (number // 64)) for number in range(1000)])
    assert error_pages(lambda: next(readings), fresh_pages(200)) == 63
    assert error_pages(lambda: None, fresh_pages(200)) == -1
    assert not Exactness(statm_error_pages=63, zero_pages_counted=True).statm_is_exact


def test_a_sleep_in_a_call_is_distinguished_from_running_and_from_a_mere_sleep() -> None:
    waiting = parse_syscall("202 0x55 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x7f01")
    assert waiting is not None and waiting.argument == 0x55 and waiting.stack_pointer == 0x7FFE
    assert parse_syscall("running\n") is None and parse_syscall("-1 0x7ffe 0x7f01") is None


def test_a_thread_that_only_went_on_waiting_did_not_run() -> None:
    wait, other = "202 0x1 0x0 0x0 0x0 0x0 0x0 0x7f 0x70", "202 0x2 0x0 0x0 0x0 0x0 0x0 0x7f 0x70"
    sleep, again = "230 0x1 0x0 0x0 0x0 0x0 0x0 0x7f 0x70", "219 0x1 0x0 0x0 0x0 0x0 0x0 0x7f 0x70"
    before = {1: Activity(10, wait), 2: Activity(10, wait), 3: Activity(10, wait), 4: Activity(5, wait)}
    after = {1: Activity(12, wait), 2: Activity(13, wait), 3: Activity(12, other), 5: Activity(1, wait)}
    assert ran_between(before, after) == [2, 3, 4, 5]
    assert ran_between({1: Activity(10, wait, faults=7)}, {1: Activity(12, wait, faults=8)}) == [1]
    if os.uname().machine == "x86_64":
        assert ran_between({1: Activity(1, sleep)}, {1: Activity(3, again)}) == []
        assert ran_between({1: Activity(1, sleep)}, {1: Activity(3, sleep)}) == [1]


def test_the_kernel_is_not_asked_what_each_page_belongs_to_where_only_its_presence_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def scan(_: int, request: int, arguments: maps._ScanArguments) -> int:
        kinds = (arguments.category_mask, arguments.category_anyof_mask, arguments.return_mask)
        asked.append(kinds[0] | kinds[1] | kinds[2])
        arguments.walk_end = arguments.end
        return 0

    monkeypatch.setattr("gdbmem.linux.memory.maps.fcntl.ioctl", scan)
    assert scan_resident(os.getpid(), [(0, 1 << 40)]) is not None
    assert asked and not any(kinds & FILE for kinds in asked)


def test_pages_between_two_areas_that_are_scanned_at_once_are_not_counted() -> None:
    with mmap.mmap(-1, 8 * PAGE_BYTES) as area:
        for page in range(8):
            area[page * PAGE_BYTES] = 1
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        ends = [
            (start + low * PAGE_BYTES, start + high * PAGE_BYTES) for low, high in ((0, 1), (3, 5), (7, 8))
        ]
        present = scan_resident(os.getpid(), ends)
    if present is None:
        pytest.skip("this kernel has no PAGEMAP_SCAN")
    assert present.items == ends
