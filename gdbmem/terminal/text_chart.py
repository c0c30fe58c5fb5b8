"""A curve in a frame of text: braille, or stars where only ASCII can be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

_ROWS_OF_FRAME = 4  # its two lines, the labels of the time axis, the unit
_FRAME_IN_ASCII = str.maketrans("─│┌┐└┘┤┬", "-|++++++")
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a letter's two columns of four dots
_BLUE, _YELLOW, _PLAIN = "\x1b[34m", "\x1b[33m", "\x1b[0m"

Point = tuple[float, float]
Tick = tuple[float, str]


class Axis(NamedTuple):
    """What an axis goes from and to, and its labels at some values."""

    first: float
    last: float
    ticks: Sequence[Tick]

    def place(self, value: float, cells: int) -> int:
        """Return the number, from 0, of the one of *cells* equal parts that holds *value*."""
        share = (value - self.first) / ((self.last - self.first) or 1)
        return min(max(int(share * (cells - 1) + 0.5), 0), cells - 1)


def draw_chart(
    curves: Sequence[Sequence[Point]],
    across: Axis,
    up: Axis,
    *,
    size: tuple[int, int],
    unit: str,
    marks: Sequence[float] = (),
    color: bool = False,
    in_ascii: bool = False,
) -> str:
    """Return lines of text, *size* columns by rows, with *curves* and vertical lines at *marks*; *unit* is below."""
    left = max(len(label) for _, label in up.ticks)
    columns, rows = max(size[0] - left - 2, 2), max(size[1] - _ROWS_OF_FRAME, 2)
    cells = [[" "] * columns for _ in range(rows)]
    for mark in marks:
        for row in cells:
            row[across.place(mark, columns)] = f"{_YELLOW}│{_PLAIN}" if color else "│"
    for (column, number), letter in _letters(curves, across, up, columns, rows, in_ascii).items():
        cells[number][column] = f"{_BLUE}{letter}{_PLAIN}" if color else letter
    labels = {rows - 1 - up.place(value, rows): label for value, label in up.ticks}
    lines = [f"{'':{left}}┌{'─' * columns}┐"]
    for number, row in enumerate(cells):
        joined = "".join(row).replace(f"{_PLAIN}{_BLUE}", "")
        lines.append(f"{labels.get(number, ''):>{left}}{'┤' if number in labels else '│'}{joined}│")
    lines += _below(across, columns, left)
    drawn = "\n".join([*lines, unit])
    return drawn.translate(_FRAME_IN_ASCII) if in_ascii else drawn


def _letters(
    curves: Sequence[Sequence[Point]], across: Axis, up: Axis, columns: int, rows: int, in_ascii: bool
) -> dict[tuple[int, int], str]:
    """Return the letter of each cell, (column, row), that a curve goes through."""
    wide, high = (1, 1) if in_ascii else (2, 4)
    dots: dict[tuple[int, int], int] = {}
    for curve in curves:
        places = [
            (across.place(x, columns * wide), rows * high - 1 - up.place(y, rows * high)) for x, y in curve
        ]
        for x, y in _between(places):
            cell = x // wide, y // high
            dots[cell] = dots.get(cell, 0) | _BRAILLE[x % wide][y % high]
    return {cell: "*" if in_ascii else chr(0x2800 + mask) for cell, mask in dots.items()}


def _between(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield *places* and the dots on straight lines from each to the next."""
    yield from places[:1]
    for (x, y), (next_x, next_y) in zip(places, places[1:]):
        steps = max(abs(next_x - x), abs(next_y - y))
        for step in range(1, steps + 1):
            yield round(x + (next_x - x) * step / steps), round(y + (next_y - y) * step / steps)


def _below(across: Axis, columns: int, left: int) -> list[str]:
    frame, labels = ["─"] * columns, [" "] * (left + 2 + columns)
    free = 0  # the first column that no label takes
    for value, label in across.ticks:
        column = across.place(value, columns)
        begin = min(max(left + 1 + column - len(label) // 2, 0), len(labels) - len(label))
        frame[column] = "┬"
        if begin >= free:
            labels[begin : begin + len(label)] = label
            free = begin + len(label) + 1
    return [f"{'':{left}}└{''.join(frame)}┘", "".join(labels).rstrip()]
