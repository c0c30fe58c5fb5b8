"""The resident set of a process, by statm, smaps_rollup, smaps and pagemap, cheapest first."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.files import NEUTRAL_FOLDER, cache_folder, replace_file
from gdbmem.linux.memory.maps import (
    Mapping,
    mappings_of,
    parse_rss,
    parse_smaps,
)
from gdbmem.linux.process.process import boot_id, memory_folder, soft_limit, text_of
from gdbmem.text import format_size

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM_LIMIT = 256
_FIRST_MAPS = (1024, 4096)  # bytes: the heap follows the program directly
_HEAP = re.compile(rb"^[0-9a-f]+-([0-9a-f]+) .*\[heap\]$", re.MULTILINE)
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

    __del__ = close


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


# A process's limit of address space (RLIMIT_AS), which a profiler also has to fit in.


_LEAST_ROOM_BYTES = 1 << 20


def no_room(pid: int, engine: str) -> Optional[str]:
    """Return the warning that *pid*, under *engine*, can map almost nothing more; None if it can."""
    memory = ProcessMemory(pid)
    try:
        limit, statm = soft_limit(pid, "Max address space"), memory.statm()
    except OSError:
        return None
    finally:
        memory.close()
    if limit is None or statm is None or statm.size_bytes + _LEAST_ROOM_BYTES <= limit:
        return None
    return (
        f"process {pid} may map no more than {format_size(limit)} (RLIMIT_AS), and has {format_size(statm.size_bytes)}"
        f" mapped, with what {engine} needs: its own calls for memory fail now, as they might not without {engine};"
        f" 'shell prlimit --as=unlimited --pid {pid}', as root, lifts the limit"
    )


# The memory of a process beside the heap that a heap profiler counts, as the kernel has it.


# valgrind maps its own memory above, a program's below, from low addresses on.
# Source: valgrind 3.16 to 3.24, coregrind/m_aspacemgr/aspacemgr-linux.c, VG_(am_startup).
_VALGRINDS_OWN = 1 << 36


def own_bytes(mappings: Sequence[Mapping]) -> int:
    """Return the resident and swapped bytes of *mappings* that can hold what a program allocates.

    Its code, its constants and the main thread's stack are left out.
    """
    with_code = {(m.device, m.inode) for m in mappings if "x" in m.permissions and m.inode}
    held, seen = 0, set()
    for mapping in mappings:
        place = (mapping.device, mapping.inode, mapping.offset)
        # What is mapped a second time is no part of the loaded program, or library.
        held += _held(mapping, set() if mapping.inode and place in seen else with_code)
        seen.add(place)
    return held


def under_valgrind(mappings: Sequence[Mapping]) -> tuple[int, int]:
    """Return the bytes of a program under valgrind that it allocated itself: resident ones, and mapped ones.

    The second number is of executable mappings, where valgrind has the program's malloc blocks, so they are in it.
    """
    # It leaves to the kernel where pages of hugetlbfs are mapped, and uses none itself.
    own = [m for m in mappings if m.start < _VALGRINDS_OWN or m.hugetlb_bytes]
    blocks = [m for m in own if m.is_anonymous and "x" in m.permissions]
    breaks = list(_breaks(own))
    tool = list(_after_tool(own))
    apart = [m for m in own if m not in blocks and m not in tool]
    return own_bytes(apart) + sum(m.anonymous_bytes + m.swap_bytes for m in breaks), sum(
        m.size_bytes for m in blocks if m not in breaks
    )


def is_first_stack(mapping: Mapping) -> bool:
    """Return whether *mapping*, which a stack pointer is in, is the first thread's stack, maybe valgrind's for it."""
    return mapping.name == "[stack]" or _VALGRINDS_OWN <= mapping.start < 2 * _VALGRINDS_OWN


def _held(mapping: Mapping, with_code: set[tuple[str, int]]) -> int:
    if mapping.name.startswith("[stack"):
        return 0
    if mapping.is_anonymous:
        return mapping.anonymous_bytes + mapping.swap_bytes + mapping.hugetlb_bytes
    if mapping.is_shared_memory or mapping.is_kernel_buffer:
        return mapping.rss_bytes + mapping.swap_bytes + mapping.hugetlb_bytes
    is_data = mapping.is_file and (mapping.device, mapping.inode) not in with_code
    return mapping.anonymous_bytes + mapping.swap_bytes + mapping.hugetlb_bytes if is_data else 0


def _breaks(mappings: Sequence[Mapping]) -> Iterator[Mapping]:
    """Yield the break segment, which valgrind maps executable, directly above the program or the dynamic loader."""
    lowest = next((m.name for m in mappings if m.is_file), "")
    above = ""
    for before, mapping in zip(mappings, mappings[1:]):
        if before.is_file:
            above = before.name
        if mapping.start != before.end:
            above = ""
        if (
            above
            and (above == lowest or "/ld-" in above)
            and mapping.is_anonymous
            and "x" in mapping.permissions
        ):
            yield mapping


def _after_tool(mappings: Sequence[Mapping]) -> Iterator[Mapping]:
    """Yield the variables of valgrind's tool, directly above its file."""
    for before, mapping in zip(mappings, mappings[1:]):
        if mapping.start == before.end and "valgrind/" in before.name and mapping.is_anonymous:
            yield mapping


# A program's own memory in its valgrind process.


_STACK_BYTES = 8 << 20  # of a thread, by default


def program_mapped_bytes(pid: int) -> int:
    """Return the resident bytes of *pid*, under massif, that the program has mapped itself; 0 if unreadable.

    valgrind's own memory, its stacks for the program's threads and its malloc blocks are mapped executable; mappings
    of a program mostly aren't. Right above a guard page, where thread stacks begin, the maximum size of a stack is
    excluded.
    """
    try:
        mappings = mappings_of(pid, "smaps")
    except OSError:
        return 0
    return mapped_bytes(mappings)


def anonymous_bytes(pid: int) -> int:
    """Return all resident bytes of *pid* that are not of files or shared memory, by statm; 0 if unreadable.

    statm may lag behind by some pages of each processor.
    """
    try:
        statm = parse_statm(text_of(f"/proc/{pid}/statm").encode())
    except OSError:
        return 0
    return 0 if statm is None else statm.resident_bytes - statm.shared_bytes


def mapped_bytes(mappings: Sequence[Mapping]) -> int:
    """Return the same of *mappings*, lowest first."""
    total, guard_end = 0, -1
    for mapping in mappings:
        if mapping.permissions.startswith("---"):
            guard_end = mapping.end
        elif mapping.is_anonymous and mapping.permissions == "rw-p" and not mapping.name:
            stack = _STACK_BYTES if mapping.start == guard_end else 0
            total += max(mapping.anonymous_bytes - stack, 0)
    return total


# Whether this kernel's statm is exact, tested once per boot by touching pages one by one.
#
# Before 6.2 each thread buffers up to 64 events, from 6.2 to about 6.15 each processor a batch; a line that touches a
# page then shows 0 and a later one too much. The version is not reliable (distributions backport), so a child process
# tests it.


_PAGES = 192
_SECONDS = 20


class Exactness(NamedTuple):
    """The outcome of the probe."""

    statm_error_pages: int  # the largest error of a delta of statm; 0: exact
    zero_pages_counted: bool  # pagemap counts pages that were only read

    @property
    def statm_is_exact(self) -> bool:
        return self.statm_error_pages == 0


def probe() -> Exactness:
    """Touch fresh pages in this process and compare the counts of statm and pagemap for each."""
    memory = ProcessMemory(os.getpid())
    area = fresh_pages(_PAGES + 1)
    error_pages(memory.resident_bytes, fresh_pages(_PAGES))  # first allocates what Python itself needs
    statm = error_pages(memory.resident_bytes, area)
    before = memory.present_bytes()
    _ = area[_PAGES * PAGE_BYTES]
    after = memory.present_bytes()
    counted = before is not None and after is not None and after > before
    return Exactness(statm, counted)


def fresh_pages(count: int) -> mmap.mmap:
    """Return memory of untouched pages."""
    area = mmap.mmap(-1, count * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(area, "madvise") and hasattr(mmap, "MADV_NOHUGEPAGE"):
        area.madvise(mmap.MADV_NOHUGEPAGE)
    return area


def error_pages(read: Callable[[], Optional[int]], area: mmap.mmap) -> int:
    """Return the largest error of *read*, in pages, while *area* was touched; -1: it could not read."""
    readings = [-1] * _PAGES
    for number in range(_PAGES):
        area[number * PAGE_BYTES] = 1
        found = read()
        readings[number] = -1 if found is None else found
    # Python itself may take a page now and then: the median of the errors of 64 steps would hide a batch,
    # so that no more than a single extra page is tolerated.
    if -1 in readings:
        return -1
    errors = sorted(abs((b - a) // PAGE_BYTES - 1) for a, b in zip(readings, readings[1:]))
    return 0 if errors[-1] <= 1 and sum(errors) <= 2 else errors[-1]


def known_exactness() -> Exactness:
    """Return the probe's outcome, from the cache of this boot if there is one.

    If no child can be started, the slower exact source is the safe choice.
    """
    with contextlib.suppress(OSError, ValueError):
        return _exactness(_cache_file().read_text())
    found = _probe_in_child()
    if found is None:
        return Exactness(statm_error_pages=-1, zero_pages_counted=True)
    with contextlib.suppress(OSError):  # with an unwritable home there is one probe per session
        path = _cache_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob("kernel-*"):
            old.unlink()
        replace_file(path, f"{found[0]} {int(found[1])}\n")
    return found


def _cache_file() -> Path:
    return cache_folder() / f"kernel-{boot_id()}"


def _exactness(text: str) -> Exactness:
    error_pages, counted = text.split()
    return Exactness(int(error_pages), counted == "1")


def _probe_in_child() -> Optional[Exactness]:
    """Run `probe` in a separate process: this one may be gdb, with threads that allocate too."""
    import subprocess  # not always needed

    # This Python may be the one inside gdb, whose executable is gdb itself.
    program = str(Path("/proc/self/exe").resolve())
    package = str(Path(__file__).resolve().parents[3])
    code = (
        f"import sys; sys.path.insert(0, {package!r}); "
        "from gdbmem.linux.memory.resident import probe; print(*map(int, probe()))"
    )
    inside_gdb = "gdb" in sys.modules
    argv = [program, "-nx", "-batch", "-ex", f"python {code}"] if inside_gdb else [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            cwd=NEUTRAL_FOLDER,
            start_new_session=True,  # Ctrl-C is for gdb
            check=False,
        )
        return _exactness(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
