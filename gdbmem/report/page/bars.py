"""Sums as bars: one row each, divided into parts that add up to it, with their names below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from gdbmem.records import dataclass
from gdbmem.text import printable
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
        drawn.append(
            f'<text x="0" y="{top + 14}"><tspan data-value="{whole}">{format_size(whole)}</tspan>'
            f" {escape(printable(title))}</text>"
        )
        drawn += _row(parts, top + _CAPTION, scale)
        top += _CAPTION + _HEIGHT + _GAP
    names = _names(rows)
    drawn += [_key(name, color, number, top) for number, (name, color) in enumerate(names)]
    height = top + _KEY_ROW * math.ceil(len(names) / _KEY_COLUMNS)
    return (
        f'<svg class="bars" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}" font-family="sans-serif" font-size="13">{"".join(drawn)}</svg>'
    )


def _row(parts: Sequence[BarPart], top: int, scale: float) -> list[str]:
    drawn, left = [], 0.0
    for part in parts:
        width = part.size_bytes * scale
        if part.size_bytes:
            title = escape(f"{printable(part.name)}: {format_size(part.size_bytes)}")
            drawn.append(
                f'<rect x="{left:.2f}" y="{top}" width="{max(width - 0.5, _LEAST):.2f}" height="{_HEIGHT}" '
                f'fill="{part.color}" data-value="{part.size_bytes}"><title>{title}</title></rect>'
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
    return sorted((key for key, size in largest.items() if size), key=lambda key: -largest[key])


def _key(name: str, color: str, number: int, top: int) -> str:
    x = (number % _KEY_COLUMNS) * _WIDTH / _KEY_COLUMNS
    y = top + _KEY_ROW * (number // _KEY_COLUMNS)
    text = printable(name)
    shown = text if len(text) <= _KEY_LETTERS else f"{text[: _KEY_LETTERS - 1]}…"
    return (
        f'<g class="key"><rect x="{x:.0f}" y="{y + 2}" width="11" height="11" fill="{color}"/>'
        f'<text x="{x + 17:.0f}" y="{y + 12}">{escape(shown)}</text></g>'
    )
