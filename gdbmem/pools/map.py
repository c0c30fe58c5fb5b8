"""A pool as a picture (SVG): regions as rows of chunks, and a refused request drawn to scale against the holes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Optional

from gdbmem.model.bfc import FREE, IN_USE, PENDING, Allocator, Decision, Region
from gdbmem.pools.explanation import headline, pool_name
from gdbmem.terminal.charting import Attribute, Swatch, box, drawing, key_in_rows, text
from gdbmem.text import format_size, plural, printable

_WIDTH, _ROW, _GAP = 1000, 22, 22
_MOST_REGIONS = 200  # of an allocator, the largest ones
_FINEST = 0.5  # pixels: smaller chunks are drawn together
_COLORS = {IN_USE: "#2f6fb7", FREE: "#4ca65b", PENDING: "#e0a13a"}
_NAMES = {IN_USE: "in use", FREE: "free", PENDING: "freed, not yet usable"}
_MIXED, _IN_THE_WAY, _REQUEST = "#7f9aa0", "#c0392b", "#8e44ad"
_LONGEST_TITLE = 160


def render_pools(allocators: Sequence[Allocator], decisions: Sequence[Optional[Decision]], kind: str) -> str:
    """Return the picture of *allocators*: as SVG, or as a page with it if *kind* is "html"."""
    drawn = _draw(allocators, decisions)
    if kind == "svg":
        return drawn
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Pools of memory</title>'
        "<style>body{margin:1em;background:#fff}svg{width:100%;height:auto}</style></head>"
        f"<body>{drawn}</body></html>\n"
    )


def _draw(allocators: Sequence[Allocator], decisions: Sequence[Optional[Decision]]) -> str:
    names = [
        *((_NAMES[state], _COLORS[state]) for state in (IN_USE, FREE, PENDING)),
        ("several small chunks", _MIXED),
        ("in the way of the request", _IN_THE_WAY),
        ("the request", _REQUEST),
    ]
    parts, _ = key_in_rows(names, (0, 8), _WIDTH, Swatch(10, 10, 15, 10))
    top = 34
    for allocator, decision in zip_longest(allocators, decisions):
        top = _allocator(allocator, decision, parts, top)
    return drawing((_WIDTH + 20, top + 10), parts, left=-10, fill="#222") + "\n"


def _allocator(allocator: Allocator, decision: Optional[Decision], parts: list[str], top: int) -> int:
    for number, line in enumerate(_broken(f"{pool_name(allocator)}: {headline(allocator, decision)}")):
        parts.append(text(0, top + 14 + 16 * number, line, font_weight=None if number else "bold"))
        last = top + 14 + 16 * number
    top = last + 14
    regions = sorted(allocator.regions, key=lambda region: -region.size_bytes)[:_MOST_REGIONS]
    largest = max([region.size_bytes for region in regions], default=0)
    if decision is not None:
        largest = max(largest, decision.rounded_bytes)
    if not largest:
        return top + 10
    scale = _WIDTH / largest
    if decision is not None:
        width = max(1.0, decision.rounded_bytes * scale)
        label = f"the request of {format_size(decision.request_bytes)}"
        asked = decision.request_bytes
        parts.append(_rect(0, top, width, _REQUEST, label, asked))
        parts.append(text(4, top + 15, label, fill="#fff", data_value=asked))
        top += _ROW + 8
    in_the_way = frozenset(decision.obstacle.in_use if decision is not None and decision.obstacle else ())
    for region in sorted(regions, key=lambda region: region.address):
        parts.append(text(0, top + 12, _caption(region), font_size=11, data_value=region.size_bytes))
        top += 16
        parts.extend(_chunks(allocator, region, scale, top, in_the_way))
        top += _GAP + 6
    left_out = len(allocator.regions) - len(regions)
    if left_out:
        parts.append(text(0, top + 12, f"and {plural(left_out, 'smaller region')}"))
        top += 18
    return top + 14


def _caption(region: Region) -> str:
    label = f", {printable(region.label)}" if region.label else ""
    return f"0x{region.address:x}, {format_size(region.size_bytes)}{label}"


def _chunks(
    allocator: Allocator, region: Region, scale: float, top: int, in_the_way: frozenset[int]
) -> Iterator[str]:
    """Yield the rectangles of *region*; adjacent ones that are too small to see are joined."""
    chunks = allocator.chunks
    if not region.count:
        width = region.size_bytes * scale
        yield _rect(0, top, width, "#dddddd", "its chunks are not known", region.size_bytes)
        return
    held: list[int] = []
    begin = at = 0.0
    for index in region.indices:
        width = chunks.size[index] * scale
        if held and (width >= _FINEST or at - begin >= _FINEST or index in in_the_way):
            yield _several(allocator, held, begin, at, top)
            held, begin = [], at
        at += width
        if width >= _FINEST or index in in_the_way:
            color = _IN_THE_WAY if index in in_the_way else _COLORS[chunks.state[index]]
            width = max(width, _FINEST)
            yield _rect(begin, top, width, color, _title(allocator, index), chunks.size[index])
            begin = at
        else:
            held.append(index)
    if held:
        yield _several(allocator, held, begin, at, top)


def _several(allocator: Allocator, held: Sequence[int], begin: float, end: float, top: int) -> str:
    states = {allocator.chunks.state[index] for index in held}
    color = _COLORS[states.pop()] if len(states) == 1 else _MIXED
    size = sum(allocator.chunks.size[index] for index in held)
    title = f"{plural(len(held), 'chunk')}, {format_size(size)}"
    return _rect(begin, top, max(end - begin, _FINEST), color, title, size)


def _title(allocator: Allocator, index: int) -> str:
    chunks = allocator.chunks
    asked = chunks.requested_of(index)
    parts = [f"0x{chunks.address[index]:x}", format_size(chunks.size[index]), _NAMES[chunks.state[index]]]
    parts += [f"{format_size(asked)} asked for"] if asked is not None else []
    parts += [printable(chunks.owner_of(index))[:_LONGEST_TITLE]] if chunks.owner_of(index) else []
    return ", ".join(parts)


def _rect(x: float, y: float, width: float, color: str, tip: str, value: int) -> str:
    edge: dict[str, Attribute] = {"stroke": "#fff", "stroke_width": 0.5} if width > 3 else {}
    return box(x, y, width, _ROW, color, tip=tip, data_value=value, **edge)


def _broken(words: str) -> Sequence[str]:
    import textwrap  # not always needed

    return textwrap.wrap(words, 150) or [""]
