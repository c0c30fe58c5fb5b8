"""Where a text report is drawn: width, colour and the characters that the other end can show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Optional, cast

from gdbmem.report import drawing
from gdbmem.report.plain import PlainConsole

_WIDTH_OF_A_PIPE = 100
_NARROWEST = 40


@dataclass(frozen=True)
class Glyphs:
    """The characters beyond ASCII that reports use; each replacement is as wide as what it replaces."""

    ellipsis: str = "…"
    plus_minus: str = "±"
    caller: str = "←"
    bar: str = "│"
    corner: str = "└"
    rule: str = "─"
    branch: str = "├"
    levels: str = " ▁▂▃▄▅▆▇█"
    shade: str = "░"
    tree: str = "▴"
    peak: str = "▲"
    minus: str = "-"


ASCII = Glyphs("~", "~", "<", "|", "`", "-", "|", "  ...:::#", ".", "'", "^", "-")


def make_console(
    stream: IO[str], *, width: Optional[int] = None, color: Optional[bool] = None
) -> drawing.Console:
    """Return a rich console that writes to *stream*; what is None is found out from the stream and the environment.

    Colour needs a terminal, and no NO_COLOR. A pipe is 100 columns wide unless COLUMNS says otherwise. Where there is
    no rich, the console prints what `drawing` makes, and nothing else.
    """
    columns = max(width or _width_of(stream), _NARROWEST)
    if not drawing.has_rich():
        return cast("drawing.Console", PlainConsole(stream, columns))

    class PipedConsole(drawing.Console):
        def on_broken_pipe(self) -> None:
            # rich would end the process with status 1; a reader that has had enough (`| head`) is no failure.
            raise BrokenPipeError

    is_terminal = _is_terminal(stream)
    if color is None:
        color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return PipedConsole(
        file=stream,
        width=columns,
        height=25,  # without one rich measures the terminal itself, and takes a dumb one for 80 columns
        force_terminal=is_terminal or color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def glyphs_for(console: drawing.Console) -> Glyphs:
    """Return the characters that the other end of *console* can show."""
    return Glyphs() if console.encoding.lower().startswith(("utf-8", "utf8", "utf_8", "utf-16")) else ASCII


def columns_that_fit(
    rows: Sequence[Sequence[str]], width: int, *, give_up: Sequence[int], shortest: Optional[int] = None
) -> list[int]:
    """Return which columns of *rows* (the headings are a row) to show in *width*: a number that is cut is none.

    Those of *give_up* go, in that order, until the rest fits with two blanks between; the first column can be cut
    to *shortest* letters.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    if shortest is not None:
        widths[0] = min(widths[0], shortest)
    kept = list(range(len(widths)))
    for column in give_up:
        if sum(widths[c] + 2 for c in kept) - 2 <= width:
            break
        kept.remove(column)
    return kept


def print_table(console: drawing.Console, table: drawing.RenderableType) -> None:
    """Print *table* without the blanks with which rich fills its last column."""
    if isinstance(console, PlainConsole):
        console.print(table)
        return
    for line in console.render_lines(table, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = drawing.Segment(line[-1].text.rstrip(), line[-1].style)
        console.print(drawing.Segments([*line, drawing.Segment.line()]), end="")


def print_sentence(console: drawing.Console, text: str, style: str = "", *, label: str = "") -> None:
    """Print *text*, broken into lines on a terminal only: elsewhere a sentence is a line."""
    glyphs = glyphs_for(console)
    shown = text.replace("…", glyphs.ellipsis).replace("±", glyphs.plus_minus)
    console.print(drawing.Text.assemble((label, "yellow"), (shown, style)), soft_wrap=not console.is_terminal)


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _width_of(stream: IO[str]) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH_OF_A_PIPE
    except (AttributeError, ValueError, OSError):
        return _WIDTH_OF_A_PIPE
