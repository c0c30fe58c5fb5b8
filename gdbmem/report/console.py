"""The console for text reports: its width, its colours, and the characters that it can show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple, Optional, Protocol, Union

from gdbmem.report.drawing import ELLIPSIS, Text

_WIDTH_OF_A_PIPE = 100
_HEIGHT_OF_A_PIPE = 25
_NARROWEST = 40


class Glyphs(NamedTuple):
    """The non-ASCII characters that reports use; each replacement has the same width."""

    ellipsis: str = ELLIPSIS
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


ASCII = Glyphs("~", "~", "<", "|", "`", "-", "|", "  ...:::#", ".", "'", "^")


class TextBlock(Protocol):
    """Several lines that depend on the width: a table."""

    def lines(self, width: int) -> Iterator[Text]: ...


class Console:
    """Prints text in styles to *file*: with escape sequences if it supports colours, otherwise plain text."""

    def __init__(
        self,
        file: IO[str],
        *,
        width: int = _WIDTH_OF_A_PIPE,
        height: int = _HEIGHT_OF_A_PIPE,
        is_terminal: bool = False,
        has_colors: bool = False,
    ) -> None:
        self.file, self.width, self.height = file, width, height
        self.is_terminal, self.has_colors = is_terminal, has_colors
        self.encoding = getattr(file, "encoding", None) or "utf-8"

    def print(
        self, what: Union[str, Text, TextBlock] = "", style: str = "", *, soft_wrap: bool = False
    ) -> None:
        """Print *what* and a newline; text is broken into lines at the width, unless *soft_wrap*."""
        if isinstance(what, str):
            what = Text(what, style)
        elif isinstance(what, Text) and style:
            what = Text("", style).append(what)
        if not isinstance(what, Text):
            lines = list(what.lines(self.width))
        else:
            lines = [what] if soft_wrap else what.wrapped(self.width)
        self.file.write("".join([f"{self.shown(line)}\n" for line in lines]))

    def shown(self, line: Text) -> str:
        """Return the written form of *line*: with escape sequences if there are colours."""
        return line.ansi() if self.has_colors else line.plain


def make_console(stream: IO[str], *, width: Optional[int] = None, color: Optional[bool] = None) -> Console:
    """Return a console that writes to *stream*; None values are determined from the stream and the environment.

    Colour needs a terminal, and no NO_COLOR. A pipe is 100 columns wide unless COLUMNS is set.
    """
    is_terminal = _is_terminal(stream)
    if color is None:
        color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Console(
        stream,
        width=max(width or _width_of(stream), _NARROWEST),
        height=_height_of(stream) if is_terminal else _HEIGHT_OF_A_PIPE,
        is_terminal=is_terminal or color,
        has_colors=color,
    )


def glyphs_for(console: Console) -> Glyphs:
    """Return the characters that the encoding of *console* supports."""
    return Glyphs() if console.encoding.lower().startswith(("utf-8", "utf8", "utf_8", "utf-16")) else ASCII


def columns_that_fit(
    rows: Sequence[Sequence[str]], width: int, *, give_up: Sequence[int], shortest: Optional[int] = None
) -> list[int]:
    """Return which columns of *rows* (the headings are a row) to show in *width*: numbers must not be truncated.

    Columns in *give_up* are removed, in that order, until the rest fits with two spaces in between; the first column
    can be truncated to *shortest* characters.
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


def print_sentence(console: Console, text: str, style: str = "", *, label: str = "") -> None:
    """Print *text*, wrapped on a terminal only: elsewhere a sentence is one line."""
    glyphs = glyphs_for(console)
    shown = text.replace("…", glyphs.ellipsis).replace("±", glyphs.plus_minus)
    console.print(Text.assemble((label, "yellow"), (shown, style)), soft_wrap=not console.is_terminal)


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


def _height_of(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).lines or _HEIGHT_OF_A_PIPE
    except (AttributeError, ValueError, OSError):
        return _HEIGHT_OF_A_PIPE
