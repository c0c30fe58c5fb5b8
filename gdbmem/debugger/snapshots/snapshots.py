"""Heap snapshots at the current location: take, list, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.profiles.own_code import OWN, own_rank
from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.launched.valgrind_monitor import monitor
from gdbmem.debugger.location import current_thread, entry, real_pid
from gdbmem.debugger.python.call_paths import place_and_python
from gdbmem.debugger.session import (
    not_under_massif,
    require_program,
    require_snapshots,
    session,
)
from gdbmem.debugger.snapshots.memcheck_snapshot import Captured, capture_leaks
from gdbmem.debugger.snapshots.outside import outside_facts
from gdbmem.debugger.snapshots.summary import summary_line, unseen_malloc
from gdbmem.debugger.stops import hits_here
from gdbmem.engines import massif, memcheck
from gdbmem.engines.engine import no_snapshots, valgrind_engine
from gdbmem.errors import GdbmemError, InputError, TargetError
from gdbmem.formats.valgrind.massif import read_sites, read_totals, read_unit
from gdbmem.linux.memory.address_space import no_room
from gdbmem.linux.memory.under_valgrind import anonymous_bytes, program_mapped_bytes
from gdbmem.runs.named_records import check_name
from gdbmem.runs.run import SnapshotRecord
from gdbmem.units import format_size

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser
    from gdbmem.debugger.native.snapshot import Taken

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
        from gdbmem.debugger.native.snapshot import take  # 15 ms

        return take(session.native, name, hit)
    capture = capture_leaks if engine == memcheck.NAME else _capture_massif
    run = session.run_of(engine)
    captured = capture()
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


def _capture_massif() -> Captured:
    run = session.run
    file = run.next_file(massif.NAME)
    said = monitor(massif.snapshot_command(f"{session.link}/{file}"))
    path = run.folder / file
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _no_file(said) from None
    heap_bytes = _heap_bytes(data, str(path))
    if heap_bytes is None:
        return Captured(file, None)

    return Captured(file, heap_bytes, read_sites(data, own_rank, own=OWN), unit=read_unit(data))


def take_in_passing(name: Optional[str], hit: int, taken: Taken) -> bool:
    """Make a native program's thread take a snapshot before it continues; return whether it will.

    *taken* gets the record and its line, or None and an error message.
    """
    if session.native is None:
        return False
    from gdbmem.debugger.native.snapshot import take_in_passing as in_passing  # 15 ms

    return in_passing(session.native, name, hit, taken)


def _heap_bytes(data: bytes, path: str) -> Optional[int]:
    try:
        return read_totals(data, path).heap_bytes
    except InputError as error:
        warn(f"{error}; the incomplete file is kept [{error.slug}]")
        return None


def _no_file(said: str) -> GdbmemError:
    """Return why massif wrote nothing. An unknown command or a refusal is only printed, never raised."""
    if "before execution" in said:
        return TargetError(
            "massif takes no snapshot before the program's first instruction",
            slug="too-early",
            hint=f"set a breakpoint (break {entry()}) and type 'continue' first",
        )
    if "not recognised" in said or not said:
        return not_under_massif()
    return TargetError(
        f"massif wrote no snapshot: {said.splitlines()[-1]}",
        slug="no-snapshot-file",
        hint="is the disk full?",
    )


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

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("snapshot", metavar="NAME", nargs="?", help="name of the snapshot")
        parser.add_argument(
            "--containers",
            action="store_true",
            help="scan the containers too: the diff then names those that grew",
        )

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
        from gdbmem.debugger.containers.containers import survey_here  # 20 ms
        from gdbmem.debugger.ledger.saved import keep_survey  # 10 ms

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
    said = monitor(command)
    if not path.exists():
        raise _no_file(said)
    return path
