"""The resident memory of a process at one moment, for comparison with its page faults."""

import re
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import PAGE, Mapping, Ranges, page_kinds, parse_rollup, parse_smaps
from gdbmem.linux.process.process import memory_folder
from gdbmem.linux.process.threads import page_faults

_HUGETLB = re.compile(rb"^HugetlbPages:\s+(\d{1,19}) kB", re.M)
_PEAK = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
LARGEST_FOLIO = 256 * PAGE  # a huge page has 512
_LAST_ADDRESS = 1 << 63  # the kernel's addresses begin after it


class Reading(NamedTuple):
    """The resident memory of a process at about one moment; sizes are bytes, times CLOCK_MONOTONIC in ns."""

    time: int  # when reading began
    rss_bytes: int = 0
    anonymous_bytes: int = 0
    shared_bytes: int = 0  # of pages that other processes have mapped too
    swap_bytes: int = 0
    hugetlb_bytes: int = 0  # in pages of hugetlbfs, which are no part of rss_bytes
    faults: Optional[int] = None  # of the process, all that the kernel has counted; None: unknown
    anonymous: Ranges = Ranges()  # resident pages
    files: Ranges = Ranges()  # and those of files and shared memory
    huge: Ranges = Ranges()  # of both, the huge ones
    hugetlb: Ranges = Ranges()  # pages of hugetlbfs, in none of the others
    # Addresses that were read but never written: the kernel shows them its zero page, which takes no memory.
    zero: Ranges = Ranges()
    # Mappings in which one fault may make a large folio resident, which is less than a huge page.
    folios: Ranges = Ranges()
    until: int = 0  # when reading was complete: a running process changes meanwhile; 0: it took no time

    def within(self, start: int, end: int) -> int:
        """Return how much of an area is resident."""
        return sum(kind.within(start, end) for kind in (self.anonymous, self.files, self.hugetlb))

    @property
    def held_bytes(self) -> int:
        """Return the resident bytes together with those in pages of hugetlbfs."""
        return self.rss_bytes + self.hugetlb_bytes

    @property
    def file_bytes(self) -> int:
        """Return the resident bytes of files and shared memory."""
        return self.rss_bytes - self.anonymous_bytes


def read_resident(pid: int) -> Optional[Reading]:
    """Return the resident memory of *pid*; None if it has ended or may not be read.

    It takes some 10 ms a GiB, and doesn't stop the process.
    """
    began = time.monotonic_ns()
    try:
        folder = Path(memory_folder(pid))
        rollup = parse_rollup((folder / "smaps_rollup").read_bytes())
        # Only smaps tells which mappings are of hugetlbfs, or may have large folios; reading it takes longer.
        file = "smaps" if rollup.hugetlb_bytes or folio_sizes() else "maps"
        text = (folder / file).read_bytes()
        mappings = [one for one in parse_smaps(text) if one.end < _LAST_ADDRESS]
        pages = _pages(pid, mappings)
    except (OSError, KeyError, TargetError):
        return None
    if not resident_bytes(pid):  # it has ended meanwhile: the last values are not its memory
        return None
    return Reading(
        began,
        rollup.rss_bytes,
        rollup.anonymous_bytes,
        rollup.rss_bytes - rollup.uss_bytes,
        rollup.swap_bytes,
        sum(one.hugetlb_bytes for one in mappings),
        page_faults(pid),
        *pages,
        folios=Ranges((one.start, one.end) for one in mappings if one.has_folios)
        if folio_sizes()
        else Ranges(),
        until=time.monotonic_ns(),
    )


def folio_sizes() -> Sequence[int]:
    """Return the sizes of the folios, below that of a huge page, that a fault of anonymous memory may get here."""
    usual = _setting(_HUGE_PAGES / "enabled")
    sizes = []
    for folder in _HUGE_PAGES.glob("hugepages-*kB"):
        size = int(folder.name[len("hugepages-") : -len("kB")]) << 10
        setting = _setting(folder / "enabled")
        if PAGE < size <= LARGEST_FOLIO and (usual if setting == "inherit" else setting) not in ("never", ""):
            sizes.append(size)
    return sorted(sizes)


def _setting(file: Path) -> str:
    try:
        found = re.search(r"\[(\w+)\]", file.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def _pages(pid: int, mappings: Sequence[Mapping]) -> tuple[Ranges, Ranges, Ranges, Ranges, Ranges]:
    """Return the pages of a reading, in the order of its fields."""
    if not mappings:
        return Ranges(), Ranges(), Ranges(), Ranges(), Ranges()
    anonymous, files, huge, zero = page_kinds(pid, [(one.start, one.end) for one in mappings])
    areas = Ranges((one.start, one.end) for one in mappings if one.hugetlb_bytes)
    if not areas.items:
        return anonymous, files, huge, Ranges(), zero
    hugetlb = Ranges(piece for kind in (anonymous, files) for piece in _inside(kind, areas))
    anonymous, files, huge = (Ranges(_outside(kind, areas)) for kind in (anonymous, files, huge))
    return anonymous, files, huge, hugetlb, zero


def _inside(pages: Ranges, areas: Ranges) -> Iterator[tuple[int, int]]:
    for start, end in areas.items:
        yield from pages.overlaps(start, end)


def _outside(pages: Ranges, areas: Ranges) -> Iterator[tuple[int, int]]:
    for start, end in pages.items:
        yield from areas.gaps(start, end)


def resident_bytes(pid: int) -> Optional[int]:
    """Return the resident bytes by statm alone; None if the process has ended."""
    statm = _statm(f"/proc/{pid}") or _statm(memory_folder(pid))
    return statm or None


def held_bytes(pid: int) -> Optional[int]:
    """Return the resident bytes and those in pages of hugetlbfs; None if the process has ended."""
    resident = resident_bytes(pid)
    return resident + _hugetlb_bytes(pid) if resident is not None and _has_hugetlb() else resident


def peak_bytes(pid: int) -> Optional[int]:
    """Return the largest resident size of what *pid* executes (VmHWM); None if it has ended."""
    try:
        found = _PEAK.search(Path(f"{memory_folder(pid)}/status").read_bytes())
    except OSError:
        return None
    return int(found[1]) << 10 if found else None


@lru_cache(maxsize=1)
def _has_hugetlb() -> bool:
    """Return whether this machine keeps pages for hugetlbfs: few do."""
    kept = Path("/sys/kernel/mm/hugepages").glob("*/nr_*hugepages")
    return any(int(one.read_text() or 0) for one in kept)


def _hugetlb_bytes(pid: int) -> int:
    try:
        found = _HUGETLB.search(Path(f"{memory_folder(pid)}/status").read_bytes())
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


def _statm(folder: str) -> int:
    """Return the resident bytes in a statm; 0 if there is none, or its thread has ended."""
    try:
        with open(f"{folder}/statm", "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            words = stream.read(256).split()
    except OSError:
        return 0
    return int(words[1]) * PAGE if len(words) > 1 else 0
