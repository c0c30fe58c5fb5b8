"""Resident pages of a process, by PAGEMAP_SCAN if the kernel has it, else by /proc/PID/pagemap."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import maps_text
from gdbmem.linux.memory.resident import PAGE_BYTES
from gdbmem.linux.process.process import ended, has_ended, memory_folder

PAGE = os.sysconf("SC_PAGE_SIZE")  # 16 or 64 KiB on some aarch64 kernels
_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg)
# Kinds of pages (linux/fs.h, PAGE_IS_…): shared or of a file, in memory, swapped out, the zero page, huge.
WRITTEN, FILE, PRESENT, SWAPPED, ZERO, HUGE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
_REGIONS = 1 << 14
_PAGEMAP_PRESENT, _PAGEMAP_SWAPPED, _PAGEMAP_FILE = 1 << 63, 1 << 62, 1 << 61


class Ranges:
    """Sorted, disjoint ranges of addresses."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.items: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if self.items and start <= self.items[-1][1]:
                if end > self.items[-1][1]:
                    self.items[-1] = (self.items[-1][0], end)
            elif end > start:
                self.items.append((start, end))
        self._starts = [start for start, _ in self.items]
        self._before = [0]
        for start, end in self.items:
            self._before.append(self._before[-1] + end - start)

    @property
    def size_bytes(self) -> int:
        return self._before[-1]

    def __contains__(self, address: int) -> bool:
        number = bisect_right(self._starts, address) - 1
        return number >= 0 and address < self.items[number][1]

    def within(self, start: int, end: int) -> int:
        """Return how many bytes of ``[start, end)`` are in these ranges."""
        return self._up_to(end) - self._up_to(start) if end > start else 0

    def _up_to(self, address: int) -> int:
        number = bisect_right(self._starts, address)
        if number == 0:
            return 0
        start, end = self.items[number - 1]
        return self._before[number - 1] + min(address, end) - start

    def overlaps(self, start: int, end: int) -> Iterable[tuple[int, int]]:
        """Yield the pieces of ``[start, end)`` that are in these ranges."""
        number = max(bisect_right(self._starts, start) - 1, 0)
        while number < len(self.items) and self.items[number][0] < end:
            low, high = max(self.items[number][0], start), min(self.items[number][1], end)
            if high > low:
                yield low, high
            number += 1

    def gaps(self, start: int, end: int) -> Iterable[tuple[int, int]]:
        """Yield the pieces of ``[start, end)`` that are not in these ranges."""
        for low, high in self.overlaps(start, end):
            if low > start:
                yield start, low
            start = high
        if start < end:
            yield start, end


class _ScanArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
            "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
        )
    ]  # fmt: skip


def resident_ranges(pid: int, areas: Sequence[tuple[int, int]]) -> tuple[Ranges, bool]:
    """Return the resident pages of *pid* in *areas*, and whether zero pages are known to be excluded.

    A page of fresh memory that was only read is the kernel's zero page: present, but not resident. pagemap alone does
    not distinguish it, so the caller must compare with smaps' Rss.
    """
    scanned = scan_resident(pid, areas)
    if scanned is not None:
        return scanned, True
    descriptor = open_pagemap(pid)
    try:
        return Ranges(piece for start, end in areas for piece in _read(descriptor, start, end)), False
    finally:
        os.close(descriptor)


def scan_resident(pid: int, areas: Sequence[tuple[int, int]]) -> Optional[Ranges]:
    """Return the resident pages of *pid* in *areas*, without zero pages; None if the kernel can't report them.

    The cost depends on the mapped pages, not on the size of the areas (Linux 6.7 and later: PAGEMAP_SCAN).
    """
    descriptor = open_pagemap(pid)
    try:
        return Ranges(piece for start, end in areas for piece in scan_pages(descriptor, start, end))
    except OSError:
        return None
    finally:
        os.close(descriptor)


class PageKinds(NamedTuple):
    """The pages of a process that are present, by kind."""

    anonymous: Ranges
    files: Ranges  # and of shared memory
    huge: Ranges  # of both
    zero: (
        Ranges  # in neither: read but never written, so the kernel shows its zero page, which takes no memory
    )


def page_kinds(pid: int, areas: Sequence[tuple[int, int]]) -> PageKinds:
    """Return the pages of *pid* in its mappings *areas*.

    Without PAGEMAP_SCAN, zero pages are among the anonymous ones, and no page is known to be huge.
    """
    descriptor = open_pagemap(pid)
    try:
        pages = list(_scan(descriptor, min(areas)[0], max(areas)[1]))
        return PageKinds(
            Ranges((start, end) for start, end, kind in pages if not kind & (FILE | ZERO)),
            Ranges((start, end) for start, end, kind in pages if kind & FILE and not kind & ZERO),
            Ranges((start, end) for start, end, kind in pages if kind & HUGE and not kind & ZERO),
            Ranges((start, end) for start, end, kind in pages if kind & ZERO),
        )
    except OSError:
        either = _PAGEMAP_PRESENT | _PAGEMAP_FILE
        anonymous, files = (
            Ranges(
                piece for start, end in areas for piece in _read(descriptor, start, end, bits=either, are=are)
            )
            for are in (_PAGEMAP_PRESENT, either)
        )
        return PageKinds(anonymous, files, Ranges(), Ranges())
    finally:
        os.close(descriptor)


def swapped_ranges(pid: int, areas: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Return the pages of *pid* in *areas* that are swapped out."""
    descriptor = open_pagemap(pid)
    try:
        return [
            piece for start, end in areas for piece in _read(descriptor, start, end, bits=_PAGEMAP_SWAPPED)
        ]
    finally:
        os.close(descriptor)


def open_pagemap(pid: int) -> int:
    """Open the pagemap of *pid*; raises TargetError."""
    try:
        return os.open(f"{memory_folder(pid)}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise TargetError(
            f"the pages of process {pid} can't be read: {error.strerror}",
            slug="pagemap-unreadable",
            hint="run as the process's user, or as root",
        ) from error


def scan_pages(
    descriptor: int, start: int, end: int, *, without: int = ZERO, required: int = PRESENT, flags: int = 0
) -> Iterable[tuple[int, int]]:
    """Yield the pages that are *required* and *without*; raises OSError without PAGEMAP_SCAN."""
    for first, last, _ in _scan(descriptor, start, end, without=without, required=required, flags=flags):
        yield first, last


def _scan(
    descriptor: int, start: int, end: int, *, without: int = 0, required: int = PRESENT, flags: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Yield the pages that are *required* and *without*, as (start, end, kinds); kinds are FILE, ZERO and HUGE."""
    vector = (ctypes.c_uint64 * (3 * _REGIONS))()
    while start < end:
        arguments = _ScanArguments(
            size=ctypes.sizeof(_ScanArguments),
            flags=flags,
            start=start,
            end=end,
            vec=ctypes.addressof(vector),
            vec_len=_REGIONS,
            category_inverted=without,
            category_mask=without | required,
            return_mask=required | FILE | ZERO | HUGE,
        )
        count = fcntl.ioctl(descriptor, _SCAN, arguments)
        values = vector[: 3 * count]
        yield from zip(values[0::3], values[1::3], values[2::3])
        if arguments.walk_end <= start:
            break
        start = arguments.walk_end


def _read(
    descriptor: int, start: int, end: int, *, bits: int = _PAGEMAP_PRESENT, are: int = 0
) -> Iterable[tuple[int, int]]:
    """Yield the pages in whose entries *bits* have the values *are*; by default all set."""
    are = are or bits
    step = 1 << 17  # pages a read: 1 MiB of pagemap
    first, last = start // PAGE, -(-end // PAGE)
    while first < last:
        data = os.pread(descriptor, 8 * min(step, last - first), 8 * first)
        if not data:
            return
        begun = -1
        entries = memoryview(data).cast("Q")
        for number, entry in enumerate(entries):
            if entry & bits == are:
                if begun < 0:
                    begun = number
            elif begun >= 0:
                yield (first + begun) * PAGE, (first + number) * PAGE
                begun = -1
        if begun >= 0:
            yield (first + begun) * PAGE, (first + len(entries)) * PAGE
        first += len(entries)


# The accessed bits of a process's pages: cleared, and counted by mapping.
#
# Source: Documentation/filesystems/proc.rst (clear_refs; smaps: Referenced). The processor sets the bit of a page at
# each access, also for reading; clearing them has no other effect on the process.


_REFERENCED = b"1"  # for clear_refs: the accessed bits of all pages
_HEADER = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ")


class Accessed(NamedTuple):
    """One mapping; sizes are bytes."""

    start: int
    end: int
    rss_bytes: int
    touched_bytes: int  # of the resident ones, since the bits were cleared


def clear_accessed(pid: int) -> None:
    """Clear the accessed bits of all pages of process *pid*. Raises TargetError if that is refused."""
    try:
        with open(f"{memory_folder(pid)}/clear_refs", "wb", buffering=0) as stream:  # noqa: PTH123  (one write, as it is)
            stream.write(_REFERENCED)
    except FileNotFoundError:
        if not Path(f"/proc/{pid}").exists():
            raise ended(pid) from None
        raise TargetError(
            "this kernel can't clear accessed bits (CONFIG_PROC_PAGE_MONITOR is off)",
            slug="idle-refused",
            hint="the ledger without --idle needs no accessed bits",
        ) from None
    except OSError as error:
        if has_ended(pid):
            raise ended(pid) from error
        raise TargetError(
            f"the accessed bits of process {pid} can't be cleared: {error.strerror}",
            slug="idle-refused",
            hint="type it as the process's user, or as root",
        ) from error


def read_accessed(pid: int) -> list[Accessed]:
    """Return the resident and the accessed bytes of each mapping. Raises TargetError."""
    try:
        text = maps_text(pid, "smaps")
    except OSError as error:
        raise ended(pid) from error
    found = parse_accessed(text)
    if not found:
        raise ended(pid)
    return found


def parse_accessed(smaps: bytes) -> list[Accessed]:
    """Parse the text *smaps*, mapping by mapping."""
    found: list[Accessed] = []
    for line in smaps.splitlines():
        header = _HEADER.match(line)
        if header:
            found.append(Accessed(int(header[1], 16), int(header[2], 16), 0, 0))
        elif found and line.startswith(b"Rss:"):
            found[-1] = found[-1]._replace(rss_bytes=int(line.split()[1]) << 10)
        elif found and line.startswith(b"Referenced:"):
            found[-1] = found[-1]._replace(touched_bytes=int(line.split()[1]) << 10)
    return found


# Pages whose next access can't change the resident set, by pagemap.


# Of the most significant byte of an entry. Source: Linux, Documentation/admin-guide/mm/pagemap.rst.
_PRESENT, _FILE, _EXCLUSIVE = 0x80, 0x20, 0x01


class SettledPages:
    """Reads the state of a process's pages, as long as it executes no other program."""

    def __init__(self, pid: int) -> None:
        self._descriptor: Optional[int] = None
        try:
            self._descriptor = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return

    def are_settled(self, start: int, end: int) -> bool:
        """Return whether all pages between two addresses are present, and none is the shared page of zeros.

        A copied page replaces the one that it is copied from. False if it can't be read.
        """
        if self._descriptor is None:
            return False
        first, last = start // PAGE_BYTES, -(-end // PAGE_BYTES)
        try:
            data = os.pread(self._descriptor, (last - first) * 8, first * 8)
        except OSError:
            return False
        states = data[7::8]
        return len(states) == last - first and all(
            state & _PRESENT and state & (_FILE | _EXCLUSIVE) for state in states
        )

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
