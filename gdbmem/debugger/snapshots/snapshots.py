"""Heap snapshots at the current location: take, list, compare."""

from __future__ import annotations

import argparse
import functools
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypedDict

import gdb

from gdbmem.allocators.others import linked_in
from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.location import current_thread, entry, loaded_files, real_pid, stack_pointer
from gdbmem.debugger.program import executions
from gdbmem.debugger.python.call_paths import place_and_python
from gdbmem.debugger.session import monitor, not_under_massif, require_program, require_snapshots, session
from gdbmem.debugger.stopping.stops import hits_here
from gdbmem.engines import massif, memcheck
from gdbmem.engines.engine import no_snapshots, nothing_written, refuse_limited, valgrind_engine
from gdbmem.engines.valgrind import MEMORY_COMMAND, client_arena_bytes
from gdbmem.errors import GdbmemError, InputError, TargetError
from gdbmem.files import open_regular
from gdbmem.formats.valgrind.massif import read_sites, read_totals, read_unit
from gdbmem.linux.memory.maps import Mapping as MemoryMapping
from gdbmem.linux.memory.maps import mapping_at, mappings_of
from gdbmem.linux.memory.process_memory import random_bytes
from gdbmem.linux.memory.resident import (
    anonymous_bytes,
    is_first_stack,
    no_room,
    own_bytes,
    program_mapped_bytes,
    under_valgrind,
)
from gdbmem.linux.memory.unmapped import file_system_bytes, unmapped_memory
from gdbmem.model.calltree import HEAP_BYTES, memory_noun
from gdbmem.profiles.own_code import OWN, describe_site, growing_site, own_rank
from gdbmem.runs.distrust import check_name
from gdbmem.runs.run import SnapshotRecord
from gdbmem.text import format_delta, format_size

if TYPE_CHECKING:
    from gdbmem.debugger.native.snapshot import Taken


# The summary line of a snapshot: its size, and the largest growth since the last one.


def summary_line(
    record: SnapshotRecord,
    sites: dict[Any, int],
    *,
    unit: str,
    remark: str = "",
    beside: Optional[int] = None,
) -> str:
    """Return the line for *record*, whose *unit* by site are *sites*; the next one is compared with them.

    *beside*: resident bytes that the engine doesn't trace, if known.
    """
    size_bytes = record.heap_bytes or 0
    text = f"snapshot {record.label}: {memory_noun(unit)} {format_size(size_bytes)}"
    if session.last_heap_bytes is not None:
        text += f", {format_delta(size_bytes - session.last_heap_bytes)} since {session.last_label}"
    unseen = "" if size_bytes else unseen_malloc()
    text += f": {session.engine} does not see {unseen}" if unseen else remark
    grown = growing_site(session.last_sites, sites)
    if grown is not None:
        site, delta = grown
        verb = "most at" if session.last_heap_bytes is None else "grew most at"
        text += f"; {verb} {describe_site(site)} ({format_delta(delta)})"
    if beside is not None and session.last_beside is not None:
        text += f"; untraced resident memory {format_delta(beside - session.last_beside)}"
    session.last_beside = beside
    session.last_sites, session.last_heap_bytes, session.last_label = sites, record.heap_bytes, record.label
    return text


def unseen_malloc() -> str:
    """Describe the malloc of the program that the engine can't replace; "" if there is none."""
    if any(entry.get("slug") == "static-binary" for entry in session.run.facts.get("warnings", [])):
        return "the malloc that is linked into the program"
    # valgrind looks for malloc in libc.so*; musl's is in its dynamic linker.
    is_musl = any("/ld-musl-" in name for name in loaded_files())
    if session.native is None:
        return "musl's malloc" if is_musl else ""
    allocator = _linked_allocator() if session.native.attached is None else None
    return f"the {allocator} that is linked into the program" if allocator else ""


def _linked_allocator() -> Optional[str]:
    """Return the known allocator in the program's own file, which a preloaded one can't replace."""
    name = gdb.current_progspace().filename
    try:
        with open_regular(name) as program:
            return linked_in(program)
    except (OSError, TypeError, UnicodeDecodeError):  # no file, or it has gone, or its name can't be read
        return None


# Figures beside a snapshot of a recipe, by which a gate knows what the engine could not see.


def execution_here() -> Optional[str]:
    """Return what names the program that the process executes, as the runs of recipes have it; None elsewhere."""
    pid = real_pid() if session.judged else None
    if pid is None:
        return None
    random = executions.here()[1] if session.native is not None else random_bytes(pid)
    return f"{pid}.{zlib.crc32(random):08x}"


class UncountedFacts(TypedDict, total=False):
    """Fields of a record of `runs/` on memory that its engine does not count; those that are unknown are missing."""

    execution: Optional[str]
    unseen_malloc: str
    outside_bytes: int
    unmapped_bytes: int
    unread_bytes: int
    own_bytes: int
    threads: int


def beside_resident_facts(*, by_faults: bool = False) -> UncountedFacts:
    """Return the fields of a record on memory that is not in the resident set: swapped, unmapped, in huge pages.

    *by_faults*: what page faults don't show: they have huge pages, but not what is resident of the kernel's buffers.
    """
    pid = real_pid() if session.judged else None
    if pid is None:
        return {}
    facts: UncountedFacts = {"execution": execution_here()}
    try:
        mappings = mappings_of(pid, "smaps")
        unmapped, unread = unmapped_memory(pid, mappings)
    except OSError:
        return facts
    apart = sum(mapping.swap_bytes for mapping in mappings)
    if not by_faults:
        apart += sum(mapping.hugetlb_bytes for mapping in mappings)
    else:
        apart += sum(mapping.rss_bytes for mapping in mappings if mapping.is_kernel_buffer)
    return {
        **facts,
        "outside_bytes": apart + unmapped,
        "unmapped_bytes": unmapped,
        "unread_bytes": unread,
    }


@functools.lru_cache(maxsize=1)
def _unseen_malloc(execution: Optional[str]) -> str:
    """Return unseen_malloc() of one *execution*: it may read the whole program."""
    return unseen_malloc()


def _live_stack(mappings: Sequence[MemoryMapping]) -> int:
    """Return the resident bytes of the first thread's stack above its stack pointer, if that thread has stopped here.

    What calls have left below it is used again; what alloca() takes in a loop is above.
    """
    thread = gdb.selected_thread()
    if thread is None or thread.num != 1:
        return 0
    pointer = stack_pointer(gdb.newest_frame())
    stack = mapping_at(mappings, pointer)
    if stack is None or not is_first_stack(stack):
        return 0
    return min(stack.end - pointer, stack.rss_bytes + stack.swap_bytes)


def outside_facts(
    heap_bytes: Optional[int], unit: str, allocator_bytes: Optional[int] = None
) -> UncountedFacts:
    """Return the fields of a snapshot's record on memory that the engine does not count; {} if nothing is judged.

    *allocator_bytes* are the resident bytes of the allocator that the engine has preloaded.
    """
    pid = real_pid() if session.judged else None
    if pid is None or heap_bytes is None or unit != HEAP_BYTES:
        return {}
    execution = execution_here()
    facts: UncountedFacts = {"execution": execution, "unseen_malloc": _unseen_malloc(execution)}
    try:
        mappings = mappings_of(pid, "smaps")
        unmapped, unread = unmapped_memory(pid, mappings)
        apart = unmapped + file_system_bytes(pid, mappings) + _live_stack(mappings)
    except OSError:
        return facts
    facts["unmapped_bytes"], facts["unread_bytes"] = unmapped, unread
    if session.native is None:
        outside, executable = under_valgrind(mappings)
        blocks = client_arena_bytes(monitor(MEMORY_COMMAND))
        # Where valgrind doesn't tell, executable memory of the program's own is not known.
        return {**facts, "outside_bytes": apart + outside + (0 if blocks is None else executable - blocks)}
    # Blocks that were never written make it negative.
    own = own_bytes(mappings)
    outside = own - (heap_bytes if allocator_bytes is None else allocator_bytes)
    threads = len(gdb.selected_inferior().threads())
    return {**facts, "outside_bytes": apart + outside, "own_bytes": own, "threads": threads}


_IS_FULL = "is the disk full?"
# massif reports 0 while the process grows by this much: the memory doesn't come from malloc.
_BLIND_BYTES = 100 << 20


def take_snapshot(name: Optional[str] = None, *, hit: Optional[int] = None) -> tuple[SnapshotRecord, str]:
    """Take a detailed snapshot here; return its record and its summary line.

    The raw file is in the run folder before it is processed, so that no error loses it.
    """
    if name is not None:
        check_name(name)
    require_program()
    engine = require_snapshots()
    if session.native is not None:
        from gdbmem.debugger.native.snapshot import take  # slow to import

        return take(session.native, name, hit)
    run = session.run_of(engine)
    captured = _capture_leaks() if engine == memcheck.NAME else _capture_massif()
    record = run.append(
        name or str(int(Path(captured.file).stem)),
        file=captured.file,
        engine=engine,
        place=place_and_python(),
        thread=current_thread(),
        hit=hit if hit is not None else hits_here(),
        seconds=round(session.seconds, 3),
        heap_bytes=captured.heap_bytes,
        process=real_pid(),
        **outside_facts(captured.heap_bytes, captured.unit),
    )
    return record, _summary(record, captured)


class Captured(NamedTuple):
    """A raw file in the run folder, and its totals."""

    file: str  # relative to the run folder
    heap_bytes: Optional[int]  # None: it can't be read
    sites: Mapping[Any, int] = {}  # bytes by allocation site
    remark: str = ""  # for the snapshot's line
    unit: str = HEAP_BYTES


def _capture_leaks() -> Captured:
    from gdbmem.debugger.snapshots.leaks import capture_leaks  # slow to import

    return capture_leaks()


def _capture_massif() -> Captured:
    run = session.run
    refuse_killed()
    file = run.next_file(massif.NAME)
    said = monitor(massif.snapshot_command(f"{session.link}/{file}"))
    path = f"{run.folder}/{file}"
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  (a snapshot takes little more than this)
            data = stream.read()
    except FileNotFoundError:
        raise _no_file(said, Path(path)) from None
    heap_bytes = _heap_bytes(data, path)
    if heap_bytes is None:
        return Captured(file, None)

    return Captured(file, heap_bytes, read_sites(data, own_rank, own=OWN), unit=read_unit(data))


def take_in_passing(name: Optional[str], hit: int, taken: Taken) -> bool:
    """Make a native program's thread take a snapshot before it continues; return whether it will.

    *taken* gets the record and its line, or None and an error message.
    """
    if session.native is None:
        return False
    from gdbmem.debugger.native.snapshot import take_in_passing as in_passing  # slow to import

    return in_passing(session.native, name, hit, taken)


def _heap_bytes(data: bytes, path: str) -> Optional[int]:
    try:
        return read_totals(data, path).heap_bytes
    except InputError as error:
        warn(f"{error}; the incomplete file is kept [{error.slug}]")
        return None


def refuse_killed() -> None:
    """Raise TargetError if valgrind, and the program with it, would be killed for writing a file."""
    pid = real_pid()
    if pid is not None:
        refuse_limited(pid)


def not_written(message: str, target: Path) -> TargetError:
    """Return the error *message* of a tool of valgrind that has not written *target*, with the reason if known."""
    pid = real_pid()
    if pid is None:
        return TargetError(message, slug="no-snapshot-file", hint=_IS_FULL)
    return nothing_written(message, pid, str(target), hint=_IS_FULL)


def _no_file(said: str, target: Path) -> GdbmemError:
    """Return why massif wrote nothing. An unknown command or a refusal is only printed, never raised."""
    if "before execution" in said:
        return TargetError(
            "massif takes no snapshot before the program's first instruction",
            slug="too-early",
            hint=f"set a breakpoint (break {entry()}) and type 'continue' first",
        )
    if "not recognised" in said or not said:
        return not_under_massif()
    return not_written(f"massif wrote no snapshot: {said.splitlines()[-1]}", target)


def _summary(record: SnapshotRecord, captured: Captured) -> str:
    """Return the snapshot's one line, and remember its sites for the next one."""
    if record.heap_bytes is None:
        return f"snapshot {record.label}: kept in {record.file}"
    return summary_line(record, dict(captured.sites), unit=captured.unit, remark=captured.remark)


def blind_spot(heap_bytes: Optional[int]) -> Optional[str]:
    """Return a warning when the engine saw next to nothing of what the process has allocated; else None."""
    if session.native is not None:
        if heap_bytes != 0:
            return None
        if session.native.attached is not None:
            return "it counts 0 bytes: all allocations since its profiler was switched on have been freed"
        if unseen_malloc():
            return (
                "launch with --massif, which finds most such allocators, too; 'memexplain' needs no profiler"
            )
        return "it counts 0 bytes: if the program has its own allocator, try --massif"
    pid = real_pid()
    # Other valgrind tools grow by themselves: memcheck records for each byte whether it is defined.
    if heap_bytes is None or pid is None or session.engine != massif.NAME:
        return None
    # The division of its memory takes some 5 ms to read.
    if not _may_be_blind(heap_bytes, anonymous_bytes(pid)):
        return None
    grown = program_mapped_bytes(pid)
    if not _may_be_blind(heap_bytes, grown):
        return None
    return (
        f"massif counts {format_size(heap_bytes)} of heap while the program holds {format_size(grown)} that it mapped:"
        " this memory doesn't come from malloc (a static binary, or its own allocator over mmap); "
        "launch with --pages-as-heap to count pages"
    )


def _may_be_blind(heap_bytes: int, grown_bytes: int) -> bool:
    return grown_bytes >= _BLIND_BYTES and heap_bytes <= grown_bytes // 20


def little_room() -> Optional[str]:
    """Return a warning if the program's own memory limit leaves too little for the engine; else None."""
    pid = real_pid()
    return no_room(pid, session.engine) if pid is not None and session.engine not in ("", "none") else None


class SnapCommand(Command):
    """Take a heap snapshot here and save it in the run folder."""

    def run(self, args: argparse.Namespace) -> None:
        record, summary = take_snapshot(args.snapshot)
        say(summary)
        if args.containers:
            self._survey(record)
        warning = blind_spot(record.heap_bytes)
        if warning:
            warn(warning)

    @staticmethod
    def _survey(record: SnapshotRecord) -> None:
        from gdbmem.debugger.containers.containers import survey_here  # slow to import
        from gdbmem.debugger.saved_results import keep_survey  # slow to import

        survey = survey_here()
        survey.check()
        say(f"containers saved as {keep_survey(record.base_name, survey, hit=record.hit).label}")


def save_history() -> Path:
    """Make valgrind's tool write its data of the run so far; return the new file in the run folder."""
    require_program()
    run, engine = session.run, session.engine
    suffix = f".{engine}" if engine == massif.NAME else valgrind_engine(engine).SUFFIX
    number = sum(1 for _ in run.folder.glob(f"history-*{suffix}")) + 1
    path = run.folder / f"history-{number}{suffix}"
    command = valgrind_engine(engine).rescue_command(f"{session.link}/{path.name}")
    if command is None:
        raise no_snapshots(engine)
    refuse_killed()
    said = monitor(command)
    if not path.exists():
        raise _no_file(said, path)
    return path
