"""Charts: elements, axes, ticks and keys in SVG for the pictures of every subject, and a curve in text.

In SVG, text is escaped and made printable here. Positions are in pixels, written with at most two decimals.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple, TypedDict, Union

from gdbmem.text import format_duration, printable

Attribute = Union[str, float, None]

_KEY_ROW = 18  # pixels
_TIME_STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
)  # fmt: skip
_SIZE_FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1024)
_SIZE_TICKS = 5


def element(name: str, *inside: str, **attributes: Attribute) -> str:
    """Return the element *name* around *inside*, markup; in names of attributes ``_`` stands for ``-``."""
    known = [
        (key.strip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None
    ]
    words = "".join([f' {key}="{_written(value)}"' for key, value in known])
    return f"<{name}{words}>{''.join(inside)}</{name}>" if inside else f"<{name}{words}/>"


def _written(value: Union[str, float]) -> str:
    if isinstance(value, str):
        return escaped(value)
    return str(value) if isinstance(value, int) else f"{value:.2f}".rstrip("0").rstrip(".")


def drawing(
    size: tuple[float, float], parts: Iterable[str], *, left: float = 0, **attributes: Attribute
) -> str:
    """Return *parts* as an SVG of *size*, width and height; *left* is the least x."""
    head: dict[str, Attribute] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": " ".join(map(_written, (left, 0, *size))),
        "font_family": "sans-serif",
        "font_size": 12,
    }
    return element("svg", "\n".join(parts), **{**head, **attributes})


def sheet(size: tuple[float, float], parts: Iterable[str]) -> str:
    """Return *parts* as an SVG file of that size, on white."""
    ground = box(0, 0, *size, "#ffffff")
    return drawing(size, [ground, *parts], width=size[0], height=size[1]) + "\n"


def escaped(words: str) -> str:
    """Return *words* as markup."""
    return escape(printable(words))


def title(words: str) -> str:
    """Return the tooltip *words*; none if empty."""
    return element("title", escaped(words)) if words else ""


def text(x: float, y: float, words: str, **attributes: Attribute) -> str:
    """Return *words*, their baseline at *y*."""
    return element("text", escaped(words), x=x, y=y, **attributes)


def box(
    x: float, y: float, width: float, height: float, fill: str, *, tip: str = "", **attributes: Attribute
) -> str:
    """Return a rectangle with the tooltip *tip*."""
    inside = [title(tip)] if tip else []
    return element("rect", *inside, x=x, y=y, width=width, height=height, fill=fill, **attributes)


def group(*inside: str, tip: str = "", **attributes: Attribute) -> str:
    """Return *inside*, markup, as a group with the tooltip *tip*."""
    return element("g", title(tip), *inside, **attributes)


def rule(x: tuple[float, float], y: tuple[float, float], stroke: str, **attributes: Attribute) -> str:
    """Return a line between two corners."""
    return element("line", x1=x[0], x2=x[1], y1=y[0], y2=y[1], stroke=stroke, **attributes)


def shortened(name: str, most: int) -> str:
    """Return at most *most* characters of *name*, printable; an ellipsis shows the truncation."""
    name = printable(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


class Plot(NamedTuple):
    """The area of a chart in pixels, and the values at its edges."""

    left: float
    top: float
    width: float
    height: float
    across: tuple[float, float]  # at the left and right edge
    upward: tuple[float, float]  # at the bottom and top

    @property
    def bottom(self) -> float:
        """The y of the lower edge."""
        return self.top + self.height

    def x(self, value: float) -> float:
        """Return the x of *value*."""
        first, last = self.across
        return self.left + (value - first) / ((last - first) or 1.0) * self.width

    def y(self, value: float) -> float:
        """Return the y of *value*."""
        low, high = self.upward
        return self.top + (high - value) / ((high - low) or 1.0) * self.height

    def levels(
        self,
        values: Iterable[float],
        label: Callable[[float], str],
        *,
        stroke: str = "#dddddd",
        zero: str = "",
    ) -> str:
        """Return a horizontal line with its *label* at each of *values*; the one at 0 has the colour *zero*."""
        edges = self.left, self.left + self.width
        return group(
            *(
                rule(edges, (y, y), stroke if value or not zero else zero)
                + text(self.left - 6, y + 4, label(value), text_anchor="end")
                for value, y in ((value, self.y(value)) for value in values)
            ),
            class_="levels",
        )

    def moments(self, ticks: Iterable[tuple[float, str]], *, stem: int = 5, below: int = 18) -> str:
        """Return the labels of *ticks* *below* the plot, each under a line *stem* pixels long."""
        right = self.left + self.width
        return group(
            *(
                (rule((x, x), (self.bottom, self.bottom + stem), "#555") if stem else "")
                + text(x, self.bottom + below, label, text_anchor="end" if not stem and x > right - 40 else "middle")
                for x, label in ((self.x(value), label) for value, label in ticks)
            ),
            class_="times",
        )  # fmt: skip

    def upright(self, value: float, stroke: str, **attributes: Attribute) -> str:
        """Return a vertical line from the top to the bottom at *value*."""
        x = self.x(value)
        return rule((x, x), (self.top, self.bottom), stroke, **attributes)


class Swatch(NamedTuple):
    """The rectangle of a colour in a key, and where its name begins, from the upper left corner; pixels."""

    width: int = 11
    height: int = 11
    across: int = 17
    down: int = 9


def key_entry(x: float, y: float, name: str, color: str, swatch: Swatch = Swatch()) -> str:  # noqa: B008 (frozen)
    """Return *color* and *name*."""
    return box(x, y, swatch.width, swatch.height, color) + text(x + swatch.across, y + swatch.down, name)


def key_in_columns(
    entries: Sequence[tuple[str, str]],
    corner: tuple[float, float],
    columns: tuple[int, float],
    swatch: Swatch,
) -> list[str]:
    """Return *entries*, names and colours, below each other in *columns*: their number and width."""
    return [
        key_entry(
            corner[0] + number % columns[0] * columns[1],
            corner[1] + number // columns[0] * _KEY_ROW,
            *entry,
            swatch,
        )
        for number, entry in enumerate(entries)
    ]


def key_in_rows(
    entries: Iterable[tuple[str, str]], corner: tuple[float, float], right: float, swatch: Swatch
) -> tuple[list[str], int]:
    """Return *entries*, names and colours, side by side as far as *right*, and the number of rows."""
    parts, at, row = [], corner[0], 0
    for name, color in entries:
        width = 40 + 7 * len(name)
        if at > corner[0] and at + width > right:
            at, row = corner[0], row + 1
        parts.append(key_entry(at, corner[1] + _KEY_ROW * row, name, color, swatch))
        at += width
    return parts, row + 1


class ZoomableCurve(TypedDict):
    """``Curve`` of ``web/timeline.js``."""

    name: str
    color: str
    times: list[float]
    values: list[float]
    begins: list[int]  # the indices of values that no line joins to the one before
    panel: int  # -1: the plot itself


class ZoomablePanel(TypedDict):
    """``Panel`` of ``web/timeline.js``: a smaller plot below."""

    name: str
    top: float
    height: float
    most: float


class ZoomableChart(TypedDict):
    """``Course`` of ``web/timeline.js``: a chart over time."""

    plot: list[float]  # left, top, width, height
    unit: str
    span: list[float]
    most: float
    curves: list[ZoomableCurve]
    stacked: bool
    panels: list[ZoomablePanel]
    moments: list[str]
    marks: list[tuple[float, str]]
    regimes: list[tuple[float, float, str]]


def zoomable(
    plot: Plot,
    curves: Sequence[ZoomableCurve],
    time_unit: str,
    *,
    stacked: bool = False,
    panels: Sequence[ZoomablePanel] = (),
    moments: Sequence[str] = (),
    marks: Iterable[tuple[float, str]] = (),
    regimes: Iterable[tuple[float, float, str]] = (),
) -> ZoomableChart:
    """Return a chart over time, to be packed into a page."""
    return {
        "plot": [plot.left, plot.top, plot.width, plot.height],
        "unit": time_unit,
        "span": list(plot.across),
        "most": plot.upward[1],
        "curves": list(curves),
        "stacked": stacked,
        "panels": list(panels),
        "moments": list(moments),
        "marks": list(marks),
        "regimes": list(regimes),
    }


def zoomable_curve(name: str, color: str, times: Sequence[float], values: Sequence[float]) -> ZoomableCurve:
    """Return one curve of it, in the plot itself and drawn without a gap."""
    return {
        "name": name, "color": color, "times": list(times), "values": list(values), "begins": [], "panel": -1,
    }  # fmt: skip


def round_up(value: float) -> float:
    """Return a round number of bytes from *value* up, a multiple of five of something."""
    power: int = 1024 ** int(math.log(max(value, 1), 1024))
    factors = (digit * ten for ten in (1, 10, 100) for digit in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
    for factor in (*factors, 1000, 1024):
        if factor * power >= value * 1.02:
            return factor * power
    return 2048.0 * power


def fifths(most: float) -> list[float]:
    """Return the sizes from 0 to *most* at which lines are drawn."""
    return [most * number / 5 for number in range(6)]


def round_step(value: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the first that is not less than *value*; at least 1."""
    power: float = 10.0 ** math.floor(math.log10(max(value, 1)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)


def size_ticks(low: int, high: int) -> list[int]:
    """Return round sizes, some five of them, from *low* or less to *high* or more."""
    step = next(
        factor * unit
        for unit in (1 << (10 * power) for power in range(8))
        for factor in _SIZE_FACTORS
        if factor * unit * _SIZE_TICKS >= high - low
    )
    last = max(-(-high // step), low // step + 1)
    return [number * step for number in range(low // step, last + 1)]


def count_ticks(count: int) -> list[int]:
    """Return round numbers of steps up to *count*, some ten of them at most, and *count* itself."""
    step = int(round_step(count / 10))
    # A number too near to the last one would overlap it.
    return [*(n for n in range(0, count, step) if n + step * 0.7 <= count), count]


def time_step(span: float, most: int) -> float:
    """Return a round number of seconds, of which *span* has about *most*."""
    return next((s for s in _TIME_STEPS if span / s <= most), math.ceil(span / most / 86400) * 86400)


def time_ticks(first: float, last: float, most: int) -> list[tuple[float, str]]:
    """Return round times from *first* to *last*, seconds, with their labels; about *most*, at least one."""
    step = time_step(last - first, max(most, 1))
    begin = math.ceil(first / step - 0.05)  # a first sample is a few milliseconds late
    numbers = range(begin, int(last / step) + 1)
    return [(max(number * step, first), time_label(number * step)) for number in numbers] or [
        (first, time_label(first))
    ]


def time_label(seconds: float) -> str:
    """Return *seconds* formatted without parts that are zero."""
    if seconds == 0:
        return "0"
    return (
        format_duration(seconds).replace(" min 0 s", " min").replace(" h 0 min", " h").replace(".0 s", " s")
    )


# A curve in a frame of text: braille, or stars where only ASCII can be shown.


_ROWS_OF_FRAME = 4  # its two lines, the labels of the time axis, the unit
_FRAME_IN_ASCII = str.maketrans("─│┌┐└┘┤┬", "-|++++++")
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a letter's two columns of four dots
_BLUE, _YELLOW, _PLAIN = "\x1b[34m", "\x1b[33m", "\x1b[0m"

Point = tuple[float, float]
Tick = tuple[float, str]


class Axis(NamedTuple):
    """An axis: its least and greatest value, and its labels at some values."""

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
