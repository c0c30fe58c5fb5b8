"""Rows on a narrow screen: what each stands for under its numbers, for beside them names would have no room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

_INDENT = 2
_GAP = "  "


class Stacked:
    """Takes rows as rich's Table does: cells of numbers, then what they are of."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._titles = titles
        self._rows: list[tuple[list[Text], Text]] = []

    def add_row(self, *cells: Text) -> None:
        """Add a row; the last of *cells* may have several lines."""
        *numbers, where = cells
        found = [_named(cell, title) for title, cell in zip(self._titles, numbers) if cell.plain.strip()]
        self._rows.append((found, where))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.padding import Padding

        for numbers, where in self._rows:
            if "\n" not in where.plain and _width([*numbers, where]) <= options.max_width:
                yield from _lines([*numbers, where], options.max_width)
            else:
                yield from _lines(numbers, options.max_width)
                yield Padding(where, (0, 0, 0, _INDENT))

    @staticmethod
    def room(width: int) -> int:
        """Return how many columns a row's text has on a screen of *width*."""
        return width - _INDENT


def _named(cell: Text, title: str) -> Text:
    """Return *cell* in one line, with what it counts where that is not clear."""
    from rich.text import Text

    text = Text(" ").join(cell.split("\n"))
    if text.plain in ("1", "+1", "-1") and title == "blocks":
        text.append(" block")
    elif title == "blocks" or (title == "of before" and text.plain.endswith("%")):
        text.append(f" {title}")
    return text


def _width(parts: Sequence[Text]) -> int:
    return sum(map(len, parts)) + len(_GAP) * (len(parts) - 1)


def _lines(parts: Sequence[Text], width: int) -> Iterator[Text]:
    """Yield *parts* in as many lines as they need, none of them broken."""
    from rich.text import Text

    line: list[Text] = []
    for part in parts:
        if line and _width([*line, part]) > width:
            yield Text(_GAP).join(line)
            line = []
        line.append(part)
    yield Text(_GAP).join(line)
