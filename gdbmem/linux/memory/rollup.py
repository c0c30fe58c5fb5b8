"""The sums over a process's mappings: /proc/PID/smaps_rollup, or computed from /proc/PID/smaps."""

from __future__ import annotations

import re
from typing import Optional

from gdbmem.patterns import lazy_pattern
from gdbmem.records import dataclass

_RSS = lazy_pattern(rb"^Rss:\s+(\d{1,19}) kB", re.M)
_FIELD = lazy_pattern(rb"^(\w+):\s+(\d{1,19}) kB", re.M)


@dataclass(frozen=True)
class Rollup:
    """The values of /proc/PID/smaps_rollup, bytes."""

    rss_bytes: int
    pss_bytes: int
    uss_bytes: int
    private_dirty_bytes: int
    shared_dirty_bytes: int
    anonymous_bytes: int
    swap_bytes: int
    hugetlb_bytes: int  # not part of Rss
    pss_anonymous_bytes: Optional[int]  # since Linux 5.8, as the two below
    pss_file_bytes: Optional[int]
    pss_shmem_bytes: Optional[int]


def parse_rss(data: bytes) -> Optional[int]:
    """Return the resident bytes alone, several times as fast; None if *data* is empty: the process has ended."""
    found = _RSS.findall(data)
    return sum(map(int, found)) * 1024 if found else None


def parse_rollup(data: bytes) -> Rollup:
    """Decode /proc/PID/smaps_rollup, or sum up smaps. Source: Linux, Documentation/filesystems/proc.rst."""
    sizes: dict[bytes, int] = {}
    for name, kib in _FIELD.findall(data):
        sizes[name] = sizes.get(name, 0) + int(kib) * 1024
    return Rollup(
        rss_bytes=sizes[b"Rss"],
        pss_bytes=sizes[b"Pss"],
        uss_bytes=sizes[b"Private_Clean"] + sizes[b"Private_Dirty"],
        private_dirty_bytes=sizes[b"Private_Dirty"],
        shared_dirty_bytes=sizes[b"Shared_Dirty"],
        anonymous_bytes=sizes[b"Anonymous"],
        swap_bytes=sizes.get(b"Swap", 0),
        hugetlb_bytes=sizes.get(b"Shared_Hugetlb", 0) + sizes.get(b"Private_Hugetlb", 0),
        pss_anonymous_bytes=sizes.get(b"Pss_Anon"),
        pss_file_bytes=sizes.get(b"Pss_File"),
        pss_shmem_bytes=sizes.get(b"Pss_Shmem"),
    )
