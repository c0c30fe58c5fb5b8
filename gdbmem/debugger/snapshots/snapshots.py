"""Heap snapshots at the point where gdb stands: take, list, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import gdb

from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.launched.valgrind_monitor import monitor
from gdbmem.debugger.location import current_place, current_thread, entry, program_runs, real_pid
from gdbmem.debugger.session import (
    not_running,
    not_under_massif,
    require_program,
    require_snapshots,
    session,
)
from gdbmem.debugger.snapshots.memcheck_snapshot import Captured, capture_leaks
from gdbmem.debugger.stops import hits_here
from gdbmem.engines import massif, memcheck
from gdbmem.engines.engine import no_snapshots, valgrind_engine
from gdbmem.errors import GdbmemError, InputError, TargetError
from gdbmem.files import open_regular
from gdbmem.linux.under_valgrind import program_mapped_bytes
from gdbmem.model.snapshot import HEAP_BYTES, memory_noun
from gdbmem.runs.run import SnapshotRecord, check_name
from gdbmem.runs.saved_results import kept_records
from gdbmem.text import printable
from gdbmem.units import format_delta, format_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gdbmem.arguments import ArgumentParser
    from gdbmem.debugger.native.snapshot import Taken
    from gdbmem.model.snapshot import Snapshot

# massif says 0 while the process grows by this much: the memory doesn't come from malloc.
_BLIND_BYTES = 100 << 20


def take_snapshot(name: Optional[str] = None, *, hit: Optional[int] = None) -> tuple[SnapshotRecord, str]:
    """Take a detailed snapshot here; return its record and the one line that sums it up.

    The raw file is in the run folder before anything is made of it, so that no error loses it.
    """
    if name is not None:
        check_name(name)
    require_program()
    engine = require_snapshots()
    if session.native is not None:
        from gdbmem.debugger.native.snapshot import take

        return take(session.native, name, hit)
    capture = capture_leaks if engine == memcheck.NAME else _capture_massif
    run = session.run_of(engine)
    captured = capture()
    record = run.append(
        name or str(int(Path(captured.file).stem)),
        file=captured.file,
        engine=engine,
        place=current_place(),
        thread=current_thread(),
        hit=hit if hit is not None else hits_here(),
        seconds=round(session.seconds, 3),
        heap_bytes=captured.heap_bytes,
        process=real_pid(),
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
    from gdbmem.analysis.profiles.own_code import OWN, own_rank
    from gdbmem.formats.massif import read_sites, read_unit

    return Captured(file, heap_bytes, read_sites(data, own_rank, own=OWN), unit=read_unit(data))


def take_in_passing(name: Optional[str], hit: int, taken: Taken) -> bool:
    """Have a native program's thread take a snapshot before it goes on; tell whether it will.

    *taken* gets the record and its line, or None and what went wrong.
    """
    from gdbmem.debugger.native.snapshot import take_in_passing as in_passing

    return session.native is not None and in_passing(session.native, name, hit, taken)


def _heap_bytes(data: bytes, path: str) -> Optional[int]:
    from gdbmem.formats.massif import read_totals

    try:
        return read_totals(data, path).heap_bytes
    except InputError as error:
        warn(f"{error} What there is of it is kept.")
        return None


def _no_file(said: str) -> GdbmemError:
    """Say why massif wrote nothing. An unknown command or a refusal is only printed, never raised."""
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


def summary_line(
    record: SnapshotRecord, sites: dict[Any, int], *, unit: str = HEAP_BYTES, remark: str = ""
) -> str:
    """Return the line for *record*, whose *unit* by site are *sites*; the next one is compared with them."""
    from gdbmem.analysis.profiles.sites import describe_site, growing_site

    size_bytes = record.heap_bytes or 0
    text = f"snapshot {record.label}: {memory_noun(unit)} {format_size(size_bytes)}"
    if session.last_heap_bytes is not None:
        text += f", {format_delta(size_bytes - session.last_heap_bytes)} since {session.last_label}"
    unseen = "" if size_bytes else _unseen_malloc()
    text += f": {session.engine} sees nothing of {unseen}" if unseen else remark
    grown = growing_site(session.last_sites, sites)
    if grown is not None:
        site, delta = grown
        verb = "most at" if session.last_heap_bytes is None else "grew most at"
        text += f"; {verb} {describe_site(site)} ({format_delta(delta)})"
    session.last_sites, session.last_heap_bytes, session.last_label = sites, record.heap_bytes, record.label
    return text


def _unseen_malloc() -> str:
    """Return in words the malloc that the engine can't replace, if the program has such a one; else ""."""
    if any(entry.get("slug") == "static-binary" for entry in session.run.facts.get("warnings", [])):
        return "the malloc that is linked into the program"
    # valgrind looks for malloc in libc.so*; musl's is in its dynamic linker.
    is_musl = any("/ld-musl-" in (objfile.filename or "") for objfile in gdb.objfiles())
    if session.native is None:
        return "musl's malloc" if is_musl else ""
    allocator = _linked_allocator() if session.native.attached is None else None
    return f"the {allocator} that is linked into the program" if allocator else ""


def _linked_allocator() -> Optional[str]:
    """Return the known allocator that is part of the program's own file, where a preloaded one takes no call."""
    from gdbmem.allocators.others import linked_in

    name = gdb.current_progspace().filename
    try:
        with open_regular(name) as program:
            return linked_in(program)
    except (OSError, TypeError):  # no file, or it has gone
        return None


def blind_spot(heap_bytes: Optional[int]) -> Optional[str]:
    """Return a warning when the engine saw next to nothing of what the process has allocated; else None."""
    if session.native is not None:
        if heap_bytes != 0:
            return None
        if session.native.attached is not None:
            return "it counts 0 bytes: nothing that was allocated since its profiler is on is still there"
        if _unseen_malloc():
            return (
                "launch with --massif, which finds most such allocators, too; 'memexplain' needs no profiler"
            )
        return "it counts 0 bytes: does the program bring an allocator of its own? then try --massif"
    pid = real_pid()
    # Other tools of valgrind's grow by themselves: memcheck remembers of each byte whether it is defined.
    if heap_bytes is None or pid is None or session.engine != massif.NAME:
        return None
    grown = program_mapped_bytes(pid)
    if grown < _BLIND_BYTES or heap_bytes > grown // 20:
        return None
    return (
        f"massif counts {format_size(heap_bytes)} of heap while the program holds {format_size(grown)} that it mapped:"
        " this memory doesn't come from malloc (a static binary? an allocator of its own over mmap?); "
        "launch with --pages-as-heap to count pages"
    )


def little_room() -> Optional[str]:
    """Return a warning where the program limits itself to less than the engine needs beside it; else None."""
    from gdbmem.linux.address_space import no_room

    pid = real_pid()
    return no_room(pid, session.engine) if pid is not None and session.engine not in ("", "none") else None


class SnapCommand(Command):
    """Take a heap snapshot here and keep it in the run folder."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("snapshot", metavar="NAME", nargs="?", help="what to call it")
        parser.add_argument(
            "--containers",
            action="store_true",
            help="survey the containers too: the diff names those that grew",
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
        from gdbmem.debugger.containers.containers import survey_here
        from gdbmem.debugger.ledger.saved import keep_survey

        survey = survey_here()
        survey.check()
        say(f"containers kept as {keep_survey(record.base_name, survey, hit=record.hit).label}")


def _records() -> Sequence[SnapshotRecord]:
    """Return this run's snapshots; raises TargetError in a gdb that has none and can't take any."""
    found = session.run.snapshots if session.has_run else []
    if not found:
        require_snapshots()
    return found


class ListCommand(Command):
    """List the snapshots, ledgers and surveys of containers of this run, and where the program stood."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.arguments import add_output_options

        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.report.output import open_output

        kept = kept_records(session.run) if session.has_run else []
        records = _records() if not kept else session.run.snapshots
        with open_output(args.output, force=args.force) as stream:
            if args.json:
                from gdbmem.report.profiles.run_json import list_json

                stream.write(list_json(records, kept=kept))
            elif not records and not kept:
                stream.write("No snapshot yet; 'memsnap NAME' takes one.\n")
            else:
                from gdbmem.debugger.terminal import console_on
                from gdbmem.report.profiles.run_text import print_kept, print_snapshots
                from gdbmem.runs.operand import unit_of

                console = console_on(stream)
                if records:
                    print_snapshots(records, console, unit=unit_of(session.run, records[-1]))
                print_kept(kept, console, after_others=bool(records))


class DiffCommand(Command):
    """Compare two snapshots: which call paths grew, at which source line."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.analysis.profiles.query import add_query_options
        from gdbmem.arguments import add_output_options

        parser.add_argument("snapshots", metavar="NAME", nargs="*", help="two snapshots, or a series")
        parser.add_argument(
            "--metric",
            metavar="NAME",
            help="what to count, where the engine counts several: definitely-lost, …",
        )
        add_query_options(parser)
        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.analysis.profiles.diff import diff_series
        from gdbmem.analysis.profiles.query import query_from
        from gdbmem.inspection.holdings import holdings
        from gdbmem.report.output import open_output
        from gdbmem.runs.ordering import process_notices

        query = query_from(args)
        by_size = query.by == "size"
        chosen = self._chosen(args.snapshots)
        snapshots = [self._load(record, by_size=by_size, metric=args.metric) for record in chosen]
        with open_output(args.output, force=args.force) as stream:
            diff = diff_series(snapshots)
            held = holdings(session.run, chosen, diff, query)
            said = process_notices([(record.name, record.process) for record in chosen])
            if args.json:
                from gdbmem.report.profiles.diff_json import diff_json

                stream.write(diff_json(diff, query, notices=said, held=held))
            else:
                from gdbmem.debugger.terminal import console_on
                from gdbmem.report.profiles.diff_text import print_diff

                print_diff(diff, query, console_on(stream), notices=said, held=held)

    def operands(self) -> list[str]:
        return [record.name for record in session.run.snapshots] if session.has_run else []

    @staticmethod
    def _chosen(names: Sequence[str]) -> Sequence[SnapshotRecord]:
        records = _records()
        if len(records) < 2:
            raise InputError(
                "there are no two snapshots to compare yet",
                slug="too-few-snapshots",
                hint="take them with 'memsnap NAME'",
            )
        if not names:
            return records[-2:]
        chosen = [session.run.record(name) for name in names]
        return chosen if len(chosen) > 1 else [*chosen, records[-1]]

    @staticmethod
    def _load(record: SnapshotRecord, *, by_size: bool, metric: Optional[str]) -> Snapshot:
        from gdbmem.formats.opening import OpenOptions
        from gdbmem.runs.operand import load_record
        from gdbmem.symbols.address_names import GdbSymbols

        reading = OpenOptions(metric=metric, symbols=GdbSymbols(progress=warn), by_size=by_size)
        return load_record(session.run, record, reading).snapshot


class AllCommand(Command):
    """Save massif's own history, the snapshots it takes by itself, and show its timeline."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.arguments import add_output_options

        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.formats.opening import open_profile
        from gdbmem.report.output import open_output

        _require_massif()
        path = save_history() if program_runs() else _last_history()
        profile = open_profile(path)
        with open_output(args.output, force=args.force) as stream:
            if args.json:
                from gdbmem.report.profiles.profile_json import profile_json

                stream.write(profile_json(profile))
            else:
                from gdbmem.debugger.terminal import console_on
                from gdbmem.report.profiles.profile_text import print_timeline

                print_timeline(profile, console_on(stream))
                stream.write(f"The history is kept in {printable(str(path))}\n")


def _require_massif() -> None:
    if program_runs() and session.engine not in (massif.NAME, ""):
        raise TargetError(
            f"only massif keeps a history of its own, and this program runs under {session.engine}",
            slug="not-massif",
            hint="'memlist' shows the snapshots",
        )


def _last_history() -> Path:
    """Return the history that massif wrote when the program ended; raises TargetError where there is none."""
    folder = session.run.folder if session.has_run else None
    files = [*folder.glob("massif.*.out"), *folder.glob("history-*.massif")] if folder is not None else []
    if not files:
        raise not_running()
    return max(files, key=lambda file: file.stat().st_mtime_ns)


def save_history() -> Path:
    """Have valgrind's tool write what it knows of the run so far; return the new file in the run folder."""
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
