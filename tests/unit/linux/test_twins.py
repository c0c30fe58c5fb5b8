"""Which mappings of a process and of one that it forked are twins, and which of their pages are copies."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from gdbmem.inspection import python_workers
from gdbmem.linux.memory.maps import (
    PAGE,
    ZERO,
    Mapping,
    Twin,
    are_twins,
    find_twins,
    open_pagemap,
    scan_pages,
)
from gdbmem.linux.memory.maps import PRESENT as PRESENT_KIND
from gdbmem.linux.memory.pagemap import Pages, PageSharing, same_pages

np = pytest.importorskip("numpy")
PRESENT, SWAPPED, FILE, ALONE = 1 << 63, 1 << 62, 1 << 61, 1 << 56


def mapping(
    start: int, end: int, name: str = "", *, inode: int = 0, offset: int = 0, permissions: str = "rw-p"
) -> Mapping:
    device = "fe:00" if inode else "00:00"
    return Mapping(start << 12, end << 12, permissions, offset << 12, device, inode, name, rss_bytes=4096)


def pages(*entries: int) -> Pages:
    return Pages(np.array(entries, np.uint64))


WHOLE = Twin(100 << 12, 104 << 12, mapping(100, 104), mapping(100, 104))


def test_memory_that_the_parent_allocated_below_and_above_after_the_fork_hides_no_twin() -> None:
    parent = [mapping(10, 40), mapping(50, 60, "[heap]")]
    child = [mapping(20, 30), mapping(35, 38), mapping(50, 55)]
    found = [(one.start >> 12, one.end >> 12) for one in find_twins(parent, child)]
    assert found == [(20, 30), (35, 38), (50, 55)]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (mapping(20, 40, "/lib/a.so (deleted)", inode=7, offset=14), True),
        (mapping(20, 40, "/lib/a.so", inode=7, offset=13), False),  # another part of the file
        (mapping(20, 40, "/lib/a.so", inode=8, offset=14), False),  # built again since
        (mapping(20, 40), False),
        (mapping(20, 40, "/lib/a.so", inode=7, offset=14, permissions="rw-s"), False),
    ],
)
def test_mappings_of_a_file_are_twins_by_the_file_and_its_part(other: Mapping, *, expected: bool) -> None:
    assert are_twins(mapping(10, 30, "/lib/a.so", inode=7, offset=4), other) is expected


def test_pages_are_the_same_by_their_frames_and_without_these_if_both_share_them() -> None:
    ours = pages(PRESENT | 1, PRESENT | 2, PRESENT | ALONE | 3, 0, PRESENT | 5)
    theirs = pages(PRESENT | 1, PRESENT | 9, PRESENT | ALONE | 4, PRESENT | 6, SWAPPED | 5)
    assert same_pages(ours, theirs).tolist() == [True, False, False, False, False]
    hidden = pages(PRESENT, PRESENT | ALONE, PRESENT, 0)
    beside = pages(PRESENT, PRESENT, PRESENT | ALONE, PRESENT)
    assert same_pages(hidden, beside).tolist() == [True, False, False, False]


def test_a_page_of_zeros_that_looking_has_mapped_in_the_parent_is_not_said_to_be_copied_by_its_child() -> (
    None
):
    with mmap.mmap(-1, 3 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        area[0] = 1
        assert area[PAGE] == 0
        array = (ctypes.c_char * len(area)).from_buffer(area)
        start = ctypes.addressof(array)
        descriptor = open_pagemap(os.getpid())
        try:
            zeros = list(
                scan_pages(descriptor, start, start + 3 * PAGE, without=0, required=PRESENT_KIND | ZERO)
            )
        except OSError:
            pytest.skip("this kernel does not tell pages of zeros")
        finally:
            os.close(descriptor)
        assert zeros == [(start + PAGE, start + 2 * PAGE)]
        with PageSharing(os.getpid()) as ours:
            assert ours.of(start, start + 3 * PAGE).present.tolist() == [True, False, False]
        del array


def test_a_page_that_the_parent_rewrote_is_one_copy_however_many_share_the_old_one() -> None:
    ours = pages(*(PRESENT | ALONE | frame for frame in (1, 2, 3)), PRESENT | 4)
    found = {}
    for pid, own in ((11, 21), (12, 22)):
        theirs = pages(PRESENT | 31, PRESENT | 32, PRESENT | ALONE | own, PRESENT | 4)
        found[pid] = python_workers._Copies()
        found[pid].add_piece(pid, WHOLE, 100, ours, theirs)
    family = python_workers.Family(1, [])
    python_workers._add_up(family, found)
    assert family.pages.tolist() == [100, 101, 102]
    assert family.copies.tolist() == [1, 1, 2]
    assert family.copied_in(101 << 12, 103 << 12) == 3 << 12
    assert family.copies_of(np.array([99, 102, 200])).tolist() == [0, 2, 0]
    worker = found[11].of(11)
    assert (worker.copied_bytes, worker.shared_bytes, worker.with_siblings_bytes) == (
        3 << 12,
        1 << 12,
        2 << 12,
    )


def test_what_both_may_have_allocated_since_the_fork_is_not_told_as_copied_for_certain() -> None:
    alone = PRESENT | ALONE
    # New memory was mapped below what was common; one page in between was copied.
    ours = pages(alone | 1, alone | 2, PRESENT | 3, alone | 4, PRESENT | 5)
    theirs = pages(alone | 6, alone | 7, PRESENT | 3, alone | 8, PRESENT | 5)
    for below, unsure in ((90, 2), (100, 0)):  # else both have grown by as much, or neither
        copies = python_workers._Copies()
        twin = Twin(100 << 12, 105 << 12, mapping(below, 105), mapping(100, 105))
        copies.add_piece(9, twin, 100, ours, theirs)
        assert copies.of(9).copied_bytes == 3 << 12
        assert copies.of(9).uncertain_bytes == unsure << 12
