"""The number that memwatch reads at each stop, from the cheapest source that is exact here, and its accounts."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Union

import gdb

from gdbmem.allocators.glibc.in_use import MOST_CHUNKS, GlibcHeap, InUse, tcache_offset
from gdbmem.allocators.glibc.layout import LibcFacts, Struct, locate
from gdbmem.allocators.others import replacement_among
from gdbmem.debugger import program
from gdbmem.debugger.location import c_value, real_pid
from gdbmem.debugger.memwatch.commands.settings import setting
from gdbmem.errors import TargetError, UsageError
from gdbmem.linux.memory.maps import Mapping, mappings_of, parse_rss
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.memory.resident import PAGE_BYTES, ProcessMemory, Statm, known_exactness, parse_statm
from gdbmem.model.steps import Step

UNCOUNTED = "too many free blocks to count: the number is what malloc took from the kernel"
_MASSIF_BYTES = re.compile(rb"^mem_heap_B=(\d+)$", re.M)


class Detail(NamedTuple):
    """Further readings beside the number itself, taken if there is time; None if unknown."""

    parts: Optional[dict[str, int]] = None  # resident bytes of heap, mmap, stack, file, other
    heap: Optional[InUse] = None
    statm: Optional[Statm] = None


class Gauge:
    """Reads one number of one process. A subclass is one way to get it."""

    source = ""
    exact = True
    note = ""  # a remark on the latest reading
    measures_heap = False
    counts_pages = False  # of a process on this machine: page faults identify the threads
    asks_gdb = False  # each reading is a gdb command, and those run a breakpoint's commands first
    most_chunks = MOST_CHUNKS  # free malloc blocks that a reading may examine

    def expect(self, readings: int) -> None:
        """Allow slow readings if *readings* are few: a second for all of them."""
        self.most_chunks = max(MOST_CHUNKS, PATIENT_CHUNKS // readings)

    def read(self) -> Optional[int]:
        """Return the bytes now; None if they can't be read: the process has ended, or `note` has the reason."""
        raise NotImplementedError

    def now(self) -> Optional[int]:
        """Return the absolute number of bytes."""
        return self.read()

    def detail(self) -> Detail:
        """Return further readings; may take some milliseconds."""
        return Detail()

    def close(self) -> None:
        """Close descriptors."""


class LocalGauge(Gauge):
    """The resident set of a process on this machine."""

    counts_pages = True

    def __init__(self, pid: int, source: str, *, exact: bool) -> None:
        self.source, self.exact = source, exact
        self.memory = ProcessMemory(pid)
        self.heap = HeapReader(pid)

    def read(self) -> Optional[int]:
        if self.source == "statm":
            return self.memory.resident_bytes()
        return self.memory.rollup_bytes() if self.source == "smaps" else self.memory.present_bytes()

    def detail(self) -> Detail:
        found = self.heap.read()
        return Detail(self.memory.parts(), found, self.memory.statm())

    def close(self) -> None:
        self.memory.close()
        self.heap.close()


class HeapGauge(Gauge):
    """glibc's bytes in use."""

    source = "heap"
    measures_heap = True

    def __init__(self, pid: Optional[int]) -> None:
        self.heap = HeapReader(pid)
        self._last: Optional[InUse] = None
        self._level = 0

    def read(self) -> Optional[int]:
        """Return a number whose differences are the bytes gained."""
        found = self._found(self.most_chunks)
        if found is None:
            self.note = self.heap.problem
            return None
        gained, counted = (
            (found.bytes or found.taken_bytes, True) if self._last is None else found.since(self._last)
        )
        self._last, self._level = found, self._level + gained
        self.exact = counted and self.heap.counts_mapped_blocks
        self.note = "" if counted else UNCOUNTED
        if counted and not self.exact:
            self.note = "blocks from 128 KiB on are not counted without libc's debug information"
        return self._level

    def now(self) -> Optional[int]:
        found = self._found(PATIENT_CHUNKS)
        if found is not None and found.bytes is None:
            raise TargetError(
                "malloc holds more free blocks than can be counted", slug="heap-uncounted", hint="use $rss()"
            )
        return found.bytes if found is not None else None

    def _found(self, most_chunks: int) -> Optional[InUse]:
        found = self.heap.read(most_chunks=most_chunks)
        if found is None and gdb.selected_inferior().pid and self.heap.nothing_yet:
            return InUse(0, 0)
        return found

    def close(self) -> None:
        self.heap.close()


class MassifGauge(Gauge):
    """massif's own count of the program's heap, to the byte: statm would measure valgrind."""

    source = "massif"
    measures_heap = True
    asks_gdb = True

    def __init__(self) -> None:
        # massif's monitor commands split at spaces, which TMPDIR may contain.
        self._folder = tempfile.TemporaryDirectory(prefix="gdbmem-", dir="/tmp")
        self._file = Path(self._folder.name) / "snapshot"

    def read(self) -> Optional[int]:
        try:
            said = str(gdb.execute(f"monitor snapshot {self._file}", to_string=True))
            data = self._file.read_bytes()
        except gdb.error:
            return None
        except OSError:
            return 0 if "before execution" in said else None
        self._file.unlink()
        found = _MASSIF_BYTES.findall(data)
        return int(found[-1]) if found else None

    def close(self) -> None:
        self._folder.cleanup()


class RemoteGauge(Gauge):
    """The resident set of a process behind gdbserver, through gdb's own remote file access."""

    asks_gdb = True

    def __init__(self, pid: int, source: str) -> None:
        self.source = source
        self._pid = pid
        self._page_bytes = _remote_page_bytes()
        self.heap = HeapReader(None)
        # gdb's `remote get` reads a file name; ours contains no space.
        self._folder = tempfile.TemporaryDirectory(prefix="gdbmem-", dir="/tmp")
        self._file = Path(self._folder.name) / "answer"
        # The remote kernel can't be tested: smaps is always exact and costs the same round trip.
        self.exact = source == "smaps"

    def read(self) -> Optional[int]:
        data = self._get("statm" if self.source == "statm" else "smaps_rollup")
        if data is None:
            return None
        if self.source == "statm":
            counters = parse_statm(data)
            return counters.resident_bytes // PAGE_BYTES * self._page_bytes if counters else None
        return parse_rss(data)

    def detail(self) -> Detail:
        return Detail(heap=self.heap.read())

    def _get(self, name: str) -> Optional[bytes]:
        try:
            gdb.execute(f"remote get /proc/{self._pid}/{name} {self._file}", to_string=True)
            return self._file.read_bytes()
        except (gdb.error, OSError):
            return None

    def close(self) -> None:
        self._folder.cleanup()


def _remote_page_bytes() -> int:
    try:
        match = re.search(r"AT_PAGESZ\s.*?(\d+)\s*$", str(gdb.execute("info auxv", to_string=True)), re.M)
    except gdb.error:
        match = None
    return int(match[1]) if match else PAGE_BYTES


def make_gauge(wanted: str) -> Gauge:
    """Return the gauge for the selected inferior; *wanted* is one of commands.in_gdb.SOURCES.

    Raises TargetError if nothing can be measured, UsageError if *wanted* is not available here.
    """
    kind = program.target_kind()
    if kind == program.NOTHING:
        raise TargetError(
            "the program is not being run", slug="not-running", hint="type 'run' or 'start' first"
        )
    if kind == program.CORE:
        raise TargetError(
            "a core file can't be stepped, and doesn't record which pages were resident",
            slug="core-file",
            hint="memwatch needs a live process",
        )
    if kind == program.VALGRIND:
        return _valgrind_gauge(wanted)
    pid = real_pid()
    assert pid is not None
    if kind == program.REMOTE:
        return _remote_gauge(pid, wanted)
    return _local_gauge(pid, wanted)


def _local_gauge(pid: int, wanted: str) -> Gauge:
    if wanted == "heap":
        return _readable(HeapGauge(pid))
    exactness = known_exactness()
    source = wanted
    if wanted == "auto":
        source = "statm" if exactness.statm_is_exact else "smaps"
    exact = {"statm": exactness.statm_is_exact, "smaps": True, "pagemap": not exactness.zero_pages_counted}
    gauge = LocalGauge(pid, source, exact=exact[source])
    if gauge.read() is not None:
        return gauge
    gauge.close()
    if source == "statm":
        raise TargetError(
            f"/proc/{pid}/statm can't be read",
            slug="no-proc",
            hint="is /proc mounted, and is it this process's?",
        )
    if wanted != "auto":
        raise UsageError(f"this user may not read {source} of process {pid}", hint="use --source statm")
    return LocalGauge(pid, "statm", exact=False)


def _readable(gauge: HeapGauge) -> HeapGauge:
    if gauge.read() is None:
        problem = gauge.heap.problem or "the process can't be read"
        gauge.close()
        raise TargetError(problem, slug="not-readable", hint="see 'memwatch sources'")
    return gauge


def _remote_gauge(pid: int, wanted: str) -> Gauge:
    if wanted == "heap":
        return HeapGauge(None)
    if wanted == "pagemap":
        raise UsageError("pagemap is not read through gdbserver", hint="use --source smaps")
    gauge = RemoteGauge(pid, "smaps" if wanted == "auto" else wanted)
    if gauge.read() is not None:
        return gauge
    gauge.close()
    fallback = RemoteGauge(pid, "statm")
    if wanted == "auto" and fallback.read() is not None:
        return fallback
    fallback.close()
    raise TargetError(
        f"the remote side doesn't serve /proc/{pid} ('remote get' failed)",
        slug="no-remote-proc",
        hint="use --source heap, or run gdb on that machine",
    )


def _valgrind_gauge(wanted: str) -> Gauge:
    tool = program.valgrind_tool()
    if wanted not in ("auto", "heap"):
        raise UsageError(
            f"under valgrind {wanted} would measure valgrind, not the program", hint="use --source auto"
        )
    if tool == "massif":
        return MassifGauge()
    raise TargetError(
        f"the program runs under valgrind's {tool or 'gdbserver'}, which keeps no count of its heap",
        slug="valgrind-without-count",
        hint="quit gdb and type: gdbmem launch --massif PROGRAM",
    )


# Gauges that are kept from one reading to the next, per process and kind.


_kept: dict[tuple[int, str], tuple[int, Gauge]] = {}  # (inferior, source) → (pid, gauge)


def gauge_for(source: str, *, heap: bool) -> int:
    """Return the current reading of *source* for the selected inferior, in bytes.

    Raises TargetError if there is none; also if the heap is meant and the source counts something else,
    or the other way round.
    """
    inferior = gdb.selected_inferior()
    pid, gauge = _kept.get((inferior.num, source), (0, None))
    if gauge is None or pid != inferior.pid or not inferior.pid:
        if gauge is not None:
            gauge.close()
            del _kept[(inferior.num, source)]
        gauge = make_gauge(source)
        _kept[(inferior.num, source)] = (inferior.pid, gauge)
    if gauge.measures_heap != heap:
        raise TargetError(
            "under valgrind the resident memory is valgrind's own", slug="valgrind-rss", hint="use $heap()"
        )
    size_bytes = gauge.now()
    if size_bytes is None:
        raise TargetError(
            getattr(getattr(gauge, "heap", None), "problem", "") or "the process can't be read",
            slug="not-readable",
            hint="see 'memwatch sources'",
        )
    return size_bytes


# The accounts: the memory changes by each inferior's steps, and the source of the numbers.


class Account:
    """The steps of one process, oldest first."""

    def __init__(self, pid: int, source: str, gauge: Gauge) -> None:
        self.pid = pid
        self.wanted = source  # as requested, such as auto
        self.gauge = gauge
        self.steps: list[Step] = []
        self._total_bytes = 0

    def add(self, delta_bytes: Optional[int]) -> Optional[int]:
        """Add a step's change and return the running total; None when the change is unknown."""
        if delta_bytes is None:
            return None
        self._total_bytes += delta_bytes
        return self._total_bytes

    def begin_total(self) -> None:
        """Count the total from 0 again."""
        self._total_bytes = 0


class Accounts:
    """One account per inferior; a new process in an inferior begins a new one."""

    def __init__(self) -> None:
        self._by_inferior: dict[int, Account] = {}

    def current(self, source: Optional[str] = None) -> Account:
        """Return the account of the selected inferior, made when first needed.

        Raises TargetError or UsageError if it can't be measured.
        """
        inferior = gdb.selected_inferior()
        found = self._by_inferior.get(inferior.num)
        wanted = source or (found.wanted if found and found.pid == inferior.pid else setting("source"))
        if found is not None and found.pid == inferior.pid and inferior.pid:
            if found.wanted != wanted:
                self._change_source(found, wanted)
            return found
        gauge = make_gauge(wanted)
        if found is not None:
            found.gauge.close()
        account = self._by_inferior[inferior.num] = Account(inferior.pid, wanted, gauge)
        return account

    @staticmethod
    def _change_source(account: Account, wanted: str) -> None:
        gauge = make_gauge(wanted)
        account.gauge.close()
        # Another source measures another quantity: the total starts from 0.
        account.gauge, account.wanted = gauge, wanted
        account.begin_total()

    def recorded(self) -> Account:
        """Return the account of the selected inferior, also after the process has ended.

        Raises TargetError if nothing was recorded.
        """
        found = self._by_inferior.get(gdb.selected_inferior().num)
        if found is None or not found.steps:
            raise TargetError(
                "memwatch has recorded no step yet",
                slug="no-steps",
                hint="type 'memwatch next', or 'memwatch auto on' and then any command",
            )
        return found

    def forget(self) -> None:
        """Discard the selected inferior's steps, and have its source chosen again."""
        found = self._by_inferior.pop(gdb.selected_inferior().num, None)
        if found is not None:
            found.gauge.close()


accounts = Accounts()


_MOST_DATA = 1 << 20
PATIENT_CHUNKS = 2_000_000  # number of free chunks that one command at the prompt walks, in about a second


class _Place(NamedTuple):
    """The location of malloc's state in a C library."""

    main_arena: int
    state: Struct
    mmapped_mem: Optional[int]


class HeapReader:
    """glibc's malloc in the selected inferior; located on first use."""

    def __init__(self, pid: Optional[int]) -> None:
        self._pid = pid  # on this machine; None: elsewhere
        self._memory: Union[ProcMemory, program.GdbMemory, None] = None
        self._heap: Optional[GlibcHeap] = None
        self._is_early = False  # found before malloc had a heap: its layout is not fully determined yet
        self._offset: Optional[int] = None  # of the tcache pointer below the thread pointer
        self._pointers: dict[int, int] = {}  # by gdb's thread number
        self.problem = ""
        self.nothing_yet = False  # no malloc was found because nothing has been allocated

    def close(self) -> None:
        if isinstance(self._memory, ProcMemory):
            self._memory.close()
        self._memory = None

    def read(self, *, most_chunks: int = PATIENT_CHUNKS) -> Optional[InUse]:
        """Return the bytes in use; None if there is no glibc malloc to read, with the reason in `problem`."""
        try:
            if (self._heap is None or self._is_early) and not self._find():
                return None
            assert self._heap is not None
            return self._heap.in_use(self._tcaches(), most_chunks=most_chunks)
        except (OSError, ValueError, TargetError) as error:
            self.problem = f"malloc's bookkeeping can't be read: {error}"
        except gdb.error as error:
            self.problem = f"malloc's bookkeeping can't be found: {error}"
        return None

    @property
    def counts_mapped_blocks(self) -> bool:
        return self._heap is not None and self._heap.counts_mapped_blocks

    def _find(self) -> bool:
        if self._memory is None:
            self._memory = ProcMemory(self._pid) if self._pid is not None else program.GdbMemory()
        mappings = mappings_of(self._pid) if self._pid is not None else []
        replacement = replacement_among(mapping.name for mapping in mappings)
        if replacement is not None:
            self.problem = (
                f"the allocator is {replacement}, and only glibc's blocks can be counted at each step"
            )
            return False
        has_heap = any(mapping.name == "[heap]" for mapping in mappings)
        found = self._by_shape(mappings)
        if found is None or found.mmapped_mem is None:
            found = _by_symbols() or found  # may make gdb read libc's debug information, 30 ms
        if found is None:
            self.problem = (
                "glibc's malloc was not found in this process (not loaded yet, or another C library)"
            )
            self.nothing_yet = not has_heap
            return False
        self._is_early = bool(mappings) and not has_heap and found.mmapped_mem is None
        self._heap = GlibcHeap(self._memory, *found)
        return True

    def _by_shape(self, mappings: Sequence[Mapping]) -> Optional[_Place]:
        assert self._memory is not None
        data = [(m.start, m.end) for m in mappings if m.is_file and m.permissions.startswith("rw")]
        small = [(start, end) for start, end in data if end - start <= _MOST_DATA]
        found = locate(self._memory, mappings, small, 0, LibcFacts({}, None))
        if found is None:
            return None
        mapped = found.parameters and found.parameters + found.layout.parameters["mmapped_mem"]
        return _Place(found.main_arena, found.layout.state, mapped)

    def _tcaches(self) -> list[int]:
        assert self._memory is not None
        bases = self._thread_bases()
        if self._offset is None:
            self._offset = tcache_offset(bases, self._memory)
        return [] if self._offset is None else [base - self._offset for base in bases]

    def _thread_bases(self) -> list[int]:
        threads = gdb.selected_inferior().threads()
        numbers = {thread.num for thread in threads}
        for gone in self._pointers.keys() - numbers:
            del self._pointers[gone]
        missing = [thread for thread in threads if thread.num not in self._pointers]
        if missing:
            with program.selection_kept():
                for thread in missing:
                    thread.switch()
                    pointer = program.thread_pointer()
                    if pointer:
                        self._pointers[thread.num] = pointer
        return [self._pointers[number] for number in numbers if number in self._pointers]


def _by_symbols() -> Optional[_Place]:
    """Find the main arena by libc's own debug information."""
    try:
        arena = c_value("&main_arena")
        kind = arena.dereference().type
        state = Struct({field.name: field.bitpos // 8 for field in kind.fields()}, kind.sizeof)
    except (gdb.error, TypeError):
        return None
    if not {"bins", "top", "next", "system_mem"} <= state.offsets.keys():
        return None
    try:
        mapped: Optional[int] = int(c_value("&mp_.mmapped_mem"))
    except gdb.error:
        mapped = None
    return _Place(int(arena), state, mapped)
