"""What a function that is called in a copy of a process may ask the kernel: nothing that reaches beyond the copy."""

from __future__ import annotations

import platform

import pytest

from gdbmem.linux.holding.running_copy import filter_rows
from gdbmem.linux.holding.seccomp import _answers

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the numbers of calls are those of x86-64"
)

FAILS, ALLOWED, ENDS = 0x00050000, 0x7FFF0000, 0x00030000
MADVISE, MMAP, MUNMAP, FUTEX = 28, 9, 11, 202
WRITE, OPENAT, PRCTL = 1, 257, 157
LAST = 500


def test_a_call_manages_memory_or_fails_or_ends_the_function() -> None:
    rows = filter_rows()
    assert _answers(rows, MUNMAP) == _answers(rows, FUTEX) == {ALLOWED}
    # By their arguments: mmap only without a file, madvise without what changes shared files or other processes.
    assert _answers(rows, MADVISE) == _answers(rows, MMAP) == {ALLOWED, ENDS}
    assert all(_answers(rows, call) == {FAILS} for call in (WRITE, OPENAT, PRCTL))


def test_no_other_call_is_allowed_neither_sockets_nor_signals_nor_files_nor_processes() -> None:
    rows = filter_rows()
    allowed = {call for call in range(LAST) if ALLOWED in _answers(rows, call)}
    for call in (41, 42, 44, 56, 57, 59, 61, 62, 74, 77, 87, 101, 200, 231, 234, 285, 310, 311, 321, 425):
        assert call not in allowed
    assert len(allowed) < 30
