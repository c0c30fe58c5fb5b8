"""The snapshots and other saved results of a run: on a terminal as tables, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional, Union

from gdbmem.errors import Notice
from gdbmem.json_values import as_json
from gdbmem.model.calltree import GROWN_BYTES, HEAP_BYTES, PAGE_BYTES
from gdbmem.runs.run import SnapshotRecord
from gdbmem.runs.saved_results import SavedResult
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import format_delta, format_duration, format_size, printable

_NARROW = 64  # columns; in fewer, names and places would be wrapped


def print_saved(records: Sequence[SavedResult], console: Console, *, after_others: bool) -> None:
    """Print the ledgers, the container scans and the heaps, a table each, if there are any."""
    for kind, title, columns in (
        ("ledger", "ledger", ("resident", "kept free")),
        ("containers", "containers at", ("hold", "unused")),
        ("heap", "heap at", ("live", "lost")),
    ):
        of_kind = [record for record in records if record.kind == kind]
        if of_kind:
            if after_others:
                console.print()
            after_others = True
            _print_kept(of_kind, title, columns, console)


def _print_kept(
    records: Sequence[SavedResult], title: str, columns: tuple[str, str], console: Console
) -> None:
    table = _columns((title, columns[0], "change", columns[1], "after", "hit"))
    former: Optional[int] = None
    for record in records:
        total = record.total_bytes
        delta = None if total is None or former is None else total - former
        table.add_row(
            drawing.Text(printable(record.name), "bold"),
            "?" if total is None else format_size(total),
            "" if delta is None else format_delta(delta),
            "?" if record.unused_bytes is None else format_size(record.unused_bytes),
            "" if record.seconds is None else format_duration(record.seconds),
            "" if record.hit is None else f"{record.hit:,}",
            drawing.Text(_where(record)),
        )
        former = total if total is not None else former
    console.print(table)


def print_snapshots(records: Sequence[SnapshotRecord], console: Console, *, unit: str = HEAP_BYTES) -> None:
    """Print one row per snapshot: its size in *unit*, change since the previous one, and the program's location."""
    size = {PAGE_BYTES: "mapped", GROWN_BYTES: "resident"}.get(unit, "heap")
    titles = ("name", size, "change", "after", "hit")
    is_narrow = console.width < _NARROW
    table = drawing.Stacked(titles) if is_narrow else _columns(titles)
    own = _program(records)
    formers: dict[Optional[int], int] = {}  # by process
    for record in records:
        size_bytes = record.heap_bytes
        process = record.process if record.process != own else None
        former = formers.get(process)
        delta = None if size_bytes is None or former is None else size_bytes - former
        style = "red" if delta and delta > 0 else "green" if delta and delta < 0 else ""
        after, hit = ("after ", "hit ") if is_narrow else ("", "")  # text in place of column titles
        table.add_row(
            drawing.Text(printable(record.name), "bold"),
            drawing.Text("?" if size_bytes is None else format_size(size_bytes)),
            drawing.Text("" if delta is None else format_delta(delta), style),
            drawing.Text("" if record.seconds is None else f"{after}{format_duration(record.seconds)}"),
            drawing.Text("" if record.hit is None else f"{hit}{record.hit:,}"),
            drawing.Text(_where(record, process=process)),
        )
        if size_bytes is not None:
            formers[process] = size_bytes
    console.print(table)


def _program(records: Sequence[SnapshotRecord]) -> Optional[int]:
    """Return the process whose snapshots were requested; spontaneous ones of others are marked."""
    return next((one.process for one in records if one.process is not None and one.thread is not None), None)


def _columns(titles: Sequence[str]) -> drawing.Table:
    table = drawing.Table(header_style="dim")
    table.add_column(titles[0])
    table.add_numbers(*titles[1:])
    table.add_column("where")
    return table


def _where(record: Union[SnapshotRecord, SavedResult], *, process: Optional[int] = None) -> str:
    place = printable(record.place) if record.place else ""
    # Thread 1 and the first process are the default and are not printed.
    marks = [f"thread {record.thread}"] if record.thread not in (None, 1) else []
    marks += [f"process {process}"] if process is not None else []
    if not place:
        return ", ".join(marks)
    return f"{place} ({', '.join(marks)})" if marks else place


# The snapshots of a run as JSON: all of them (``kind=list``), or one just taken (``kind=snap``).


_FIELDS = ("name", "file", "engine", "place", "thread", "hit", "seconds", "heap_bytes", "process")


def list_json(
    records: Iterable[SnapshotRecord], notices: Iterable[Notice] = (), kept: Sequence[SavedResult] = ()
) -> str:
    """Return *records*, and the saved ledgers, container scans and heaps *kept*, as ``kind=list``."""
    listed = [record_object(record) for record in records]
    ledgers = [_kept(one, "rss_bytes", "retained_bytes") for one in kept if one.kind == "ledger"]
    surveys = [_kept(one, "held_bytes", "slack_bytes") for one in kept if one.kind == "containers"]
    heaps = [_kept(one, "live_bytes", "lost_bytes") for one in kept if one.kind == "heap"]
    saved = {"ledgers": ledgers, "containers": surveys, "heaps": heaps}
    return to_json({**head("list", notices), "snapshots": listed, **saved})


def _kept(record: SavedResult, total: str, unused: str) -> Document:
    fields = as_json(record, "name", "file", "place", "thread", "hit", "seconds")
    return {**fields, total: record.total_bytes, unused: record.unused_bytes}


def record_object(record: SnapshotRecord) -> Document:
    """Return one of the objects in ``snapshots``."""
    return as_json(record, *_FIELDS)


def snap_json(record: SnapshotRecord, run: Path, pause_seconds: float, notes: Sequence[str]) -> str:
    """Return *record* of the folder *run*, taken by `gdbmem snap`, as ``kind=snap``; *notes* are for the user."""
    return to_json(
        {
            **head("snap", [Notice("profiler-started", note) for note in notes]),
            "run": str(run),
            "pause_seconds": pause_seconds,
            "snapshot": record_object(record),
        }
    )
