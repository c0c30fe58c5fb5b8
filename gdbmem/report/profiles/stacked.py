"""Rows on a narrow screen: the text of each below its numbers, because names don't fit beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.report import drawing

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
