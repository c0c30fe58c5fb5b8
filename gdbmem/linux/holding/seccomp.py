"""Seccomp filters: whether an injected system call could end the process.

A filter treats such a call like one of the thread, and may kill the process for it. It is harmless if the thread has
no filter, if it has exactly ours (this process makes such calls all the time), or if filters can be suspended.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.holding.ptrace import Freeze, ptrace
from gdbmem.linux.process.process import status_fields, thread_ids

SUSPEND = 0x00200000  # PTRACE_O_SUSPEND_SECCOMP; wants CAP_SYS_ADMIN, and a tracer without filters
_GENERATIONS = 1000


def may_end_for_a_call(status: dict[str, str]) -> bool:
    """Return whether a filter of the thread with this *status* could end its process for an injected call."""
    return status.get("Seccomp", "0") != "0" and not _has_our_filters(status)


def filter_count(status: dict[str, str]) -> int:
    """Return the number of filters of the thread with this *status*; 0 also if unknown (before Linux 5.9)."""
    return int(status.get("Seccomp_filters", 0))


def has_shadow_stack(status: dict[str, str]) -> bool:
    """Return whether the thread with this *status* has a second copy of its return addresses (x86-64)."""
    return "shstk" in status.get("x86_Thread_features", "").split()


def _has_our_filters(status: dict[str, str]) -> bool:
    """Return whether the thread with this *status* has the very filters of this process.

    Filters are inherited and only ever added, so it has if a common ancestor has as many as each of the two.
    A process that entered a container from outside has no ancestor there: it was given the filters of the
    container's first process.
    """
    count = status.get("Seccomp_filters", "")  # Linux 5.9 and later
    if count != status_fields("self").get("Seccomp_filters") or status["Seccomp"] != "2" or not count:
        return False
    ancestor = _common_ancestor(int(status["Tgid"]))
    if ancestor is None:
        ancestor = 1
        if not _same_pid_namespace(int(status["Pid"])):
            return False
    return status_fields(ancestor).get("Seccomp_filters") == count


def _common_ancestor(pid: int) -> Optional[int]:
    theirs, ours = _lineage(pid), set(_lineage(os.getpid()))
    return next((one for one in theirs if one in ours), None)


def _lineage(pid: int) -> list[int]:
    """Return *pid* and its ancestors, as far as this process namespace shows them."""
    found: list[int] = []
    while pid and pid not in found and len(found) < _GENERATIONS:
        found.append(pid)
        pid = int(status_fields(pid).get("PPid", "0"))
    return found


def _same_pid_namespace(thread: int) -> bool:
    try:
        return Path(f"/proc/{thread}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


# Answers of a thread's seccomp filters to the system calls of a memory allocator and its profiler.
#
# A container's filter typically makes unknown calls fail and kills for none of them: then calls can be injected. The
# filter programs are read by ptrace, and evaluated here with the number of a call and unknown arguments.
#
# Source: ptrace(2), PTRACE_SECCOMP_GET_FILTER; Linux, Documentation/networking/filter.rst and kernel/seccomp.c.


_GET_FILTER = 0x420C  # wants CAP_SYS_ADMIN, and a tracer without filters
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# The system calls of allocators, their profilers and the C library's file functions, by number.
_CALLS = {
    "x86_64": (
        0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 27, 28, 35, 39,
        63, 72, 77, 79, 82, 87, 89, 96, 97, 99, 102, 186, 201, 202, 203, 204, 228, 230, 257, 262, 263, 267,
        269, 302, 309, 318, 332, 334, 439,
    ),
    "aarch64": (
        17, 25, 29, 35, 38, 46, 48, 56, 57, 61, 62, 63, 64, 65, 66, 67, 68, 78, 79, 80, 98, 101, 113, 115,
        122, 123, 124, 134, 135, 139, 160, 163, 165, 168, 169, 172, 174, 178, 179, 214, 215, 216, 222, 226,
        232, 233, 261, 276, 278, 291, 293, 439,
    ),
}  # fmt: skip
_FAILS, _LOGGED, _ALLOWED = 0x00050000, 0x7FFC0000, 0x7FFF0000
_MOST_STEPS = 200_000
_MOST_THREADS = 200

Row = tuple[int, int, int, int]  # code, jump if true, jump if false, and a constant


class _EndlessError(Exception):
    """A program that is too long to be followed on all paths."""


def harmless_threads(pid: int) -> dict[int, int]:
    """Return the threads of *pid* whose filters don't end the process for such calls, with their numbers of filters.

    The process is stopped for a moment if it has filters. {} if unknown.
    """
    tids = thread_ids(pid)[:_MOST_THREADS]
    each = {tid: status_fields(tid) for tid in tids}
    found = {tid: filter_count(status) for tid, status in each.items() if not may_end_for_a_call(status)}
    if len(found) == len(tids) or os.uname().machine not in _CALLS:
        return found
    judged: dict[bytes, bool] = {}
    try:
        with Freeze(pid) as held:
            for tid in held.threads:
                programs = _programs(tid)
                if all(judged.setdefault(code, is_harmless(code)) for code in programs):
                    found[tid] = len(programs)
    except (TargetError, OSError):
        pass  # the obstacle is temporary: the threads found so far are kept
    return found


def _programs(tid: int) -> list[bytes]:
    """Return the filters of the stopped thread *tid*. Raises OSError if they can't be read."""
    found = []
    for number in range(filter_count(status_fields(tid))):
        buffer = ctypes.create_string_buffer(8 * ptrace(_GET_FILTER, tid, number, 0))
        ptrace(_GET_FILTER, tid, number, ctypes.addressof(buffer))
        found.append(buffer.raw)
    return found


def is_harmless(code: bytes) -> bool:
    """Return whether the filter *code* allows each such call or makes it fail, for any arguments."""
    rows = list(struct.iter_unpack("=HBBI", code))
    try:
        return all(
            _answers(rows, number) <= {_FAILS, _LOGGED, _ALLOWED} for number in _CALLS[os.uname().machine]
        )
    except (_EndlessError, IndexError, KeyError):
        return False


def _answers(rows: Sequence[Row], number: int) -> set[int]:
    """Return the actions that the program may return for system call *number*."""
    known = {0: number, 4: _ARCHITECTURE[os.uname().machine]}
    found: set[int] = set()
    ways: list[tuple[int, Optional[int], tuple[Optional[int], ...]]] = [(0, 0, (0,) * 17)]
    seen = set(ways)
    for _ in range(_MOST_STEPS):
        if not ways:
            return found
        at, value, kept = ways.pop()  # kept: the scratch memory, and at last the index register
        code, yes, no, constant = rows[at]
        after = [at + 1]
        kind = code & 7
        if kind == 6:  # return
            answer = constant if not code & 0x18 else value
            found.add(-1 if answer is None else answer & 0xFFFF0000)
            continue
        if kind == 5:  # jump
            after = _jumps(code, at, value, constant if not code & 8 else kept[16], (yes, no, constant))
        elif kind in (0, 1):  # load
            loaded = _loaded(code, constant, known, kept)
            value, kept = (loaded, kept) if kind == 0 else (value, (*kept[:16], loaded))
        elif kind in (2, 3):  # store
            stored = value if kind == 2 else kept[16]
            kept = (*kept[:constant], stored, *kept[constant + 1 :])
        elif kind == 4:  # compute
            value = _computed(code, value, constant if not code & 8 else kept[16])
        elif code & 0xF8 == 0x80:
            value = kept[16]
        else:
            kept = (*kept[:16], value)
        for way in ((one, value, kept) for one in after):
            if way not in seen:
                seen.add(way)
                ways.append(way)
    raise _EndlessError


def _loaded(code: int, constant: int, known: dict[int, int], kept: Sequence[Optional[int]]) -> Optional[int]:
    mode = code & 0xE0
    if mode == 0x20:  # of the kernel's data on the call
        return known.get(constant)
    if mode == 0x60:
        return kept[constant]
    return constant if mode == 0 else 64  # the size of the kernel's data


def _jumps(
    code: int, at: int, value: Optional[int], other: Optional[int], places: tuple[int, int, int]
) -> list[int]:
    yes, no, constant = places
    kind = code & 0xF0
    if kind == 0:
        return [at + 1 + constant]
    if value is None or other is None:
        return [at + 1 + yes, at + 1 + no]
    holds = {0x10: value == other, 0x20: value > other, 0x30: value >= other, 0x40: bool(value & other)}[kind]
    return [at + 1 + (yes if holds else no)]


def _computed(code: int, value: Optional[int], other: Optional[int]) -> Optional[int]:
    kind = code & 0xF0
    if value is None or (other is None and kind != 0x80):
        return None
    other = other or 0
    results = {
        0x00: value + other, 0x10: value - other, 0x20: value * other, 0x30: value // other if other else 0,
        0x40: value | other, 0x50: value & other, 0x60: value << (other & 31), 0x70: value >> (other & 31),
        0x80: -value, 0xA0: value ^ other,
    }  # fmt: skip
    return results[kind] & 0xFFFFFFFF
