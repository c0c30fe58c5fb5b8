"""Tables and text without rich: what gdb's Python has where `gdbmem install` has not run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple, NoReturn, Union

_GAP = 2
_NARROWEST_LAST = 20


class _Plain:
    """A thing that is drawn without rich; it says so where it cannot do what rich can."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"{name} needs rich", name="rich")  # told as such, not as a bug of ours


class PlainText(_Plain):
    """A string that is put together as rich's Text is; styles are dropped."""

    def __init__(self, text: str = "", style: str = "", *, no_wrap: bool = False, overflow: str = "") -> None:
        self.plain = text

    def append(self, text: Union[str, PlainText], style: str = "") -> PlainText:
        self.plain += str(text)
        return self

    append_text = append

    @classmethod
    def assemble(cls, *parts: Union[str, tuple[str, str]]) -> PlainText:
        return cls("".join(part if isinstance(part, str) else str(part[0]) for part in parts))

    def join(self, lines: Iterable[PlainText]) -> PlainText:
        return PlainText(self.plain.join(line.plain for line in lines))

    def __len__(self) -> int:
        return len(self.plain)

    def __str__(self) -> str:
        return self.plain


class _PlainColumn(NamedTuple):
    title: str
    justify: str
    wraps: bool  # takes the width that is left, in as many lines as needed
    cuts: bool  # takes the width that is left, in one line


class PlainTable(_Plain):
    """Columns side by side; the last one may be broken into lines or cut."""

    def __init__(self, **options: object) -> None:
        self._columns: list[_PlainColumn] = []
        self._rows: list[list[str]] = []

    def add_column(
        self, title: str, *, justify: str = "left", no_wrap: bool = False, overflow: str = "", ratio: int = 0
    ) -> None:
        wraps = overflow == "fold" and not no_wrap
        self._columns.append(_PlainColumn(title, justify, wraps, overflow == "ellipsis"))

    def add_row(self, *cells: Union[str, PlainText]) -> None:
        self._rows.append([str(cell) for cell in cells])

    def lines(self, width: int) -> list[str]:
        """Return the table in lines of at most *width*, as far as its numbers allow."""
        rows = [[column.title for column in self._columns], *self._rows]
        widths = [
            max((len(line) for row in rows for line in row[n].splitlines()), default=0)
            for n in range(len(self._columns))
        ]
        fixed = [w for n, w in enumerate(widths) if not self._gives_way(n)]
        left = max(width - sum(fixed) - _GAP * (len(widths) - 1), _NARROWEST_LAST)
        return [line for row in rows for line in self._row(row, widths, left)]

    def _gives_way(self, number: int) -> bool:
        column = self._columns[number]
        return number == len(self._columns) - 1 and (column.wraps or column.cuts)

    def _row(self, cells: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
        pieces = []
        for n, (cell, width, column) in enumerate(zip(cells, widths, self._columns)):
            if self._gives_way(n) and column.wraps:
                pieces.append([piece for line in cell.splitlines() for piece in _folded(line, left)])
            elif self._gives_way(n):
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


class PlainConsole(_Plain):
    """Prints to a stream as rich's Console does, without colours."""

    is_terminal = False
    no_color = True

    def __init__(self, stream: IO[str], width: int) -> None:
        self._stream = stream
        self.width = width
        self.encoding = getattr(stream, "encoding", None) or "ascii"

    def print(
        self, what: Union[str, PlainText, PlainTable] = "", style: str = "", *, soft_wrap: bool = False
    ) -> None:
        if not isinstance(what, (str, PlainText, PlainTable)):
            raise ImportError(f"{type(what).__name__} needs rich", name="rich")
        text = "\n".join(what.lines(self.width)) if isinstance(what, PlainTable) else str(what)
        self._stream.write(text + "\n")
