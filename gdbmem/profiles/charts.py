"""The snapshots of a file or of a run on a terminal: a chart, a table, and rows on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional, Protocol, Union

from gdbmem.model.calltree import GROWN_BYTES, HEAP_BYTES, PAGE_BYTES, Profile
from gdbmem.profiles.timeline import Column, columns_of
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, Glyphs, glyphs_for
from gdbmem.text import format_delta, format_duration, format_size, format_time, printable

# Rows on a narrow screen: the text of each below its numbers, because names don't fit beside them.


_INDENT = 2
_GAP = "  "


class Stacked:
    """Takes rows as a Table does: cells of numbers, then the text."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._titles = titles
        self._rows: list[tuple[list[drawing.Text], drawing.Text]] = []

    def add_row(self, *cells: drawing.Text) -> None:
        """Add a row; the last of *cells* may have several lines."""
        *numbers, where = cells
        found = [_named(cell, title) for title, cell in zip(self._titles, numbers) if cell.plain.strip()]
        self._rows.append((found, where))

    def lines(self, width: int) -> Iterator[drawing.Text]:
        """Yield the rows in lines of at most *width* columns, as far as their numbers allow."""
        for numbers, where in self._rows:
            if "\n" not in where.plain and _width([*numbers, where]) <= width:
                yield from _lines([*numbers, where], width)
            else:
                yield from _lines(numbers, width)
                for line in where.wrapped(self.room(width)):
                    yield drawing.Text.assemble(" " * _INDENT, line)

    @staticmethod
    def room(width: int) -> int:
        """Return the columns available for a row's text on a screen of *width*."""
        return width - _INDENT


def _named(cell: drawing.Text, title: str) -> drawing.Text:
    """Return *cell* in one line, with its heading if that is not clear."""
    text = drawing.Text(" ").join(cell.split("\n"))
    if text.plain in ("1", "+1", "-1") and title == "blocks":
        text.append(" block")
    elif title == "blocks" or (title == "of before" and text.plain.endswith("%")):
        text.append(f" {title}")
    return text


def _width(parts: Sequence[drawing.Text]) -> int:
    return sum(map(len, parts)) + len(_GAP) * (len(parts) - 1)


def _lines(parts: Sequence[drawing.Text], width: int) -> Iterator[drawing.Text]:
    """Yield *parts* in as many lines as necessary, without breaking any."""
    line: list[drawing.Text] = []
    for part in parts:
        if line and _width([*line, part]) > width:
            yield drawing.Text(_GAP).join(line)
            line = []
        line.append(part)
    yield drawing.Text(_GAP).join(line)


# A timeline drawn in a terminal: the heap over time, where trees are, where the peak is.


_HEIGHT = 8
_WIDEST = 100
_HEAP, _MORE = "blue", "bright_black"


def print_chart(profile: Profile, console: Console) -> None:
    """Print the history of *profile*: the heap, and above it allocator overhead and stacks."""
    if len(profile.snapshots) < 2:
        return
    peak = profile.snapshots[profile.peak_index]
    if not peak.total_bytes:
        return
    glyphs = glyphs_for(console)
    scale = format_size(peak.total_bytes)
    count = min(console.width - len(scale) - 3, _WIDEST)
    columns = columns_of(profile.snapshots, count)
    for row in range(_HEIGHT, 0, -1):
        label = scale if row == _HEIGHT else ""
        console.print(_row(columns, row, peak.total_bytes, f"{label:>{len(scale)}}", glyphs))
    margin = " " * len(scale)
    console.print(f"{margin} {glyphs.corner}{glyphs.rule * count}")
    marks = _marks(columns, glyphs)
    console.print(f"{margin}  {marks}", style="yellow")
    start, end = profile.snapshots[0].time, profile.snapshots[-1].time
    first, last = format_time(start, profile.time_unit), format_time(end, profile.time_unit)
    times = f"{first}{last:>{max(count - len(first), 0)}}"
    for line in [times] if len(first) + len(last) < count else [f"{first} to", last]:
        console.print(f"{margin}  {line}", style="dim")
    keys = [f"{glyphs.peak} peak"]
    if glyphs.tree in marks:
        keys.append(f"{glyphs.tree} snapshot with a call tree")
    if any(totals.total_bytes > totals.heap_bytes for totals in profile.snapshots):
        keys.append(f"{glyphs.shade} allocator overhead and stacks")
    for line in _course_lines(keys, console.width - len(margin) - 2):
        console.print(f"{margin}  {line}", style="dim")


def _course_lines(keys: list[str], width: int) -> list[str]:
    lines = keys[:1]
    for key in keys[1:]:
        together = f"{lines[-1]}   {key}"
        if len(together) <= width:
            lines[-1] = together
        else:
            lines.append(key)
    return lines


def _row(columns: list[Column], row: int, top_bytes: int, label: str, glyphs: Glyphs) -> drawing.Text:
    text = drawing.Text.assemble((label, "dim"), f" {glyphs.bar}")
    for column in columns:
        level = 8 * (column.total_bytes * _HEIGHT / top_bytes - (row - 1))
        heap = 8 * (column.heap_bytes * _HEIGHT / top_bytes - (row - 1))
        if level < 0.5:
            text.append(" ")
        elif heap < 0.5 or (level >= 8 and heap < 4):
            text.append(glyphs.shade, _MORE)
        else:
            text.append(glyphs.levels[min(round(min(heap, level)), 8)], _HEAP)
    text.rstrip()
    return text


def _marks(columns: list[Column], glyphs: Glyphs) -> str:
    peak = max(range(len(columns)), key=lambda number: columns[number].total_bytes)
    marks = [glyphs.tree if column.has_tree else " " for column in columns]
    marks[peak] = glyphs.peak
    return "".join(marks).rstrip()


# The snapshots of a run as a table.


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
