"""Sums as bars: one row each, divided into parts that add up to it, with their names below."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.records import dataclass
from gdbmem.report import charting
from gdbmem.report.charting import Swatch, box, element, group, shortened
from gdbmem.units import format_size

_WIDTH = 960
_HEIGHT, _CAPTION, _GAP = 30, 20, 10  # pixels
_KEY_ROW, _KEY_COLUMNS, _KEY_LETTERS = 18, 2, 62
_LEAST = 0.4  # pixels


@dataclass(frozen=True)
class BarPart:
    """One part of a bar."""

    name: str
    size_bytes: int
    color: str


def bars(rows: Sequence[tuple[str, Sequence[BarPart]]], label: str) -> str:
    """Return *rows*, each a title and its parts, as SVG on one scale; *label* describes the picture."""
    wholes = [sum(part.size_bytes for part in parts) for _, parts in rows]
    scale = _WIDTH / (max(wholes, default=0) or 1)
    drawn: list[str] = []
    top = 0
    for (title, parts), whole in zip(rows, wholes):
        size = element("tspan", format_size(whole), data_value=whole)
        drawn.append(element("text", size, f" {charting.escaped(title)}", x=0, y=top + 14))
        drawn += _row(parts, top + _CAPTION, scale)
        top += _CAPTION + _HEIGHT + _GAP
    names = _names(rows)
    columns = _KEY_COLUMNS, _WIDTH / _KEY_COLUMNS
    drawn += [
        group(entry, class_="key")
        for entry in charting.key_in_columns(names, (0, top + 2), columns, Swatch(down=10))
    ]
    height = top + _KEY_ROW * -(-len(names) // _KEY_COLUMNS)
    return charting.drawing(
        (_WIDTH, height), drawn, class_="bars", role="img", aria_label=label, font_size=13
    )


def _row(parts: Sequence[BarPart], top: int, scale: float) -> list[str]:
    drawn, left = [], 0.0
    for part in parts:
        width = part.size_bytes * scale
        if part.size_bytes:
            drawn.append(
                box(
                    left,
                    top,
                    max(width - 0.5, _LEAST),
                    _HEIGHT,
                    part.color,
                    tip=f"{part.name}: {format_size(part.size_bytes)}",
                    data_value=part.size_bytes,
                )
            )
        left += width
    return drawn


def _names(rows: Sequence[tuple[str, Sequence[BarPart]]]) -> list[tuple[str, str]]:
    """Return names and colours, those of the largest parts first."""
    largest: dict[tuple[str, str], int] = {}
    for _, parts in rows:
        for part in parts:
            key = part.name, part.color
            largest[key] = max(largest.get(key, 0), part.size_bytes)
    found = sorted((key for key, size in largest.items() if size), key=lambda key: -largest[key])
    return [(shortened(name, _KEY_LETTERS), color) for name, color in found]
