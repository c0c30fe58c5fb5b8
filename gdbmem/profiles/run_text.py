"""The snapshots of a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Protocol, Union

from gdbmem.model.calltree import GROWN_BYTES, HEAP_BYTES, PAGE_BYTES
from gdbmem.profiles.charts import Stacked
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.text import format_delta, format_duration, format_size, printable

_NARROW = 64  # columns; in fewer, names and places would be wrapped


class _Taken(Protocol):
    """The properties of any saved result of a run; None is unknown."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def place(self) -> Optional[str]: ...
    @property
    def thread(self) -> Optional[int]: ...
    @property
    def hit(self) -> Optional[int]: ...
    @property
    def seconds(self) -> Optional[float]: ...


class Record(_Taken, Protocol):
    """One snapshot of a run."""

    @property
    def engine(self) -> str: ...
    @property
    def heap_bytes(self) -> Optional[int]: ...
    @property
    def process(self) -> Optional[int]: ...


class KeptRecord(_Taken, Protocol):
    """One saved ledger, container scan or heap of a run."""

    @property
    def kind(self) -> str: ...
    @property
    def total_bytes(self) -> Optional[int]: ...
    @property
    def unused_bytes(self) -> Optional[int]: ...


def print_kept(records: Sequence[KeptRecord], console: Console, *, after_others: bool) -> None:
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
    records: Sequence[KeptRecord], title: str, columns: tuple[str, str], console: Console
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


def print_snapshots(records: Sequence[Record], console: Console, *, unit: str = HEAP_BYTES) -> None:
    """Print one row per snapshot: its size in *unit*, change since the previous one, and the program's location."""
    size = {PAGE_BYTES: "mapped", GROWN_BYTES: "resident"}.get(unit, "heap")
    titles = ("name", size, "change", "after", "hit")
    is_narrow = console.width < _NARROW
    table = Stacked(titles) if is_narrow else _columns(titles)
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


def _program(records: Sequence[Record]) -> Optional[int]:
    """Return the process whose snapshots were requested; spontaneous ones of others are marked."""
    return next((one.process for one in records if one.process is not None and one.thread is not None), None)


def _columns(titles: Sequence[str]) -> drawing.Table:
    table = drawing.Table(header_style="dim")
    table.add_column(titles[0])
    table.add_numbers(*titles[1:])
    table.add_column("where")
    return table


def _where(record: Union[Record, KeptRecord], *, process: Optional[int] = None) -> str:
    place = printable(record.place) if record.place else ""
    # Thread 1 and the first process are the default and are not printed.
    marks = [f"thread {record.thread}"] if record.thread not in (None, 1) else []
    marks += [f"process {process}"] if process is not None else []
    if not place:
        return ", ".join(marks)
    return f"{place} ({', '.join(marks)})" if marks else place
