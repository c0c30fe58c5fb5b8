"""A process's mappings and their resident parts: /proc/PID/smaps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.process.process import memory_folder

_HEADER = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+)[ ]*([^\n]*)\n", re.M
)
# Those that are not 0: most are.
_FIELDS = re.compile(
    rb"^(Rss|Pss|Shared_(?:Clean|Dirty|Hugetlb)|Anonymous|AnonHugePages|LazyFree|ShmemPmdMapped|FilePmdMapped|Swap|KSM"
    rb"|Private_Hugetlb): +([1-9]\d{0,18}) kB",
    re.M,
)
_FLAGS = re.compile(rb"^VmFlags: ([^\n]*)", re.M)
_HUGETLB = "/anon_hugepage"  # the kernel's name of memory from mmap(MAP_HUGETLB), followed by "(deleted)"
_SHARED_NAMES = ("/dev/shm/", "/SYSV", "/memfd:", "/dev/zero", "[anon_shmem", "/i915", "/drm")


class Mapping(NamedTuple):
    """One line of /proc/PID/maps with smaps' figures; sizes are bytes."""

    start: int
    end: int
    permissions: str
    offset: int
    device: str
    inode: int
    name: str
    rss_bytes: int = 0
    pss_bytes: int = 0
    shared_bytes: int = 0  # pages that other processes have mapped too, or that are mapped twice
    anonymous_bytes: int = 0
    huge_bytes: int = 0
    swap_bytes: int = 0
    ksm_bytes: int = 0
    hugetlb_bytes: int = 0  # not part of Rss
    lazily_freed_bytes: int = 0  # by MADV_FREE: part of Rss until the kernel needs them
    flags: str = ""

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_file(self) -> bool:
        """True if pages come from a file in a file system (not from shared memory)."""
        if self.is_shared_memory or self.is_device:
            return False
        return self.name.startswith("/") and not self.name.startswith(_HUGETLB)

    @property
    def is_shared_memory(self) -> bool:
        if self.permissions[3] == "s" and self.name.startswith(_HUGETLB):
            return True
        return self.name.startswith(_SHARED_NAMES) or (not self.name and self.permissions[3] == "s")

    @property
    def is_device(self) -> bool:
        """True if it is mapped by a driver (GPU memory, DMA buffers)."""
        return (
            self.name.startswith("/dev/") and not self.name.startswith(_SHARED_NAMES)
        ) or self.name.startswith("anon_inode:")

    @property
    def is_anonymous(self) -> bool:
        """True if it is private memory without a file, as used by heaps, stacks and allocators."""
        if self.permissions[3] != "p" or self.name.startswith(("anon_inode:", "[v")):
            return False
        return not self.name.startswith("/") or self.name.startswith(_HUGETLB)

    @property
    def is_droppable(self) -> bool:
        """True if the kernel may take its pages when memory is short (MAP_DROPPABLE)."""
        return "dp" in self.flags.split()

    @property
    def grows_down(self) -> bool:
        return "gd" in self.flags.split()


def mappings_of(pid: int, file: str = "maps") -> list[Mapping]:
    """Return the mappings of *pid*; their figures only from the *file* smaps. Raises OSError."""
    return parse_smaps(maps_text(pid, file))


def maps_text(pid: int, file: str = "maps") -> bytes:
    """Return the content of /proc/PID/maps (or smaps), also if the main thread has ended. Raises OSError."""
    return Path(f"{memory_folder(pid)}/{file}").read_bytes()


def mapping_at(mappings: Iterable[Mapping], address: int) -> Optional[Mapping]:
    """Return the mapping that contains *address*; None if there is none."""
    return next((one for one in mappings if one.start <= address < one.end), None)


def parse_smaps(data: bytes) -> list[Mapping]:
    """Return the mappings of the text of /proc/PID/smaps (or of /proc/PID/maps: all figures are then 0)."""
    headers = list(_HEADER.finditer(data))
    mappings = []
    for number, header in enumerate(headers):
        end = headers[number + 1].start() if number + 1 < len(headers) else len(data)
        mappings.append(_mapping(header, data, end))
    return mappings


def _mapping(header: re.Match[bytes], data: bytes, end: int) -> Mapping:
    values = {name: int(kib) << 10 for name, kib in _FIELDS.findall(data, header.end(), end)}
    flags = _FLAGS.search(data, header.end(), end)
    return Mapping(
        start=int(header[1], 16),
        end=int(header[2], 16),
        permissions=header[3].decode(),
        offset=int(header[4], 16),
        device=header[5].decode(),
        inode=int(header[6]),
        name=header[7].decode(errors="surrogateescape"),
        rss_bytes=values.get(b"Rss", 0),
        pss_bytes=values.get(b"Pss", 0),
        shared_bytes=values.get(b"Shared_Clean", 0) + values.get(b"Shared_Dirty", 0),
        anonymous_bytes=values.get(b"Anonymous", 0),
        huge_bytes=values.get(b"AnonHugePages", 0)
        + values.get(b"ShmemPmdMapped", 0)
        + values.get(b"FilePmdMapped", 0),
        swap_bytes=values.get(b"Swap", 0),
        ksm_bytes=values.get(b"KSM", 0),
        hugetlb_bytes=values.get(b"Shared_Hugetlb", 0) + values.get(b"Private_Hugetlb", 0),
        lazily_freed_bytes=values.get(b"LazyFree", 0),
        flags=flags[1].decode() if flags else "",
    )


# The sums over a process's mappings: /proc/PID/smaps_rollup, or computed from /proc/PID/smaps.


_RSS = re.compile(rb"^Rss:\s+(\d{1,19}) kB", re.M)
_FIELD = re.compile(rb"^(\w+):\s+(\d{1,19}) kB", re.M)


class Rollup(NamedTuple):
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


# Twin mappings: memory that a process and one that it forked had in common at the fork.


class Twin(NamedTuple):
    """A range of addresses with the same private memory, or file, behind it in both processes."""

    start: int
    end: int
    parent: Mapping
    child: Mapping


def are_twins(parent: Mapping, child: Mapping) -> bool:
    """Return whether two overlapping mappings can have the same memory behind them where they overlap.

    Names and bounds do not count: new memory beside a mapping moves its start, a file may be deleted meanwhile, and
    the kernel calls only a part of the heap [heap].
    """
    if parent.permissions[3] != "p" or child.permissions[3] != "p":
        return False
    if (parent.inode, parent.device) != (child.inode, child.device):
        return False
    return not parent.inode or parent.offset - parent.start == child.offset - child.start


def find_twins(parent: Sequence[Mapping], child: Sequence[Mapping]) -> Iterator[Twin]:
    """Yield the ranges of twin mappings, given both processes' mappings in order of address."""
    number = 0
    for mapping in parent:
        while number < len(child) and child[number].end <= mapping.start:
            number += 1
        for other in child[number:]:
            if other.start >= mapping.end:
                break
            if are_twins(mapping, other):
                yield Twin(max(mapping.start, other.start), min(mapping.end, other.end), mapping, other)


def is_private_data(mapping: Mapping) -> bool:
    """Return whether *mapping* is private and writable: a fork shares it until one process writes."""
    return (
        mapping.permissions[1] == "w" and mapping.permissions[3] == "p" and not mapping.name.startswith("[v")
    )
