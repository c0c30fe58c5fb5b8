"""The resident set of a process, by statm, smaps_rollup, smaps and pagemap, cheapest first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Mapping, parse_smaps
from gdbmem.linux.memory.rollup import parse_rss
from gdbmem.linux.process.living import memory_folder
from gdbmem.patterns import lazy_pattern

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM_LIMIT = 256
_FIRST_MAPS = (1024, 4096)  # bytes: the heap follows the program directly
_HEAP = lazy_pattern(rb"^[0-9a-f]+-([0-9a-f]+) .*\[heap\]$", re.MULTILINE)
_PAGEMAP_CHUNK = 1 << 16  # pages per read
PARTS = ("heap", "mmap", "stack", "file", "other")


class Statm(NamedTuple):
    """The values of /proc/PID/statm, in bytes."""

    size_bytes: int  # of the address space
    resident_bytes: int
    shared_bytes: int  # resident pages of files and shared memory


class KeptFile:
    """A file of /proc/PID that is opened once and read from its start repeatedly."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: Optional[int] = None

    def read(self, limit: int) -> Optional[bytes]:
        """Return up to *limit* bytes; None if the process has ended or may not be read."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, limit, 0) or None
        except OSError:  # ESRCH: the process has ended
            return None

    def read_all(self) -> Optional[bytes]:
        """Return the whole file; None as for `read`."""
        parts, at = [], 0
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            while part := os.pread(self._descriptor, 1 << 20, at):
                parts.append(part)
                at += len(part)
        except OSError:
            return None
        return b"".join(parts) or None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _MemoryFile(KeptFile):
    """A file about a process's memory; it is reopened if the thread that it belongs to has ended."""

    def __init__(self, pid: int, name: str) -> None:
        super().__init__(f"/proc/{pid}/{name}")
        self._pid, self._name = pid, name

    def read(self, limit: int) -> Optional[bytes]:
        data = _told(super().read(limit))
        if data is None:
            self._through_living()
            data = _told(super().read(limit))
        return data

    def read_all(self) -> Optional[bytes]:
        data = super().read_all()
        if data is None:
            self._through_living()
            data = super().read_all()
        return data

    def _through_living(self) -> None:
        self.close()
        self.path = f"{memory_folder(self._pid)}/{self._name}"


def _told(data: Optional[bytes]) -> Optional[bytes]:
    """Return *data*, or None for the statm of a thread that has ended, which has a size of 0."""
    return None if data is None or data.startswith(b"0 ") else data


def parse_statm(data: bytes) -> Optional[Statm]:
    """Parse *data*, the text of a statm; None if it is not a statm."""
    words = data.split()
    if len(words) < 3:
        return None
    try:
        size, resident, shared = (int(word) * PAGE_BYTES for word in words[:3])
    except ValueError:
        return None
    return Statm(size, resident, shared)


def parse_parts(data: bytes) -> dict[str, int]:
    """Return the resident bytes of a smaps text by kind: heap, mmap, stack, file, other."""
    parts = dict.fromkeys(PARTS, 0)
    for mapping in parse_smaps(data):
        parts[_part(mapping)] += mapping.rss_bytes
    return parts


def _part(mapping: Mapping) -> str:
    if mapping.name == "[heap]":
        return "heap"
    if mapping.name.startswith("[stack"):
        return "stack"
    if mapping.inode:
        return "file"
    return "mmap" if not mapping.name or mapping.name.startswith("[anon") else "other"


class ProcessMemory:
    """The resident set of one process on this machine."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._statm = _MemoryFile(pid, "statm")
        self._rollup = _MemoryFile(pid, "smaps_rollup")
        self._smaps = _MemoryFile(pid, "smaps")
        self._maps = _MemoryFile(pid, "maps")

    def close(self) -> None:
        for kept in (self._statm, self._rollup, self._smaps, self._maps):
            kept.close()

    def statm(self) -> Optional[Statm]:
        """Return statm's counters, in 1 µs; None if the process has ended."""
        data = self._statm.read(_STATM_LIMIT)
        return parse_statm(data) if data else None

    def resident_bytes(self) -> Optional[int]:
        """Return statm's resident bytes alone, which stepping reads thousands of times."""
        data = self._statm.read(_STATM_LIMIT)
        return int(data.split(b" ", 2)[1]) * PAGE_BYTES if data else None

    def rollup_bytes(self) -> Optional[int]:
        """Return the exact resident bytes; the time grows with them (some 10 ms a GiB)."""
        data = self._rollup.read(4096)
        return parse_rss(data) if data else None

    def parts(self) -> Optional[dict[str, int]]:
        """Return the exact resident bytes of heap, mmap, stack, file, other; None when it can't be read."""
        data = self._smaps.read_all()
        return parse_parts(data) if data else None

    def end_of_heap(self) -> Optional[int]:
        """Return the address where the heap ends that brk() moves; None if there is none, or it can't be read."""
        for limit in _FIRST_MAPS:  # the time grows with what is read
            match = _HEAP.search(self._maps.read(limit) or b"")
            if match is not None:
                return int(match[1], 16)
        return None

    def present_bytes(self) -> Optional[int]:
        """Return the bytes of pages that are present in pagemap, including the shared zero page."""
        try:
            with open(f"{memory_folder(self.pid)}/pagemap", "rb", buffering=0) as pagemap:  # noqa: PTH123
                pages = sum(_present(pagemap.fileno(), *span) for span in self._spans())
        except OSError:
            return None
        return pages * PAGE_BYTES

    def present_in(self, start: int, end: int) -> int:
        """Return the bytes of pages present between two addresses; 0 when it can't be read."""
        try:
            with open(f"{memory_folder(self.pid)}/pagemap", "rb", buffering=0) as pagemap:  # noqa: PTH123
                pages = _present(pagemap.fileno(), start // PAGE_BYTES, -(-end // PAGE_BYTES))
        except OSError:
            return 0
        return pages * PAGE_BYTES

    def _spans(self) -> Iterator[tuple[int, int]]:
        with open(f"{memory_folder(self.pid)}/maps", "rb") as maps:  # noqa: PTH123
            for line in maps:
                start, _, rest = line.partition(b"-")
                end = rest.split(b" ", 1)[0]
                if b"[vsyscall]" not in line:
                    yield int(start, 16) // PAGE_BYTES, int(end, 16) // PAGE_BYTES


def _present(descriptor: int, first: int, last: int) -> int:
    count = 0
    while first < last:
        pages = min(last - first, _PAGEMAP_CHUNK)
        data = os.pread(descriptor, pages * 8, first * 8)
        if not data:
            break
        # The top byte of each entry holds the present bit; whole runs of zeros cost next to nothing.
        count += sum(byte >> 7 for byte in data[7::8].replace(b"\0", b""))
        first += pages
    return count
