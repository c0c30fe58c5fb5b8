"""The snapshots of a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, Protocol

from gdbmem.model.snapshot import HEAP_BYTES, PAGE_BYTES
from gdbmem.report.console import print_table
from gdbmem.text import printable
from gdbmem.units import format_delta, format_duration, format_size

if TYPE_CHECKING:
    from rich.console import Console


class Record(Protocol):
    """What is known of one snapshot of a run; None is unknown."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def place(self) -> Optional[str]: ...
    @property
    def thread(self) -> Optional[int]: ...
    @property
    def hit(self) -> Optional[int]: ...
    @property
    def seconds(self) -> Optional[float]: ...
    @property
    def heap_bytes(self) -> Optional[int]: ...


def print_snapshots(records: Sequence[Record], console: Console, *, unit: str = HEAP_BYTES) -> None:
    """Print one row a snapshot: its size in *unit*, change since the one before, and where the program stood."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", overflow="fold")
    for title in ("mapped" if unit == PAGE_BYTES else "heap", "change", "after", "hit"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    former: Optional[int] = None
    for record in records:
        size_bytes = record.heap_bytes
        delta = None if size_bytes is None or former is None else size_bytes - former
        style = "red" if delta and delta > 0 else "green" if delta and delta < 0 else ""
        table.add_row(
            Text(printable(record.name), "bold"),
            "?" if size_bytes is None else format_size(size_bytes),
            Text("" if delta is None else format_delta(delta), style),
            "" if record.seconds is None else format_duration(record.seconds),
            "" if record.hit is None else f"{record.hit:,}",
            Text(_where(record)),
        )
        former = size_bytes if size_bytes is not None else former
    print_table(console, table)


def _where(record: Record) -> str:
    place = printable(record.place) if record.place else ""
    # Thread 1 is the one that everybody expects.
    return f"{place} (thread {record.thread})" if record.thread not in (None, 1) else place
