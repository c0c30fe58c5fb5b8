"""Rows on a narrow screen: the text of each below its numbers, because names don't fit beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.model.calltree import Profile
from gdbmem.profiles.timeline import Column, columns_of
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, Glyphs, glyphs_for
from gdbmem.text import format_size, format_time

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
