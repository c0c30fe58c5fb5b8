"""massif-list, massif-diff and massif-all: this run's snapshots, and the growth between them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gdbmem.debugger.command import Command, warn
from gdbmem.debugger.location import program_runs
from gdbmem.debugger.report_pages import check_page, write_page
from gdbmem.debugger.session import not_running, require_snapshots, session
from gdbmem.debugger.snapshots.snapshots import save_history
from gdbmem.debugger.terminal import console_on
from gdbmem.engines import massif
from gdbmem.errors import InputError, TargetError
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.profiles.diff import diff_series
from gdbmem.profiles.documents import diff_json, profile_json
from gdbmem.profiles.paths import query_from
from gdbmem.profiles.text import print_diff, print_timeline
from gdbmem.runs.listing import list_json, print_saved, print_snapshots
from gdbmem.runs.operand import load_record, process_notices, unit_of
from gdbmem.runs.run import SnapshotRecord
from gdbmem.runs.saved_documents import holdings
from gdbmem.runs.saved_results import saved_records
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.terminal.console import open_output
from gdbmem.text import printable


def _records() -> Sequence[SnapshotRecord]:
    """Return this run's snapshots; raises TargetError in a gdb that has none and can't take any."""
    found = session.run.snapshots if session.has_run else []
    if not found:
        require_snapshots()
    return found


class ListCommand(Command):
    """List the snapshots, ledgers and container scans of this run, with the program's location."""

    def run(self, args: argparse.Namespace) -> None:
        kept = saved_records(session.run) if session.has_run else []
        records = _records() if not kept else session.run.snapshots
        with open_output(args.output, force=args.force) as stream:
            if args.json:
                stream.write(list_json(records, kept=kept))
            elif not records and not kept:
                stream.write("No snapshot yet; 'memsnap NAME' takes one.\n")
            else:
                console = console_on(stream)
                if records:
                    print_snapshots(records, console, unit=unit_of(session.run, records[-1]))
                print_saved(kept, console, after_others=bool(records))


class DiffCommand(Command):
    """Compare two snapshots: which call paths grew, at which source line."""

    def run(self, args: argparse.Namespace) -> None:
        query = query_from(args)
        if args.html is not None:
            check_page(args.html, force=args.force)
        symbols = GdbSymbols(progress=warn)
        reading = OpenOptions(metric=args.metric, symbols=symbols, by_size=query.by == "size")
        chosen = self._chosen(args.snapshots)
        snapshots = [load_record(session.run, record, reading).snapshot for record in chosen]
        with open_output(args.output, force=args.force) as stream:
            diff = diff_series(snapshots)
            held = holdings(session.run, chosen, diff, query)
            said = process_notices([(record.name, record.process) for record in chosen])
            if args.json:
                stream.write(diff_json(diff, query, notices=said, held=held))
            else:
                print_diff(diff, query, console_on(stream), notices=said, held=held)
        if args.html is not None:
            self._write_page(chosen, args)

    @staticmethod
    def _write_page(chosen: Sequence[SnapshotRecord], args: argparse.Namespace) -> None:
        folder = session.run.folder.absolute()
        options = [("--mine", args.mine.pattern if args.mine else None), ("--metric", args.metric)]
        options += [("--known", str(Path(args.known).absolute()) if args.known else None)]
        words = [word for name, value in options if value is not None for word in (name, value)]
        write_page([f"{folder}:{one.name}" for one in chosen], args.html, force=args.force, options=words)

    def operands(self) -> list[str]:
        return [record.name for record in session.run.snapshots] if session.has_run else []

    @staticmethod
    def _chosen(names: Sequence[str]) -> Sequence[SnapshotRecord]:
        records = _records()
        if len(records) < 2:
            raise InputError(
                "there are not yet two snapshots to compare",
                slug="too-few-snapshots",
                hint="take them with 'memsnap NAME'",
            )
        if not names:
            return records[-2:]
        chosen = [session.run.record(name) for name in names]
        return chosen if len(chosen) > 1 else [*chosen, records[-1]]


class AllCommand(Command):
    """Save massif's own history, the snapshots it takes by itself, and show its timeline."""

    def run(self, args: argparse.Namespace) -> None:
        _require_massif()
        path = save_history() if program_runs() else _last_history()
        profile = open_profile(path)
        with open_output(args.output, force=args.force) as stream:
            if args.json:
                stream.write(profile_json(profile))
            else:
                print_timeline(profile, console_on(stream))
                stream.write(f"The history is kept in {printable(str(path))}\n")


def _require_massif() -> None:
    if program_runs() and session.engine not in (massif.NAME, ""):
        raise TargetError(
            f"only massif keeps its own history, and this program runs under {session.engine}",
            slug="not-massif",
            hint="'memlist' shows the snapshots",
        )


def _last_history() -> Path:
    """Return the history that massif wrote when the program ended; raises TargetError if there is none."""
    folder = session.run.folder if session.has_run else None
    files = [*folder.glob("massif.*.out*"), *folder.glob("history-*.massif")] if folder is not None else []
    if not files:
        raise not_running()
    return max(files, key=lambda file: file.stat().st_mtime_ns)
