"""A timeline drawn in a terminal: the heap over time, where trees are, where the peak is."""

from __future__ import annotations

from gdbmem.analysis.profiles.timeline import Column, columns_of
from gdbmem.model.profiles.snapshot import Profile
from gdbmem.report import drawing
from gdbmem.report.console import Console, Glyphs, glyphs_for
from gdbmem.units import format_size, format_time

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
    for line in _lines(keys, console.width - len(margin) - 2):
        console.print(f"{margin}  {line}", style="dim")


def _lines(keys: list[str], width: int) -> list[str]:
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
