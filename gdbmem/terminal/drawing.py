"""Styled text and tables, laid out for a width in columns.

A library for this (rich) takes 60 ms to import, which is more than reading and ranking a small profile.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Union

_GAP = 2  # spaces between the columns of a table
_NARROWEST = 8  # least width of a column that may be wrapped, on any screen
_WORD = re.compile(r"\s*\S+\s*")
ELLIPSIS = "…"

# The sixteen colours of a terminal only: they follow the user's own theme.
_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES = {
    "bold": "1", "dim": "2", "italic": "3",
    **{name: str(30 + n) for n, name in enumerate(_COLORS)},
    **{f"bright_{name}": str(90 + n) for n, name in enumerate(_COLORS)},
}  # fmt: skip


def cells_of(text: str) -> int:
    """Return the terminal columns of *text*: two for each wide character, none for combining ones."""
    return len(text) if text.isascii() else sum(map(_cells_of_letter, text))


def _cells_of_letter(letter: str) -> int:
    if unicodedata.east_asian_width(letter) in "WF":
        return 2
    return 0 if unicodedata.category(letter) in ("Mn", "Me") else 1


class Text:
    """A string of styled parts: `bold`, `dim`, `red`, `bold red`, …; *style* applies to all."""

    def __init__(self, text: str = "", style: str = "", *, no_wrap: bool = False, overflow: str = "") -> None:
        self.style, self.no_wrap, self.overflow = style, no_wrap, overflow
        self._parts = [(text, "")] if text else []

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join([text for text, _ in self._parts])

    def append(self, text: Union[str, Text], style: str = "") -> Text:
        """Add *text* at the end, and return this object."""
        if isinstance(text, Text):
            self._parts += text.styled()
        elif self._parts and self._parts[-1][1] == style:
            self._parts[-1] = (self._parts[-1][0] + text, style)
        else:
            self._parts.append((text, style))
        return self

    @classmethod
    def assemble(cls, *parts: Union[str, Text, tuple[str, str]]) -> Text:
        """Return one text of *parts*; a pair is a string and its style."""
        whole = cls()
        for part in parts:
            whole.append(*part) if isinstance(part, tuple) else whole.append(part)
        return whole

    def join(self, texts: Iterable[Text]) -> Text:
        """Return *texts* with this one between them."""
        whole = Text()
        for number, text in enumerate(texts):
            if number:
                whole.append(self)
            whole.append(text)
        return whole

    def styled(self) -> Iterator[tuple[str, str]]:
        """Yield the parts, each with its whole style."""
        for text, style in self._parts:
            yield text, f"{self.style} {style}".strip()

    def split(self, separator: str = "\n") -> list[Text]:
        """Return the texts between *separator* and *separator*."""
        found, at = [], 0
        for piece in self.plain.split(separator):
            found.append(self._slice(at, at + len(piece)))
            at += len(piece) + len(separator)
        return found

    def truncate(self, width: int, *, overflow: str = "") -> None:
        """Truncate to *width* columns; with `ellipsis` the last column shows the truncation."""
        plain = self.plain
        if cells_of(plain) <= width:
            return
        room = width - (overflow == "ellipsis")
        end = _letters_in(plain, max(room, 0))
        self._parts = list(self._slice(0, end)._parts)
        if overflow == "ellipsis" and width > 0:
            self.append(ELLIPSIS, self._parts[-1][1] if self._parts else "")

    def rstrip(self) -> None:
        """Remove trailing spaces."""
        self._parts = self._slice(0, len(self.plain.rstrip()))._parts

    def wrapped(self, width: int, *, whole_words: bool = False) -> list[Text]:
        """Return the text wrapped to *width* columns between words; an indent is kept.

        Longer words are broken, or with *whole_words* stand out.
        """
        lines = self.split("\n") if "\n" in self.plain else [self]
        return [piece for line in lines for piece in line._wrapped_line(max(width, 1), whole_words)]

    def _wrapped_line(self, width: int, whole_words: bool) -> Iterator[Text]:
        plain = self.plain
        if cells_of(plain) <= width:
            yield self
            return
        if self.no_wrap:
            self.truncate(width, overflow=self.overflow)
            yield self
            return
        indent = " " * min(len(plain) - len(plain.lstrip()), width - 1)
        begin = 0
        for end in _breaks(plain, width, len(indent), whole_words):
            line = Text.assemble(indent if begin else "", self._slice(begin, end))
            line.rstrip()
            yield line
            begin = end

    def _slice(self, begin: int, end: int) -> Text:
        found = Text(style=self.style, no_wrap=self.no_wrap, overflow=self.overflow)
        at = 0
        for text, style in self._parts:
            piece = text[max(begin - at, 0) : max(end - at, 0)]
            if piece:
                found._parts.append((piece, style))
            at += len(text)
        return found

    def ansi(self) -> str:
        """Return the text with the escape sequences of its styles."""
        pieces = []
        for text, style in self.styled():
            codes = ";".join([_CODES[word] for word in style.split()])
            pieces.append(f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text)
        return "".join(pieces)

    def __len__(self) -> int:
        return sum([len(text) for text, _ in self._parts])

    def __str__(self) -> str:
        return self.plain


def _letters_in(text: str, width: int) -> int:
    """Return how many characters of *text* fit into *width* columns."""
    if text.isascii():
        return width
    taken = 0
    for number, letter in enumerate(text):
        taken += _cells_of_letter(letter)
        if taken > width:
            return number
    return len(text)


def _breaks(line: str, width: int, indent: int, whole_words: bool) -> Iterator[int]:
    """Yield the end of each line when *line* is wrapped at *width* columns; longer words are broken, or stand out."""
    room, begin, at = width, 0, 0
    for match in _WORD.finditer(line):
        at = match.start()
        if at > begin and cells_of(line[begin : match.end()].rstrip()) > room:
            yield at
            begin, room = at, width - indent
        while not whole_words and cells_of(line[begin : match.end()].rstrip()) > room:
            begin += max(_letters_in(line[begin:], room), 1)
            yield begin
            room = width - indent
    yield len(line)


class _Column(NamedTuple):
    title: str
    justify: str
    no_wrap: bool
    overflow: str  # fold: wrapped; ellipsis: truncated
    gives_way: bool  # if the table is wider than the screen


class Table:
    """Columns side by side, separated by two spaces."""

    def __init__(self, *, header_style: str = "", show_header: bool = True) -> None:
        self._header_style, self._show_header = header_style, show_header
        self._columns: list[_Column] = []
        self._rows: list[list[Text]] = []

    def add_column(
        self, title: str, *, justify: str = "left", no_wrap: bool = False, overflow: str = "fold"
    ) -> None:
        """Add a column; with *no_wrap* it keeps its width, unless *overflow* is `ellipsis`: then it is truncated."""
        gives_way = not no_wrap or overflow == "ellipsis"
        self._columns.append(_Column(title, justify, no_wrap, overflow, gives_way))

    def add_numbers(self, *titles: str) -> None:
        """Add right-justified columns that keep their width."""
        for title in titles:
            self.add_column(title, justify="right", no_wrap=True)

    def add_row(self, *cells: Union[str, Text]) -> None:
        """Add a row."""
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the table in lines of at most *width* columns, as far as its numbers allow."""
        head = [[Text(column.title, self._header_style) for column in self._columns]]
        rows = [*(head if self._show_header else []), *self._rows]
        widths = [0] * len(self._columns)
        for row in rows:
            for number, cell in enumerate(row):
                widths[number] = max(widths[number], *map(cells_of, cell.plain.split("\n")))
        self._narrow(widths, width)
        for row in rows:
            yield from self._lines_of(row, widths)

    def _narrow(self, widths: list[int], width: int) -> None:
        """Reduce *widths* by the excess, from the widest of the flexible columns."""
        for _ in range(sum(widths) + _GAP * (len(widths) - 1) - width):
            able = [n for n, c in enumerate(self._columns) if c.gives_way and widths[n] > _NARROWEST]
            if not able:
                return
            widths[max(able, key=widths.__getitem__)] -= 1

    def _lines_of(self, row: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        last = self._columns[-1]
        cells = [
            _cell(text, *pair, last=pair[0] is last) for text, pair in zip(row, zip(self._columns, widths))
        ]
        for number in range(max(map(len, cells), default=0)):
            line = Text()
            for column, width, cell in zip(self._columns, widths, cells):
                piece = cell[number] if number < len(cell) else Text()
                blanks = " " * (width - cells_of(piece.plain) + _GAP)
                if column.justify == "right":
                    line.append(blanks[_GAP:]).append(piece).append(blanks[:_GAP])
                else:
                    line.append(piece).append(blanks)
            line.rstrip()
            yield line


def new_table(*numbers: str, last: str) -> Table:
    """Return a table with columns of *numbers*, and the column of words *last*."""
    table = Table(header_style="dim")
    table.add_numbers(*numbers)
    table.add_column(last)
    return table


def _cell(text: Text, column: _Column, width: int, *, last: bool) -> list[Text]:
    if column.no_wrap:
        lines = text.split("\n")
        for line in lines if column.gives_way else ():
            line.truncate(width, overflow=column.overflow)
        return lines
    # Nothing stands to the right of the last column: a path or a name may go over the edge, and can be copied whole.
    return text.wrapped(width, whole_words=last and column.justify == "left")


# A series of numbers as one line of characters.


def thinned(course: Sequence[int], count: int) -> list[int]:
    """Return at most *count* values of *course*: both ends, and between them the maximum of each interval."""
    if len(course) <= count or count < 3:
        return list(course) if len(course) <= count else [max(course)][:count]
    within = course[1:-1]
    cuts = [number * len(within) // (count - 2) for number in range(count - 1)]
    return [course[0], *(max(within[a:b]) for a, b in zip(cuts, cuts[1:])), course[-1]]


def sparkline(course: Sequence[int], levels: str) -> str:
    """Return *course* as one line of characters, from the lowest of *levels* to the highest."""
    low, high = min(course), max(course)
    height = max(high - low, 1)
    return "".join(levels[1 + round((value - low) * (len(levels) - 2) / height)] for value in course)
