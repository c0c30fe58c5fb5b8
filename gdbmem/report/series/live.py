"""A chart and a table that a monitor shows on a terminal while it runs."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Optional

from gdbmem.analysis.series.statistics import thinned
from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series import TREE, Mark, ProcessSample, SeriesLine
from gdbmem.report import drawing
from gdbmem.report.console import columns_that_fit
from gdbmem.report.series.keyboard import Keyboard, in_foreground
from gdbmem.report.series.latest import Latest
from gdbmem.report.series.plain_view import describe
from gdbmem.report.series.series_text import draw_course
from gdbmem.text import printable
from gdbmem.units import format_duration, format_size

_KEEP_POINTS = 2000
_KEYS = {"q": "quit", "m": "mark", "p": "pause", " ": "pause", "\x03": "quit"}


_NARROWEST, _LOWEST_CHART = 40, 6  # characters


class LiveView:
    """A chart and a table that follow the tree; keys: q quit, m mark, p pause."""

    shows_glances = True  # each is a point of the chart

    def __init__(self, console: drawing.Console, title: str) -> None:
        self._console = console
        self._title = printable(title)
        self._points: dict[str, list[tuple[float, float]]] = {"pss_bytes": [], "rss_bytes": []}
        self._latest = Latest()
        self._marks: list[Mark] = []
        self._paused = False
        self._notes: list[str] = []
        self._drawn = 0.0
        self._look: Optional[Look] = None
        self._keyboard = Keyboard()
        self._live = drawing.Live(console=console, auto_refresh=False, transient=True, screen=False)

    def __enter__(self) -> LiveView:
        self._keyboard.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._keyboard.__exit__()

    def show(self, look: Look) -> None:
        """Remember *look*; draw at most four times a second."""
        self._look = look
        self._latest.take(look)
        total = dict(look.readings).get(TREE)
        for metric, points in self._points.items():
            value = getattr(total, metric, None)
            if value is not None:
                points.append((look.t, value))
                if len(points) > 2 * _KEEP_POINTS:
                    points[:] = zip(*thinned(points, _KEEP_POINTS))
        if time.monotonic() - self._drawn >= 0.25:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if not in_foreground():
            return  # somebody else's words stand there now
        self._keyboard.keep()
        # The terminal may have been resized since.
        size = os.get_terminal_size(sys.stderr.fileno()) if sys.stderr.isatty() else self._console.size
        self._console.width, self._console.height = size
        self._live.update(self.picture(*size), refresh=True)

    def picture(self, width: int, height: int) -> drawing.Group:
        """Return what fits into *width* by *height* characters."""
        parts: list[Any] = [_one_line(self._status(), width, "bold")]
        alive = sum(line.gone is None for line in self._latest.lines.values())
        rows = min(max(height // 3, 4), 10, alive + 2)  # the chart has what the table doesn't need
        if (
            width >= _NARROWEST and height > rows + 2
        ):  # else what doesn't fit would scroll away, picture by picture
            chart = self._chart(width, height - rows - 4)
            parts += [drawing.Text.from_ansi(chart, no_wrap=True)] if chart else []
            parts += [self._table(rows - 1, width), _one_line(self._footer(), width, "dim")]
        return drawing.Group(*parts)

    def _chart(self, width: int, height: int) -> str:
        points = self._points["pss_bytes"] if len(self._latest.lines) > 1 else self._points["rss_bytes"]
        if len(points) < 2 or height < _LOWEST_CHART:
            return ""
        times, values = zip(*points)
        return draw_course(times, values, width, height, marks=self._marks, color=not self._console.no_color)

    def _footer(self) -> str:
        return "   ".join(["q quit   m mark   p pause", *self._notes[-1:]])

    def _status(self) -> str:
        look = self._look
        assert look is not None
        total = self._latest.readings.get(TREE, ProcessSample())
        paused = "PAUSED  " if self._paused else ""  # first: the end of the line may be cut off
        return f"{paused}{self._title}  {format_duration(look.t)}  {describe(total, look.alive)}"

    def _table(self, rows: int, width: int) -> Any:
        headings = ["process", "pid", "RSS", "PSS", "USS", "threads"]
        alive = [line for line in self._latest.lines.values() if line.gone is None]
        alive.sort(key=lambda line: -(self._latest.readings.get(line.number, ProcessSample()).rss_bytes or 0))
        cells = [self._cells(line) for line in alive[:rows]]
        shown = columns_that_fit([headings, *cells], width, give_up=(5, 4, 1, 2), shortest=8)
        table = drawing.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(headings[0])  # the only one that may be made narrower
        for column in shown[1:]:
            table.add_column(headings[column], justify="right", no_wrap=True)
        for row in cells:
            name = drawing.Text(row[0], no_wrap=True, overflow="ellipsis")
            table.add_row(name, *(drawing.Text(row[column]) for column in shown[1:]))
        return table

    def _cells(self, line: SeriesLine) -> list[str]:
        reading = self._latest.readings.get(line.number, ProcessSample())
        sizes = (reading.rss_bytes, reading.pss_bytes, reading.uss_bytes)
        known = [format_size(size) if size is not None else "" for size in sizes]
        return [printable(line.name), str(line.pid), *known, str(reading.threads or "")]

    def note(self, text: str) -> None:
        """Show a note below the table, and keep it above the final report."""
        self._notes.append(printable(text))
        self._console.print(f"gdbmem: {printable(text)}")

    def marked(self, mark: Mark) -> None:
        """Show a mark."""
        self._marks.append(mark)

    def keyboard(self) -> Optional[int]:
        """Return the terminal's descriptor."""
        return self._keyboard.descriptor

    def key(self) -> str:
        """Return what the waiting key asks for."""
        typed = self._keyboard.read()
        if typed is None:
            return ""
        wish = _KEYS.get(typed, "" if typed else "quit")
        if wish == "pause":
            self._paused = not self._paused
            self._draw()
        return wish


def _one_line(text: str, width: int, style: str) -> drawing.Text:
    line = drawing.Text(text, style=style)
    line.truncate(width, overflow="ellipsis")
    return line
