"""Which pages two processes share, which one writes from now on (/proc/PID/pagemap), and which of files are cached."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy
from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import (
    FILE,
    HUGE,
    PAGE,
    PRESENT,
    SWAPPED,
    WRITTEN,
    ZERO,
    Mapping,
    Ranges,
    open_pagemap,
    scan_pages,
)
from gdbmem.model.groups import CachedFile
from gdbmem.model.steps import WrittenRange

# Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): in memory, swapped out, mapped once, of a file.
_PRESENT, _SWAPPED, _FILE, _ALONE = 63, 62, 61, 56
_FRAME = (1 << 55) - 1  # the number of the page frame; 0 without CAP_SYS_ADMIN
_ENTRIES = 1 << 20  # entries read at once


class Pages(NamedTuple):
    """The entries of adjacent pages of one process."""

    entries: Any  # uint64

    @property
    def present(self) -> Any:
        return self._bit(_PRESENT)

    @property
    def swapped(self) -> Any:
        return self._bit(_SWAPPED)

    @property
    def is_anonymous(self) -> Any:
        """True where the page is in memory and neither a file's nor shared memory's."""
        return self.present & ~self._bit(_FILE)

    @property
    def alone(self) -> Any:
        """True where no other process maps the page."""
        return self.present & self._bit(_ALONE)

    @property
    def frames(self) -> Any:
        """The numbers of the page frames; 0 where there is none, and everywhere if this process may not know them."""
        np = import_numpy()
        return np.where(self.present, self.entries & np.uint64(_FRAME), np.uint64(0))

    def _bit(self, number: int) -> Any:
        np = import_numpy()
        return (self.entries >> np.uint64(number) & np.uint64(1)).astype(bool)


class PageSharing:
    """The entries of one process's pages. Leave with the context manager."""

    def __init__(self, pid: int) -> None:
        """Open the entries of *pid*. Raises TargetError if they can't be read."""
        self._descriptor = open_pagemap(pid)

    def __enter__(self) -> PageSharing:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def of(self, start: int, end: int) -> Pages:
        """Return the pages from *start* to *end*; what was only read, and has the kernel's page of zeros, is absent."""
        np = import_numpy()
        entries = np.zeros((end - start) // PAGE, np.uint64)
        for first in range(0, len(entries), _ENTRIES):
            count = min(_ENTRIES, len(entries) - first)
            data = os.pread(self._descriptor, 8 * count, (start // PAGE + first) * 8)
            read = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
            entries[first : first + len(read)] = read
        with contextlib.suppress(OSError):  # a kernel that does not tell
            for low, high in scan_pages(self._descriptor, start, end, without=0, required=PRESENT | ZERO):
                entries[(low - start) // PAGE : (high - start) // PAGE] = 0
        return Pages(entries)


def same_pages(ours: Pages, theirs: Pages) -> Any:
    """Return where two processes map the same page of memory.

    Without the numbers of the frames: where each of them shares its page with some process.
    """
    np = import_numpy()
    both = ours.present & theirs.present
    known = (ours.frames != 0) & (theirs.frames != 0)
    return both & np.where(known, ours.frames == theirs.frames, ~ours.alone & ~theirs.alone)


# Pages that a process writes from now on: asynchronous write protection by userfaultfd, and PAGEMAP_SCAN (Linux 6.7).
# The kernel removes the protection of a page by itself at the first write; the process does not notice it. Closing the
# descriptor removes all of it, and so does the end of this process.


# linux/userfaultfd.h
_API, _REGISTER = 0xC018AA3F, 0xC020AA00
_API_VERSION, _WRITE_PROTECT_ASYNC, _MODE_WRITE_PROTECT = 0xAA, 1 << 15, 2
FLAGS = 0o2004001  # O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY, which needs no rights
# PAGEMAP_SCAN: protect the pages that it returns
_PROTECT = 1
_PIDFD_GETFD = 438  # the same on all processors


class WrittenPages:
    """The pages that a stopped process writes after it resumes. Close it while the process is stopped."""

    def __init__(self, pid: int, descriptor: int, mappings: Sequence[Mapping]) -> None:
        """Protect the resident pages of *mappings* by the userfaultfd *descriptor*, which is closed with this.

        Huge pages are left out: the kernel would divide those that are written. Raises TargetError.
        """
        self._descriptor = descriptor
        self._pagemap = -1
        try:
            self._pagemap = open_pagemap(pid)
            self._enable()
            self._protect(mappings)
        except BaseException:
            self.close()
            raise

    def _enable(self) -> None:
        try:
            fcntl.ioctl(self._descriptor, _API, struct.pack("QQQ", _API_VERSION, _WRITE_PROTECT_ASYNC, 0))
        except OSError:
            raise not_available("this needs Linux 6.7 or later on x86-64") from None

    def _protect(self, mappings: Sequence[Mapping]) -> None:
        end = max(one.end for one in mappings)
        try:
            # Pages that were in memory before may be there afterwards without having been written.
            self.huge = Ranges(scan_pages(self._pagemap, 0, end, required=PRESENT | HUGE))
            self._files = Ranges(scan_pages(self._pagemap, 0, end, required=PRESENT | FILE))
            self._excluded, self.unwatched = self._register(mappings)
            for mapping in mappings:
                for state in (PRESENT, SWAPPED):
                    span = mapping.start, mapping.end
                    list(
                        scan_pages(
                            self._pagemap, *span, without=HUGE, required=WRITTEN | state, flags=_PROTECT
                        )
                    )
        except OSError as error:
            raise not_available(str(error.strerror)) from None

    def _register(self, mappings: Sequence[Mapping]) -> tuple[Ranges, Ranges]:
        """Return what is excluded of *mappings*, and the part of it that the process can write."""
        excluded: list[tuple[int, int]] = []
        writable: list[tuple[int, int]] = []
        for one in mappings:
            span = one.start, one.end
            # gdb's own breakpoints are written into code.
            if "x" in one.permissions and "w" not in one.permissions:
                excluded.append(span)
                continue
            try:
                request = struct.pack("QQQQ", one.start, one.size_bytes, _MODE_WRITE_PROTECT, 0)
                fcntl.ioctl(self._descriptor, _REGISTER, request)
            except OSError:  # a userfaultfd of the program's own has it, or a driver
                excluded.append(span)
                if "w" in one.permissions:
                    writable.append(span)
        return Ranges(excluded), Ranges(writable)

    def written(self, mappings: Sequence[Mapping]) -> list[WrittenRange]:
        """Return the ranges written since, in the process's present *mappings*; raises TargetError if it has ended."""
        try:
            return [one for mapping in mappings for one in self._written_in(mapping)]
        except OSError as error:
            raise not_available(str(error.strerror)) from None

    def _written_in(self, mapping: Mapping) -> Iterator[WrittenRange]:
        span = mapping.start, mapping.end
        shared = FILE if "s" in mapping.permissions else 0
        # In a private mapping, pages of the file are the unwritten ones.
        found = Ranges(
            piece
            for state, zero in ((PRESENT, ZERO), (SWAPPED, 0))
            for without in ([zero] if shared else [zero | FILE])
            for piece in scan_pages(self._pagemap, *span, without=without, required=WRITTEN | state)
        )
        for start, end in (piece for low, high in found.items for piece in self._uncovered(low, high)):
            if not shared:
                yield WrittenRange(start, end, mapping.name)
                continue
            for low, high in self._files.overlaps(start, end):
                yield WrittenRange(low, high, mapping.name)
            for low, high in self._files.gaps(start, end):
                yield WrittenRange(low, high, mapping.name, is_certain=False)

    def _uncovered(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for low, high in self._excluded.gaps(start, end):
            yield from self.huge.gaps(low, high)

    def close(self) -> None:
        """Remove the protection."""
        for descriptor in (self._descriptor, self._pagemap):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._pagemap = -1


def not_available(reason: str) -> TargetError:
    """Return the refusal where written pages can't be had, for *reason*."""
    return TargetError(
        f"the pages that the program writes can't be determined: {reason}",
        slug="no-written-pages",
        hint="'memwatch next' shows what changes the resident set",
    )


def refused_in_program(number: int) -> TargetError:
    """Return the error for a call of userfaultfd() in the program that failed with errno *number*."""
    if number == errno.ENOSYS:
        return not_available("this kernel has no userfaultfd")
    return not_available(
        f"the program may not make a userfaultfd ({os.strerror(number)}), for example by a seccomp filter"
    )


def take_descriptor(pid: int, number: int) -> int:
    """Return a descriptor of ours for *number* of process *pid* (Linux 5.6); raises TargetError."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        raise not_available(str(error.strerror)) from None
    try:
        taken = int(libc.syscall(_PIDFD_GETFD, process, number, 0))
    finally:
        os.close(process)
    if taken < 0:
        raise not_available(os.strerror(ctypes.get_errno()))
    return taken


# How much of files is in the kernel's page cache, by mincore(2), which reads none of their pages.


_WINDOW = 1 << 30  # of a file, bytes asked at once
_FAILED = ctypes.c_void_p(-1).value


def cached_files(folder: Path) -> Iterator[CachedFile]:
    """Yield each regular file below *folder*, on its file system, and how much of it is cached; links are not followed.

    Raises OSError if *folder* can't be read. What can't be told is None: the kernel tells it only whoever owns the file
    or may write to it.
    """
    device = folder.stat().st_dev

    def fail(error: OSError) -> None:
        if error.filename == str(folder):
            raise error

    for place, below, names in os.walk(folder, onerror=fail):
        below[:] = [name for name in below if _device(os.path.join(place, name)) == device]  # noqa: PTH118
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118  (a quarter of the time of Path's)
            found = _cached_bytes(path)
            if found is None or found:
                yield CachedFile(path, found)


def _device(path: str) -> Optional[int]:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return None


def _cached_bytes(path: str) -> Optional[int]:
    """Return the bytes of *path* in the page cache; 0 for what is no regular file, None if it can't be told."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return 0
        descriptor = _open(path)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return 0
        if os.geteuid() not in (0, facts.st_uid) and not os.access(descriptor, os.W_OK):
            return None  # the kernel would call every page cached
        return _resident(descriptor, facts.st_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # it is for the owner only
        return os.open(path, flags)


def _resident(descriptor: int, size: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    found = 0
    for start in range(0, size, _WINDOW):
        length = min(size - start, _WINDOW)
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
        try:
            pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            if libc.mincore(address, length, pages):
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            libc.munmap(address, length)
        cached = sum(count for byte, count in Counter(pages.raw).items() if byte & 1)
        found += cached * mmap.PAGESIZE
    return found
