"""Tables and text without rich: what gdb's Python has where `gdbmem install` has not run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import IO, NamedTuple, Union

_GAP = 2
_NARROWEST_LAST = 20


class PlainText:
    """A string that is put together as rich's Text is; styles are dropped."""

    def __init__(self, text: str = "", style: str = "", *, no_wrap: bool = False) -> None:
        self.plain = text

    def append(self, text: Union[str, PlainText], style: str = "") -> PlainText:
        self.plain += str(text)
        return self

    append_text = append

    @classmethod
    def assemble(cls, *parts: Union[str, tuple[str, str]]) -> PlainText:
        return cls("".join(part if isinstance(part, str) else str(part[0]) for part in parts))

    def __str__(self) -> str:
        return self.plain


class _PlainColumn(NamedTuple):
    title: str
    justify: str
    wraps: bool  # takes the width that is left, in as many lines as needed
    cuts: bool  # takes the width that is left, in one line


class PlainTable:
    """Columns side by side; the last one may be broken into lines or cut."""

    def __init__(self, **options: object) -> None:
        self._columns: list[_PlainColumn] = []
        self._rows: list[list[str]] = []

    def add_column(
        self, title: str, *, justify: str = "left", no_wrap: bool = False, overflow: str = "", ratio: int = 0
    ) -> None:
        self._columns.append(_PlainColumn(title, justify, overflow == "fold", overflow == "ellipsis"))

    def add_row(self, *cells: Union[str, PlainText]) -> None:
        self._rows.append([str(cell) for cell in cells])

    def lines(self, width: int) -> list[str]:
        """Return the table in lines of at most *width*, as far as its numbers allow."""
        rows = [[column.title for column in self._columns], *self._rows]
        widths = [
            max((len(line) for row in rows for line in row[n].splitlines()), default=0)
            for n in range(len(self._columns))
        ]
        fixed = [w for w, column in zip(widths, self._columns) if not (column.wraps or column.cuts)]
        left = max(width - sum(fixed) - _GAP * (len(widths) - 1), _NARROWEST_LAST)
        return [line for row in rows for line in self._row(row, widths, left)]

    def _row(self, cells: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
        pieces = []
        for cell, width, column in zip(cells, widths, self._columns):
            if column.wraps:
                pieces.append([piece for line in cell.splitlines() for piece in _folded(line, left)])
            elif column.cuts:
                pieces.append([cell[:left]])
            else:
                justify = str.rjust if column.justify == "right" else str.ljust
                pieces.append([justify(line, width) for line in cell.splitlines()])
        blanks = [" " * width for width in widths]
        return [
            (" " * _GAP)
            .join(piece[n] if n < len(piece) else blank for piece, blank in zip(pieces, blanks))
            .rstrip()
            for n in range(max(map(len, pieces), default=0))
        ]


def _folded(line: str, width: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, max(width, len(indent) + 1), subsequent_indent=indent) or [""]


class PlainConsole:
    """Prints to a stream as rich's Console does, without colours."""

    is_terminal = False
    no_color = True

    def __init__(self, stream: IO[str], width: int) -> None:
        self._stream = stream
        self.width = width
        self.encoding = getattr(stream, "encoding", None) or "ascii"

    def print(self, what: object = "", style: str = "", *, soft_wrap: bool = False) -> None:
        text = "\n".join(what.lines(self.width)) if isinstance(what, PlainTable) else str(what)
        self._stream.write(text + "\n")
