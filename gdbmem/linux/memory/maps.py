"""A process's mappings, their resident parts and their pages: /proc/PID/maps, smaps and pagemap."""

import ctypes
import fcntl
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gdbmem.arrays import counts_between, import_numpy
from gdbmem.errors import TargetError
from gdbmem.linux.process.process import ended, has_ended, memory_folder, status_fields

_HEADER = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+)[ ]*([^\n]*)\n", re.M
)
# Those that are not 0: most are.
_FIELDS = re.compile(
    rb"^(Rss|Pss|Shared_(?:Clean|Dirty|Hugetlb)|Anonymous|AnonHugePages|LazyFree|ShmemPmdMapped|FilePmdMapped|Swap|KSM"
    rb"|Private_Hugetlb): +([1-9]\d{0,18}) kB",
    re.M,
)
_ELIGIBLE = re.compile(rb"^THPeligible: +1$", re.M)
_FLAGS = re.compile(rb"^VmFlags: ([^\n]*)", re.M)
_HUGETLB = "/anon_hugepage"  # the kernel's name of memory from mmap(MAP_HUGETLB), followed by "(deleted)"
_SHARED_NAMES = ("/dev/shm/", "/SYSV", "/memfd:", "/dev/zero", "[anon_shmem", "/i915", "/drm", "/secretmem")


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
    has_folios: bool = False  # a fault may get several pages at once
    hugetlb_private_bytes: int = 0  # of hugetlb_bytes

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
        """True if it is mapped from a driver or the kernel (GPU memory, DMA buffers, rings of io_uring and sockets)."""
        return (
            self.name.startswith("/dev/") and not self.name.startswith(_SHARED_NAMES)
        ) or self.name.startswith(("anon_inode:", "socket:"))

    @property
    def is_kernel_buffer(self) -> bool:
        """True if it shows a buffer of the kernel (perf events, BPF, io_uring, packets, AIO), resident or not."""
        return self.name.startswith(("anon_inode:", "socket:", "/[aio]"))

    @property
    def is_anonymous(self) -> bool:
        """True if it is private memory without a file, as used by heaps, stacks and allocators."""
        if self.permissions[3] != "p" or self.name.startswith(("anon_inode:", "socket:", "[v")):
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
        has_folios=_ELIGIBLE.search(data, header.end(), end) is not None,
        hugetlb_private_bytes=values.get(b"Private_Hugetlb", 0),
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


# The mappings of a live process that are its own, or the reason why they can't be read.


def read_maps(pid: int) -> list[Mapping]:
    return parse_maps(read_maps_text(pid))


def read_maps_text(pid: int) -> bytes:
    return _read_text(pid, "maps")


def parse_maps(text: bytes) -> list[Mapping]:
    return _of_user(parse_smaps(text))


def _of_user(mappings: list[Mapping]) -> list[Mapping]:
    # The vsyscall page belongs to the kernel, is in every process, and PAGEMAP_SCAN can't reach it.
    return [mapping for mapping in mappings if mapping.name != "[vsyscall]"]


def read_smaps(pid: int) -> list[Mapping]:
    mappings = parse_smaps(_read_text(pid, "smaps"))
    if not mappings:
        raise ended(pid)
    return _of_user(mappings)


def _read_text(pid: int, name: str) -> bytes:
    try:
        return maps_text(pid, name)
    except (ProcessLookupError, FileNotFoundError):
        return b""
    except OSError as error:
        raise TargetError(
            f"/proc/{pid}/{name} can't be read: {error.strerror}",
            slug="process-forbidden",
            hint="run as the process's user, or as root",
        ) from error


# Resident pages of a process, by PAGEMAP_SCAN if the kernel has it, else by /proc/PID/pagemap.


PAGE = os.sysconf("SC_PAGE_SIZE")  # 16 or 64 KiB on some aarch64 kernels
_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg)
# Kinds of pages (linux/fs.h, PAGE_IS_…): shared or of a file, in memory, swapped out, the zero page, huge.
WRITTEN, FILE, PRESENT, SWAPPED, ZERO, HUGE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
_NEAR_BYTES = 1 << 20  # of addresses, whose page tables the kernel scans in the time of a system call
_REGIONS = 1 << 14
_PAGEMAP_PRESENT, _PAGEMAP_SWAPPED, _PAGEMAP_FILE = 1 << 63, 1 << 62, 1 << 61


_HIGHEST = (1 << 63) - 1


def address_column(addresses: Iterable[int]) -> Any:
    """Return *addresses* as a column of numpy (int64); those above 2^63, of the kernel's page, become the highest."""
    np = import_numpy()
    return np.minimum(np.array(list(addresses), np.uint64), _HIGHEST).astype(np.int64)


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

    @cached_property
    def bounds(self) -> Any:
        """Where each range starts and ends, in order, as a column of numpy."""
        return address_column(at for piece in self.items for at in piece)

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

    def within_each(self, starts: Any, ends: Any, *, in_order: bool = False) -> Any:
        """Return how many bytes of each ``[start, end)`` of two columns of numpy are in these ranges."""
        return import_numpy().maximum(
            self._up_to_each(ends, in_order) - self._up_to_each(starts, in_order), 0
        )

    def _up_to_each(self, addresses: Any, in_order: bool) -> Any:
        np = import_numpy()
        starts = self.bounds[::2]
        if in_order:
            counts = counts_between(starts, addresses)
            beside, ends = (np.repeat(column, counts) for column in self._sums)
        else:
            number = np.searchsorted(starts, addresses, "right")
            beside, ends = (column[number] for column in self._sums)
        return beside + np.clip(addresses, 0, ends)

    @cached_property
    def _sums(self) -> tuple[Any, Any]:
        """Bytes up to each range, less where it starts, and where it ends; before them a range of no bytes at 0."""
        np = import_numpy()
        starts, ends = self.bounds[::2], self.bounds[1::2]
        return np.append(0, np.array(self._before[:-1], np.int64) - starts), np.append(0, ends)

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
        return Ranges(piece for some in _neighbours(areas) for piece in _scan_areas(descriptor, some))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _neighbours(areas: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Group the areas that are so near that a system call takes longer than the scan of what lies between them."""
    groups: list[list[tuple[int, int]]] = []
    for area in sorted(areas):
        if groups and area[0] - groups[-1][-1][1] < _NEAR_BYTES:
            groups[-1].append(area)
        else:
            groups.append([area])
    return groups


def _scan_areas(descriptor: int, areas: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yield the resident pages in *areas*, from one scan. Raises OSError without PAGEMAP_SCAN."""
    found = scan_pages(descriptor, areas[0][0], max(end for _, end in areas))
    if len(areas) == 1:
        return found
    pages = Ranges(found)
    return (piece for start, end in areas for piece in pages.overlaps(start, end))


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
        pages = list(_scan(descriptor, min(areas)[0], max(areas)[1], kinds=FILE | ZERO | HUGE))
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
    """Yield the pages that are *required* and *without*; raises OSError without PAGEMAP_SCAN.

    To ask for other kinds, too, would take twice as long: for FILE the kernel looks at what each page belongs to.
    """
    for first, last, _ in _scan(descriptor, start, end, without=without, required=required, flags=flags):
        yield first, last


def scan_kinds(descriptor: int, start: int, end: int, kinds: int) -> Iterator[tuple[int, int, int]]:
    """Yield the resident pages as (start, end, those of *kinds* they are of); raises OSError without PAGEMAP_SCAN."""
    return _scan(descriptor, start, end, without=ZERO, kinds=kinds)


def _scan(
    descriptor: int,
    start: int,
    end: int,
    *,
    without: int = 0,
    required: int = PRESENT,
    kinds: int = 0,
    flags: int = 0,
) -> Iterator[tuple[int, int, int]]:
    """Yield the pages that are *required* and *without*, as (start, end, those of *required* and *kinds* it is of)."""
    # A long vector takes longer than the scan of a small area.
    most = min(_REGIONS, -(-(end - start) // PAGE))
    vector = (ctypes.c_uint64 * (3 * most))()
    while start < end:
        arguments = _ScanArguments(
            size=ctypes.sizeof(_ScanArguments),
            flags=flags,
            start=start,
            end=end,
            vec=ctypes.addressof(vector),
            vec_len=most,
            category_inverted=without,
            category_mask=without | required,
            return_mask=required | kinds,
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
_RANGE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ")


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
        header = _RANGE.match(line)
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
        first, last = start // PAGE, -(-end // PAGE)
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


class Counted(NamedTuple):
    """A process that does not run, by its page tables."""

    mappings: Sequence[Mapping]
    resident: Ranges


def count_pages(pid: int, mappings: Sequence[Mapping]) -> Optional[Counted]:
    """Return *mappings*, read a moment ago, with the resident bytes that they have in *pid*, a copy made since.

    smaps takes five times as long, because it looks at what each page is, too. None if *mappings* have pages that only
    smaps tells from others, or if the sums are not exactly those that the kernel itself keeps of *pid*.
    """
    special = ("swap_bytes", "huge_bytes", "ksm_bytes", "hugetlb_bytes", "lazily_freed_bytes")
    if not mappings or any(getattr(one, kind) for one in mappings for kind in special):
        return None
    descriptor = open_pagemap(pid)
    try:
        pages = list(scan_kinds(descriptor, mappings[0].start, mappings[-1].end, HUGE))
        resident = Ranges((start, end) for start, end, _ in pages)
        counted = [_counted(descriptor, one, resident) for one in mappings]
    except OSError:
        return None
    finally:
        os.close(descriptor)
    anonymous, rss = (sum(getattr(one, size) for one in counted) for size in ("anonymous_bytes", "rss_bytes"))
    names = ("RssAnon", "RssFile", "RssShmem", "VmSwap")
    fields = status_fields(pid)
    kept = [int(fields.get(name, "-1 kB").split()[0]) << 10 for name in names]
    is_confirmed = [kept[0], kept[1] + kept[2], kept[3]] == [anonymous, rss - anonymous, 0]
    if not is_confirmed or any(kinds & HUGE for *_, kinds in pages):
        return None
    return Counted(counted, resident)


def _counted(descriptor: int, mapping: Mapping, resident: Ranges) -> Mapping:
    # What a driver maps without the kernel's pages counts nowhere (VM_PFNMAP).
    rss = 0 if "pf" in mapping.flags.split() else resident.within(mapping.start, mapping.end)
    files = 0
    if rss and not mapping.is_anonymous:
        areas = scan_pages(descriptor, mapping.start, mapping.end, required=PRESENT | FILE)
        files = sum(end - start for start, end in areas)
    return mapping._replace(rss_bytes=rss, anonymous_bytes=rss - files)
