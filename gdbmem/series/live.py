"""A chart and a table that a monitor shows on a terminal while it runs."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Sequence
from typing import IO, Callable, Optional

from gdbmem.linux.monitoring.tree import Look
from gdbmem.linux.process.terminal_modes import TerminalModes
from gdbmem.model.series import TREE, Mark, ProcessSample, SeriesLine, Verdict
from gdbmem.series.statistics import thinned
from gdbmem.series.text import draw_course, headline
from gdbmem.series.views import Latest, describe
from gdbmem.terminal.console import ASCII, Console, columns_that_fit, glyphs_for
from gdbmem.terminal.drawing import Table, Text
from gdbmem.text import format_duration, format_rates, format_size, printable

# Reading single keys in a process that a shell may move to the background and back.


_NOT_OURS_SECONDS = 0.05  # interval of checks whether this process may read the terminal again


def in_foreground() -> bool:
    """Return whether this process is in the foreground; otherwise using the terminal would stop it."""
    for descriptor in (0, 2):
        with contextlib.suppress(OSError):  # no terminal, or not our controlling one
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return True


def reads_keys() -> bool:
    """Return whether a program on the terminal of the standard error reads single keys, as editors and pagers do."""
    with contextlib.suppress(OSError, termios.error):
        return not termios.tcgetattr(2)[3] & termios.ICANON
    return False


class Keyboard:
    """The terminal on the standard input, if it is one."""

    def __init__(self) -> None:
        """Change nothing yet."""
        self._modes: Optional[TerminalModes] = None  # the terminal's original settings

    def __enter__(self) -> Keyboard:
        if sys.stdin is not None and sys.stdin.isatty():
            self._modes = TerminalModes(sys.stdin.fileno())
            self.keep()
        return self

    def __exit__(self, *_: object) -> None:
        if self._modes is not None:
            if in_foreground():
                self._modes.restore()
            self._modes.close()

    def keep(self) -> None:
        """Set the mode for single keys again, because a shell that had the terminal meanwhile has changed it."""
        if self._modes is not None and in_foreground():
            local_modes = termios.tcgetattr(sys.stdin.fileno())[3]
            if local_modes & termios.ICANON:
                tty.setcbreak(sys.stdin.fileno())
                self._modes.note_ours()

    @property
    def descriptor(self) -> Optional[int]:
        """The descriptor to wait for; None without a terminal."""
        return sys.stdin.fileno() if self._modes is not None else None

    def read(self) -> Optional[str]:
        """Return the pending key, "" at the end of the input; None if there is none for this process."""
        if not in_foreground():
            time.sleep(_NOT_OURS_SECONDS)
            return None
        if not select.select([sys.stdin], [], [], 0)[0]:
            return None
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace")


_KEEP_POINTS = 2000
_KEYS = {"q": "quit", "m": "mark", "p": "pause", " ": "pause", "s": "sort", "\x03": "quit"}
_SORTS = ("RSS", "PSS", "USS", "pid")
_JUDGE_SECONDS, _JUDGE_SHARE = 2.0, 0.01  # limit of the rate, and 1 % of a CPU


_NARROWEST, _LOWEST_CHART = 40, 6  # characters
_SHARED_EIGHTHS, _LOWEST_SHARED = 5, 20  # of a terminal that a program prints to, and its least rows
_SAVE, _RESTORE, _DOWN = "\x1b7", "\x1b8", "\x1bD"  # the cursor
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
# From the cursor on.
_ERASE_LINE, _ERASE_BELOW = "\x1b[K", "\x1b[J"


class _ScreenArea:
    """Lines at the end of a terminal, redrawn in place and erased at the end."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._drawn = 0  # lines

    def height(self, rows: int) -> int:
        """Return the lines of a terminal of *rows* of which all but one may be drawn."""
        return rows

    def draw(self, lines: Sequence[str], rows: int) -> None:
        """Draw *lines* in place of the previous ones; none may be wider than the terminal."""
        # After a line that fills its row the cursor may still be on its last character.
        drawn = "".join([f"{_ERASE_LINE}{line}\n" for line in lines])
        self._file.write(f"{_HIDE_CURSOR}{self._up()}{drawn}{_ERASE_BELOW}")
        self._file.flush()
        self._drawn = len(lines)

    def erase(self) -> None:
        """Erase the drawing, and show the cursor again."""
        self._file.write(f"{self._up()}{_ERASE_BELOW}{_SHOW_CURSOR}")
        self._file.flush()
        self._drawn = 0

    def _up(self) -> str:
        return f"\r\x1b[{self._drawn}A" if self._drawn else "\r"


class _SharedArea(_ScreenArea):
    """Lines at the bottom of a terminal on which a program prints: its output scrolls above them.

    The cursor is the program's. Each drawing is one write, in which the kernel lets no other output fall.
    """

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._reserved = (0, 0)  # lines, and rows of the terminal then

    def height(self, rows: int) -> int:
        """Return the same for the part that the program does not keep."""
        return rows * _SHARED_EIGHTHS // 8 + 1

    def draw(self, lines: Sequence[str], rows: int) -> None:
        """Draw *lines* at the bottom, and keep the program's output out of as many."""
        lines = [*lines, *[""] * (self.height(rows) - 1 - len(lines))]
        text = ""
        if self._reserved != (len(lines), rows):
            text = self._released() + self._reserve_lines(len(lines), rows)
        top = rows - len(lines) + 1
        drawn = "".join(f"\x1b[{top + at};1H{_ERASE_LINE}{line}" for at, line in enumerate(lines))
        self._write(f"{text}{_SAVE}{drawn}{_RESTORE}")

    def erase(self) -> None:
        """Give the lines back."""
        self._write(self._released())

    def _reserve_lines(self, count: int, rows: int) -> str:
        self._reserved = (count, rows)
        # If the cursor is further down, the text above it scrolls.
        return f"{_DOWN * count}\x1b[{count}A{_SAVE}\x1b[1;{rows - count}r{_RESTORE}"

    def _released(self) -> str:
        count, rows = self._reserved
        self._reserved = (0, 0)
        return f"{_SAVE}\x1b[r\x1b[{rows - count + 1};1H{_ERASE_BELOW}{_RESTORE}" if count else ""

    def _write(self, text: str) -> None:
        self._file.flush()
        data = text.encode(sys.stderr.encoding, "replace")
        while data:
            data = data[os.write(self._file.fileno(), data) :]


class LiveView:
    """A chart and a table that follow the tree; keys: q quit, m mark, p pause, s sort."""

    shows_glances = True  # each is a point of the chart

    def __init__(
        self, console: Console, title: str, judge: Callable[[], Verdict], *, shared: bool = False
    ) -> None:
        """Draw on *console*; *judge* returns the verdict on the recording so far.

        A terminal that is *shared* with a program keeps that one's output above the chart, and its keys.
        """
        self._console = console
        self._judge = judge
        self._title = printable(title)
        self._points: dict[str, list[tuple[float, float]]] = {"pss_bytes": [], "rss_bytes": []}
        self._latest = Latest()
        self._marks: list[Mark] = []
        self._paused = False
        self._notes: list[str] = []
        self._drawn = 0.0
        self._sort = _SORTS[0]
        self._verdict, self._judge_next = "", 0.0
        self._look: Optional[Look] = None
        self._keyboard = None if shared else Keyboard()
        self._area = _SharedArea(console.file) if shared else _ScreenArea(console.file)

    def __enter__(self) -> LiveView:
        if self._keyboard is not None:
            self._keyboard.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._area.erase()
        if self._keyboard is not None:
            self._keyboard.__exit__()

    def show(self, look: Look) -> None:
        """Store *look*; draw at most four times a second."""
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
        if self._drawn >= self._judge_next:
            self.judge()
        if not in_foreground():
            return  # other output is there now
        if self._keyboard is not None:
            self._keyboard.keep()
        elif reads_keys():
            return  # a program that draws on the whole terminal, or edits a line on it
        # The terminal may have been resized since.
        console = self._console
        if sys.stderr.isatty():
            console.width, console.height = os.get_terminal_size(sys.stderr.fileno())
        lines = self.picture(console.width, self._area.height(console.height))
        self._area.draw(lines, console.height)

    def picture(self, width: int, height: int) -> list[str]:
        """Return lines that fit into *width* by *height* characters."""
        shown = self._console.shown
        lines = [shown(_one_line(self._status(), width, "bold"))]
        if height > 2 and self._verdict:
            lines.append(shown(_one_line(self._verdict, width, "")))
        alive = sum(line.gone is None for line in self._latest.lines.values())
        rows = min(max(height // 3, 4), 10, alive + 2)  # the chart gets the rows that the table doesn't need
        # Excess lines would scroll the terminal at each redraw.
        if width >= _NARROWEST and height > rows + 1 + len(lines):
            chart = self._chart(width, height - rows - 3 - len(lines))
            lines += chart.split("\n") if chart else []
            lines += map(shown, self._table(rows - 1, width).lines(width))
            lines.append(shown(_one_line(self._footer(), width, "dim")))
        return lines

    def _course(self) -> list[tuple[float, float]]:
        return self._points["pss_bytes"] if len(self._latest.lines) > 1 else self._points["rss_bytes"]

    def judge(self) -> None:
        """Update the text of the verdict on the recording so far, with its slope."""
        began = time.process_time()
        verdict = self._judge()
        rate = ""
        if verdict.slope is not None and verdict.kind != "inconclusive":
            floor = "floor " if verdict.kind == "sawtooth" else ""
            slope, low, high = format_rates(verdict.slope.value, verdict.slope.low, verdict.slope.high)
            rate = f", {floor}{slope} (95 %: {low} to {high})"
        elif verdict.needs_seconds:
            rate = f", another {format_duration(verdict.needs_seconds)} may settle it"
        self._verdict = f"so far {headline(verdict)}{rate}"
        cost = time.process_time() - began
        self._judge_next = time.monotonic() + max(_JUDGE_SECONDS, cost / _JUDGE_SHARE)

    def _chart(self, width: int, height: int) -> str:
        points = self._course()
        if len(points) < 2 or height < _LOWEST_CHART:
            return ""
        times, values = zip(*points)
        return draw_course(
            times, values, width, height, marks=self._marks, color=self._console.has_colors,
            in_ascii=glyphs_for(self._console) is ASCII,
        )  # fmt: skip

    def _footer(self) -> str:
        keys = f"q quit   m mark   p pause   s sort (by {self._sort})"
        return "   ".join(["Ctrl-C ends it" if self._keyboard is None else keys, *self._notes[-1:]])

    def _status(self) -> str:
        look = self._look
        assert look is not None
        total = self._latest.readings.get(TREE, ProcessSample())
        paused = "PAUSED  " if self._paused else ""  # first: the end of the line may be truncated
        return f"{paused}{self._title}  {format_duration(look.t)}  {describe(total, look.alive)}"

    def _table(self, rows: int, width: int) -> Table:
        headings = ["process", "pid", "RSS", "PSS", "USS", "threads"]
        alive = [line for line in self._latest.lines.values() if line.gone is None]
        alive.sort(key=self._rank)
        cells = [self._cells(line) for line in alive[:rows]]
        shown = columns_that_fit([headings, *cells], width, give_up=(5, 4, 1, 2), shortest=8)
        table = Table()
        table.add_column(headings[0])  # the only one that may be made narrower
        table.add_numbers(*(headings[column] for column in shown[1:]))
        for row in cells:
            name = Text(row[0], no_wrap=True, overflow="ellipsis")
            table.add_row(name, *(Text(row[column]) for column in shown[1:]))
        return table

    def _rank(self, line: SeriesLine) -> float:
        reading = self._latest.readings.get(line.number, ProcessSample())
        sizes = {
            "RSS": reading.rss_bytes,
            "PSS": reading.pss_bytes,
            "USS": reading.uss_bytes,
            "pid": -line.pid,
        }
        return -(sizes[self._sort] or 0)

    def _cells(self, line: SeriesLine) -> list[str]:
        reading = self._latest.readings.get(line.number, ProcessSample())
        sizes = (reading.rss_bytes, reading.pss_bytes, reading.uss_bytes)
        known = [format_size(size) if size is not None else "" for size in sizes]
        return [printable(line.name), str(line.pid), *known, str(reading.threads or "")]

    def note(self, text: str) -> None:
        """Show a note below the table, and keep it above the final report."""
        self._notes.append(printable(text))
        self._area.erase()
        self._console.print(f"gdbmem: {printable(text)}")

    def marked(self, mark: Mark) -> None:
        """Show a mark."""
        self._marks.append(mark)

    def keyboard(self) -> Optional[int]:
        """Return the terminal's descriptor; None if the keys are the program's."""
        return None if self._keyboard is None else self._keyboard.descriptor

    def key(self) -> str:
        """Return the command of the pending key."""
        typed = None if self._keyboard is None else self._keyboard.read()
        if typed is None:
            return ""
        wish = _KEYS.get(typed, "" if typed else "quit")
        if wish == "pause":
            self._paused = not self._paused
        if wish == "sort":
            self._sort = _SORTS[(_SORTS.index(self._sort) + 1) % len(_SORTS)]
        if wish in ("pause", "sort"):
            self._draw()
        return wish


def may_share(rows: int) -> bool:
    """Return whether a terminal of *rows* has room for a chart and a program's output."""
    return rows >= _LOWEST_SHARED


def _one_line(text: str, width: int, style: str) -> Text:
    line = Text(text, style=style)
    line.truncate(width, overflow="ellipsis")
    return line
