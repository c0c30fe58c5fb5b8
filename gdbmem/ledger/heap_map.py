"""The map of a heap, with as many pages per cell as necessary for a small picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Optional

from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, PAGE, TCACHE, HeapTally
from gdbmem.allocators.malloc_heap import CACHED, IN_HUGE, LARGE, LAZY, RETURNED, SLAB, MallocHeap
from gdbmem.allocators.malloc_heap import FREE as FREE_SPAN
from gdbmem.arrays import import_numpy
from gdbmem.ledger.division import divide_spans
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_blocks import PARTS, HeapMap, MapRegion
from gdbmem.terminal.charting import Swatch, box, drawing, group, key_in_columns, text
from gdbmem.text import format_size, plural, printable

MOST_CELLS = 20_000


def map_heap(heap: HeapReading, resident: Ranges, *, most_cells: int = MOST_CELLS) -> HeapMap:
    """Return the map of *heap*; *resident* are the pages that are in memory. The cost is linear in pages."""
    pieces = [(arena, tally) for arena in heap.arenas for tally in arena.tallies]
    size = heap.mmapped_bytes + sum(tally.end - tally.start for _, tally in pieces)
    cell = PAGE
    while size // cell > most_cells:
        cell *= 2
    regions = [_region(arena, tally, resident, cell) for arena, tally in pieces]
    if heap.mmapped:
        chunks = sorted((chunk.start, chunk.end) for chunk in heap.mmapped)
        cells = list(_mapped_cells(chunks, resident, cell))
        name = f"{plural(len(chunks), 'block')} that malloc mapped, one after the other"
        regions.append(MapRegion(name, chunks[0][0], chunks[-1][1], cells))
    return HeapMap(cell, sorted(regions, key=lambda region: region.start))


def _region(arena: ArenaReading, tally: HeapTally, resident: Ranges, cell: int) -> MapRegion:
    number = arena.state.number
    releasable = Ranges(arena.releasable)
    # The memory after an invalid chunk is unknown.
    end = tally.end if tally.stopped_why == "ended" else tally.stopped_at
    cells = [
        _cell(tally, resident, releasable, max(low, tally.start), min(low + cell, end))
        for low in range(tally.start & -PAGE, end, cell)
    ]
    return MapRegion(f"arena {number}" if number else "main heap", tally.start, end, cells)


def _cell(tally: HeapTally, resident: Ranges, releasable: Ranges, low: int, high: int) -> list[int]:
    pieces = list(resident.overlaps(low, high))
    sums, _ = tally.sums(pieces)
    whole = sum(sums)
    freed = sum(releasable.within(start, end) for start, end in pieces)
    in_fastbins = 0
    if freed and sums[FASTBIN]:
        within = [piece for start, end in pieces for piece in releasable.overlaps(start, end)]
        in_fastbins = tally.sums(within)[0][FASTBIN]
    cached = sums[TCACHE] + sums[FASTBIN] - in_fastbins
    pinned = sums[FREE] - (freed - in_fastbins)
    return [sums[LIVE], cached, max(pinned, 0), freed, max(high - low - whole, 0)]


def _mapped_cells(chunks: Sequence[tuple[int, int]], resident: Ranges, cell: int) -> Iterator[list[int]]:
    live = absent = 0
    for start, end in chunks:
        while start < end:
            stop = min(end, start + cell - live - absent)
            held = resident.within(start, stop)
            live, absent = live + held, absent + stop - start - held
            start = stop
            if live + absent == cell:
                yield [live, 0, 0, 0, absent]
                live = absent = 0
    if live or absent:
        yield [live, 0, 0, 0, absent]


def map_mallocs(
    heaps: Sequence[MallocHeap],
    resident: Ranges,
    of_glibc: Optional[HeapMap],
    *,
    most_cells: int = MOST_CELLS,
) -> HeapMap:
    """Return the map of *heaps* of allocators that replace malloc, and of glibc's, without their own structures."""
    found = of_glibc or HeapMap(PAGE, [])
    pieces = [_pieces_of(heap, resident) for heap in heaps]
    size = sum(found.totals()) + sum(int((ends - starts).sum()) for starts, ends, *_ in pieces)
    while size // found.cell_bytes > most_cells:
        found = _coarsened(found)
    regions = [*found.regions]
    for heap, columns in zip(heaps, pieces):
        regions += _malloc_regions(f"{heap.allocator} of {heap.file}", columns, resident, found.cell_bytes)
    return HeapMap(found.cell_bytes, sorted(regions, key=lambda region: region.start))


# The part that resident bytes of a span are, but for those of live and cached blocks.
_SPAN_PARTS = {SLAB: 2, LARGE: 0, FREE_SPAN: 3, LAZY: 3, RETURNED: 3, CACHED: 1, IN_HUGE: 2}


def _pieces_of(heap: MallocHeap, resident: Ranges) -> tuple[Any, ...]:
    """Return the spans with blocks or free pages: start, end, number of the part, and live and cached share.

    Shares are of the resident bytes, which are live as far as blocks are, then cached, as in the ledger.
    """
    np = import_numpy()
    spans = heap.spans
    kept = np.isin(spans.kinds, list(_SPAN_PARTS))
    starts, ends = spans.starts[kept], spans.ends[kept]
    held = np.maximum(resident.within_each(starts, ends), 1)
    live, cached = (column[kept] for column in divide_spans(heap))
    live = np.minimum(live, held)
    cached = np.minimum(cached, held - live)
    parts = np.array([_SPAN_PARTS[kind] for kind in spans.kinds[kept].tolist()], np.int64)
    return starts, ends, parts, live / held, cached / held


def _malloc_regions(name: str, columns: tuple[Any, ...], resident: Ranges, cell: int) -> Iterator[MapRegion]:
    """Yield a region for each row of spans without a gap."""
    np = import_numpy()
    starts, ends, parts, live, cached = columns
    cuts = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(starts)]):
        if first == last:
            continue
        low, high = int(starts[first]), int(ends[last - 1])
        base = low & -PAGE
        borders = np.arange(base + cell, high, cell)
        begins = np.union1d(starts[first:last], borders)
        stops = np.append(begins[1:], high)
        span = first + np.searchsorted(starts[first:last], begins, "right") - 1
        number = (begins - base) // cell
        held = resident.within_each(begins, stops)
        table = np.zeros((int(number[-1]) + 1, len(PARTS)))
        of_live, of_cached = held * live[span], held * cached[span]
        np.add.at(table, (number, 0), of_live)
        np.add.at(table, (number, 1), of_cached)
        np.add.at(table, (number, parts[span]), held - of_live - of_cached)
        np.add.at(table, (number, 4), stops - begins - held)
        yield MapRegion(name, low, high, np.round(table).astype(np.int64).tolist())


# The page that a map of the heap is put into, and the script that draws it.


HTML_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
body{font:14px sans-serif;margin:16px;color:#222;background:#fff}
h1{font-size:17px}td{padding:1px 10px 1px 0}td:last-child{text-align:right}
i{display:inline-block;width:12px;height:12px}
#box{overflow:auto;border:1px solid #bbb;max-height:75vh}
#tip{min-height:1.4em;margin:6px 0;font-family:monospace}
canvas{display:block}
</style></head><body>
<h1>@TITLE@</h1>
<table>@ROWS@</table>
<p><button id="out">smaller</button> <button id="in">larger</button> (or Ctrl and the wheel)</p>
<div id="tip"></div><div id="box"><canvas id="map"></canvas></div>
<script type="application/json" id="data">@DATA@</script>
<script>@SCRIPT@</script>
</body></html>
"""

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const [box, canvas, tip] = ["box", "map", "tip"].map(name => document.getElementById(name));
const parts = data.parts.length, gap = 20;
let side = 8, columns = 1, places = [];
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (unit ? bytes.toFixed(1) : bytes) + " " + units[unit];
}
// A cell is a stack of its parts.
function fill(pen, cells, at, x, y, drawn) {
  let whole = 0, below = 0;
  for (let part = 0; part < parts; part++) whole += cells[at + part];
  for (let part = 0; part < parts; part++) {
    if (!cells[at + part]) continue;
    const bottom = drawn * below / whole;
    below += cells[at + part];
    pen.fillStyle = data.colors[part];
    pen.fillRect(x, y + drawn - drawn * below / whole, drawn, drawn * below / whole - bottom);
  }
}
function draw() {
  columns = Math.max(16, Math.floor((box.clientWidth - 20) / 8));
  let top = 0;
  places = data.regions.map(region => {
    const place = {top: top + gap, region: region, count: region.cells.length / parts};
    top += gap + side * Math.ceil(place.count / columns) + 6;
    return place;
  });
  // A canvas has its limits.
  if ((top > 30000 || side * columns > 30000) && side > 1) {
    side = Math.max(1, Math.floor(side / 1.5));
    draw();
    return;
  }
  canvas.width = side * columns;
  canvas.height = top;
  const pen = canvas.getContext("2d");
  pen.font = "12px sans-serif";
  const drawn = side > 4 ? side - 1 : side;
  for (const place of places) {
    pen.fillStyle = "#222";
    pen.fillText(place.region.name, 0, place.top - 6);
    for (let n = 0; n < place.count; n++) {
      const x = side * (n % columns), y = place.top + side * Math.floor(n / columns);
      fill(pen, place.region.cells, n * parts, x, y, drawn);
    }
  }
}
function zoom(factor) {
  const x = box.scrollLeft / canvas.width, y = box.scrollTop / canvas.height;
  side = Math.min(48, Math.max(1, Math.round(side * factor) || 1));
  draw();
  box.scrollLeft = x * canvas.width;
  box.scrollTop = y * canvas.height;
}
function cellAt(event) {
  const place = places.filter(one => event.offsetY >= one.top).pop();
  if (!place) return "";
  const n = Math.floor((event.offsetY - place.top) / side) * columns + Math.floor(event.offsetX / side);
  if (n >= place.count) return "";
  const cell = place.region.cells.slice(n * parts, (n + 1) * parts);
  const start = BigInt("0x" + place.region.start) + BigInt(n) * BigInt(data.cell);
  const shown = cell.map((bytes, part) => bytes ? size(bytes) + " " + data.parts[part] : "").filter(text => text);
  return "0x" + start.toString(16) + "  " + shown.join("; ");
}
canvas.addEventListener("mousemove", event => { tip.textContent = cellAt(event); });
box.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5);
}, {passive: false});
document.getElementById("in").addEventListener("click", () => zoom(1.5));
document.getElementById("out").addEventListener("click", () => zoom(1 / 1.5));
window.addEventListener("resize", draw);
draw();
"""


# The map of a heap as a picture: SVG, or one self-contained HTML file that can be zoomed.


_COLORS = {
    "live": (0x2F, 0x6F, 0xB7),
    "cached": (0x8E, 0x6B, 0xBF),
    "pinned": (0xE0, 0x7B, 0x39),
    "releasable": (0x4C, 0xA6, 0x5B),
    "absent": (0xE6, 0xE6, 0xE6),
}
_MEANING = {
    "live": "live blocks",
    "cached": "free, in caches",
    "pinned": "free, on pages that live blocks share",
    "releasable": "free: malloc_trim(0), or a purge, would return it",
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
        HTML_PAGE.replace("@TITLE@", escape(_title(heap, title)))
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
        heap = _coarsened(heap)
    return heap


def _coarsened(heap: HeapMap) -> HeapMap:
    """Return *heap* with cells of twice the size."""
    regions = [region._replace(cells=list(_pairs(region.cells))) for region in heap.regions]
    return HeapMap(2 * heap.cell_bytes, regions)


def _pairs(cells: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    for number in range(0, len(cells), 2):
        yield [sum(sizes) for sizes in zip(*cells[number : number + 2])]
