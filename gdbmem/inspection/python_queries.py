"""Queries about Python's memory in an inspected process, its copy, or a core."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.allocators.cpython.arenas import PythonArena, PythonArenas
from gdbmem.allocators.cpython.blocks import Blocks, Unsure, large_blocks, live_blocks
from gdbmem.allocators.cpython.interpreters import NEWEST_KNOWN, find_debug_offsets, published_version
from gdbmem.allocators.cpython.objects import ObjectCounter, TypeCounts
from gdbmem.allocators.cpython.traces import Traces, read_traces
from gdbmem.errors import Notice, TargetError
from gdbmem.formats.json_profiles import untraced_bytes
from gdbmem.inspection.ledger_parts import holds_python
from gdbmem.inspection.live_process import Held, Moment, Say, Subject, ask_process
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.memory.maps import Mapping, read_smaps
from gdbmem.linux.memory.process_memory import careful_memory
from gdbmem.linux.process.process import initial_environment, process_facts
from gdbmem.model.ledger import FREE_IN_POOLS, FREE_POOLS, HEADERS, LIVE, PYMALLOC, Ledger
from gdbmem.model.memory import Memory
from gdbmem.model.python import ArenaUse, BlockClass, FillClass, PythonObjects, TypeUse
from gdbmem.text import plural, printable

_FILL = (0.01, 0.1, 0.25, 0.5, 0.75, 1.0)
_SPARSE = 0.25  # arenas at most this full are listed with the objects that keep them
_FREE_THREADED = re.compile(r"/(lib)?python3\.\d+t(\.so[.\d]*)?$")
_PYPY = re.compile(r"/(lib)?pypy[^/]*$")


def check_python(
    mappings: Sequence[Mapping], pid: Optional[int] = None, memory: Optional[Memory] = None
) -> None:
    """Raise TargetError if the Python implementation is not the supported one; *pid* is None for a core.

    With *memory* a free-threaded build is recognised under any name, else by that of its files.
    """
    files = {mapping.name.removesuffix(" (deleted)") for mapping in mappings if mapping.is_file}
    if any(_PYPY.search(name) for name in files):
        raise TargetError(
            "this is PyPy, whose objects gdbmem can't read",
            slug="python-unknown",
            hint="only CPython is supported",
        )
    if any(_FREE_THREADED.search(name) for name in files):
        raise free_threaded()
    if not any("python" in name for name in files) and not _is_linked_in(mappings, pid):
        raise TargetError(
            "no Python is loaded in this process",
            slug="python-unknown",
            hint="'gdbmem explain PID' shows its resident set",
        )
    offsets = None if memory is None else find_debug_offsets(memory, mappings)
    if offsets is not None and offsets.free_threaded:
        raise free_threaded()


def _is_linked_in(mappings: Sequence[Mapping], pid: Optional[int]) -> bool:
    with TargetFiles(pid) as files:
        return holds_python(mappings, files.open)


def free_threaded() -> TargetError:
    return TargetError(
        "this Python is a free-threaded build, which keeps its objects in mimalloc: gdbmem can't read them",
        slug="python-unknown",
        hint="'gdbmem explain PID' shows its resident set",
    )


@dataclass
class CountObjects:
    """The query for objects by type; called with the data read from the process."""

    unsure: Unsure = field(default_factory=Unsure)
    counts: Optional[TypeCounts] = None
    large: bool = False

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        arenas = reading.others.python.arenas
        check_python(reading.mappings, reading.pid, None if arenas else memory)
        self.large = reading.heap is not None and reading.heap.is_used and not reading.others.replacement
        if not arenas and not self.large:
            raise no_arenas(reading, memory)
        counter = ObjectCounter(memory, reading.mappings, arenas)
        self.counts = counter.count(self._blocks(reading, memory))
        if not arenas and not self.counts.blocks:
            raise no_arenas(reading, memory)

    def _blocks(self, reading: ProcessImage, memory: Memory) -> Iterator[Blocks]:
        arenas = reading.others.python.arenas
        yield from live_blocks(memory, arenas, self.unsure)
        if self.large and reading.heap is not None:
            yield from large_blocks(memory, reading.heap, every=not arenas)

    def result(self, ledger: Ledger) -> PythonObjects:
        """Return the answer; *ledger* is that of the same process at the same moment."""
        counts = self.counts
        assert counts is not None, "the question was not asked"
        return PythonObjects(
            ledger.program,
            ledger.pid,
            _types(counts),
            TypeUse("", counts.unused_blocks, counts.unused_bytes),
            TypeUse("", counts.other_blocks, counts.other_bytes),
            uncounted_blocks=self.unsure.blocks,
            large=self.large,
            pause_seconds=ledger.pause_seconds,
            notices=[*about_python(ledger), *self._notices()],
        )

    def _notices(self) -> list[Notice]:
        notices = []
        if self.unsure.blocks:
            text = (
                f"{plural(self.unsure.blocks, 'block')} in {plural(self.unsure.pools, 'pool')} are not counted:"
                " they are inconsistent, perhaps because an allocation was in progress"
            )
            notices.append(Notice("python-changing", text))
        if not self.large:
            text = (
                "objects of more than 512 bytes are not counted: Python allocates them by malloc, which is not"
                " glibc's here or could not be read"
            )
            notices.append(Notice("python-large-unread", text))
        return notices


@dataclass
class DescribeArenas:
    """The query for the contents of Python's arenas; called with the data read from the process."""

    arenas: PythonArenas = field(default_factory=PythonArenas)
    sparse: Optional[TypeCounts] = None

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        self.arenas = reading.others.python
        check_python(reading.mappings, reading.pid, None if self.arenas.arenas else memory)
        if not self.arenas.arenas:
            raise no_arenas(reading, memory)
        few = [arena for arena in self.arenas.arenas if _share(arena) <= _SPARSE]
        counter = ObjectCounter(memory, reading.mappings, self.arenas.arenas)
        self.sparse = counter.count(live_blocks(memory, few, Unsure()))

    def result(self, ledger: Ledger) -> ArenaUse:
        """Return the answer; *ledger* is that of the same process at the same moment."""
        arenas, sparse = self.arenas.arenas, self.sparse
        assert sparse is not None, "the question was not asked"
        live = self.arenas.live_bytes
        pieces = [piece for arena in arenas for piece in arena.pieces()]
        headers = sum(piece.header_bytes for piece in pieces)
        held = sum(piece.end - piece.start for piece in pieces if piece.is_held)
        whole = sum(piece.end - piece.start for piece in pieces)
        keepers = [
            *_types(sparse),
            TypeUse("", sparse.other_blocks + sparse.unused_blocks, sparse.other_bytes + sparse.unused_bytes),
        ]
        use = ArenaUse(
            ledger.program,
            ledger.pid,
            arenas=len(arenas),
            arena_bytes=arenas[0].size_bytes,
            pool_bytes=arenas[0].pool_bytes,
            interpreters=self.arenas.interpreters,
            live_blocks=self.arenas.live_blocks,
            live_bytes=live,
            header_bytes=headers,
            free_in_pools_bytes=held - live - headers,
            free_pools_bytes=whole - held,
            resident={
                label: ledger.total_of(PYMALLOC, label)
                for label in (LIVE, HEADERS, FREE_IN_POOLS, FREE_POOLS)
            },
            classes=_classes(arenas),
            fill=_fill(arenas),
            keepers=[one for one in keepers if one.count],
            keeper_share=_SPARSE,
            pause_seconds=ledger.pause_seconds,
            notices=about_python(ledger),
        )
        use.check()
        return use


def no_arenas(reading: ProcessImage, memory: Memory) -> TargetError:
    """Return the error that there are no arenas. Raises TargetError if the release is too new, or has no pymalloc."""
    refuse_newer(published_version(memory, reading.mappings), "the arenas and objects")
    allocator = initial_environment(reading.pid).get("PYTHONMALLOC", "") if reading.pid is not None else ""
    if allocator.startswith("mimalloc"):
        return TargetError(
            f"this Python was started with PYTHONMALLOC={printable(allocator)}, and keeps its objects in mimalloc:"
            " gdbmem can't read them",
            slug="python-no-arenas",
            hint="start it with PYTHONMALLOC=pymalloc or malloc; 'gdbmem explain PID' shows its resident set",
        )
    if allocator.startswith("malloc"):
        return TargetError(
            f"this Python was started with PYTHONMALLOC={printable(allocator)}, so it has no arenas",
            slug="python-no-arenas",
            hint="'gdbmem python objects PID' counts objects in malloc's blocks, 'gdbmem explain PID' the free ones",
        )
    return TargetError(
        "no arena of Python's pymalloc was found in this process",
        slug="python-no-arenas",
        hint="was it started with PYTHONMALLOC=malloc or mimalloc, or has Python not been initialised yet?",
    )


def refuse_newer(version: Optional[tuple[int, int, int]], what: str) -> None:
    """Raise TargetError if *version* is newer than the releases whose structures are known; *what* was not found."""
    if version is None or version[:2] <= NEWEST_KNOWN:
        return
    number, newest = (".".join(map(str, one)) for one in (version, NEWEST_KNOWN))
    raise TargetError(
        f"this is CPython {number}: {what} of releases after {newest} are unknown to gdbmem, and were not recognised",
        slug="python-unknown",
        hint="a later gdbmem may know them; 'gdbmem explain PID' shows the resident set",
    )


def about_python(ledger: Ledger) -> list[Notice]:
    """Return the notices of *ledger* on what could not be read of Python's memory."""
    return [notice for notice in ledger.notices if notice.slug.startswith("python-")]


def _types(counts: TypeCounts) -> list[TypeUse]:
    """Return the types with objects, merged by name, the largest first."""
    sums: dict[str, list[int]] = {}
    for kind, count in counts.blocks.items():
        both = sums.setdefault(kind.name, [0, 0])
        both[0] += count
        both[1] += counts.bytes[kind]
    rows = [TypeUse(name, count, size) for name, (count, size) in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.type))


def _share(arena: PythonArena) -> float:
    return arena.live_bytes / arena.size_bytes


def _fill(arenas: Sequence[PythonArena]) -> list[FillClass]:
    """Return the arenas by how full they are."""
    classes = []
    left = list(arenas)
    for most in _FILL:
        these = [arena for arena in left if _share(arena) <= most]
        left = [arena for arena in left if _share(arena) > most]
        classes.append(
            FillClass(
                most,
                len(these),
                sum(arena.size_bytes for arena in these),
                sum(arena.live_bytes for arena in these),
                sum(arena.live_blocks for arena in these),
            )
        )
    return classes


def _classes(arenas: Sequence[PythonArena]) -> list[BlockClass]:
    sums: dict[int, list[int]] = {}
    for arena in arenas:
        for pool in arena.pools:
            if pool.live:
                row = sums.setdefault(pool.block_bytes, [0, 0, 0])
                row[0] += 1
                row[1] += pool.live
                row[2] += pool.capacity(arena.pool_bytes)
    return [BlockClass(size, *sums[size]) for size in sorted(sums)]


# The records of tracemalloc in a process or a core, read without running anything there.


class TracedProcess(NamedTuple):
    """The traces of a Python process, and the memory that they don't cover."""

    program: str
    pid: Optional[int]
    traces: Traces
    rss_bytes: Optional[int]  # at the same moment; None for a core
    pause_seconds: Optional[float] = None

    @property
    def untraced_bytes(self) -> Optional[int]:
        """Return the resident bytes that are neither traced nor tracemalloc's own; None if unknown."""
        return untraced_bytes(self.rss_bytes, self.traces.bytes, self.traces.own_bytes)


class _TracemallocTables(NamedTuple):
    """The query for the contents of tracemalloc's tables."""

    subject: Subject
    swapped: bool

    def of_process(self, held: Held) -> tuple[Traces, int]:
        mappings = self.subject.mappings
        return read_traces(held.take(mappings, swapped=self.swapped), mappings), _rss(mappings)

    def of_copy(self, moment: Moment, memory: Memory) -> tuple[Traces, int]:
        return read_traces(memory, moment.mappings), _rss(self.subject.mappings)


def _rss(mappings: Sequence[Mapping]) -> int:
    return sum(mapping.rss_bytes for mapping in mappings)


def traces_of_process(pid: int, *, fork: Optional[bool], swapped: bool, say: Say) -> TracedProcess:
    """Return the traces of live process *pid*; *fork*, *say* and errors as for `ask_process`."""
    name = process_facts(pid).name

    def prepare(subject: Subject) -> _TracemallocTables:
        careful = careful_memory(pid, subject.memory, subject.mappings, swapped=swapped)
        check_python(subject.mappings, pid, careful)
        return _TracemallocTables(subject, swapped)

    (traces, rss), pause = ask_process(pid, prepare, fork=fork, say=say)
    return _checked(TracedProcess(name, pid, traces, rss, pause))


def traces_of_stopped(pid: int, memory: Memory, *, swapped: bool) -> TracedProcess:
    """Return the traces of process *pid*, which is stopped by someone else (gdb). Raises TargetError."""
    mappings = read_smaps(pid)
    careful = careful_memory(pid, memory, mappings, swapped=swapped)
    check_python(mappings, pid, careful)
    traces = read_traces(careful, mappings)
    return _checked(TracedProcess(process_facts(pid).name, pid, traces, _rss(mappings)))


def traces_of_core(path: Path, program: Optional[Path]) -> TracedProcess:
    """Return the traces in core file *path*. Raises InputError if it is not a core, or of another program."""
    core = CoreFile(path, program)
    mappings = core.mappings()
    check_python(mappings, memory=core)
    return _checked(TracedProcess(core.program, None, read_traces(core, mappings), None))


def _checked(result: TracedProcess) -> TracedProcess:
    if not result.traces.tables:
        refuse_newer(result.traces.version, "the tables of tracemalloc")
        raise TargetError(
            "tracemalloc has traced nothing in this process, or its tables were not recognised",
            slug="python-no-traces",
            hint="start it with PYTHONTRACEMALLOC=1 (or more, for deeper tracebacks) or 'python -X tracemalloc'",
        )
    return result
