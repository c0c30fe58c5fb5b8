"""The map of a heap as a picture: SVG, or one self-contained HTML file that can be zoomed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape

from gdbmem.model.ledger.heap_map import PARTS, HeapMap
from gdbmem.records import replace
from gdbmem.report.charting import Swatch, box, drawing, group, key_in_columns, text
from gdbmem.report.ledger.heap_map_page import PAGE, SCRIPT
from gdbmem.text import printable
from gdbmem.units import format_size

_COLORS = {
    "live": (0x2F, 0x6F, 0xB7),
    "cached": (0x8E, 0x6B, 0xBF),
    "pinned": (0xE0, 0x7B, 0x39),
    "releasable": (0x4C, 0xA6, 0x5B),
    "absent": (0xE6, 0xE6, 0xE6),
}
_MEANING = {
    "live": "live blocks",
    "cached": "free, in tcaches and fastbins",
    "pinned": "free, on pages that live blocks share",
    "releasable": "free: malloc_trim(0) would return it",
    "absent": "not in memory: returned, or never touched",
}
_COLUMNS, _SIDE = 128, 8
_SVG_CELLS = 4096


def render_map(heap: HeapMap, title: str, kind: str) -> str:
    """Return the picture of *heap* as text of *kind*, "svg" or "html"; *title* is untrusted."""
    return render_svg(heap, title) if kind == "svg" else render_html(heap, title)


def render_svg(heap: HeapMap, title: str) -> str:
    """Return *heap* as SVG: rows of cells, each with its figures as a tooltip."""
    heap = _coarser(heap, _SVG_CELLS)
    names = [(_MEANING[part], _hex(_COLORS[part])) for part in PARTS]
    parts = [
        text(0, 16, _title(heap, title), font_weight="bold"),
        *key_in_columns(names, (0, 28), (3, 340), Swatch(10, 10, 14, 9)),
    ]
    top = 72
    for region in heap.regions:
        parts.append(text(0, top + 12, _caption(region.name, region.start, region.end)))
        top += 18
        for number, cell in enumerate(region.cells):
            x, y = _SIDE * (number % _COLUMNS), top + _SIDE * (number // _COLUMNS)
            start = (region.start & -4096) + number * heap.cell_bytes
            parts.append(group(*_stack(cell, x, y), tip=f"{start:#x}: {_figures(cell)}"))
        top += _SIDE * -(-len(region.cells) // _COLUMNS) + 12
    return drawing((_COLUMNS * _SIDE, top), parts, class_="heap") + "\n"


def render_html(heap: HeapMap, title: str) -> str:
    """Return *heap* as one self-contained HTML file: wheel and buttons zoom, hovering shows figures."""
    data = {
        "cell": heap.cell_bytes,
        "parts": [_MEANING[part] for part in PARTS],
        "colors": [_hex(_COLORS[part]) for part in PARTS],
        "regions": [
            {
                "name": _caption(region.name, region.start, region.end),
                "start": f"{region.start & -4096:x}",
                "cells": [size for cell in region.cells for size in cell],
            }
            for region in heap.regions
        ],
    }
    # "<" could end the data island, or begin a comment in it.
    island = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    rows = "".join(
        f'<tr><td><i style="background:{_hex(_COLORS[part])}"></i></td><td>{escape(_MEANING[part])}</td>'
        f"<td>{format_size(size)}</td></tr>"
        for part, size in zip(PARTS, heap.totals())
    )
    return (
        PAGE.replace("@TITLE@", escape(_title(heap, title)))
        .replace("@ROWS@", rows)
        .replace("@SCRIPT@", SCRIPT)
        .replace("@DATA@", island)
    )


def _title(heap: HeapMap, title: str) -> str:
    size = format_size(sum(heap.totals()))
    return f"The heap of {printable(title)}: {size}, {format_size(heap.cell_bytes)} a cell"


def _caption(name: str, start: int, end: int) -> str:
    return f"{printable(name)}, {start:#x} to {end:#x}"


def _figures(cell: Sequence[int]) -> str:
    return ", ".join(f"{format_size(size)} {part}" for part, size in zip(PARTS, cell) if size)


def _stack(cell: Sequence[int], x: int, y: int) -> Iterator[str]:
    """Yield one cell as stacked rectangles, one per part."""
    whole, below, drawn = sum(cell) or 1, 0.0, _SIDE - 1
    for part, size in zip(PARTS, cell):
        if size:
            height = drawn * size / whole
            below += height
            yield box(x, y + drawn - below, drawn, height, _hex(_COLORS[part]))


def _hex(color: Sequence[int]) -> str:
    return "#" + "".join(f"{value:02x}" for value in color)


def _coarser(heap: HeapMap, most: int) -> HeapMap:
    while sum(len(region.cells) for region in heap.regions) > most and any(
        len(region.cells) > 1 for region in heap.regions
    ):
        regions = [replace(region, cells=list(_pairs(region.cells))) for region in heap.regions]
        heap = HeapMap(2 * heap.cell_bytes, regions)
    return heap


def _pairs(cells: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    for number in range(0, len(cells), 2):
        yield [sum(sizes) for sizes in zip(*cells[number : number + 2])]
